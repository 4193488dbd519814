"""A job by hand as on several machines: over TCP, encrypted, closed to whoever has no key of it."""

import asyncio
from pathlib import Path

import pytest

from edlz.client.job_files.job_index import LocalJob
from edlz.client.local.master_line import address_by_hand, ask
from edlz.services.protocol.job_status import JobStatus, StatusRequest
from edlz.services.transport.keys import make_job_keys, write_keys
from tests.processes import MODELS
from tests.tcp_job import TcpJob

FLAGS = (
    f"--model_file={MODELS}/tiny_mlp.py",
    "--minibatch_size=20",
    "--records_per_task=90",
    "--grads_to_wait=2",
    "--worker_threads=1",
)


@pytest.mark.parametrize(
    ("partitions", "strategy"),
    [
        (2, "ParameterServerStrategy"),
        pytest.param(0, "ParameterServerStrategy", marks=pytest.mark.slow),
        pytest.param(0, "AllreduceStrategy", marks=pytest.mark.slow),
    ],
)
def test_a_job_with_keys(
    partitions: int, strategy: str, tmp_path: Path, small_mnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keys(tmp_path / "keys", make_job_keys())
    monkeypatch.setenv("EDLZ_KEYS_DIR", str(tmp_path / "keys"))
    folder = tmp_path / "job"
    folder.mkdir()
    flags = (*FLAGS, f"--training_data={small_mnist}/train", f"--distribution_strategy={strategy}")
    with TcpJob(folder, *flags, partitions=partitions) as job:
        job.start(workers=0)
        job.wait_for_log("master", "listens at tcp://")
        job.start_worker(9, "--keys_dir=")
        assert job.wait("worker-9") == 2
        assert "takes encrypted connections only" in job.log("worker-9")

        local = LocalJob("test", folder, "test")
        answer = asyncio.run(ask(address_by_hand(local), StatusRequest(), 10.0))
        assert isinstance(answer, JobStatus)

        job.start_worker(0)
        job.start_worker(1)
        assert job.finish(without=("worker-9",)).state == "Succeeded"
        job.check_exactly_once()
