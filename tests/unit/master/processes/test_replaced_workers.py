"""What a master says of a worker that is replaced: what the others do meanwhile is the job's own work."""

import asyncio
from pathlib import Path

import pytest

from edlz.api.recordio import Writer
from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol.messages import ProcessExit, SupervisorStatus
from tests.states import save


@pytest.mark.parametrize(
    ("data", "work"),
    [("training_data", "training"), ("validation_data", "evaluating"), ("prediction_data", "predicting")],
)
def test_the_others_do_what_the_job_is_for(tmp_path: Path, data: str, work: str) -> None:
    with Writer(tmp_path / "part-0") as writer:
        writer.write(b"x")
    save(tmp_path / "checkpoints", 5)
    config = JobConfig(
        job_name="j",
        job_dir=str(tmp_path / "job"),
        model_def="a.b",
        checkpoint_dir_for_init=str(tmp_path / "checkpoints"),
        endpoint=f"ipc://{tmp_path}/m",
        num_ps_pods=1,
        num_workers=2,
        **{data: str(tmp_path / "part-0")},  # type: ignore[arg-type]
    )
    stop, told = Stop(), []

    async def attend(service: MasterService) -> None:
        try:
            service.supervise(SupervisorStatus(seq=1, running=("ps-0", "worker-0", "worker-1")))
            killed = ProcessExit(name="worker-1", code=-9)
            service.supervise(SupervisorStatus(seq=2, running=("ps-0", "worker-0"), exits=(killed,)))
            told.extend(event.text for event in service.status().events)
        finally:
            stop.set(0, "the test is over")

    assert asyncio.run(serve_master(config, stop, attend)) == 0
    assert f"worker-2 starts in its place.  0 of 2 workers {work} meanwhile." in told, told
