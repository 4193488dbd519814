"""The image that a job runs in: one that exists, or one that is built for the job, and pushed.

With `--image_name`, or `--image_base` whose zoo is in it already, that image is taken as it is.  Otherwise
`--docker_image_prefix`, or `--image_base` alone, mean: put the model into an image of its own.
"""

import os
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from edlz.client.images.base import ensure_base, pip_settings
from edlz.client.images.context import pack
from edlz.client.images.daemon import Address, Daemon
from edlz.client.images.recipe import (
    MODEL_FOLDER,
    MODEL_ZOO,
    Recipe,
    check_image_name,
    dockerfile,
    own_base,
)
from edlz.client.images.views import View, follow, view_for
from edlz.client.screen.terminal import display_for, has_colour
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError
from edlz.services.inputs.model_location import locate_model
from edlz.services.inputs.paths import nearest_path

__all__ = ["check_image_flags", "config_in_image", "is_built_for_job", "job_image"]


def check_image_flags(config: JobConfig) -> None:
    """Check that the flags name one image.

    Raises
    ------
    ConfigError
        If they name none, two, or one that Docker would refuse.
    """
    named = [f"--{name}" for name in ("image_name", "image_base") if getattr(config, name)]
    if config.image_name and (config.image_base or config.docker_image_prefix):
        other = named[1] if len(named) > 1 else "--docker_image_prefix"
        raise ConfigError(f"--image_name with {other}: is the image there, or built?", "drop one of the two")
    if config.push_image and not config.docker_image_prefix:
        raise ConfigError(
            "--push_image without --docker_image_prefix: pushed to where?",
            "e.g. --docker_image_prefix=registry.example.com/team",
        )
    if not (named or config.docker_image_prefix):
        raise ConfigError("no image for the job", "e.g. --image_name=edlz:mnist")
    for name in ("image_name", "image_base"):
        if getattr(config, name):
            check_image_name(getattr(config, name), name)
    if config.docker_image_prefix:
        check_image_name(f"{_prefix(config)}/edlz", "docker_image_prefix")


def is_built_for_job(config: JobConfig) -> bool:
    """Return whether the flags ask for an image with this job's model in it."""
    if config.image_name:
        return False
    return bool(config.docker_image_prefix) or (bool(config.image_base) and not _is_in_image(config))


def config_in_image(config: JobConfig) -> JobConfig:
    """Return a job's settings with its paths as they are in its image.

    A relative `--model_zoo` is `/model_zoo` there, where `edlz zoo build` puts it.  In an image that is built
    for the job a model outside of a zoo lies in `/model`.  `--cluster_spec` stays as it is: whoever submits the
    job reads the file here, and a master looks for its name in `/cluster_spec` by itself.
    """
    is_built = is_built_for_job(config)
    changes: dict[str, str] = {}
    if config.model_zoo and (is_built or not config.model_zoo.startswith("/")):
        changes["model_zoo"] = MODEL_ZOO
    model = _model_outside(config) if is_built else None
    if model is not None:
        changes[model.flag] = f"{MODEL_FOLDER}/{model.path.name}"
    return replace(config, **changes)  # type: ignore[arg-type]


def job_image(config: JobConfig, say: Callable[[str], None], view: View | None = None) -> str:
    """Return the name of a job's image, which is built and pushed first if the flags ask for it.

    Parameters
    ----------
    say : callable
        Gets a line when something is done.
    view : View, optional
        Shows the daemon's progress; one on standard error, as `--progress` wants it, when not given.

    Raises
    ------
    ConfigError
        If the flags do not fit together, or the Docker SDK is not there.
    ImageError, PeerUnavailable
        If the daemon does not build or push it, or is not there.
    """
    check_image_flags(config)
    if not is_built_for_job(config):
        return config.image_name or config.image_base
    view = view or _view_of(config)
    name = _new_name(config)
    recipe, entries = _contents(config)
    text, arguments = dockerfile(recipe), pip_settings(os.environ)
    daemon = Daemon.connect(Address.of(config))
    try:
        ca_bundle = Path(config.ca_bundle) if config.ca_bundle else None
        ensure_base(recipe.base_image, daemon, view, config.extra_pypi_index, ca_bundle)
        with pack(text, entries) as context:
            records = daemon.build(context, name, arguments=arguments)
            follow(f"Building {name} on {recipe.base_image}", records, view)
        facts = daemon.image(name)
        say(f"built {name}" + (f" ({facts.platform})" if facts else ""))
        if config.docker_image_prefix:
            follow(f"Pushing {name}", daemon.push(name), view)
            say(f"pushed {name}")
    finally:
        daemon.close()
    return name


def _view_of(config: JobConfig) -> View:
    display = display_for(config.progress, sys.stderr, os.environ)
    return view_for(display, sys.stderr, is_coloured=has_colour(sys.stderr, os.environ))


@dataclass(frozen=True, slots=True)
class _Model:
    """A model that is given by a path: the flag, and the file or folder that goes into the image."""

    flag: str
    path: Path


def _contents(config: JobConfig) -> tuple[Recipe, dict[str, Path]]:
    """Return what goes into the job's image, and where it lies here."""
    entries: dict[str, Path] = {}
    if config.model_zoo:
        zoo = Path(config.model_zoo)
        if not zoo.is_dir():
            raise ConfigError(
                f'--model_zoo="{config.model_zoo}" is no directory: it goes into the image',
                "or for a zoo that is in the image: --image_base=IMAGE without --docker_image_prefix",
            )
        entries["model_zoo"] = zoo
    model = _model_outside(config)
    if model is not None:
        entries[f"model/{model.path.name}"] = model.path
    spec = Path(config.cluster_spec)
    if config.cluster_spec:
        entries[f"cluster_spec/{spec.name}"] = _file("cluster_spec", spec)
    if config.local_pkg_dir:
        wheels = sorted(Path(config.local_pkg_dir).glob("*.whl"))
        if not wheels:
            raise ConfigError(
                f'--local_pkg_dir="{config.local_pkg_dir}" has no wheels', "scripts/docker_build_wheel.sh"
            )
        entries.update({f"packages/{wheel.name}": wheel for wheel in wheels})
    if config.ca_bundle:
        entries["ca_bundle.pem"] = _file("ca_bundle", Path(config.ca_bundle))
    recipe = Recipe(
        base_image=config.image_base or own_base(),
        model_zoo="model_zoo" if config.model_zoo else "",
        model=f"model/{model.path.name}" if model else "",
        cluster_spec=f"cluster_spec/{spec.name}" if config.cluster_spec else "",
        local_pkg_dir="packages" if config.local_pkg_dir else "",
        extra_pypi_index=config.extra_pypi_index,
        ca_bundle="ca_bundle.pem" if config.ca_bundle else "",
    )
    return recipe, entries


def _file(flag: str, path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(
            f'--{flag}="{path}" does not exist', nearest_path(path) or f"name a file: --{flag}=PATH"
        )
    return path


def _model_outside(config: JobConfig) -> _Model | None:
    """Return the model if it is given by a path: a file, or the folder D of D/D.py."""
    if config.model_file:
        return _Model("model_file", locate_model(config).path)
    given = Path(config.model_def)
    if not config.model_def or not (given.exists() or "/" in config.model_def):
        return None
    path = locate_model(config).path
    is_in_folder = path.parent.name == path.stem == given.name and given.is_dir()
    return _Model("model_def", given if is_in_folder else path)


def _is_in_image(config: JobConfig) -> bool:
    """Return whether the model is in the image already: no path given, or one that only an image has."""
    if config.model_file or "/" in config.model_def or Path(config.model_def).exists():
        given = config.model_file or config.model_def
        return given.startswith("/") and not Path(given).exists()
    zoo = config.model_zoo
    return not zoo or zoo == MODEL_ZOO or (zoo.startswith("/") and not Path(zoo).exists())


def _new_name(config: JobConfig) -> str:
    """Return a name that no image has yet, so that no pod of another job gets this one, or an older one."""
    tag = f"{config.job_name}-{uuid.uuid4().hex[:12]}"
    return f"{_prefix(config)}/edlz:{tag}" if config.docker_image_prefix else f"edlz:{tag}"


def _prefix(config: JobConfig) -> str:
    return config.docker_image_prefix.rstrip("/")
