"""Where a package is missing, the commands that need it say what to install, and all others work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ABSENT = """
import contextlib, importlib.abc, io, json, sys

ABSENT = sys.argv[1].split()

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

def run(main, arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()
"""
COMMANDS = """
from edlz.client.cli import main
print(json.dumps([run(main, arguments) for arguments in json.loads(sys.argv[2])]))
"""
MASTER = """
from edlz.k8s import master
sys.argv[1:] = json.loads(sys.argv[2])
sys.exit(master.main())
"""
MODEL = ["--model_def=mnist.mnist_functional_api.custom_model", "--training_data=/data"]
TRAIN = ["train", *MODEL, "--job_name=mnist"]
THERE = ["mnist", "-n", "research"]
NO_KUBERNETES = (
    "error: a cluster cannot be used: the kubernetes package is not installed\n"
    'help: pip install "kubernetes>=37"\n'
)


def python_without(
    absent: str, script: str, arguments: object, home: Path, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run a script in a Python that lacks packages."""
    return subprocess.run(
        [sys.executable, "-c", ABSENT + script, absent, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=home,
        env={"EDLZ_HOME": str(home), "PYTHONPATH": ":".join(filter(None, sys.path)), **variables},
    )


def outcomes(absent: str, commands: list[list[str]], home: Path) -> list[tuple[int, str, str]]:
    """Return exit code and output of each command in a Python that lacks packages."""
    done = python_without(absent, COMMANDS, commands, home)
    assert done.returncode == 0, done.stderr
    return [(code, out, err) for code, out, err in json.loads(done.stdout.splitlines()[-1])]


def test_commands_on_a_cluster_say_what_to_install(tmp_path: Path) -> None:
    commands = [
        ["ls", "-n", "research"],
        *([command, *THERE] for command in ("status", "top", "logs", "wait", "stop", "rm", "resume")),
        ["logs", "-f", *THERE],
        ["stop", "--all", "-n", "research"],
        ["scale", *THERE, "--workers=2"],
        [*TRAIN, "--image_name=edlz:mnist"],
        [*TRAIN, "--image_name=edlz:mnist", "--yaml=-"],
        [*TRAIN, "--image_name=edlz:mnist", "--dry-run"],
        [*TRAIN, "--docker_image_prefix=registry.example.com/team"],
    ]
    for absent in ("kubernetes docker aiohttp", "kubernetes"):
        for command, outcome in zip(commands, outcomes(absent, commands, tmp_path), strict=True):
            assert outcome == (2, "", NO_KUBERNETES), command


def test_a_package_that_lacks_another_says_which(tmp_path: Path) -> None:
    ((code, _, printed),) = outcomes("aiohttp", [["ls", "-n", "research"]], tmp_path)
    assert code == 2
    assert printed.splitlines() == [
        "error: a cluster cannot be used: the kubernetes package cannot be used (No module named 'aiohttp')",
        'help: pip install "kubernetes>=37"',
    ]


def test_commands_about_images_say_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    commands = [["zoo", "build", "--image=edlz:mnist", "."], ["zoo", "push", "edlz:mnist"]]
    for code, _, printed in outcomes("docker", commands, tmp_path):
        assert (code, printed.splitlines()[-1]) == (2, "help: pip install 'docker>=7'")


def test_everything_else_works(tmp_path: Path) -> None:
    commands = [["--version"], ["train", "--help"], ["ls"], ["status", "mnist"], ["stop", "--all"]]
    done = outcomes("kubernetes docker aiohttp", commands, tmp_path)
    assert [code for code, _, _ in done] == [0, 0, 0, 4, 0]


@pytest.mark.parametrize("absent", ["kubernetes docker aiohttp", "kubernetes"])
def test_a_masters_process_says_what_its_image_lacks(tmp_path: Path, absent: str) -> None:
    arguments = [*MODEL, "--job_name=mnist", f"--job_dir={tmp_path}"]
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "MY_POD_UID": "u", "MY_POD_IP": "127.0.0.1"}
    done = python_without(absent, MASTER, arguments, tmp_path, **pod)
    assert (done.returncode, done.stderr) == (2, NO_KUBERNETES)
