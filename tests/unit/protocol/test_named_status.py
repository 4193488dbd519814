"""`status.json` is an object with names: what any version wrote is read, and what is no status is said to be none."""

import json
import math
from typing import Any

import msgspec
import pytest

from edlz.services import strict_json
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import (
    EvaluationView,
    EventView,
    FailureView,
    JobStatus,
    PartitionView,
    TableView,
    WorkerView,
)

STATUS = JobStatus(
    name="mnist",
    state="Failed",
    mode="sync",
    slots=2,
    started_at=100.0,
    now=122.5,
    loss=math.nan,
    evaluations=(EvaluationView(version=350, metrics={"accuracy": 0.964, "odd": math.inf}),),
    workers=(WorkerView(id="0", state="training", task=7),),
    partitions=(PartitionView(id="0", state="serving", version=354, expected=376, applied=376),),
    events=(EventView(seq=3, at=110.0, kind="worker", text="worker-0 joined."),),
    failure=FailureView(text="task 63 raised", task=63),
    tables=(TableView(path="words", rows=3, memory_bytes=4),),
    first_nonfinite=(4, 2),
)


def same(first: JobStatus, second: JobStatus) -> bool:
    return strict_json.encode(first) == strict_json.encode(second)


def test_what_is_written_has_names_and_is_read_again() -> None:
    text = named_status.encode(STATUS)
    told: dict[str, Any] = json.loads(text)
    assert list(told) == list(JobStatus.__struct_fields__)
    assert told["partitions"][0]["expected"] == 376
    assert told["evaluations"] == [{"version": 350, "metrics": {"accuracy": 0.964, "odd": "Infinity"}}]
    assert told["failure"]["task"] == 63
    assert told["loss"] == "NaN"
    assert same(named_status.decode(text), STATUS)
    assert same(named_status.decode(msgspec.json.format(text)), STATUS)


def test_what_earlier_versions_wrote_is_read() -> None:
    assert same(named_status.decode(strict_json.encode(STATUS)), STATUS)


def test_what_other_versions_wrote_is_read() -> None:
    told = json.loads(named_status.encode(STATUS))
    told["workers"][0]["of a later version"] = told["of a later version"] = [1]
    del told["partitions"][0]["note"], told["tables"], told["first_nonfinite"]
    earlier = msgspec.structs.replace(STATUS, tables=(), first_nonfinite=None)
    assert same(named_status.decode(json.dumps(told)), earlier)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "7",
        "[43]",
        '{"name": 7}',
        "\ud800",
        '{"a":' * 3000,
        "[" * 3000,
        json.dumps({**json.loads(named_status.encode(STATUS)), "workers": {"id": "0"}}),
        json.dumps({**json.loads(named_status.encode(STATUS)), "workers": [7]}),
        json.dumps({**json.loads(named_status.encode(STATUS)), "failure": []}),
        json.dumps({**json.loads(named_status.encode(STATUS)), "state": "Fine"}),
        json.dumps({**json.loads(named_status.encode(STATUS)), "started_at": "NaN"}),  # no age
        json.dumps({**json.loads(named_status.encode(STATUS)), "ratio": None}),
        json.dumps({**json.loads(named_status.encode(STATUS)), "eta_s": "-Infinity"}),
        json.dumps({**json.loads(named_status.encode(STATUS)), "events": [[3, None, "worker", "it joined"]]}),
    ],
)
def test_what_is_no_status_is_said_to_be_none(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        named_status.decode(text.encode(errors="surrogatepass"))
