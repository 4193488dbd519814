"""The supervisor's decisions: what is told, what is started and stopped, and when it gives up."""

from hypothesis import given
from hypothesis import strategies as st

from edlz.services.protocol.messages import ProcessExit, SupervisorOrders
from edlz.services.supervision.launcher import Facts, split_name
from edlz.services.supervision.reconciler import Action, Reconciler


def orders(*desired: str, stop: bool = False) -> SupervisorOrders:
    return SupervisorOrders(term=1, desired=desired, stop=stop)


def crash(name: str) -> ProcessExit:
    return ProcessExit(name=name, code=1, reason="exit code 1")


def test_what_should_run_is_started_and_what_should_not_is_stopped() -> None:
    core = Reconciler()
    core.next_status(["ps-0", "worker-9"])
    action = core.on_orders(orders("ps-0", "worker-0"), ["ps-0", "worker-9"])
    assert action == Action(("worker-0",), ("worker-9",))


def test_the_end_stops_everything_whatever_is_desired() -> None:
    core = Reconciler()
    core.next_status(["ps-0"])
    assert core.on_orders(orders("ps-0", "worker-0", stop=True), ["ps-0"]) == Action((), ("ps-0",))


def test_a_status_without_an_answer_is_sent_again_as_it_was() -> None:
    core = Reconciler()
    core.on_exits([crash("worker-0")])
    first = core.next_status(["worker-1"])
    core.on_exits([crash("worker-1")])
    assert core.next_status([]) == first
    core.on_orders(orders(), [])
    second = core.next_status([])
    assert (second.seq, [gone.name for gone in second.exits]) == (first.seq + 1, ["worker-1"])


def test_a_name_whose_exit_the_master_does_not_know_is_not_started_by_an_older_answer() -> None:
    core = Reconciler()
    core.next_status(["worker-0"])
    core.on_exits([crash("worker-0")])
    assert core.on_orders(orders("worker-0"), []).launch == ()
    core.next_status([])
    assert core.on_orders(orders("worker-0"), []).launch == ("worker-0",)


def test_a_name_that_ran_when_the_master_was_told_is_not_started_by_its_answer() -> None:
    """It was stopped, of which no exit tells; the master of a job that is over wants whatever it is told to run."""
    core = Reconciler()
    core.next_status(["worker-0"])
    assert core.on_orders(orders("worker-0"), []).launch == ()
    core.next_status([])
    assert core.on_orders(orders("worker-0"), []).launch == ("worker-0",)


def test_a_master_that_another_one_has_replaced_is_told_nothing_and_obeyed_in_nothing() -> None:
    """It woke up and knows nothing of what has ended since: worker-0 would be started a second time."""
    core = Reconciler()
    core.next_status([])
    newer, older = (SupervisorOrders(term=term, desired=("worker-0",)) for term in (2, 1))
    assert not core.are_outdated(newer)
    core.on_orders(newer, [])
    assert not core.are_outdated(newer)
    core.on_exits([crash("worker-0")])
    told = core.next_status([])
    assert core.are_outdated(older)
    assert core.next_status([]) == told, "its exit is still to be told"


def test_what_hangs_is_aborted_and_only_if_it_should_not_run() -> None:
    core = Reconciler()
    core.next_status(["worker-0", "worker-1", "worker-2"])
    told = SupervisorOrders(term=1, desired=("worker-2",), hung=("worker-1", "worker-2", "worker-7"))
    action = core.on_orders(told, ["worker-0", "worker-1", "worker-2"])
    assert action == Action(stop=("worker-0",), abort=("worker-1",))


def test_a_repeated_status_carries_the_room_of_now() -> None:
    core = Reconciler()
    core.on_exits([crash("worker-0")])
    first = core.next_status([], Facts(room=2))
    again = core.next_status([], Facts(room=1))
    assert (first.room, again.room) == (2, 1)
    assert (again.seq, again.exits) == (first.seq, first.exits)
    core.on_orders(orders(), [])
    assert core.next_status([]).room is None


def test_no_worker_starts_beyond_the_room_whatever_is_desired() -> None:
    core = Reconciler()
    core.next_status(["worker-0"], Facts(room=2))
    desired = orders("ps-0", "worker-1", "worker-2", "ps-1")
    action = core.on_orders(desired, ["worker-0"])  # worker-0 has to go, but has not gone yet
    assert action == Action(("ps-0", "worker-1", "ps-1"), ("worker-0",))
    core.next_status(["worker-0", "worker-1"], Facts(room=1))
    assert core.on_orders(desired, ["worker-0", "worker-1"]).launch == ("ps-0", "ps-1")
    core.next_status(["ps-0"], Facts(room=None))
    assert core.on_orders(desired, ["ps-0"]).launch == ("worker-1", "worker-2", "ps-1")


@given(st.lists(st.sampled_from(["lost answer", "answer", "crash"]), max_size=60))
def test_every_exit_reaches_the_master_in_exactly_one_answered_status(events: list[str]) -> None:
    core = Reconciler()
    ended: list[str] = []
    told: list[str] = []
    for event in events:
        status = core.next_status([])
        if event == "crash":
            ended.append(f"worker-{len(ended)}")
            core.on_exits([crash(ended[-1])])
        elif event == "answer":
            told += [gone.name for gone in status.exits]
            core.on_orders(orders(), [])
    for _ in range(2):
        told += [gone.name for gone in core.next_status([]).exits]
        core.on_orders(orders(), [])
    assert told == ended


def test_names() -> None:
    assert split_name("worker-12") == ("worker", 12)
    assert split_name("master") == ("master", 0)
