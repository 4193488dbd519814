"""A stop waits for its checkpoint, but not for ever."""

from edlz.services.master.checkpoints import Checkpoints
from edlz.services.master.instructions import Announce, Journal
from edlz.services.master.stopping import STOP_S, Stopping


def stopping() -> tuple[Stopping, Checkpoints]:
    checkpoints = Checkpoints(is_sync=True, steps=0, first_number=1)
    return Stopping(checkpoints), checkpoints


def test_nothing_happens_until_somebody_asks() -> None:
    stop, _ = stopping()
    assert stop.on_tick(1e6) == []
    assert (stop.has_begun, stop.is_over) == (False, False)


def test_it_stops_when_the_checkpoint_is_complete_and_journals_that() -> None:
    stop, checkpoints = stopping()
    assert len(stop.begin(5, 0.0)) == 1
    assert stop.on_tick(1.0) == []
    assert checkpoints.orders(0, is_sealed=False) is not None
    checkpoints.on_manifest(6, is_written=True)
    journal, announced = stop.on_tick(2.0)
    assert journal == Journal({"saved": 6})
    assert isinstance(announced, Announce)
    assert announced.text == "stopped; the checkpoint of v6 is complete."
    assert stop.is_over
    assert stop.on_tick(3.0) == []


def test_it_stops_without_one_that_does_not_come() -> None:
    stop, checkpoints = stopping()
    stop.begin(5, 0.0)
    assert stop.on_tick(STOP_S - 1) == []
    [announced] = stop.on_tick(STOP_S)
    assert announced == Announce("job", "stopped; the recovery snapshots remain.")
    assert checkpoints.is_idle, "what was asked for is not wanted any more"


def test_where_there_is_nothing_to_save_it_stops_at_once() -> None:
    stop, _ = stopping()
    assert stop.begin(0, 0.0) == []
    assert stop.has_begun
    [announced] = stop.on_tick(0.1)
    assert announced == Announce("job", "stopped; the recovery snapshots remain.")
