"""Members of a group that die while they compute: which task has ended them, and when it is enough."""

from edlz.services.master.core.tasks.deadly_slots import STEPS, DeadlySlots
from edlz.services.master.core.vocabulary.records import WorkerEntry
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import WorkerOrders

KILLED = "killed by signal 9 (SIGKILL)"


class Bench:
    """The deaths of one member after the other."""

    def __init__(self) -> None:
        self.core, self.worker = DeadlySlots(), 0

    def die(
        self, computing: tuple[int, int] | None, version: int = 7, *, is_evaluating: bool = False
    ) -> tuple[int | None, int]:
        """A member dies behind this word; return what it is held against, and how often."""
        self.worker += 1
        last = WorkerEntry(
            incarnation=(1, self.worker),
            seq=1,
            seen_s=0.0,
            answer=WorkerOrders(term=1, seq=1, incarnation=None),
            holding=(1, 2, 3),
            steps=5,
            has_asked=True,
            evaluating=((0, 0),) * is_evaluating,
            computing=computing,
        )
        failed, attempts = self.core.take(str(self.worker), KILLED, last, version)
        return (None if failed is None else failed.task), len(attempts or ())

    def get_on(self, begun_at: int, version: int, marks: dict[int, int] | None = None) -> tuple[int, int]:
        self.core.get_on(begun_at, version, TaskSet(()), marks or {})
        return self.core.caution


def test_who_has_named_nothing_calls_for_caution_and_no_more() -> None:
    bench = Bench()
    assert bench.die(None) == (None, 0)
    assert bench.core.caution == (7, 7 + STEPS)


def test_the_third_of_those_that_died_at_a_minibatch_is_enough() -> None:
    bench = Bench()
    assert [bench.die((3, 0)), bench.die((2, 1)), bench.die((3, 0))] == [(3, 0), (2, 0), (3, 0)]
    assert not bench.core.given_up
    assert bench.die((3, 0)) == (3, 3)
    assert bench.core.given_up == {3}
    assert bench.die((3, 0)) == (3, 0), "it is told once"


def test_a_minibatch_that_is_done_is_forgiven() -> None:
    bench = Bench()
    for _ in range(2):
        bench.die((3, 0))
    bench.get_on(7, 8, {3: 1})
    assert [bench.die((3, 0)), bench.die((3, 0)), bench.die((3, 1))] == [(3, 0)] * 3


def test_who_evaluates_computes_nothing() -> None:
    assert Bench().die((3, 0), is_evaluating=True) == (None, 0)


def test_a_group_that_gets_on_is_careful_for_one_step() -> None:
    bench = Bench()
    bench.die(None)
    assert bench.get_on(8, 8) == (7, 7 + STEPS)
    assert bench.get_on(8, 9) == (0, 0)


def test_a_group_that_has_gone_back_is_careful_for_longer_each_time() -> None:
    bench = Bench()
    bench.die(None)
    assert bench.get_on(2, 6 + STEPS) == (7, 7 + STEPS)
    assert bench.get_on(2, 7 + STEPS) == (0, 0)
    bench.die(None, 300)
    assert bench.core.caution == (300, 300 + 2 * STEPS)
    assert bench.get_on(300, 301) == (0, 0)
    bench.die(None, 400)
    assert bench.core.caution == (400, 400 + STEPS)
