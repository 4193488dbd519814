"""Finding the record that makes the user's code raise: tf.data's errors do not name it."""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from edlz.services.inputs.reading.records import Records
from edlz.services.worker.engine.feed.pipeline import FeedSettings
from edlz.services.worker.engine.feed.task_reader import Assignment
from edlz.services.worker.engine.user_code.user_code import Blame

__all__ = ["blame_record"]

_LIMIT_S = 10.0  # a slow feed is not run over and over


class _OutOfTimeError(Exception):
    """No more tries."""


def blame_record(
    settings: FeedSettings,
    assignment: Assignment,
    run: Callable[[Records], Iterable[Any]],
    in_python: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Blame:
    """Find the record that is to blame.

    Parameters
    ----------
    run : callable
        (records) -> what the feed makes of them; making it or iterating over it raises if the bad one is
        among them.
    in_python : callable
        Gives a context in which `run` raises from the very line of the user's code.
    """
    error_of = partial(_error_of, run, time.monotonic() + _LIMIT_S)
    try:
        records = settings.read(assignment)
        good, bad = 0, len(records)  # the first `good` records pass, the first `bad` ones do not
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if error_of(records[:middle]) else (middle, bad)
        if not len(records) or not error_of(records[bad - 1 : bad]):
            return Blame()
        record = f"record {settings.number(assignment, bad - 1)} of {assignment.records.name}"
        with in_python():
            return Blame(record, error_of(records[bad - 1 : bad]))
    except Exception:  # the error that is being explained matters, not this one
        return Blame()


def _error_of(run: Callable[[Records], Iterable[Any]], until_s: float, records: Records) -> Exception | None:
    """Return what the feed raises on these records, if it does."""
    try:
        for _ in run(records):
            if time.monotonic() > until_s:
                raise _OutOfTimeError
    except _OutOfTimeError:
        raise
    except Exception as e:  # whatever the user's code raises
        return e
    return None
