"""A stop waits for its checkpoint, but not for ever."""

from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.stopping import STOP_S, WORDS, Stopping
from edlz.services.master.core.vocabulary.instructions import Announce, Journal
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.core.vocabulary.verdict import Verdict


class Stop(Stopping):
    """A stop whose verdict can be asked for."""

    @property
    def is_over(self) -> bool:
        return self._verdict.is_stopped


def stopping(*, is_sync: bool = True) -> tuple[Stop, Checkpoints]:
    checkpoints = Checkpoints(is_sync=is_sync, steps=0, first_number=1)
    return Stop(checkpoints, Verdict(JournalState())), checkpoints


def test_nothing_happens_until_somebody_asks() -> None:
    stop, _ = stopping()
    assert stop.on_tick(5, (1,), 1e6) == []
    assert (stop.has_begun, stop.is_over) == (False, False)


def test_it_stops_when_the_checkpoint_is_complete_and_journals_that() -> None:
    stop, checkpoints = stopping()
    assert len(stop.begin(5, (1,), 0.0)) == 1
    assert stop.on_tick(5, (9,), 1.0) == []
    assert checkpoints.orders(0, is_sealed=False) is not None
    checkpoints.on_manifest(6, is_written=True)
    journal, announced = stop.on_tick(6, (9,), 2.0)
    assert journal == Journal({"saved": 6})
    assert isinstance(announced, Announce)
    assert announced.text == "stopped; the checkpoint of v6 is complete."
    assert stop.is_over
    assert stop.on_tick(6, (9,), 3.0) == []


def test_it_stops_without_one_that_does_not_come() -> None:
    stop, checkpoints = stopping()
    stop.begin(5, (1,), 0.0)
    assert stop.on_tick(5, (9,), STOP_S - 1) == []
    [announced] = stop.on_tick(5, (9,), STOP_S)
    assert announced == Announce("job", "stopped; the recovery snapshots remain.")
    assert checkpoints.is_idle, "what was asked for is not wanted any more"


def test_where_nobody_could_complete_a_checkpoint_none_is_asked_for() -> None:
    checkpoints = Checkpoints(is_sync=True, steps=0, first_number=1)
    stop = Stop(checkpoints, Verdict(JournalState()), can_checkpoint=False, keeps_snapshots=False)
    assert stop.begin(5, (1,), 0.0) == []
    [announced] = stop.on_tick(5, (1 + WORDS,), 0.1)
    assert announced == Announce("job", "stopped; nothing remains: its processes share no folder.")
    assert checkpoints.is_idle
    assert stop.is_over


def test_where_nothing_is_trained_it_stops_at_once() -> None:
    """An older checkpoint is not what the job has come to: its snapshots are."""
    stop, checkpoints = stopping()
    checkpoints.on_manifest(6, is_written=True)
    assert stop.begin(None, (), 0.0) == []
    assert stop.has_begun
    [announced] = stop.on_tick(9, (1, 1), 0.1)
    assert announced == Announce("job", "stopped; the recovery snapshots remain.")


def test_where_no_step_is_known_of_all_partitions_are_heard_first() -> None:
    stop, _ = stopping()
    assert stop.begin(0, (7, 3), 0.0) == []
    assert stop.on_tick(0, (9, 4), 1.0) == []
    [announced] = stop.on_tick(0, (9, 5), 2.0)
    assert announced == Announce("job", "stopped; nothing was trained yet.")


def test_a_step_that_is_told_after_the_stop_is_saved() -> None:
    stop, checkpoints = stopping()
    stop.begin(0, (7,), 0.0)
    assert stop.on_tick(1, (8,), 1.0) == [Announce("job", "stopping: a checkpoint is saved first.")]
    assert stop.on_tick(3, (9,), 2.0) == []
    checkpoints.on_manifest(3, is_written=True)
    assert stop.on_tick(3, (9,), 2.1)[0] == Journal({"saved": 3})


def test_a_checkpoint_that_is_the_newest_already_is_not_enough_while_training_goes_on() -> None:
    stop, checkpoints = stopping()
    checkpoints.on_manifest(5, is_written=True)
    stop.begin(5, (1,), 0.0)
    assert stop.on_tick(5, (2,), 1.0) == []
    checkpoints.on_manifest(7, is_written=True)
    assert stop.on_tick(7, (3,), 2.0)[0] == Journal({"saved": 7})
