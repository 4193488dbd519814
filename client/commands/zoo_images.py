"""`edlz zoo init`, `edlz zoo build`, `edlz zoo push`: images with a model zoo."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edlz.client.images.base import ensure_base, pip_settings
from edlz.client.images.daemon import Address, Daemon, ImageError
from edlz.client.images.recipe import MARK, Recipe, base_of, check_image_name, dockerfile, own_base
from edlz.client.images.views import follow, view_for
from edlz.client.screen.terminal import display_for, has_colour
from edlz.client.screen.wording import size
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.configuration.problems import Problem, print_problems
from edlz.services.errors import ConfigError
from edlz.services.storage.durable import replace_file

if TYPE_CHECKING:
    from edlz.client.images.views import View

__all__ = ["build", "init", "push"]

DOCKERFILE, IGNORED = "Dockerfile", ".dockerignore"
_MOST_NODES = "linux/amd64"
_LOOKS = ("auto", "live", "plain", "quiet")

_Url = Annotated[str, typer.Option(metavar="URL", help="the Docker daemon  [DOCKER_HOST]")]
_Certificate = Annotated[str, typer.Option(metavar="FILE", help="certificate for the daemon")]
_Key = Annotated[str, typer.Option(metavar="FILE", help="key for the daemon")]
_Progress = Annotated[str, typer.Option(metavar="HOW", help="auto | live | plain | quiet")]


def init(
    base_image: Annotated[str, typer.Option(metavar="IMAGE", help="build on this one  [edlz's own]")] = "",
    model_zoo: Annotated[str, typer.Option(metavar="DIR", help="folder of the models")] = "model_zoo",
    local_pkg_dir: Annotated[str, typer.Option(metavar="DIR", help="wheels of edlz to install")] = "",
    cluster_spec: Annotated[str, typer.Option(metavar="FILE", help="Python: changes pods")] = "",
    extra_pypi_index: Annotated[str, typer.Option(metavar="URL", help="another package index")] = "",
    ca_bundle: Annotated[str, typer.Option(metavar="FILE", help="PEM: certificates that pip trusts")] = "",
) -> None:
    """Write a Dockerfile for a model zoo in the current folder."""
    recipe = Recipe(
        base_image=base_image or own_base(),
        model_zoo=_inside("model_zoo", model_zoo, is_folder=True),
        local_pkg_dir=_inside("local_pkg_dir", local_pkg_dir, is_folder=True) if local_pkg_dir else "",
        cluster_spec=_inside("cluster_spec", cluster_spec, is_folder=False) if cluster_spec else "",
        extra_pypi_index=extra_pypi_index,
        ca_bundle=_inside("ca_bundle", ca_bundle, is_folder=False) if ca_bundle else "",
    )
    if local_pkg_dir and not list(Path(local_pkg_dir).glob("*.whl")):
        raise ConfigError(f'--local_pkg_dir="{local_pkg_dir}" has no wheels', "scripts/docker_build_wheel.sh")
    text = dockerfile(recipe)
    path = Path(DOCKERFILE)
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(MARK):
        raise ConfigError(
            f"{path.absolute()} is not edlz's: it is left as it is", "move it away, or go to another folder"
        )
    replace_file(path.resolve(), text)
    if not Path(IGNORED).exists():
        replace_file(Path(IGNORED), _ignored(recipe.model_zoo))
        print(f"wrote {IGNORED}: what is not sent to Docker")
    print(f"wrote {DOCKERFILE}: {recipe.model_zoo} on {recipe.base_image}")
    print("next: edlz zoo build --image=edlz:mnist .")


def build(
    image: Annotated[str, typer.Option(metavar="NAME", help="name of the image")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="folder with the Dockerfile")] = Path(),
    platform: Annotated[str, typer.Option(metavar="OS/ARCH", help="of the image  [the daemon's]")] = "",
    network: Annotated[str, typer.Option(metavar="NAME", help="of the build's steps, e.g. host")] = "",
    docker_base_url: _Url = "",
    docker_tlscert: _Certificate = "",
    docker_tlskey: _Key = "",
    progress: _Progress = "auto",
) -> None:
    """Build the image of a folder with a Dockerfile."""
    check_image_name(image, "image")
    file = path / DOCKERFILE
    if not file.is_file():
        raise ConfigError(f"{file} does not exist", "edlz zoo init --model_zoo=model_zoo writes one")
    arguments = pip_settings(os.environ)
    view = _view(progress)
    daemon = _daemon(docker_base_url, docker_tlscert, docker_tlskey)
    began = time.monotonic()
    try:
        base = base_of(file.read_text(encoding="utf-8", errors="replace"))
        ensure_base(base, daemon, view)
        records = daemon.build(path, image, platform=platform, network=network, arguments=arguments)
        follow(f"Building {image}", records, view)
        _print_built(daemon, image, platform, time.monotonic() - began)
    finally:
        daemon.close()


def push(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="its name, with the registry's")],
    docker_base_url: _Url = "",
    docker_tlscert: _Certificate = "",
    docker_tlskey: _Key = "",
    progress: _Progress = "auto",
) -> None:
    """Push an image to the registry in its name."""
    check_image_name(image, "image")
    view = _view(progress)
    daemon = _daemon(docker_base_url, docker_tlscert, docker_tlskey)
    try:
        if daemon.image(image) is None:
            near = nearest(image, daemon.names())
            raise ImageError(
                f"the Docker daemon has no image {image}", did_you_mean(near) or "edlz zoo build"
            )
        follow(f"Pushing {image}", daemon.push(image), view)
    finally:
        daemon.close()
    print(f"pushed {image}")


def _inside(flag: str, given: str, *, is_folder: bool) -> str:
    """Return a path relative to the current folder, with `/`; Docker sees nothing outside of it."""
    path = Path(given)
    if not (path.is_dir() if is_folder else path.is_file()):
        raise ConfigError(
            f'--{flag}="{given}" is no {"directory" if is_folder else "file"}', f"name the one: --{flag}=PATH"
        )
    try:
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    except ValueError as e:
        raise ConfigError(
            f'--{flag}="{given}" lies outside of {Path.cwd()}, and Docker sees only what is in it',
            "copy it there, or go to a folder above both",
        ) from e


def _ignored(model_zoo: str) -> str:
    return f"# What `edlz zoo build` does not send to Docker; {model_zoo} should stay.\n" + "\n".join(
        (".git", ".venv", ".tox", "**/__pycache__", "**/.ipynb_checkpoints", "")
    )


def _view(progress: str) -> "View":
    if progress not in _LOOKS:
        raise ConfigError(f'--progress="{progress}" is none of {", ".join(_LOOKS)}')
    display = display_for(progress, sys.stdout, os.environ)
    return view_for(display, sys.stdout, is_coloured=has_colour(sys.stdout, os.environ))


def _daemon(url: str, certificate: str, key: str) -> Daemon:
    return Daemon.connect(Address(url, certificate, key))


def _print_built(daemon: Daemon, image: str, asked_platform: str, elapsed_s: float) -> None:
    facts = daemon.image(image)
    if facts is not None:
        print(f"built {image}  {size(facts.size_bytes)}  {facts.platform}  in {elapsed_s:.0f}s")
        if not facts.platform.startswith(asked_platform or _MOST_NODES):
            wanted = asked_platform or _MOST_NODES
            problem = Problem(
                f"{image} is {facts.platform}: nodes of {wanted} cannot run it",
                f"edlz zoo build --platform={wanted}, on a base image and a daemon that can",
            )
            print_problems([problem], "warning")
    print(f"next: edlz zoo push {image}    edlz train … --image_name={image}")
