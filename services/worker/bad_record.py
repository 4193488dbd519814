"""Finding the record that makes the user's code raise: tf.data's errors do not name it."""

import time
from collections.abc import Callable

from edlz.services.worker.pipeline import FeedSettings
from edlz.services.worker.task_reader import Assignment

__all__ = ["blame_record"]

_LIMIT_S = 10.0  # a slow feed is not run over and over


def blame_record(
    settings: FeedSettings, assignment: Assignment, attempt: Callable[[list[bytes]], None]
) -> str:
    """Return `record 17 of data/part-0`, or nothing if no single record is to blame.

    Parameters
    ----------
    attempt : callable
        Runs the feed over some records, and raises if they contain the bad one.
    """
    until = time.monotonic() + _LIMIT_S

    def raises(records: list[bytes]) -> bool:
        if time.monotonic() > until:
            raise TimeoutError
        try:
            attempt(records)
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
