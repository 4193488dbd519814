"""A job under way, and the same when it is done, as screens are given it; and a terminal to show it on."""

import io
from pathlib import Path

import msgspec
import pytest

from edlz.client.screen.live import live_block
from edlz.client.screen.screens import QuietScreen
from edlz.client.screen.spans import Line, plain
from edlz.client.screen.verdict_text import Ending
from edlz.services.protocol.job_status import (
    EvaluationView,
    JobStatus,
    PartitionView,
    WorkerView,
)

__all__ = ["DONE", "ENDING", "STATUS", "WORKERS", "Terminal", "block", "changed", "shown"]

WORKERS = tuple(
    WorkerView(
        id=str(i),
        state="training",
        task=237 + i,
        records_per_s=2130.0,
        read_ms=1.0,
        pull_ms=2.0,
        compute_ms=40.0 + i,
        push_ms=2.0,
        wait_ms=2.0 - i,
    )
    for i in range(2)
)
STATUS = JobStatus(
    name="mnist",
    state="Training",
    mode="sync",
    slots=2,
    started_at=100.0,
    now=122.0,
    ratio=0.59,
    epoch=2,
    epochs=2,
    records=70_800,
    records_total=120_000,
    minibatches=708,
    minibatches_total=1_200,
    version=354,
    records_per_s=4260.0,
    eta_s=12.0,
    loss=0.083,
    tasks_done=236,
    tasks_total=400,
    evaluations=(
        EvaluationView(version=300, metrics={"accuracy": 0.965}),
        EvaluationView(version=350, metrics={"accuracy": 0.964}),
    ),
    workers=WORKERS,
    partitions=(PartitionView(id="0", state="serving", version=354, memory_bytes=10**8, cpu_share=0.28),),
)
DONE = msgspec.structs.replace(
    STATUS,
    state="Succeeded",
    ratio=1.0,
    minibatches=1200,
    version=600,
    loss=0.061,
    evaluations=(EvaluationView(version=600, metrics={"accuracy": 0.971}),),
    digest="3f9ac41e" + "0" * 56,
    lost_workers=1,
)
ENDING = Ending(34.2, Path("/jobs/mnist/logs"))


def changed(**fields: object) -> JobStatus:
    return msgspec.structs.replace(STATUS, **fields)


def block(status: JobStatus, width: int = 80, **more: object) -> str:
    return plain(live_block(status, width, asked_workers=2, **more))  # type: ignore[arg-type]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(lines: list[Line], columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a screen leaves on a terminal at the end."""
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal()
    QuietScreen(terminal).close(lines, is_error=False)
    return terminal.getvalue().splitlines()
