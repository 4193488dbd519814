"""Finding the record that makes the user's code raise: tf.data's errors do not name it."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from edlz.services.worker.pipeline import FeedSettings
from edlz.services.worker.task_reader import Assignment

__all__ = ["blame_record"]

_LIMIT_S = 10.0  # a slow feed is not run over and over


class _OutOfTimeError(Exception):
    """No more tries."""


def blame_record(
    settings: FeedSettings, assignment: Assignment, run: Callable[[list[bytes]], Iterable[Any]]
) -> str:
    """Return `record 17 of data/part-0`, or nothing if no single record is to blame.

    Parameters
    ----------
    run : callable
        (records) -> what the feed makes of them; making it or iterating over it raises if the bad one is
        among them.
    """
    until = time.monotonic() + _LIMIT_S

    def raises(records: list[bytes]) -> bool:
        try:
            for _ in run(records):
                if time.monotonic() > until:
                    raise _OutOfTimeError
        except _OutOfTimeError:
            raise
        except Exception:  # whatever the user's code raises
            return True
        return False

    try:
        records = settings.read(assignment)
        good, bad = 0, len(records)  # the first `good` records pass, the first `bad` ones do not
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if raises(records[:middle]) else (middle, bad)
        if not records or not raises(records[bad - 1 : bad]):
            return ""
    except Exception:  # the error that is being explained matters, not this one
        return ""
    return f"record {settings.number(assignment, bad - 1)} of {assignment.records.name}"
