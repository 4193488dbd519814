"""What a status page is shown with, in tests: a job of some workers that has lost one, with curves of some minutes."""

import math
from collections.abc import Callable

from edlz.services.master.page.content import Content
from edlz.services.master.page.settings_table import command_to_repeat, settings_rows
from edlz.services.master.page.task_map import task_map
from edlz.services.protocol.curves import CurveRow
from edlz.services.protocol.job_status import (
    EvaluationView,
    EventView,
    JobStatus,
    PartitionView,
    TableView,
    WorkerView,
)
from edlz.services.protocol.ledger import TaskSet
from tests import builders

__all__ = ["BEGAN", "content"]

BEGAN = 1_777_885_900.0


def content(
    workers: int = 4, tasks: int = 400, rows: int = 120, *, mode: str = "sync", state: str = "Training"
) -> Content:
    """Return a content whose job has these sizes."""
    now = BEGAN + max(rows, 1)
    settings = builders.settings(
        num_workers=workers,
        envs="TOKEN=s3cret,LEVEL=2",
        extra_pypi_index="https://me:hunter2@index.example/simple",
        origins="num_workers=job.yaml:6;model_def=;training_data=;envs=;extra_pypi_index=",
    )
    half = tasks // 2
    done = TaskSet((0, half, half + 3, half + 20) if tasks > 50 else (0, half) if half else ())
    again = TaskSet((tasks // 4, tasks // 4 + 2))
    map_of_tasks = task_map(tasks, done, range(half, half + 2), again)
    return Content(
        _status(workers, tasks, now, mode, state),
        tuple(_row(number, mode) for number in range(rows)),
        map_of_tasks,
        settings_rows(settings),
        command_to_repeat(settings),
    )


def _status(workers: int, tasks: int, now: float, mode: str, state: str) -> JobStatus:
    is_over = state in ("Succeeded", "Failed", "Stopped")
    happened: tuple[tuple[float, str, str], ...] = (
        (2.0, "worker", "worker-1 training after 1.8s."),
        (20.0, "evaluation", "Evaluation metrics[v=100]: {'accuracy': 0.77}"),
        (35.0, "checkpoint", "checkpoint v175"),
        (60.0, "worker", "worker-1 lost: killed by signal 9 (SIGKILL). Task 238 goes to another worker."),
        (66.0, "worker", f"worker-{workers} training after 4.8s."),
        (80.0, "job", "fetched https://me:hunter2@store.example/a with token=s3cret <b>&amp;</b></script>"),
    )
    return JobStatus(
        name="mnist",
        state=state,  # type: ignore[arg-type]
        mode=mode,  # type: ignore[arg-type]
        slots=2,
        started_at=BEGAN,
        now=now,
        ratio=1.0 if state == "Succeeded" else 0.59,
        epoch=2,
        epochs=2,
        records=70_800,
        records_total=120_000,
        minibatches=708,
        minibatches_total=1200,
        version=354,
        records_per_s=4260.0,
        eta_s=None if is_over else 12.0,
        loss=0.083,
        tasks_done=tasks // 2 + 17,
        tasks_total=tasks,
        evaluations=tuple(
            EvaluationView(version=v, metrics={"accuracy": 0.97 - 20 / (v + 40), "auc": 0.99 - 10 / (v + 30)})
            for v in range(50, 351, 50)
        ),
        workers=tuple(_worker(number) for number in range(workers)),
        partitions=tuple(
            PartitionView(
                id=str(n),
                state="serving",
                version=354,
                memory_bytes=90_000_000 + n,
                cpu_share=0.28,
                rows=4000,
            )
            for n in range(2)
        ),
        tables=(TableView(path="embedding/ids", rows=8000, memory_bytes=4_000_000, hit_rate=0.93),),
        events=tuple(
            EventView(seq=n, at=BEGAN + at, kind=kind, text=text)
            for n, (at, kind, text) in enumerate(happened, 1)
        ),
        checkpoint=300,
        checkpoint_age_s=2.0,
        target_workers=workers,
        page="" if is_over else "http://localhost:50002",
    )


def _worker(number: int) -> WorkerView:
    return WorkerView(
        id=str(number),
        state="starting" if number == 3 else "training",
        task=237 + number,
        records_per_s=2130.0 - number,
        read_ms=1.0,
        pull_ms=2.0,
        compute_ms=40.0 + number,
        push_ms=2.0,
        wait_ms=1.5,
        memory_bytes=800_000_000,
        note="Pending: 0/6 nodes: Insufficient cpu" if number == 3 else "",
    )


def _row(number: int, mode: str) -> CurveRow:
    lost = 1.0 if 60 <= number < 66 else 0.0
    wave: Callable[[float], float] = lambda x: 1 + 0.1 * math.sin(number / x)  # noqa: E731
    return CurveRow(
        at=BEGAN + number + 1,
        span_s=1.0,
        version=3 * (number + 1),
        records=int(4200 * wave(3) * (0.5 if lost else 1.0)),
        loss_total=6 * (0.05 + 2.3 * math.exp(-number / 30)) * wave(1.3),
        loss_count=6,
        training=2 - lost,
        starting=0.0 if number > 3 else 1.0,
        missing=lost,
        wait=0.1 * wave(7),
        staleness=(1.0 * wave(5), 3.0 * wave(2)) if mode == "async" else None,
    )
