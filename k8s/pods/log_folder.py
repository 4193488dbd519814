"""The folder of the logs of pods that are gone, in the job's folder: a file each, the oldest go first."""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from edlz.k8s.pods.pod_log import PodLog
from edlz.services.storage.durable import replace_file

__all__ = ["MOST_LOGS", "LogFolder"]

MOST_LOGS, MOST_BYTES = 50, 10_000_000
_NAME = re.compile(r"(?P<at>\d{8}T\d{6})-(?P<pod>[a-z]+-\d+)-(?P<uid>[^.]*)\.log")


class LogFolder:
    """Keeps logs; whatever else lies in the folder is left alone.

    Parameters
    ----------
    path : Path
        The folder; it is made when there is something to keep.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self, log: PodLog) -> list[PodLog]:
        """Write a log, unless an earlier life of the master has; return those that had to go for it.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        if any(path.name.endswith(log.file_name.partition("-")[2]) for path in self._files()):
            return []
        self._path.mkdir(parents=True, exist_ok=True)
        replace_file(self._path / log.file_name, log.text + "\n")
        gone = []
        size_bytes = 0
        for number, path in enumerate(sorted(self._files(), reverse=True)):
            size_bytes += path.stat().st_size
            if number >= MOST_LOGS or size_bytes > MOST_BYTES:
                gone.append(_read(path))
                path.unlink(missing_ok=True)
        return gone

    def logs(self) -> list[PodLog]:
        """Return the logs that are there, the oldest first."""
        found = []
        for path in sorted(self._files()):
            with suppress(OSError):
                found.append(_read(path))
        return found

    def _files(self) -> Iterator[Path]:
        try:
            yield from (path for path in self._path.iterdir() if _NAME.fullmatch(path.name))
        except OSError:  # there is none yet
            return


def _read(path: Path) -> PodLog:
    parts = _NAME.fullmatch(path.name)
    assert parts is not None, "the names of files are looked at before"
    at = datetime.strptime(parts["at"], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp()
    return PodLog(
        parts["pod"], parts["uid"], at, path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
    )
