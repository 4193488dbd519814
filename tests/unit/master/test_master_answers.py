"""What the master's core says to a worker, and what it leaves out since the worker has it."""

from edlz.services.master.core.vocabulary.instructions import Announce, TakeDigest
from edlz.services.protocol.messages import (
    NO_IDENTITY,
)
from edlz.services.worker.core.inputs import Ordered, Tick
from edlz.services.worker.core.worker import WorkerCore
from tests.unit.master.asked_master import AskedMaster


def test_the_list_of_partitions_is_sent_until_the_worker_has_it() -> None:
    master = AskedMaster()
    first, _ = master.worker("a")
    assert [address.endpoint for address in first.partitions] == ["ipc://ps-0", "ipc://ps-1"]
    assert master.worker("a")[0].partitions == first.partitions
    answer, _ = master.worker("a", address_list=first.address_list)
    assert (answer.partitions, answer.address_list) == ((), first.address_list)


def test_a_change_of_a_partition_makes_another_list() -> None:
    master = AskedMaster()
    known = master.worker("a")[0].address_list
    one = master.say(master.partitions[1], has_base=False)
    moved, _ = master.worker("a", address_list=known)
    assert [address.has_base for address in moved.partitions] == [True, False]
    master.say(one, endpoint="ipc://elsewhere")
    moved, _ = master.worker("a", address_list=moved.address_list)
    assert moved.partitions[1].endpoint == "ipc://elsewhere"
    again = master.partition(1)
    moved, _ = master.worker("a", address_list=moved.address_list)
    assert moved.partitions[1].incarnation == again.incarnation
    master.say(again, version=3)
    assert master.worker("a", address_list=moved.address_list)[0].partitions == ()


def test_a_worker_says_which_list_it_has_learnt_from() -> None:
    master = AskedMaster()
    runner = WorkerCore("a", 7)
    [asked] = runner.feed(Tick(), 0.0)
    [asked] = runner.feed(Ordered(master.ask(asked.body)[0]), 0.0)[-1:]
    assert asked.body.address_list == NO_IDENTITY
    orders, _ = master.ask(asked.body)
    runner.feed(Ordered(orders), 0.0)
    [asked] = runner.feed(Tick(), 2.0)
    assert asked.body.address_list == orders.address_list != NO_IDENTITY
    assert master.ask(asked.body)[0].partitions == ()


def test_the_report_of_the_last_task_ends_the_job_at_once() -> None:
    master = AskedMaster(tasks=2)
    for status in master.partitions:
        master.say(status, is_sealed=True, minibatches=4)
    assert not any(isinstance(i, TakeDigest) for i in master.worker("a", done=master.done(0))[1])
    assert any(isinstance(i, TakeDigest) for i in master.worker("a", done=master.done(1))[1])


def test_a_job_that_has_trained_on_nothing_fails() -> None:
    master = AskedMaster(tasks=2)
    for status in master.partitions:
        master.say(status, is_sealed=True)
    answer, instructions = master.worker("a", done=master.done(0, 1))
    assert answer.stop
    text = "feed() left out every record of the data: no minibatch was trained on"
    assert Announce("failed", text, 40) in instructions
    assert master.core.verdict.failure is not None
    assert master.core.verdict.failure.data == "2 records, 2 tasks, 0 of them skipped"


def test_the_last_tasks_are_kept_for_those_who_have_asked() -> None:
    master = AskedMaster(tasks=3)
    assert master.worker("a", wants_task=True)[0].lease is not None
    master.worker("b")  # it builds its model still
    reserve = master.worker("a", wants_task=True, holding=(0,))[0].lease
    assert reserve is not None
    assert reserve.task == 1
    assert master.worker("b", wants_task=True)[0].lease is not None
    master.core.processes.lose("b", "killed")
    master.core.check_invariants()
    assert master.worker("a", wants_task=True, holding=(0,))[0].lease is not None


def test_a_worker_that_never_joined_is_told_of_as_lost_too() -> None:
    """Its launcher knows why: it did not find its master, for one."""
    master = AskedMaster(tasks=3)
    (told,) = master.core.processes.lose("c", "no way to the master", is_death=True)
    assert told == Announce("worker", "worker-c lost: no way to the master.")
    master.worker("a", wants_task=True)
    assert len(master.core.processes.lose("a", "killed")) == 1
    assert master.core.processes.lose("a", "killed") == [], "once is enough"


def test_what_the_last_worker_held_waits_for_the_next_one() -> None:
    master = AskedMaster(tasks=3)
    for name in ("a", "b"):
        assert master.worker(name, wants_task=True)[0].lease is not None
    kept = "no minibatch is lost, none counts twice."
    (told,) = master.core.processes.lose("a", "killed")
    assert told == Announce("worker", f"worker-a lost: killed. Task 0 goes to another worker: {kept}")
    (told,) = master.core.processes.lose("b", "killed")
    assert told == Announce("worker", f"worker-b lost: killed. Task 1 waits for the next worker: {kept}")


def test_several_tasks_of_a_lost_worker_are_told_as_several() -> None:
    master = AskedMaster(tasks=4)
    kept = "no minibatch is lost, none counts twice."
    for others in ("go to other workers", "wait for the next worker"):
        held: tuple[int, ...] = ()
        for _ in range(2):
            orders, _ = master.worker("b", wants_task=True, holding=held)
            assert orders.lease is not None
            held = (*held, orders.lease.task)
        if others.startswith("go"):
            master.worker("a", wants_task=True)
        (told,) = master.core.processes.lose("b", "killed")
        assert told == Announce(
            "worker", f"worker-b lost: killed. Tasks {held[0]}, {held[1]} {others}: {kept}"
        )
        master.core.processes.lose("a", "killed")
        del master.lives["b"]


def test_a_spare_has_no_share_of_a_round() -> None:
    master = AskedMaster("sync", tasks=4, slots=2)
    master.core.processes.live.supervise(1)
    for name in ("a", "b"):
        master.worker(name)
    assert master.worker("b", wants_task=True)[0].lease is None
    assert master.worker("a", wants_task=True)[0].lease is not None
    assert master.worker("a", wants_task=True, holding=(0,))[0].lease is not None
    master.core.processes.live.supervise(2)
    assert (
        master.worker("a", wants_task=True, holding=(0, 1))[0].lease is not None
    )  # one slot of the next round
    assert master.worker("a", wants_task=True, holding=(0, 1, 2))[0].lease is None  # the other one is b's
    assert master.worker("b", wants_task=True)[0].lease is not None


def test_the_journal_forgets_the_incarnations_of_workers_that_are_gone() -> None:
    master = AskedMaster()
    master.worker("a")
    master.core.processes.lose("a", "killed")
    master.worker("b")
    assert list(master.journalled["incarnations"]) == ["ps-0", "ps-1", "worker-b"]
