"""What is sent to the Docker daemon for a job's image: a tar file of a Dockerfile and a few folders.

The same files give the same bytes, whoever packs them and when, so that the daemon finds its layers again.
"""

import io
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from edlz.services.errors import ConfigError

__all__ = ["pack"]

_LEFT_OUT = frozenset(("__pycache__", ".git", ".venv", ".tox", ".ipynb_checkpoints", ".DS_Store"))


def pack(dockerfile: str, entries: Mapping[str, Path]) -> IO[bytes]:
    """Return an open tar file that holds a Dockerfile and what `entries` name.

    Parameters
    ----------
    dockerfile : str
        Its text.
    entries : mapping
        Files and folders, by their path in the tar file.

    Raises
    ------
    ConfigError
        If one cannot be read.
    """
    out = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
    try:
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            text = dockerfile.encode()
            about = tarfile.TarInfo("Dockerfile")
            about.size = len(text)
            tar.addfile(about, io.BytesIO(text))
            for name, path in sorted(entries.items()):
                tar.add(path.resolve(), name, filter=_plain)
    except OSError as e:
        out.close()
        raise ConfigError(f"{e.filename or 'the build context'} cannot be read: {e.strerror or e}") from e
    out.seek(0)
    return out


def _plain(about: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(about.name).name
    if name in _LEFT_OUT or name.endswith(".pyc") or not (about.isfile() or about.isdir() or about.issym()):
        return None
    about.uid = about.gid = about.mtime = 0
    about.uname = about.gname = ""
    about.mode = 0o755 if about.isdir() or about.mode & 0o100 else 0o644
    return about
