"""A job as a line of text now and then, and as an object for scripts."""

import json

from edlz.client.screen.json_objects import status_object
from edlz.client.screen.wording import due_again_s, progress_line
from edlz.services.protocol.job_status import (
    EventView,
)
from tests.shown_jobs import STATUS, changed


def test_the_progress_line() -> None:
    assert progress_line(STATUS, 2) == (
        "progress=0.59 epoch=2/2 version=354 loss=0.083 records_per_s=4260 workers=2/2 eta_s=12"
    )
    bare = changed(loss=None, eta_s=None, records_per_s=0.0, stalled_s=11.7)
    assert progress_line(bare, 3) == "progress=0.59 epoch=2/2 version=354 workers=2/3 stalled_s=12"
    waits = changed(is_endless=True, waits_for_data_s=61.2, eta_s=None, loss=None, records_per_s=0.0)
    assert progress_line(waits, 2) == "records=70800 epoch=2 version=354 workers=2/2 waits_for_data_s=61"


def test_progress_lines_become_rare() -> None:
    assert (due_again_s(0), due_again_s(59), due_again_s(61)) == (10, 10, 60)


def test_the_json_object_has_the_fields_that_scripts_read() -> None:
    found = status_object(changed(events=(EventView(seq=811, at=1.0, kind="ps", text="x"),)))
    assert list(found) == [
        "api",
        "seq",
        "job",
        "progress",
        "loss",
        "evaluations",
        "tasks",
        "workers",
        "ps",
        "group",
        "tables",
        "checkpoint",
        "events",
        "nonfinite_losses",
        "exported",
        "predictions",
        "page",
    ]
    assert (found["api"], found["seq"]) == (1, 811)
    assert found["job"] == {
        "name": "mnist",
        "state": "Training",
        "reason": None,
        "where": "local",
        "strategy": "ParameterServerStrategy",
        "mode": "sync",
        "started_at": 100.0,
        "digest": None,
        "worker_threads": None,
    }
    assert found["tasks"] == {"todo": 162, "leased": 2, "done": 236, "skipped": 0, "failed_attempts": 0}
    assert found["workers"][0]["step_s"] == {
        "read": 0.001,
        "pull": 0.002,
        "compute": 0.04,
        "push": 0.002,
        "wait": 0.002,
    }
    json.dumps(found)


def test_of_a_job_without_an_end_nobody_knows_the_share_that_is_done() -> None:
    progress = status_object(changed(is_endless=True))["progress"]
    assert (progress["ratio"], progress["records"], progress["is_endless"]) == (None, 70_800, True)
