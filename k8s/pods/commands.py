"""What is asked of a job by annotations of its master pod: `edlz scale`, `edlz stop`, `kubectl annotate`.

An annotation stays, so what it asks for counts whenever it is read: one that was set while the master was away
is obeyed when it is back.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from edlz.k8s.cluster.names import STOP, WORKERS

__all__ = ["Asked", "Commands"]

SAVE = "save"
_NUMBER = re.compile(r"[0-9]{1,18}")
_SHOWN = 80  # letters of a value that cannot be understood


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be done now.

    Attributes
    ----------
    workers : int, optional
        How many are wanted, if somebody has asked for another number.
    is_stopping : bool
        The job should save a checkpoint and end.
    complaints : tuple of str
        What cannot be understood, each told once.
    """

    workers: int | None = None
    is_stopping: bool = False
    complaints: tuple[str, ...] = ()


@dataclass(slots=True)
class Commands:
    """Reads the annotations; a value counts as another one only if it has changed."""

    _workers: str | None = None
    _stop: str | None = None

    def on_annotations(self, annotations: Mapping[str, str]) -> Asked:
        """Return what the annotations ask for that they did not ask before; a stop is asked for again and again."""
        complaints = []
        workers, text = None, annotations.get(WORKERS)
        if text != self._workers:
            self._workers = text
            if text is not None and _NUMBER.fullmatch(text.strip()):
                workers = int(text)
            elif text is not None:
                complaints.append(f'{WORKERS}="{text[:_SHOWN]}" is not a number of workers')
        stop = annotations.get(STOP)
        if stop != self._stop:
            self._stop = stop
            if stop is not None and stop != SAVE:
                complaints.append(f'{STOP}="{stop[:_SHOWN]}" is unknown; a job is stopped by {STOP}={SAVE}')
        return Asked(workers, stop == SAVE, tuple(complaints))
