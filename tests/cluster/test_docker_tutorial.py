"""The tutorial about Docker images, command by command, on a real Docker engine.

For machines that reach no registry, or have no network of Docker's: `DOCKER_BUILD_ARGUMENTS` goes to every
`docker build` (`--build-arg=BASE_IMAGE=…`), `DOCKER_RUN_ARGUMENTS` to every `docker run` that names no
network.  Images of the tutorial's names are built anew.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from edlz.client.images.daemon import Daemon
from edlz.client.images.recipe import own_base
from edlz.services.errors import EdlzError

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```sh (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BUILD_S, RUN_S = 1500, 500

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def _daemon() -> None:
    try:
        Daemon.connect().close()
    except EdlzError as e:
        pytest.skip(e.message)
    if shutil.which("docker") is None:
        pytest.skip("there is no command docker")


@pytest.fixture(scope="module")
def blocks() -> dict[str, str]:
    return dict(_BLOCK.findall((ROOT / "docs" / "tutorials" / "docker_images.md").read_text()))


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


def start(command: str, place: Path) -> subprocess.Popen[str]:
    path = f"{place / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        command,
        shell=True,
        cwd=place,
        env={**os.environ, "PATH": path, "EDLZ_HOME": str(place / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout_s: float = RUN_S) -> str:
    output, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, output[-5000:]
    return output


def test_the_images_are_built_and_run_without_root(blocks: dict[str, str], place: Path) -> None:
    assert f"-t {own_base()} " in blocks["base"]
    for name in ("base", "data", "dev"):
        finish(start(blocks[name], place), BUILD_S)
    assert finish(start(f"docker run --rm {own_base()} id -u", place)).splitlines()[-1] == "1000"
    assert "No broken requirements" in finish(start(f"docker run --rm {own_base()} pip check", place))


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
    assert "each in the model exactly once" in finish(start(blocks["train"], place))


def test_the_image_of_a_zoo_is_built_and_trains(blocks: dict[str, str], place: Path) -> None:
    assert "built edlz:mnist_ps " in finish(start(blocks["zoo"], place), BUILD_S)
    on_its_image = blocks["train"].replace("edlz:dev", "--volumes-from=edlz-demo-data:ro edlz:mnist_ps")
    finish(start("docker create --name=edlz-demo-data -v /data edlz:data", place))
    try:
        assert "each in the model exactly once" in finish(start(on_its_image, place))
    finally:
        finish(start("docker rm -v edlz-demo-data", place))


def test_the_checkout_is_tested_in_the_development_image(blocks: dict[str, str], place: Path) -> None:
    assert " passed" in finish(start(blocks["tests"], place))


def test_wheels_built_in_the_image_go_into_another_one(place: Path) -> None:
    finish(start("scripts/docker_build_wheel.sh", place), BUILD_S)
    finish(start("edlz zoo init --base_image=edlz:dev_wheels --local_pkg_dir=build", place))
    finish(start("docker tag edlz:dev edlz:dev_wheels", place))
    assert "built edlz:wheels " in finish(
        start("edlz zoo build --network=host --image=edlz:wheels .", place), BUILD_S
    )
