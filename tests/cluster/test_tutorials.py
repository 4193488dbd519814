"""The commands that the tutorials show, as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```sh(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.slow


def commands(tutorial: str) -> list[tuple[str, str]]:
    """Return the (name, command) blocks of a tutorial."""
    text = (ROOT / "docs" / "tutorials" / tutorial).read_text()
    return [(name, command) for name, command in _BLOCK.findall(text) if command.strip() != "make"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that looks like the root of the repository to the commands."""
    (tmp_path / "model_zoo").symlink_to(ROOT / "model_zoo")
    return tmp_path


def start(command: str, place: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "EDLZ_HOME": str(place / "home"),
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    return subprocess.Popen(
        command,
        shell=True,
        cwd=place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 0, output
    return output


def test_personal_computer(place: Path) -> None:
    (_, data), (_, train), *_ = commands("personal_computer.md")
    assert "6,000 records" in finish(start(data, place))
    output = finish(start(train, place))
    assert "94 minibatches, each in the model exactly once" in output


def test_two_jobs_on_one_machine(place: Path) -> None:
    blocks = dict(commands("personal_computer.md"))
    finish(start(commands("personal_computer.md")[0][1], place))
    low = start(blocks["low"], place)
    try:
        assert low.stdout is not None
        assert any("Loss = " in line for line in low.stdout)
        high = finish(start(blocks["high"], place))
        assert 'waiting for a slot: 2 of 2 are taken by "low-prio-job" (priority low-priority)' in high
        assert "601 minibatches, each in the model exactly once" in high
        assert "3,606 minibatches, each in the model exactly once" in finish(low)
    finally:
        low.terminate()
        low.wait()


def test_recommendation(place: Path) -> None:
    (_, data), (_, train), (_, checkpoints), (_, evaluate) = commands("recommendation.md")
    assert "8,000 records" in finish(start(data, place))
    trained = finish(start(train, place))
    assert "500 minibatches, each in the model exactly once" in trained
    listed = finish(start(checkpoints, place))
    assert re.search(r"^256 .* good   <- resume, newest$", listed, re.MULTILINE), listed
    evaluated = finish(start(evaluate, place))
    assert "4,000 records evaluated with v256" in evaluated
    metrics = re.compile(r"Evaluation metrics\[v=256\]: .*")
    assert metrics.findall(evaluated) == metrics.findall(trained)


def test_by_hand(place: Path) -> None:
    finish(start(commands("personal_computer.md")[0][1], place))
    blocks = dict(commands("by_hand.md"))
    master, worker = start(blocks["master"], place), start(blocks["worker"], place)
    assert re.search(r"Loss = \S+, steps = 100", finish(worker))
    output = finish(master)
    assert "Evaluation metrics[v=620]" in output
    assert "61 tasks created with total of 6000 records." in output
