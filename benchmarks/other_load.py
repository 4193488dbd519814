"""How much of the machine other programs took while a benchmark ran."""

import os
import time
from pathlib import Path

__all__ = ["OtherLoad"]

_IDLE = (3, 4)  # places of idle and iowait in the first line of /proc/stat
_GUEST = 8  # from here on, time that is counted in other places already


class OtherLoad:
    """What other programs take of the processors from now on (Linux; elsewhere nothing is known)."""

    def __init__(self) -> None:
        self._began_s, self._busy_s, self._own_s = time.monotonic(), _busy_s(), _own_s()

    @property
    def share(self) -> float:
        """Their share of all processors' time; processes that this one started count once they have ended."""
        taken_s = _busy_s() - self._busy_s - (_own_s() - self._own_s)
        return max(0.0, taken_s) / ((time.monotonic() - self._began_s) * (os.cpu_count() or 1))


def _busy_s() -> float:
    try:
        line = Path("/proc/stat").read_text().partition("\n")[0]
    except FileNotFoundError:
        return _own_s()
    ticks = [int(field) for place, field in enumerate(line.split()[1 : _GUEST + 1]) if place not in _IDLE]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
