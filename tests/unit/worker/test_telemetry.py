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
