"""The image that all others build on: there already, or built from the checkout that edlz runs from."""

from pathlib import Path

import edlz.client.images
from edlz.client.images.daemon import Daemon, ImageError
from edlz.client.images.recipe import own_base
from edlz.client.images.views import View, follow

__all__ = ["ensure_base"]


def ensure_base(base: str, daemon: Daemon, view: View, extra_pypi_index: str = "") -> None:
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
    arguments = {"EXTRA_PYPI_INDEX": extra_pypi_index} if extra_pypi_index else {}
    records = daemon.build(root, base, dockerfile="docker/Dockerfile", target="runtime", arguments=arguments)
    follow(f"Building {base} from {root}, once; it takes some minutes", records, view)


def _checkout() -> Path | None:
    """Return the folder that edlz runs from if it is a checkout, with docker/ in it."""
    here = edlz.client.images.__file__
    root = Path(here).resolve().parents[2] if here else None
    return root if root is not None and (root / "docker" / "Dockerfile").is_file() else None
