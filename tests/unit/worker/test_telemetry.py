"""What a worker tells of itself while it works."""

from edlz.services.worker.telemetry import Meter


def test_a_worker_waits_when_nothing_that_it_has_begun_is_left() -> None:
    """Two evaluation tasks may be under way at once: one is computed, the other one waits for the thread."""
    meter = Meter()
    meter.begin("evaluating", None)
    meter.begin("evaluating", None)
    meter.end(None)
    assert meter.telemetry().state == "evaluating"
    meter.end(None)
    assert meter.telemetry().state == "waiting"


def test_a_member_tells_what_went_to_sums_and_sending_apart_from_waiting() -> None:
    """All of it passes while its thread has nothing to compute."""
    meter, moved = Meter(), [1000, 500]
    meter.traffic = lambda: (moved[0], moved[1])
    meter.begin("training", 1)
    meter.end(None)
    meter.note_sum(100.0)
    meter.note_send(50.0)
    meter.begin("training", 1)
    first = meter.telemetry()
    assert (first.sum_s, first.push_s, first.wait_s) == (100.0, 50.0, 0.0)
    assert (first.bytes_in, first.bytes_out) == (1000, 500)
    meter.reset(first)
    moved[0] += 7
    second = meter.telemetry()
    assert (second.sum_s, second.push_s, second.bytes_in, second.bytes_out) == (0.0, 0.0, 7, 0)
