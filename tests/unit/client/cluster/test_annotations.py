"""What annotations of the master pod ask for, and what the master writes there."""

import msgspec

from edlz.k8s.cluster.names import STATUS, STOP, WORKERS
from edlz.k8s.container_end import read_mark, write_mark
from edlz.k8s.pods.commands import Asked, Commands
from edlz.k8s.pods.status_note import (
    BEAT_S,
    EVERY_S,
    MAX_BYTES,
    STATUS_LABEL,
    StatusNote,
    failed_status,
    note_of_status,
    status_text,
)
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import DataError
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import EventView, JobStatus


def status(state: str = "Training", **about: object) -> JobStatus:
    return JobStatus(name="j", state=state, mode="sync", slots=2, started_at=1.0, now=2.0, **about)


def test_a_number_of_workers_is_asked_for_once() -> None:
    commands = Commands()
    assert commands.on_annotations({}) == Asked()
    assert commands.on_annotations({WORKERS: "4"}).workers == 4
    assert commands.on_annotations({WORKERS: "4"}).workers is None
    assert commands.on_annotations({WORKERS: "2"}).workers == 2
    assert commands.on_annotations({}).workers is None
    assert commands.on_annotations({WORKERS: "2"}).workers == 2


def test_what_was_asked_while_nobody_listened_counts() -> None:
    assert Commands().on_annotations({WORKERS: "3", STOP: "save"}) == Asked(3, is_stopping=True)


def test_a_stop_is_asked_for_as_long_as_it_stands_there() -> None:
    commands = Commands()
    assert commands.on_annotations({STOP: "save"}).is_stopping
    assert commands.on_annotations({STOP: "save"}).is_stopping


def test_what_makes_no_sense_is_told_once() -> None:
    commands = Commands()
    for text in ("two", "-1", "", "²"):
        asked = commands.on_annotations({WORKERS: text, STOP: "now"})
        assert asked.workers is None
        assert not asked.is_stopping
        assert f'edlz.io/workers="{text}" is not a number of workers' in asked.complaints
    assert commands.on_annotations({WORKERS: "²", STOP: "now"}).complaints == ()


def test_a_status_is_written_when_it_has_changed_but_not_all_the_time() -> None:
    note = StatusNote()
    first = status()
    assert note.due(first, 10.0) is not None
    assert note.due(first, 10.0) is not None  # as long as nobody has taken it
    note.on_written(first, 10.0)
    later = msgspec.structs.replace(first, now=99.0, checkpoint_age_s=3.0)
    assert note.due(later, 20.0) is None
    changed = msgspec.structs.replace(later, version=5)
    assert note.due(changed, 10.0 + EVERY_S / 2) is None
    assert note.due(changed, 10.0 + EVERY_S) is not None
    assert note.due(later, 10.0 + BEAT_S) is not None, "it lives, and says so"


def test_what_is_written_can_be_read_and_selected_by() -> None:
    written = note_of_status(status(version=7))
    assert named_status.decode(written.annotations[STATUS]) == status(version=7)
    labels = {state: note_of_status(status(state)).labels[STATUS_LABEL] for state in ("Starting", "Training")}
    assert labels == {"Starting": "Pending", "Training": "Running"}
    for state in ("Succeeded", "Failed", "Stopped"):
        assert note_of_status(status(state)).labels == {STATUS_LABEL: "Finished"}


def test_a_long_status_loses_its_oldest_events() -> None:
    events = tuple(EventView(seq=i, at=0.0, kind="job", text="x" * 1000) for i in range(200))
    text = status_text(status(events=events))
    assert len(text) <= MAX_BYTES
    kept = named_status.decode(text).events
    assert kept[-1].seq == 199
    assert len(kept) >= 25


def test_the_end_is_remembered_for_this_very_pod(tmp_path) -> None:
    ended = failed_status(JobConfig(job_name="j"), DataError("training_data is empty", "fill it"))
    assert read_mark(tmp_path, "a") is None
    write_mark(tmp_path, "a", 3, ended)
    assert read_mark(tmp_path, "a") == (3, ended)
    assert read_mark(tmp_path, "b") is None
    assert ended.failure is not None
    assert (ended.failure.text, ended.failure.help) == ("training_data is empty", "fill it")
