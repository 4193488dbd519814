"""The commands of the tutorials that need a Docker engine, on a real one.

For machines that reach no registry, or have no network of Docker's: `DOCKER_BUILD_ARGUMENTS` goes to every
`docker build` (`--build-arg=BASE_IMAGE=…`), `DOCKER_RUN_ARGUMENTS` to every `docker run` that names no
network.  Images of the tutorial's names are built anew.
"""

import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from edlz.client.images.recipe import own_base
from tests.tutorials import ROOT, finish, run, start, steps

BUILD_S = 1500.0

pytestmark = [pytest.mark.docker, pytest.mark.slow]


CONNECT = """
from edlz.client.images.daemon import Daemon
from edlz.services.errors import EdlzError
try:
    Daemon.connect().close()
except EdlzError as e:
    print(e.message)
"""


@pytest.fixture(scope="module", autouse=True)
def _daemon() -> None:
    # In a process of its own: the SDK leaves a socket open that could not be connected, and some other test would fail.
    asked = subprocess.run([sys.executable, "-c", CONNECT], stdout=subprocess.PIPE, text=True, check=True)
    if asked.stdout:
        pytest.skip(asked.stdout.strip())
    if shutil.which("docker") is None:
        pytest.skip("there is no command docker")


def commands(tutorial: str) -> dict[str, str]:
    return {name: step.command for name, step in steps(tutorial).items()}


@pytest.fixture(scope="module")
def blocks() -> dict[str, str]:
    return commands("docker_images.md")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, for commands that write into it."""
    place = tmp_path_factory.mktemp("checkout") / "edlz"
    left_out = shutil.ignore_patterns(
        ".git", ".venv", ".tox", "build", "__pycache__", "*.so", "*.egg-info", ".*_cache"
    )
    shutil.copytree(ROOT, place, ignore=left_out)
    for path in (place, *place.rglob("*")):  # other users' containers read them
        path.chmod(path.stat().st_mode | stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0))
    command = place / "bin" / "docker"
    command.parent.mkdir()
    cases = ""
    for word in ("build", "run"):
        arguments = shlex.join(shlex.split(os.environ.get(f"DOCKER_{word.upper()}_ARGUMENTS", "")))
        cases += f'{word}*) shift; set -- {word} {arguments} "$@" ;;\n'
    command.write_text(
        f'#!/bin/sh\ncase "$1 $*" in\nrun*--net*) ;;\n{cases}esac\nexec {shutil.which("docker")} "$@"\n'
    )
    command.chmod(0o755)
    return place


def test_the_images_are_built_and_run_without_root(blocks: dict[str, str], place: Path) -> None:
    assert f"-t {own_base()} " in blocks["base"]
    for name in ("base", "data", "dev"):
        finish(start(blocks[name], place), BUILD_S)
    assert run(f"docker run --rm {own_base()} id -u", place).splitlines()[-1] == "1000"
    assert "No broken requirements" in run(f"docker run --rm {own_base()} pip check", place)


def test_a_master_a_ps_and_a_worker_train_in_containers(blocks: dict[str, str], place: Path) -> None:
    names = ("master", "ps", "worker")
    processes = {name: start(blocks[name], place) for name in names}
    try:
        output = {name: finish(processes[name]) for name in names}
    finally:
        for process in processes.values():  # those that still run; docker passes the signal on
            process.terminate()
            process.communicate()
    assert "complete at version=620" in output["master"]


def test_a_whole_job_trains_in_one_container(blocks: dict[str, str], place: Path) -> None:
    assert "each in the model exactly once" in run(blocks["train"], place)


def test_the_image_of_a_zoo_is_built_and_trains(blocks: dict[str, str], place: Path) -> None:
    assert "built edlz:mnist_ps " in finish(start(blocks["zoo"], place), BUILD_S)
    on_its_image = blocks["train"].replace("edlz:dev", "--volumes-from=edlz-demo-data:ro edlz:mnist_ps")
    run("docker create --name=edlz-demo-data -v /data edlz:data", place)
    try:
        assert "each in the model exactly once" in run(on_its_image, place)
    finally:
        run("docker rm -v edlz-demo-data", place)


def test_the_checkout_is_tested_in_the_development_image(blocks: dict[str, str], place: Path) -> None:
    assert " passed" in run(blocks["tests"], place)


def test_wheels_built_in_the_image_go_into_another_one(place: Path) -> None:
    finish(start("scripts/docker_build_wheel.sh", place), BUILD_S)
    run("edlz zoo init --base_image=edlz:dev_wheels --local_pkg_dir=build", place)
    run("docker tag edlz:dev edlz:dev_wheels", place)
    assert "built edlz:wheels " in finish(
        start("edlz zoo build --network=host --image=edlz:wheels .", place), BUILD_S
    )


def test_a_checkout_is_built_tested_and_run_in_containers(place: Path) -> None:
    blocks = commands("build_and_test.md")
    for name in ("volume", "container"):
        output = run(blocks[name], place)
    assert " passed" in output
    finish(start("docker build -f docker/Dockerfile --target=ci -t edlz:ci .", place), BUILD_S)
    master, worker = (start(blocks[name], place) for name in ("master", "worker"))
    try:
        finish(worker)
        assert "complete at version=620" in finish(master)
    finally:
        for process in (master, worker):
            process.terminate()
            process.communicate()


def test_data_are_made_in_the_development_image(place: Path) -> None:
    home = place / "user"
    (home / ".keras").mkdir(parents=True)
    step = steps("minikube.md")["docker_data"]
    assert "6,000 records written" in finish(start(step.command, place, {"HOME": str(home)}))
    assert (place / "data" / "mnist" / "train").is_dir()
