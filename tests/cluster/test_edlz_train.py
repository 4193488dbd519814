"""The command that users type: whole jobs of real processes, and what is left behind of them."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import MODELS, wait_for

MODEL = f"--model_file={MODELS}/tiny_mlp.py"


class Command:
    """`edlz train` in a pipe, with an EDLZ_HOME of its own."""

    def __init__(self, home: Path, *flags: str) -> None:
        self.home = home
        self.environment = {**os.environ, "EDLZ_HOME": str(home), "CUDA_VISIBLE_DEVICES": "-1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "edlz.client", "train", "--job_name=job", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
            text=True,
        )

    def finish(self, timeout_s: float = 240) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, output

    def log(self, name: str) -> str:
        path = self.home / "jobs" / "job" / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def children(self) -> list[str]:
        """Command lines of all processes of this job that are alive."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environment = (entry / "environ").read_bytes()
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:  # it has ended meanwhile
                    continue
                if f"EDLZ_HOME={self.home}".encode() in environment and line:
                    found.append(line)
        return found


@pytest.fixture
def no_leftovers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give jobs a folder of temporary files of their own, which must be empty in the end."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:  # short, as sockets' paths must be
        monkeypatch.setenv("TMPDIR", folder)
        yield
        wait_for(lambda: not os.listdir(folder), f"files are left in {folder}", 10)


@pytest.mark.usefixtures("no_leftovers")
def test_a_job_in_a_pipe(tmp_path: Path, small_mnist: Path) -> None:
    data = (f"--training_data={small_mnist}/train", f"--validation_data={small_mnist}/test")
    flags = ("--minibatch_size=20", "--num_ps_pods=2", "--evaluation_steps=20", "--log_loss_steps=10")
    command = Command(tmp_path, MODEL, *data, *flags)
    code, output = command.finish()
    assert code == 0, output
    assert "\r" not in output
    assert "\x1b" not in output
    assert re.search(r"Evaluation metrics\[v=20\]: \{'accuracy': 0\.\d+\}", output)
    assert re.search(r"Loss = \d+\.\d+, steps = \d+", output)
    assert "Succeeded  job" in output
    assert "60 minibatches, each in the model exactly once" in output
    assert re.search(r"digest   sha256 [0-9a-f]{64}", output)
    assert command.children() == []


@pytest.mark.usefixtures("no_leftovers")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_everything(number: int, code: int, tmp_path: Path, small_mnist: Path) -> None:
    flags = ("--num_epochs=500", "--minibatch_size=20", "--num_workers=1")
    command = Command(tmp_path, MODEL, f"--training_data={small_mnist}/train", *flags)
    wait_for(lambda: "joined" in command.log("master"), "a worker has joined")
    command.process.send_signal(number)
    assert command.finish(30)[0] == code
    wait_for(lambda: not command.children(), f"processes are left: {command.children()}", 10)


@pytest.mark.usefixtures("no_leftovers")
def test_the_users_error_is_shown_with_its_place(tmp_path: Path, small_mnist: Path) -> None:
    model = tmp_path / "model.py"
    source = (MODELS / "tiny_mlp.py").read_text()
    model.write_text(source + "\n\ndef loss(labels, predictions):\n    raise ValueError('no such loss')\n")
    flags = (f"--model_file={model}", f"--training_data={small_mnist}/train", "--num_workers=1")
    code, output = Command(tmp_path / "home", *flags).finish()
    assert code == 2, output
    assert "no such loss" in output
    assert "model.py" in output
    assert re.search(r"^error: ", output, re.MULTILINE)


@pytest.mark.usefixtures("no_leftovers")
def test_two_jobs_side_by_side_and_no_two_of_one_name(tmp_path: Path, small_mnist: Path) -> None:
    flags = (MODEL, f"--training_data={small_mnist}/train", "--num_epochs=500", "--num_workers=1")
    first = Command(tmp_path, *flags)
    wait_for(lambda: "listens" in first.log("master"), "the first job's master listens")
    code, output = Command(tmp_path, *flags).finish(30)
    assert code == 2
    assert 'job "job"' in output
    other = Command(tmp_path / "other", *flags)
    wait_for(lambda: "listens" in other.log("master"), "another home's job runs beside it")
    for command in (first, other):
        command.process.send_signal(signal.SIGTERM)
        assert command.finish(30)[0] == 143


def test_services_without_tensorflow() -> None:
    code = (
        "import sys, edlz.services.master.service, edlz.services.ps.service, edlz.services.worker.service;"
        "found = {'tensorflow', 'keras'} & set(sys.modules); sys.exit(f'imported: {found}' if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
