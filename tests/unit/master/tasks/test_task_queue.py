"""Which worker gets which task."""

import random

import msgspec
import pytest

from edlz.services.master.core.tasks.task_queue import LEASE_FLOOR_S, Holder, TaskQueue
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import FailedTask, Identity, WorkerStatus
from edlz.services.protocol.plan import Shard
from tests import builders
from tests.unit.master.tasks.plain_task_queue import PlainTaskQueue

A, B = (1, 1), (1, 2)


def make_queue(mode: str = "async", tasks: int = 6, slots: int = 2) -> TaskQueue:
    shard = Shard(name="s", first=0, count=tasks)
    return TaskQueue(builders.plan(mode=mode, shards=(shard,), slots=slots))


def status(worker: str, incarnation: Identity, holding: tuple[int, ...] = ()) -> WorkerStatus:
    return WorkerStatus(
        worker=worker, boot=1, incarnation=incarnation, seq=1, era=(0, 0), holding=holding, wants_task=True
    )


def failed(task: int, attempt: int) -> FailedTask:
    return FailedTask(kind="training", task=task, index=0, error="E", where="", traceback="", attempt=attempt)


def test_a_lost_workers_task_comes_first() -> None:
    queue = make_queue()
    assert [queue.next_task(status("a", A), {}, 0.0) for _ in range(2)] == [0, 1]
    assert queue.next_task(status("b", B), {}, 0.0) == 2
    queue.release(A)
    assert [queue.next_task(status("b", B, (2,)), {}, 1.0) for _ in range(2)] == [0, 1]


def test_a_lease_ends_by_time_unless_its_holder_gets_on() -> None:
    queue = make_queue(tasks=1)
    assert queue.next_task(status("a", A), {}, 0.0) == 0
    assert queue.next_task(status("b", B), {}, LEASE_FLOOR_S - 1) is None
    queue.reconcile(status("a", A, (0,)), has_progress=True, now=LEASE_FLOOR_S - 1)
    assert queue.next_task(status("b", B), {}, LEASE_FLOOR_S + 1) is None
    assert queue.next_task(status("b", B), {}, 2 * LEASE_FLOOR_S) == 0


def test_what_a_worker_does_not_hold_is_free() -> None:
    queue = make_queue()
    assert queue.next_task(status("a", A), {}, 0.0) == 0
    queue.reconcile(status("a", A), has_progress=False, now=1.0)
    assert queue.next_task(status("b", B), {}, 1.0) == 0


def test_a_restarted_masters_queue_adopts_what_workers_hold() -> None:
    queue = make_queue()
    queue.reconcile(status("a", A, (3,)), has_progress=False, now=0.0)
    assert queue.holder(3) == A


def test_the_last_tasks_are_not_kept_in_reserve() -> None:
    queue = make_queue(tasks=3)
    workers = {"a": Holder(A, (0,)), "b": Holder(B)}
    assert queue.next_task(status("a", A), {}, 0.0) == 0
    assert queue.next_task(status("a", A, (0,)), workers, 0.0) is None
    assert queue.next_task(status("b", B), workers, 0.0) == 1


def test_sync_takes_this_round_and_the_next_only() -> None:
    queue = make_queue("sync")
    taken: list[int] = []
    while (
        task := queue.next_task(status("a", A, tuple(taken)), {"a": Holder(A, tuple(taken))}, 0.0)
    ) is not None:
        taken.append(task)
    assert taken == [0, 1, 2, 3]


def test_sync_leaves_a_slot_to_the_other_worker() -> None:
    queue = make_queue("sync")
    workers = {"a": Holder(A), "b": Holder(B)}
    assert queue.next_task(status("a", A), workers, 0.0) == 0
    workers["a"] = Holder(A, (0,))
    assert queue.next_task(status("a", A, (0,)), workers, 0.0) is None  # slot 1 is the other's to take first
    assert queue.next_task(status("b", B), workers, 0.0) == 1
    workers["b"] = Holder(B, (1,))
    assert (
        queue.next_task(status("a", A, (0,)), workers, 0.0) == 2
    )  # and slot 0 of the next round stays its own
    assert queue.next_task(status("b", B, (1,)), workers, 0.0) == 3


def test_what_a_restored_ledger_lacks_is_done_again() -> None:
    queue = make_queue()
    for task in range(3):
        queue.next_task(status("a", A), {}, 0.0)
        queue.finish(task, 1.0)
    queue.keep(TaskSet((0, 1)))
    assert set(queue.done) == {0}
    assert queue.next_task(status("a", A), {}, 2.0) == 1


def test_a_closed_task_is_not_leased_and_its_attempts_start_anew() -> None:
    queue = make_queue("sync", tasks=2)
    for attempt in range(3):
        queue.fail("0", 1, failed(0, attempt))
    queue.close(0)
    assert queue.next_task(status("a", A), {}, 0.0) == 1
    assert queue.next_task(status("b", B), {}, 0.0) is None
    queue.reopen(0)
    assert queue.next_task(status("b", B), {}, 0.0) == 0
    assert queue.fail("0", 1, failed(0, 3)) is None


def test_the_third_failure_is_the_last_and_repeats_do_not_count() -> None:
    queue = make_queue()
    assert queue.fail("0", 1, failed(2, 1)) is None
    assert queue.fail("0", 1, failed(2, 1)) is None
    assert queue.fail("1", 2, failed(2, 1)) is None
    attempts = queue.fail("0", 1, failed(2, 9))
    assert attempts is not None
    assert [worker for worker, _ in attempts] == ["0", "1", "0"]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", range(60))
def test_it_decides_as_a_search_through_all_tasks_would(mode: str, seed: int) -> None:
    """Workers ask, get on, finish, leave and come back; a partition forgets; the master begins again."""
    rng = random.Random(seed)
    tasks, slots = rng.randint(1, 24), rng.randint(1, 6)
    queue = make_queue(mode, tasks, slots)
    plain, now = PlainTaskQueue(queue.plan), 0.0
    names = [str(number) for number in range(rng.randint(1, 6))]
    lives = {name: (1, number) for number, name in enumerate(names)}
    holding: dict[str, list[int]] = {name: [] for name in names}
    asking: dict[str, Holder] = {}
    leased = 0
    for _ in range(400):
        now += rng.choice((0.0, 0.1, 1.0, rng.choice((1.0, LEASE_FLOOR_S))))
        name, event = rng.choice(names), rng.random()
        held = holding[name]
        if event < 0.02:
            finished = TaskSet((0, rng.randint(1, tasks)))
            queue.keep(finished)
            plain.keep(set(finished))
        elif event < 0.03:
            done = queue.done.intersection(TaskSet((0, rng.randint(1, tasks))))
            plain.restart(set(done))
            queue.restart(done)
        elif event < 0.08:
            queue.release(lives[name])
            plain.release(lives[name])
            lives[name], holding[name] = (lives[name][0] + 1, lives[name][1]), []
            asking.pop(name, None)
        elif event < 0.35 and held:
            task = held.pop(rng.randrange(len(held)))
            if rng.random() < 0.9:  # else it lets go of the task
                queue.finish(task, queue._leases._by_task[task].given_s if queue.holder(task) else now)
                plain.finish(task)
        else:
            told = status(name, lives[name], tuple(held))
            has_progress = rng.random() < 0.3
            queue.reconcile(told, has_progress=has_progress, now=now)
            plain.reconcile(told, now, has_progress=has_progress)
            only = frozenset(rng.sample(range(tasks), rng.randint(0, tasks))) if rng.random() < 0.05 else None
            task = queue.next_task(told, asking, now, only)
            assert task == plain.next_task(told, asking, now, only)
            if task is not None:
                leased += 1
                held.append(task)
            asking[name] = Holder(lives[name], tuple(held))
        queue.check_invariants()
        assert set(queue.done) == plain.done
        assert {task: queue.holder(task) for task in queue._leases} == {
            task: holder for task, (holder, _) in plain.leases.items()
        }
    assert leased


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_nothing_behind_the_fence_is_leased(mode: str) -> None:
    queue = make_queue(mode)
    queue.fence = 3  # in the middle of a round
    workers = {name: Holder((1, place)) for place, name in enumerate("abcd")}
    leased = [queue.next_task(status(name, (1, place)), workers, 0.0) for place, name in enumerate("abcd")]
    assert sorted(task for task in leased if task is not None) == [0, 1, 2]
    for task in range(3):
        queue.finish(task, 1.0)
    assert queue.next_task(status("a", A), workers, 1.0) is None
    queue.task_count = queue.fence
    assert queue.is_done


def test_one_round_behind_the_fence_is_leased_to_who_computes_ahead() -> None:
    queue = make_queue("sync")
    queue.fence = 2
    ready = msgspec.structs.replace(status("a", A), computes_ahead=True)
    leased = []
    while (task := queue.next_task(ready, {}, 0.0)) is not None:
        leased.append(task)
    assert (leased, [queue.is_barred(task) for task in leased]) == ([0, 1, 2, 3], [False, False, True, True])
    for task in range(2):
        queue.finish(task, 1.0)
    holding = msgspec.structs.replace(ready, holding=(2, 3))
    late = 10 * queue.lease_timeout_s
    assert queue.next_task(holding, {}, late) is None, "nothing of the round behind that"
    other = msgspec.structs.replace(ready, worker="b", incarnation=(1, 2))
    assert queue.next_task(other, {}, late) is None, "a lease ages from when its barrier is passed"


def test_nobody_is_lost_for_a_suspect_behind_the_fence() -> None:
    queue = make_queue("sync")
    queue.fence = 2
    for task in range(2):
        queue.finish(task, 1.0)
    queue.suspects.add(2)
    ready = msgspec.structs.replace(status("a", A), computes_ahead=True)
    assert queue.next_task(ready, {}, 1.0) is None
    queue.fence = queue.task_count
    assert queue.next_task(ready, {}, 1.0) == 2
