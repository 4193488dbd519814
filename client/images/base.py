"""The image that all others build on: there already, or built from the checkout that edlz runs from."""

import os
from collections.abc import Mapping
from pathlib import Path

import edlz.client.images
from edlz.client.images.daemon import Daemon, ImageError
from edlz.client.images.recipe import PIP_SETTINGS, check_no_password, own_base
from edlz.client.images.views import View, follow

__all__ = ["ensure_base", "pip_settings"]


def ensure_base(
    base: str, daemon: Daemon, view: View, extra_pypi_index: str = "", ca_bundle: Path | None = None
) -> None:
    """Build the base image of this version of edlz if `base` is it, and the daemon does not have it.

    Any other base is the daemon's affair: it pulls what it does not have.

    Raises
    ------
    ImageError
        If it is not there, and edlz does not run from a checkout.
    """
    if base != own_base() or daemon.image(base) is not None:
        return
    root = _checkout()
    if root is None:
        raise ImageError(
            f"the Docker daemon has no image {base}",
            "build it in a checkout of edlz: scripts/build_images.sh, or name another: --base_image=IMAGE",
        )
    arguments = _given(os.environ)  # a password stays in stages of which the image has no layer
    arguments |= {"EXTRA_PYPI_INDEX": extra_pypi_index} if extra_pypi_index else {}
    if ca_bundle is not None:
        arguments["CA_BUNDLE"] = _in_checkout(ca_bundle, root, base)
    records = daemon.build(root, base, dockerfile="docker/Dockerfile", target="runtime", arguments=arguments)
    follow(f"Building {base} from {root}, once; it takes some minutes", records, view)


def pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the build arguments by which an image's pip asks the package index that this machine's does.

    Raises
    ------
    ConfigError
        If one has a password in it, which would stay in the image.
    """
    given = _given(environ)
    for name, value in given.items():
        check_no_password(value, name, f"set {name}= for pip's own index")
    return given


def _given(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in PIP_SETTINGS if environ.get(name)}


def _in_checkout(path: Path, root: Path, base: str) -> str:
    """Return a file's path as the build of the base image has it."""
    whole = path.resolve()
    if not whole.is_relative_to(root):
        raise ImageError(
            f"the Docker daemon has no image {base}, and {path} is outside of {root}, of which it is built",
            f"copy it there, then once: scripts/build_images.sh --build-arg CA_BUNDLE={path.name}",
        )
    return whole.relative_to(root).as_posix()


def _checkout() -> Path | None:
    """Return the folder that edlz runs from if it is a checkout, with docker/ in it."""
    here = edlz.client.images.__file__
    root = Path(here).resolve().parents[2] if here else None
    return root if root is not None and (root / "docker" / "Dockerfile").is_file() else None
