"""A job in the background, looked at and led from another terminal: ls, status, logs, stop, resume, wait, rm."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.processes import MODELS, wait_for

FLAGS = (f"--model_file={MODELS}/tiny_mlp.py", "--minibatch_size=20", "--worker_threads=1")


class Terminal:
    """Another terminal of the same user, in another folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._environment = {**os.environ, "EDLZ_HOME": str(home), "CUDA_VISIBLE_DEVICES": "-1"}

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "edlz.client", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            cwd="/",
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=240)
        assert process.returncode == code, (arguments, process.returncode, output)
        assert "\x1b" not in output
        assert "\r" not in output
        return output

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "job", "-o", "json"))
        return found

    def wait_for_training(self, folder: Path, times: int) -> None:
        """Return when the job trains that has begun to do so this often."""
        log = folder / "logs" / "master.log"  # watched first, since it costs nothing

        def began() -> bool:
            return log.exists() and log.read_text().count("training begins") >= times

        wait_for(began, f"training begins, {times}")
        wait_for(lambda: self.status()["progress"]["minibatches"] > 0, "a minibatch is applied")
        assert self.status()["job"]["state"] == "Training"


def finish(process: "subprocess.Popen[str]", code: int) -> str:
    output, _ = process.communicate(timeout=240)
    assert process.returncode == code, output
    return output


def test_the_life_of_a_job_in_the_background(tmp_path: Path, small_mnist: Path) -> None:
    terminal = Terminal(tmp_path / "home")
    folder = tmp_path / "disk" / "job"
    data = f"--training_data={small_mnist}/train"
    first = terminal.start("train", "--job_name=job", f"--job_dir={folder}", data, "--num_epochs=400", *FLAGS)
    terminal.wait_for_training(folder, 1)

    (listed,) = [line.split() for line in terminal.run("ls").splitlines() if line.startswith("job ")]
    assert listed[1] == "Training"
    shown = terminal.run("status")
    assert "worker-0" in shown
    assert "ps-0" in shown
    assert shown.endswith("next: edlz logs -f job    edlz stop job\n")
    found = terminal.status()
    assert found["job"]["folder"] == str(folder)
    assert found["job"]["pid"] == first.pid
    (partition,) = found["ps"]
    assert partition["state"] == "serving"
    assert "joined" in terminal.run("logs", "job", "--master", "--grep=joined")
    following = terminal.start("logs", "job", "-f", "--worker=0", "--tail=3")
    waiting = terminal.start("wait", "job")
    terminal.run("wait", "job", "--timeout=0.1", code=6)
    assert "is running" in terminal.run("rm", "job", code=2)

    stopped = terminal.run("stop", "job")
    assert "Stopped  job at " in stopped
    assert "edlz resume job" in stopped
    finish(first, 143)
    assert "worker=0 ends" in finish(following, 0)
    assert "next: edlz resume job" in finish(waiting, 7)
    assert terminal.run("stop", "job", code=2).startswith('error: job "job" is not running: Stopped')

    resumed = terminal.start("resume", "job", "--num_workers=1")
    terminal.wait_for_training(folder, 2)
    assert terminal.status()["progress"]["minibatches"] >= found["progress"]["minibatches"]
    killed_pid = terminal.status()["job"]["pid"]
    assert killed_pid == resumed.pid
    os.kill(killed_pid, signal.SIGKILL)
    resumed.communicate(timeout=60)
    shown = terminal.run("status", "job")
    assert "job  Stopped" in shown
    assert "interrupted before it could save" in shown
    terminal.run("wait", "job", code=7)

    other = tmp_path / "disk"
    (other / "precious").touch()
    assert "job is removed: " in terminal.run("rm", "job")
    assert [entry.name for entry in other.iterdir()] == ["precious"]
    assert terminal.run("ls") == "No job has been run here yet.\nnext: edlz train --help\n"
    terminal.run("status", "job", code=4)


def test_waiting_for_the_end_of_a_short_job(tmp_path: Path, small_mnist: Path) -> None:
    terminal = Terminal(tmp_path)
    data = f"--training_data={small_mnist}/train"
    training = terminal.start("train", "--job_name=job", data, "--num_workers=1", *FLAGS)
    wait_for(lambda: (tmp_path / "jobs" / "job" / "journal.sqlite").exists(), "the job has been planned")
    assert "job  Succeeded  100 %" in terminal.run("wait", "job")
    finish(training, 0)
    assert "next: edlz logs job    edlz rm job" in terminal.run("status", "job")
    assert "has succeeded already" in terminal.run("resume", "job")
    assert "job  Succeeded  100 %" in terminal.run("status", "job")  # as before
