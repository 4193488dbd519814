"""Whether the system has killed a process for its memory: the signal alone does not say so."""

from pathlib import Path

__all__ = ["OutOfMemory"]

_COUNTERS = Path("/proc/vmstat")  # Linux; `oom_kill` counts since the system started, containers included


class OutOfMemory:
    """Watches the system's count of processes that it killed since memory ran out."""

    def __init__(self, counters: Path = _COUNTERS) -> None:
        self._counters = counters
        self._seen = self._count()

    def has_killed(self) -> bool:
        """Whether that has happened since this was asked before."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def _count(self) -> int:
        """Return the count; 0 where the system keeps none."""
        try:
            text = self._counters.read_text()
        except OSError:
            return 0
        counts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        return int(counts.get("oom_kill", 0))
