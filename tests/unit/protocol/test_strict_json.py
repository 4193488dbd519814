"""Numbers that are not finite survive JSON, and what is written is JSON to everybody."""

import json
import logging
import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.client.local.verdict import written_status
from edlz.client.screen.json_objects import json_line
from edlz.k8s.cluster.api_errors import decoded, refusal
from edlz.k8s.cluster.api_records import Status
from edlz.k8s.container_end import read_mark, write_mark
from edlz.k8s.pods.status_note import status_text
from edlz.services import strict_json
from edlz.services.errors import ConfigError, DataError, PeerUnavailable
from edlz.services.export.about import ABOUT, read_about
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.journal.journal import Journal
from edlz.services.predictions.output import CLAIM, MANIFEST, read_manifest, write_part
from edlz.services.process.logs import JsonFormatter
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import EvaluationView, JobStatus
from edlz.services.protocol.messages import OptimizerSpec
from edlz.services.storage import envelope
from edlz.services.storage.blocks import DamagedFile

JSON_OF = {math.inf: '"Infinity"', -math.inf: '"-Infinity"', 0.5: "0.5"}
METRICS = st.dictionaries(st.text(max_size=5), st.floats())


def strictly(data: bytes | str) -> Any:
    """Read JSON as a strict reader does."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(data, parse_constant=refuse)


def same(one: object, other: object) -> bool:
    """Whether two records are equal, NaN and NaN too."""
    return repr(one) == repr(other)


def status(**fields: Any) -> JobStatus:
    return JobStatus(name="job", state="Training", mode="sync", slots=1, started_at=0.0, now=0.0, **fields)


@pytest.mark.parametrize(("number", "text"), JSON_OF.items())
def test_numbers_are_written_as_texts_where_json_has_none(number: float, text: str) -> None:
    assert strict_json.encode(number).decode() == text
    assert strict_json.decode(text, float) == number


def test_nan_is_read_as_nan() -> None:
    assert strict_json.encode(math.nan) == b'"NaN"'
    assert math.isnan(strict_json.decode(b'"NaN"', float))


@given(metrics=METRICS, loss=st.none() | st.floats())
def test_a_status_survives(metrics: dict[str, float], loss: float | None) -> None:
    told = status(loss=loss, evaluations=(EvaluationView(version=3, metrics=metrics),))
    text = strict_json.encode(told)
    strictly(text)
    assert same(strict_json.decode(text, JobStatus), told)


@given(metrics=METRICS)
def test_journalled_evaluations_survive(metrics: dict[str, float]) -> None:
    state = JournalState(term=3, evaluations=((10, metrics), (20, {"loss": 1.0})))
    assert same(strict_json.decode(strict_json.encode(state), JournalState), state)


@given(value=st.floats())
def test_settings_of_an_optimizer_survive(value: float) -> None:
    spec = OptimizerSpec(name="SGD", settings={"clip": value, "nesterov": True})
    assert same(strict_json.decode(strict_json.encode(spec), OptimizerSpec), spec)


def test_null_of_an_earlier_version_is_nan_where_a_number_must_be() -> None:
    lost = status(loss=math.nan, evaluations=(EvaluationView(version=3, metrics={"loss": math.nan}),))
    found = strict_json.decode(msgspec.json.encode(lost), JobStatus)
    assert same(found.evaluations, lost.evaluations)
    assert found.loss is None  # nothing is known, which is what null says there


def test_texts_that_are_texts_stay() -> None:
    told = status(digest="NaN", evaluations=(EvaluationView(version=1, metrics={"Infinity": math.nan}),))
    assert same(strict_json.decode(strict_json.encode(told), JobStatus), told)
    assert strict_json.decode(b'{"a":"NaN"}', dict[str, str | float]) == {"a": "NaN"}


def test_what_is_finite_is_written_as_it_was() -> None:
    told = status(loss=0.1, evaluations=(EvaluationView(version=3, metrics={"loss": 1e-300}),))
    assert strict_json.encode(told) == msgspec.json.encode(told)


def test_a_number_is_still_a_number() -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `float`, got `str`"):
        strict_json.decode(b'{"loss":"large"}', dict[str, float])


def test_a_newer_record_with_more_fields_is_read() -> None:
    tree = [*strictly(strict_json.encode(status(loss=math.nan))), "of a later version"]
    assert math.isnan(strict_json.decode(json.dumps(tree), JobStatus).loss or 0.0)


# ---------------------------------------------------------------- wherever such numbers are written

DIVERGED = status(
    loss=math.nan, evaluations=(EvaluationView(version=10, metrics={"loss": math.nan, "mape": math.inf}),)
)


def test_the_journal_of_a_diverged_job_can_be_read(tmp_path: Path) -> None:
    evaluations = ((10, {"loss": math.nan, "mape": math.inf}), (20, {"loss": -math.inf, "mape": 1.0}))
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.write(1, {"term": 1, "saved": -1})
        journal.write(1, {"evaluations": evaluations})
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert same(journal.state().evaluations, evaluations)


def test_the_journal_of_an_earlier_version_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        journal.write(1, {"term": 1})
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(
            "INSERT INTO facts (name, value) VALUES ('evaluations', ?)", (b'[[10,{"loss":null}]]',)
        )
    with Journal(path) as journal:
        assert same(journal.state().evaluations, ((10, {"loss": math.nan}),))


def test_the_last_word_of_a_diverged_job_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_bytes(strict_json.encode(DIVERGED))
    assert same(written_status(tmp_path), DIVERGED)
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(DIVERGED))  # as earlier versions wrote it
    found = written_status(tmp_path)
    assert found is not None
    assert list(found.evaluations[0].metrics) == ["loss", "mape"]


def test_the_ended_mark_of_a_diverged_job_can_be_read(tmp_path: Path) -> None:
    write_mark(tmp_path, "1234", 0, DIVERGED)
    assert same(read_mark(tmp_path, "1234"), (0, DIVERGED))


def test_the_annotation_of_a_diverged_job_can_be_read() -> None:
    assert same(named_status.decode(status_text(DIVERGED)), DIVERGED)


def test_a_checkpoint_tells_settings_that_are_not_finite(tmp_path: Path) -> None:
    spec = OptimizerSpec(name="SGD", settings={"clip": math.inf})
    (tmp_path / "head").write_bytes(envelope.encode(1, spec))
    assert envelope.read(tmp_path / "head", 1, OptimizerSpec)[0] == spec


def test_scripts_read_strict_json() -> None:
    found = strictly(json_line(DIVERGED))
    assert found["loss"] == "NaN"
    assert found["evaluations"] == [{"version": 10, "metrics": {"loss": "NaN", "mape": "Infinity"}}]
    assert math.isnan(float(found["loss"]))


def test_a_line_of_the_log_is_strict_json() -> None:
    record = logging.LogRecord("edlz", logging.INFO, "x.py", 1, "loss=%s of task=%d", (math.nan, 3), None)
    found = strictly(JsonFormatter(role="worker").format(record))
    assert (found["loss"], found["task"]) == ("NaN", 3)


NO_JSON = [b'"\xd3"', b"[" * 100_000, b'{"a":' * 100_000, b'{"a": 1', b""]


@pytest.mark.parametrize("data", NO_JSON)
@pytest.mark.parametrize("read", [strict_json.decode, strict_json.parse])
def test_what_is_no_json_is_one_kind_of_error(read: Callable[[bytes, type], object], data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read(data, object)


# Whatever reads JSON that has lain on a disk or come from a server: each says so in its own way.


@pytest.mark.parametrize("data", NO_JSON)
def test_files_that_are_no_json(tmp_path: Path, data: bytes) -> None:
    claimed = tmp_path / "claimed"
    for path in (tmp_path / "head", tmp_path / MANIFEST, tmp_path / ABOUT, claimed / CLAIM):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    with pytest.raises(DamagedFile, match="head is damaged"):
        envelope.read(tmp_path / "head", 1, OptimizerSpec)
    with pytest.raises(DataError, match="no manifest of predictions"):
        read_manifest(tmp_path)
    assert read_about(tmp_path) is None
    with pytest.raises(ConfigError, match="not the folder that the master has made"):
        write_part(claimed, "part", "run", "tag", Path.touch)


@pytest.mark.parametrize("data", NO_JSON)
def test_answers_of_a_server_that_are_no_json(data: bytes) -> None:
    with pytest.raises(PeerUnavailable, match="gives no answer of a Kubernetes API server"):
        decoded(data, Status, "http://s")
    assert isinstance(refusal(502, data, "n", "s"), PeerUnavailable)


@pytest.mark.parametrize("data", NO_JSON)
def test_facts_of_a_journal_that_are_no_json(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        journal.write(1, {"term": 1})
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("INSERT INTO facts (name, value) VALUES ('saved', ?)", (data,))
    with Journal(path) as journal, pytest.raises(DataError, match="is damaged"):
        journal.state()
