"""What this machine's Docker daemon knows of an image, for checks and advice; nothing without a daemon."""

from dataclasses import dataclass

from edlz.client.images.daemon import Address, Daemon
from edlz.services.configuration.nearest import nearest
from edlz.services.errors import EdlzError

__all__ = ["LocalImage", "look_up"]


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image as the daemon here has it.

    Attributes
    ----------
    platform : str
        As `linux/amd64`; empty if it is not here.
    near : tuple of str
        Names of images here that are like it, if it is not.
    """

    platform: str
    near: tuple[str, ...] = ()


def look_up(image: str, address: Address) -> LocalImage | None:
    """Return what the daemon here knows of an image; None if there is no daemon, or no SDK to ask it."""
    try:
        daemon = Daemon.connect(address)
    except EdlzError:
        return None
    try:
        facts = daemon.image(image)
        return LocalImage(facts.platform) if facts else LocalImage("", tuple(nearest(image, daemon.names())))
    except EdlzError:
        return None
    finally:
        daemon.close()
