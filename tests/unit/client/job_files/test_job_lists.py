"""A list of jobs is there at once: what it imports, what it reads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from edlz.client.cli import main
from edlz.client.commands.job_list import Asked, asked_list
from edlz.client.local.job_directory import open_job_directory
from edlz.client.local.live_status import LiveStatus
from tests.unit.client.job_homes import RUNNING, config, ended, master, training

HEAVY = ("numpy", "zmq", "asyncio", "typer", "pydantic", "rich", "tensorflow", "kubernetes")


def imported_by(argv: list[str], home: Path) -> set[str]:
    """Return what a command has imported at its end, in a process of its own."""
    program = (
        "import json, sys\n"
        "from edlz.client.cli import main\n"
        "main(sys.argv[1:])\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *argv],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "EDLZ_HOME": str(home)},
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("argv", [["ls"], ["ls", "-o", "json", "--all"]])
def test_ls_imports_nothing_heavy_for_jobs_that_have_ended(home: Path, argv: list[str]) -> None:
    for state in ("Succeeded", "Failed", "Stopped"):
        ended(home, msgspec.structs.replace(RUNNING, state=state), state.lower())
    assert not imported_by(argv, home) & set(HEAVY)


def test_ls_imports_nothing_heavy_for_jobs_that_run(home: Path) -> None:
    with open_job_directory(config()) as folder:
        LiveStatus(folder.sockets).note(RUNNING, 0.0)
        assert not imported_by(["ls"], home) & set(HEAVY)


def test_a_list_shows_what_a_supervisor_has_just_heard(capsys: pytest.CaptureFixture[str]) -> None:
    with open_job_directory(config()) as folder, master(folder, training) as asked:
        left = LiveStatus(folder.sockets)
        left.note(msgspec.structs.replace(RUNNING, ratio=0.5), 0.0)
        left.note(msgspec.structs.replace(RUNNING, ratio=0.7), 0.9)  # not each of many
        assert main(["ls"]) == 0
        assert asked == []
        assert "mnist  Training  50 %" in capsys.readouterr().out
        left.note(msgspec.structs.replace(RUNNING, state="Stopping", ratio=0.7), 0.9)
        assert main(["ls"]) == 0
        assert "mnist  Stopping  70 %" in capsys.readouterr().out
        assert main(["ls", "-o", "json"]) == 0
        assert len(asked) == 1, "scripts get the events too"
        assert json.loads(capsys.readouterr().out)["jobs"][0]["events"][0]["text"] == "worker-0 joined."


@pytest.mark.parametrize("content", ["", "{", None])
def test_what_a_supervisor_has_left_is_not_believed_for_long(
    content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_job_directory(config()) as folder, master(folder, training) as asked:
        LiveStatus(folder.sockets).note(msgspec.structs.replace(RUNNING, ratio=0.1), 0.0)
        left = folder.sockets / "status.json"
        if content is None:
            os.utime(left, (0, left.stat().st_mtime - 60))
        else:
            left.write_text(content)
        assert main(["ls"]) == 0
        assert "mnist  Training  59 %" in capsys.readouterr().out
        assert len(asked) == 1


def test_training_reads_its_flags_without_what_only_completion_needs(home: Path) -> None:
    assert not imported_by(["train", "--num_workers=0"], home) & {"typer", "pydantic", "numpy", "zmq"}


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        ([], Asked()),
        (["--all", "-o", "json"], Asked(output="json", is_all=True)),
        (["--output=yaml", "--namespace", "a"], Asked(output="yaml", namespace="a")),
        (["-n", "a"], Asked(namespace="a")),
        (["-o"], None),
        (["-o", "--all"], None),
        (["-ojson"], None),  # Typer takes it
        (["-o=json"], None),
        (["mnist"], None),
        (["--al"], None),
    ],
)
def test_plain_arguments_of_ls_need_no_parser(argv: list[str], asked: Asked | None) -> None:
    assert asked_list(argv) == asked
