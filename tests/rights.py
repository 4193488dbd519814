"""Folders that nobody may look into, the superuser neither."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["without_rights"]

_NOBODY = 65534


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """Take away the right to look into a folder, which is made if it is not there."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o700)
