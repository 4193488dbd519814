"""The one place that configures logging; only entry points call it.

Lines look as users have grepped them for years: `[time,msec] [LEVEL] [file:line:function] message`.  With
`--log_format=json` a line is one object.  A line that repeats is printed once, then counted; one that tells of an
incident is always printed, as the second loss of a process is no repetition of the first.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from edlz.services.process.outputs import OutputGone
from edlz.services.strict_json import plain

__all__ = [
    "INCIDENT",
    "LINE_FORMAT",
    "CountingHandler",
    "JsonFormatter",
    "configure_logging",
    "line_formatter",
]

LINE_FORMAT = "[%(asctime)s] [%(levelname)s] [%(filename)s:%(lineno)d:%(funcName)s] %(message)s"

INCIDENT = {"is_incident": True}
"""The `extra` of a line about something that has happened: it is not counted, whatever was said before."""

_WINDOW_S, _QUIET_S = 60.0, 15.0
_REMEMBERED = 256  # lines that are watched for repetition; more than that at once is no repetition
_PLACEHOLDER = re.compile(r"(?:(\w+)=)?%[-+ #0]*[\d.]*([a-zA-Z%])")


def configure_logging(
    level: str = "INFO",
    log_format: str = "text",
    *,
    role: str = "",
    ident: str = "",
    job: str = "",
    stream: TextIO | None = None,
) -> None:
    """Send this process' log lines to a stream, in place of whatever was configured before.

    Parameters
    ----------
    level : str, optional
        DEBUG, INFO, WARNING, ERROR or CRITICAL.
    log_format : str
        "text" or "json".
    role, ident, job : str, optional
        What a JSON line says of the process.
    stream : TextIO, optional
        Standard error when not given.
    """
    handler = CountingHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(line_formatter(log_format, role=role, ident=ident, job=job))
    handler.addFilter(_is_told)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(True)


def _is_told(record: logging.LogRecord) -> bool:
    """Whether a line may be written: what installed packages say at DEBUG holds headers of requests, with credentials."""
    is_of_package = "site-packages" in record.pathname or "dist-packages" in record.pathname
    return record.levelno > logging.DEBUG or not is_of_package or record.name.partition(".")[0] == "edlz"


def line_formatter(log_format: str, *, role: str = "", ident: str = "", job: str = "") -> logging.Formatter:
    """Return what makes lines of records; parameters as for `configure_logging`."""
    if log_format == "json":
        return JsonFormatter(role=role, id=ident, job=job)
    return logging.Formatter(LINE_FORMAT)


class CountingHandler(logging.StreamHandler[TextIO]):
    """Writes a line once and counts its repetitions within a minute: `… (12 times in 60s)`.

    What comes again after 15 s of quiet is news, and so is every incident.

    Parameters
    ----------
    stream : TextIO
        Where lines go.
    clock : callable () -> float
        Seconds, monotonic.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        # Lines of the last minute by (logger, text), in the order of their first times.
        self._seen: dict[tuple[str, str], _Repeated] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless it repeats one of the last minute."""
        now = self._clock()
        self._forget(now - _WINDOW_S)
        if record.exc_info is None and not getattr(record, "is_incident", False):
            key = (record.name, record.getMessage())
            seen = self._seen.get(key)
            if seen is not None and now - seen.last_s < _QUIET_S:
                seen.count, seen.last_s, seen.record = seen.count + 1, now, record
                return
            if seen is not None:
                self._close(key)
            if len(self._seen) < _REMEMBERED:
                self._seen[key] = _Repeated(now, now, record)
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - a name of logging's
        """Let the end of the output end what it ends anywhere else."""
        if isinstance(sys.exc_info()[1], OutputGone):
            raise
        super().handleError(record)

    def close(self) -> None:
        """Write the counts that are still open."""
        self._forget(float("inf"))
        super().close()

    def _forget(self, before: float) -> None:
        while self._seen:
            key = next(iter(self._seen))
            if self._seen[key].first_s >= before:
                return
            self._close(key)

    def _close(self, key: tuple[str, str]) -> None:
        """Write how often a line has come, if more than once, and count it no longer."""
        seen = self._seen.pop(key)
        if seen.count > 1:
            seconds = min(_WINDOW_S, self._clock() - seen.first_s)
            counted = logging.makeLogRecord(seen.record.__dict__)
            counted.msg, counted.args = f"{key[1]} ({seen.count} times in {seconds:.0f}s)", None
            super().emit(counted)


@dataclass(slots=True)
class _Repeated:
    """A line of the last minute: when it came first and last, the last of them, and how many there were."""

    first_s: float
    last_s: float
    record: logging.LogRecord
    count: int = 1


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, level, role, id, job, event, and the fields of the message.

    A field is a `name=%s` of the message's constant text, or an `extra` of the logging call.
    """

    def __init__(self, **process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line."""
        line: dict[str, Any] = {"ts": round(record.created, 3), "level": record.levelname, **self._process}
        line["event"] = record.getMessage()
        line["at"] = f"{record.filename}:{record.lineno}:{record.funcName}"
        for name, value in {**_fields(record), **_extras(record)}.items():
            line.setdefault(name, value)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(plain(line), default=str, ensure_ascii=False, allow_nan=False)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the named arguments of a message such as `worker=%s version=%d`."""
    if not isinstance(record.args, tuple):
        return {}
    names = [name for name, kind in _PLACEHOLDER.findall(str(record.msg)) if kind != "%"]
    return {name: value for name, value in zip(names, record.args, strict=False) if name}


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", *INCIDENT}
