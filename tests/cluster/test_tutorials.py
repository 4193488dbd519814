"""The commands of the tutorials about this machine, as they stand there."""

import re
import sys
from pathlib import Path

import pytest

from tests.tutorials import ROOT, Step, finish, run, start, steps, write_files

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that looks like the root of the repository to the commands."""
    (tmp_path / "model_zoo").symlink_to(ROOT / "model_zoo")
    return tmp_path


def make_data(place: Path) -> None:
    step = steps("personal_computer.md")["data"]
    step.check(run(step.command, place))


def test_personal_computer(place: Path) -> None:
    make_data(place)
    train = steps("personal_computer.md")["train"]
    output = run(train.command, place)
    train.check(output)
    assert "94 minibatches, each in the model exactly once" in output


def test_two_jobs_on_one_machine(place: Path) -> None:
    blocks = steps("personal_computer.md")
    make_data(place)
    low = start(blocks["low"].command, place)
    try:
        assert low.stdout is not None
        assert any("Loss = " in line for line in low.stdout)
        high = run(blocks["high"].command, place)
        blocks["high"].check(high)
        assert "601 minibatches, each in the model exactly once" in high
        assert "3,606 minibatches, each in the model exactly once" in finish(low)
    finally:
        low.terminate()
        low.wait()


def test_recommendation(place: Path) -> None:
    blocks = steps("recommendation.md")
    printed = {
        name: run(blocks[name].command, place) for name in ("data", "train", "checkpoints", "evaluate")
    }
    for name, text in printed.items():
        blocks[name].check(text)
    assert "500 minibatches, each in the model exactly once" in printed["train"]
    assert re.search(r"^256 .* good   <- resume, newest$", printed["checkpoints"], re.MULTILINE), printed
    metrics = re.compile(r"Evaluation metrics\[v=256\]: .*")
    assert metrics.findall(printed["evaluate"]) == metrics.findall(printed["train"])
    check_exports(place)
    check_predictions(place)


@pytest.mark.slow
def test_callbacks(place: Path) -> None:
    make_data(place)
    write_files("callbacks.md", place)
    blocks = steps("callbacks.md")
    output = run(blocks["train"].command, place)
    blocks["train"].check(output)
    blocks["look"].check(run(blocks["look"].command, place))
    assert (place / "out" / "early" / "1").is_dir()


def check_predictions(place: Path) -> None:
    """Run the tutorial that goes on with the checkpoints of the job of the one before."""
    write_files("predict.md", place)
    blocks = steps("predict.md")
    for name in ("predict", "read"):
        blocks[name].check(run(blocks[name].command, place))


def check_exports(place: Path) -> None:
    """Run the tutorial that goes on with the job of the one before."""
    write_files("export.md", place)
    blocks = steps("export.md")
    for name in ("export", "predict", "zeros", "keras", "numbers", "look"):
        blocks[name].check(run(blocks[name].command, place))
    assert sorted(entry.name for entry in (place / "out" / "census").iterdir()) == ["1", "2"]


README = "../../README.md"


def test_the_tour_of_the_readme(place: Path) -> None:
    """Every command, in its order, as it is typed; the first one only puts `edlz` on the path."""
    (place / ".venv").symlink_to(Path(sys.prefix))
    blocks = steps(README)
    for name, step in blocks.items():
        printed = run(step.command, place)
        # How long a job takes decides whether it has a time left to tell, and which workers have a loss.
        Step(step.command, tuple(line for line in step.output if " progress=" not in line)).check(printed)
        assert name != "train" or "768 steps, 1,504 minibatches, each in the model exactly once" in printed


def test_your_model(place: Path) -> None:
    write_files("your_model.md", place)
    blocks = steps("your_model.md")
    names = ("data", "arrays", "train", "ragged", "evaluate", "rows", "predict")
    printed = {name: run(blocks[name].command, place) for name in names}
    for name in names:
        blocks[name].check(printed[name])
    assert "300 minibatches, each in the model exactly once" in printed["train"]
    found = [re.search(r"auc .*accuracy \S+ ", printed[name]) for name in ("train", "evaluate")]
    assert found[0]
    assert found[1]
    assert found[0][0] == found[1][0]
    assert len(list((place / "out" / "rows").glob("part-*"))) > 1


def test_by_hand(place: Path) -> None:
    make_data(place)
    blocks = steps("by_hand.md")
    master, worker = start(blocks["master"].command, place), start(blocks["worker"].command, place)
    blocks["worker"].check(finish(worker))
    output = finish(master)
    blocks["master"].check(output)
    assert "Evaluation metrics[v=620]" in output
    assert "61 tasks created with total of 6000 records." in output
    assert _digest(check_group_by_hand(place)) == _digest(output)


def check_group_by_hand(place: Path) -> str:
    """Train the same without parameter servers, in three terminals; return what the master has printed."""
    blocks = steps("by_hand.md")
    master, first = (start(blocks[name].command, place) for name in ("group_master", "group_worker_1"))
    assert first.stdout is not None
    assert any("model built" in line for line in first.stdout)
    blocks["group_worker_2"].check(finish(start(blocks["group_worker_2"].command, place)))
    finish(first)
    output = finish(master)
    blocks["group_master"].check(output)
    assert "Evaluation metrics[v=620]" in output
    return output


def _digest(output: str) -> str:
    [digest] = re.findall(r"complete at version=620 digest=([0-9a-f]{64})", output)
    return str(digest)


def test_python(place: Path) -> None:
    write_files("python.md", place)
    blocks = steps("python.md")
    for name in ("data", "train", "look", "mistake", "loop"):
        blocks[name].check(run(blocks[name].command, place))


def test_your_data(place: Path) -> None:
    write_files("your_data.md", place)
    blocks = steps("your_data.md")
    for name in ("info", "train", "convert", "custom", "analyze"):
        blocks[name].check(run(blocks[name].command, place))


def test_strategies(place: Path) -> None:
    make_data(place)
    blocks = steps("strategies.md")
    with start(blocks["train"].command, place) as job:
        try:
            assert job.stdout is not None
            # Early: a command takes as long to begin as some hundred steps.
            assert any("training begins at v0" in line for line in job.stdout)
            run("edlz stop mnist-allreduce", place)
            assert job.wait(60) == 143
        finally:
            job.terminate()
    assert "376 minibatches, each in the model exactly once" in run(blocks["resume"].command, place)
