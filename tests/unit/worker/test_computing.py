"""What a worker computes, and tells of it, without sockets: with an engine of NumPy in place of Keras."""

import asyncio
import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edlz.services.predictions.output import claim
from edlz.services.predictions.table import PredictionTable
from edlz.services.process.runtime import Stop
from edlz.services.protocol.messages import EvaluationLease, Exchanged
from edlz.services.protocol.plan import TaskRange
from edlz.services.worker.computing import Computing
from edlz.services.worker.core.computation import Predicted
from edlz.services.worker.core.inputs import Evaluated, Input, ModelBuilt, OutputsComputed
from edlz.services.worker.core.instructions import Build, Evaluate
from tests import builders
from tests.in_process import NumpyEngine
from tests.simulation.model import initial_vectors

LIMIT_S = 10.0


class PredictingEngine(NumpyEngine):
    def predict(
        self, task: int, records: TaskRange, rows: Sequence[np.ndarray] = (), attempt: int = 0
    ) -> Predicted:
        return Predicted(1, PredictionTable(["a:0"], {"y": np.ones(1, np.float32)}))


def test_what_a_predicting_worker_waits_for_is_told_with_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: else `edlz status` shows a worker that makes no progress, and no reason."""
    monkeypatch.setattr("edlz.services.worker.part_writer.PAUSE_S", 0.01)
    claim(tmp_path, "j", "r", is_new=True)
    is_full, is_tried, is_tried_again, real = True, threading.Event(), threading.Event(), os.replace

    def replace(source: Path, target: Path) -> None:
        if is_full and target.name.startswith("part-"):
            (is_tried_again if is_tried.is_set() else is_tried).set()
            raise OSError(errno.ENOSPC, "full")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)

    async def main() -> None:
        nonlocal is_full
        told: asyncio.Queue[Input | BaseException] = asyncio.Queue()
        config = builders.settings(prediction_output=str(tmp_path), prediction_format="jsonl")
        job = builders.job(builders.plan(evaluated=1, epochs=0, predicts=True), config=config.to_record())
        computing = Computing(config, PredictingEngine, Stop(), told.put_nowait, told.put_nowait)
        computing.build(Build(job))
        assert isinstance(await told.get(), ModelBuilt)
        dense, state, counters = initial_vectors()
        values = Exchanged(
            incarnation=(1, 1),
            mark=0,
            finished=False,
            version=0,
            dense=dense,
            state=state,
            counters=counters,
        )
        lease = EvaluationLease(round=0, task=0, records=job.plan.evaluation_ranges[0])
        computing.tasks.evaluate(Evaluate(lease, (values,)))
        assert isinstance(await told.get(), OutputsComputed)
        assert await asyncio.to_thread(is_tried_again.wait, LIMIT_S)
        assert (
            computing.meter.telemetry().waits_for == f"no room on the disk for {tmp_path}: it is waited for"
        )
        is_full = False
        assert isinstance(await told.get(), Evaluated)
        assert computing.meter.telemetry().waits_for == ""
        await computing.close()

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))
