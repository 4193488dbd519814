"""What a stranger types wrong, and what is said then: three inputs and more for each row of errors of a command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from edlz.api.recordio import Writer
from edlz.client.cli import main
from tests.command_logging import logging_restored

TRAIN = (
    "train",
    "--model_def=mnist.mnist_functional_api.custom_model",
    "--training_data=data",
    "--validation_data=data",
    "--dry_run",
)
FILES = {
    "epoch.yaml": "num_workers: 2\nnum_epoch: 3\n",
    "rate.yaml": "learning_rate: 0.1\n",
    "choice.yaml": "num_workers: two\ndistribution_strategy: ParameterServer\n",
    "several.yaml": "num_workers: [1, 2]\n",
    "list.yaml": "- a\n- b\n",
    "colons.yaml": "a: b: c\n",
    "twice.yaml": "num_workers: 1\nnum_workers: 2\n",
    "section.yaml": "training:\n  num_workers: 2\n",
    "maybe.yaml": "use_async: maybe\n",
}
STRATEGIES = "Local, ParameterServerStrategy, AllreduceStrategy"

# In the order of the table of errors: row, what is typed behind the flags that are right, error, help.
MISTAKES = [
    ("unknown flag", "--num_worker=2", "no flag --num_worker", "did you mean --num_workers?"),
    ("unknown flag", "--epochs=3", "no flag --epochs", "did you mean --num_epochs?"),
    ("unknown flag", "--gpu", "no flag --gpu", "all flags: edlz train --help-all"),
    (
        "flag of another command",
        "--prediction_data=data",
        "--prediction_data belongs to edlz predict",
        "for training: --training_data",
    ),
    (
        "flag of another command",
        "--ps_id=1",
        "--ps_id belongs to python -m edlz.services.ps",
        "leave it out",
    ),
    (
        "flag of another command",
        "--namespace=research",
        "--namespace=research without an image: the job would run on this machine",
        "add --image_name=IMAGE, or leave it out",
    ),
    (
        "bad value",
        "--minibatch_size=64k",
        '--minibatch_size="64k" is not a whole number',
        "e.g. --minibatch_size=64",
    ),
    ("bad value", "--num_workers=-1", "--num_workers=-1 is below 0", "e.g. --num_workers=2"),
    ("bad value", "--num_epochs=", '--num_epochs="" is not a whole number', "e.g. --num_epochs=1"),
    (
        "bad choice",
        "--distribution_strategy=ParameterServer",
        f'--distribution_strategy="ParameterServer" is none of {STRATEGIES}',
        "did you mean ParameterServerStrategy?",
    ),
    (
        "bad choice",
        "--progress=verbose",
        '--progress="verbose" is none of auto, live, plain, quiet, json',
        "e.g. --progress=auto",
    ),
    (
        "bad choice",
        "--config=maybe.yaml",
        '--use_async="maybe" (maybe.yaml:1) is neither yes nor no',
        "e.g. --use_async=yes",
    ),
    (
        "flags that exclude",
        "--use_async --grads_to_wait=2",
        "--use_async with --grads_to_wait=2: async applies each gradient at once",
        "drop one of the two",
    ),
    (
        "flags that exclude",
        "--min_workers=4 --num_workers=2",
        "num_workers=2 is less than min_workers=4",
        "--num_workers=4, or a smaller --min_workers",
    ),
    (
        "flags that exclude",
        "--get_model_steps=4",
        "--get_model_steps=4 without --use_async: in sync mode no gradient is stale",
        "add --use_async",
    ),
    (
        "config file",
        "--config=epoch.yaml",
        'epoch.yaml:2: unknown key "num_epoch"',
        "did you mean num_epochs?",
    ),
    (
        "config file",
        "--config=rate.yaml",
        'rate.yaml:1: unknown key "learning_rate"',
        "its keys are the flags: edlz train --help-all",
    ),
    (
        "config file",
        "--config=section.yaml",
        'section.yaml:1: unknown key "training", with keys of its own under it',
        "one flag a line, without groups, e.g. num_epochs: 2",
    ),
    (
        "config file",
        "--config=several.yaml",
        "several.yaml:1: num_workers has several values, not one",
        "one value, e.g. num_workers: 2",
    ),
    (
        "config file",
        "--config=list.yaml",
        "list.yaml holds no flags",
        "one flag a line, e.g. num_epochs: 2",
    ),
    (
        "config file",
        "--config=colons.yaml",
        "colons.yaml:1: not YAML: mapping values are not allowed here",
        "one flag a line, e.g. num_epochs: 2",
    ),
    ("config file", "--config=twice.yaml", "twice.yaml:2: num_workers stands twice", "also at twice.yaml:1"),
    (
        "config file",
        "--config=data",
        '--config="data" is a folder',
        "name a file in it: --config=data/job.yaml",
    ),
    (
        "config file",
        "--config=nope.yaml",
        '--config="nope.yaml" does not exist',
        "name a YAML file with one flag a line, e.g. num_epochs: 2",
    ),
    (
        "config file",
        "--config=choise.yaml",
        '--config="choise.yaml" does not exist',
        "nearest: choice.yaml",
    ),
    (
        "job name",
        "--job_name=My_Job",
        '--job_name="My_Job" is no job name: a-z, 0-9 and - (at most 40)',
        "--job_name=my-job",
    ),
    (
        "job name",
        "--job_name=a/b",
        '--job_name="a/b" is no job name: a-z, 0-9 and - (at most 40)',
        "--job_name=a-b",
    ),
    (
        "job name",
        f"--job_name={'a' * 60}",
        f'--job_name="{"a" * 60}" is no job name: a-z, 0-9 and - (at most 40)',
        f"--job_name={'a' * 40}",
    ),
]
COMMANDS = [
    ("trian", 2, 'no command "trian"', "did you mean edlz train?"),
    (
        "checkpoint list x",
        2,
        'no command "checkpoint list"',
        "did you mean edlz checkpoint ls or edlz checkpoint show?",
    ),
    ("--verbose ls", 2, "no flag --verbose here", "a command comes first: edlz --help"),
    ("ls mnist", 2, 'edlz ls takes no "mnist"', "edlz ls --help"),
    ("ls -o xml", 2, '--output="xml" is none of table, wide, json, yaml', "e.g. -o json"),
    ("status -o tabel", 2, '--output="tabel" is none of table, wide, json, yaml', "did you mean table?"),
    ("scale x --workers=two", 2, '--workers="two" is not a whole number', "e.g. --workers=4"),
    ("scale x --workers=-1", 2, "--workers=-1 is below 0", "e.g. --workers=4"),
    ("wait x --timeout=soon", 2, '--timeout="soon" is not a duration', "e.g. --timeout=45s, 10m, 2h or 1d"),
    ("status nope", 4, 'no job "nope"', "no job has been run here yet ({jobs})"),
    ("logs", 2, "which job? no job runs here now", "none has been run here yet: edlz train --help"),
    ("resume", 2, "missing argument 'JOB'", "edlz resume --help"),
    (
        "resume --num_workers=3 mnist",
        2,
        "the name of the job comes before --num_workers=3",
        "edlz resume JOB --num_workers=3 mnist",
    ),
]


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    with Writer(tmp_path / "data" / "part-0") as writer:
        writer.write(b"x")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with logging_restored():
        yield


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err.splitlines()


def lines_of(error: str, help_line: str) -> list[str]:
    return [f"error: {error}", *([f"help: {help_line}"] if help_line else [])]


@pytest.mark.parametrize(("row", "typed", "error", "help_line"), MISTAKES)
def test_a_mistake_in_a_flag(
    row: str, typed: str, error: str, help_line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, *typed.split()]) == 2, row
    assert told(capsys) == lines_of(error, help_line), row


@pytest.mark.parametrize(("typed", "code", "error", "help_line"), COMMANDS)
def test_a_mistake_in_a_command(
    typed: str, code: int, error: str, help_line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == code
    assert told(capsys) == lines_of(error, help_line.format(jobs=tmp_path / "home" / "jobs"))


def test_each_row_has_three() -> None:
    rows = [row for row, *_ in MISTAKES]
    assert all(rows.count(row) >= 3 for row in rows), json.dumps(rows)


def test_several_mistakes_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "--config=choice.yaml", "--epochs=3"]) == 2
    assert [line for line in told(capsys) if line.startswith("error: ")] == [
        "error: no flag --epochs",
        f'error: --distribution_strategy="ParameterServer" (choice.yaml:2) is none of {STRATEGIES}',
        'error: --num_workers="two" (choice.yaml:1) is not a whole number',
    ]


def test_a_check_of_a_job_for_a_cluster_wants_model_and_data_here(capsys: pytest.CaptureFixture[str]) -> None:
    typed = [flag for flag in TRAIN if not flag.startswith(("--training_data", "--dry_run"))]
    assert main([*typed, "--check", "--image_name=edlz:mnist", "--training_data=/data/train"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert 'error: training_data "/data/train" does not exist' in lines
    assert "error: --check tries the model on this machine, also of a job for a cluster" in lines
    assert lines[-1].startswith("help: name a model and data that are here, or leave --check out"), lines
