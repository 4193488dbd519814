"""What `edlz train` shows while a job runs: four screens drawn from the same statuses and log lines.

A screen is told of log lines of the services, of each status, and of the end.  It decides nothing about
the job.  Whatever stands on standard output never holds `\\r` or an escape unless that is a terminal.
"""

import io
import json
import logging
import re
import sys
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Literal, Protocol, TextIO

from edlz.client.screen.columns import wrapped
from edlz.client.screen.json_objects import json_line
from edlz.client.screen.live import FOOTER, live_block
from edlz.client.screen.spans import UNICODE, Glyphs, Line, Span, paint, plain
from edlz.client.screen.terminal import Display, width_for
from edlz.client.screen.wording import due_again_s, progress_line
from edlz.services.process.logs import INCIDENT
from edlz.services.protocol.job_status import JobStatus

__all__ = ["JsonScreen", "LiveScreen", "PlainScreen", "QuietScreen", "Screen", "make_screen"]

logger = logging.getLogger(__name__)

_LOG_LINE = re.compile(r"\[\d{4}-\d\d-\d\d [\d:,]+\] \[(?P<level>[A-Z]+)\] \[[^\]]+\] (?P<text>.*)")
_AT_WORK = ("Training", "Evaluating", "Exporting", "Predicting", "Analyzing")
_SHOWN_LEVELS = frozenset(("WARNING", "ERROR", "CRITICAL"))
_REPEATED = re.compile(r" \(\d+ times in \d+s\)$")  # what a handler counts; see services.logs
_JOB_FAILED = re.compile(r'job "[^"]*" failed: ')  # the master's last line, which the end says as well
_REMEMBERED = 256  # texts that a live screen has shown, and does not show again


class Screen(Protocol):
    """One way to show a job."""

    def open(self) -> None:
        """Begin to draw."""
        ...

    def log_line(self, source: str, text: str) -> None:
        """A line that a service wrote; `source` is its name."""
        ...

    def say(self, text: str) -> None:
        """Something that the supervisor itself has to say to whoever watches."""
        ...

    def wait(self, text: str) -> None:
        """What a job that starts waits for, now and then."""
        ...

    def update(self, status: JobStatus) -> None:
        """A status; its events are new."""
        ...

    def log_stream(self) -> TextIO:
        """Where the supervisor's own log lines go."""
        ...

    def close(self, ending: Sequence[Line], *, is_error: bool) -> None:
        """The job has ended: show how, and draw no more."""
        ...


def make_screen(
    display: Display,
    *,
    asked_workers: int,
    glyphs: Glyphs,
    is_coloured: bool,
    footer: str = FOOTER,
    where: str = "local",
) -> Screen:
    """Return the screen of a kind, on standard output."""
    if display == "live":
        return LiveScreen(sys.stdout, asked_workers, glyphs, is_coloured=is_coloured, footer=footer)
    if display == "json":
        return JsonScreen(sys.stdout, where)
    if display == "quiet":
        return QuietScreen(sys.stdout)
    return PlainScreen(sys.stdout, asked_workers, glyphs, is_coloured=is_coloured)


class _Base:
    """What the screens have in common: where the end goes."""

    def __init__(self, out: TextIO, *, is_coloured: bool = False) -> None:
        self._out = out
        self._is_coloured = is_coloured

    def open(self) -> None:
        """Nothing to begin with."""

    def log_line(self, source: str, text: str) -> None:
        """Not shown: the line is in the service's log file."""

    def wait(self, text: str) -> None:
        """Not shown."""

    def log_stream(self) -> TextIO:
        """Standard error, since standard output is for what was asked for."""
        return sys.stderr

    def close(self, ending: Sequence[Line], *, is_error: bool) -> None:
        """Show the end; errors go to standard error."""
        stream = sys.stderr if is_error else self._out
        lines = wrapped(ending, width_for(stream))
        stream.write(paint(lines) if self._is_coloured and stream.isatty() else plain(lines))
        stream.flush()

    def _write(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


class PlainScreen(_Base):
    """Log lines, and a line of progress every 10 s, later every minute.

    Parameters
    ----------
    out : TextIO
    asked_workers : int
        How many the job is to have.
    glyphs : Glyphs
        What bars and marks are drawn with.
    is_coloured : bool
    """

    def __init__(
        self, out: TextIO, asked_workers: int, glyphs: Glyphs = UNICODE, *, is_coloured: bool = False
    ) -> None:
        super().__init__(out, is_coloured=is_coloured)
        self._asked_workers, self._glyphs = asked_workers, glyphs
        self._next_at: float | None = None
        self._shown_since: float | None = None  # a job that goes on is older than what is shown of it

    def log_line(self, source: str, text: str) -> None:
        """Pass a line of our own format on under its source's name; all else stays in the service's file."""
        if _is_json_object(text):  # which says itself where it is from
            self._write(text)
        elif _LOG_LINE.match(text):
            self._write(f"{source} {self._glyphs.bar} {text}")

    def log_stream(self) -> TextIO:
        """The stream of all the other lines."""
        return self._out

    def say(self, text: str) -> None:
        """Log it."""
        logger.info("%s", text, extra=INCIDENT)

    def wait(self, text: str) -> None:
        """Log it."""
        logger.info("%s", text)

    def update(self, status: JobStatus) -> None:
        """Log the progress if it is time."""
        self._shown_since = status.now if self._shown_since is None else self._shown_since
        running_s = status.now - self._shown_since
        if self._next_at is None:
            self._next_at = status.now + due_again_s(running_s)
        elif status.now >= self._next_at and status.state in _AT_WORK:
            self._next_at = status.now + due_again_s(running_s)
            logger.info("%s", progress_line(status, status.target_workers or self._asked_workers))


class QuietScreen(_Base):
    """Nothing but how it ended."""

    def say(self, text: str) -> None:
        """Not shown."""

    def update(self, status: JobStatus) -> None:
        """Not shown."""


class JsonScreen(_Base):
    """A JSON object for each status that differs from the one before, and the last one at the end.

    Parameters
    ----------
    out : TextIO
    where : str
        Where the job runs, as the objects say it: local, or k8s/NAMESPACE.
    """

    def __init__(self, out: TextIO, where: str = "local") -> None:
        super().__init__(out)
        self._where = where
        self._shown: JobStatus | None = None

    def say(self, text: str) -> None:
        """Not shown: the events of a status say it."""

    def update(self, status: JobStatus) -> None:
        """Write the status, once a second at most unless its state or events are new."""
        before = self._shown
        if (
            before is None
            or status.events
            or status.state != before.state
            or status.digest != before.digest
            or status.now - before.now >= 1.0
        ):
            self._shown = status
            self._write(json_line(status, self._where))

    def close(self, ending: Sequence[Line], *, is_error: bool) -> None:
        """Errors only: success stands in the last object."""
        if is_error:
            super().close(ending, is_error=True)


class LiveScreen(_Base):
    """The block that is redrawn, with events and warnings scrolling above it.

    Parameters
    ----------
    out, asked_workers, glyphs, is_coloured
        As of `PlainScreen`.
    footer : str
        What can be done meanwhile.
    """

    def __init__(
        self, out: TextIO, asked_workers: int, glyphs: Glyphs, *, is_coloured: bool, footer: str = FOOTER
    ) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(out, is_coloured=is_coloured)
        self._asked_workers, self._glyphs, self._footer = asked_workers, glyphs, footer
        self._has_status = False
        self._said: OrderedDict[str, None] = OrderedDict()  # what workers have warned of
        self._told: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED)  # what has come one way only so far
        self._console = Console(file=out, force_terminal=True, no_color=not is_coloured, highlight=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def open(self) -> None:
        """Begin with a line, so that something stands there at once."""
        self._live.start()
        self._draw([[Span(f" starting {self._glyphs.ellipsis}", "dim")]])

    def wait(self, text: str) -> None:
        """Show it until there is a block, which says who is there."""
        if not self._has_status:
            self._draw([[Span(f" {text}", "dim")]])

    def log_line(self, source: str, text: str) -> None:
        """Show warnings and errors of the services; the rest is in their files."""
        found = _LOG_LINE.match(text)
        if not found or found["level"] not in _SHOWN_LEVELS or _JOB_FAILED.match(found["text"]):
            return
        text = _REPEATED.sub("", found["text"])
        is_new = self._is_first(text, "log") if source == "master" else self._is_new(text)
        if is_new:
            self.say(f"{source}: {found['text']}")

    def log_stream(self) -> TextIO:
        """A stream whose lines go above the block."""
        return _Above(self)

    def say(self, text: str) -> None:
        """Print a line above the block; what does not fit goes on below itself."""
        lines = wrapped([[Span(line)] for line in text.splitlines()], self._console.width)
        self._console.print(plain(lines), markup=False, soft_wrap=True, end="")

    def update(self, status: JobStatus) -> None:
        """Redraw."""
        self._has_status = True
        for event in status.events:
            if event.kind != "failed" and self._is_first(
                event.text, "event"
            ):  # how it failed is said at its end
                self.say(event.text)
        block = live_block(
            status,
            self._console.width,
            asked_workers=status.target_workers or self._asked_workers,
            is_eta_rough=status.is_eta_rough,
            glyphs=self._glyphs,
            footer=self._footer,
        )
        self._draw(block)

    def close(self, ending: Sequence[Line], *, is_error: bool) -> None:
        """Take the block away and show the end in its place."""
        self._live.stop()
        super().close(ending, is_error=is_error)

    def _is_new(self, text: str) -> bool:
        """Whether no worker has said this yet: several fail in the same way."""
        if text in self._said:
            return False
        self._said[text] = None
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        return True

    def _is_first(self, text: str, way: Literal["log", "event"]) -> bool:
        """Whether what the master tells has not come the other way: what it logs as a warning is an event, too."""
        other = "event" if way == "log" else "log"
        if (text, other) in self._told:
            self._told.remove((text, other))
            return False
        self._told.append((text, way))
        return True

    def _draw(self, lines: Sequence[Line]) -> None:
        from rich.text import Text

        styles = {"good": "green", "wait": "yellow", "bad": "red", "dim": "dim", "bold": "bold", "": ""}
        rows = [Text.assemble(*((span.text, styles[span.role]) for span in line)) for line in lines]
        self._live.update(Text("\n").join(rows), refresh=True)


class _Above(io.StringIO):
    """Passes what is written to a live screen, line by line."""

    def __init__(self, screen: LiveScreen) -> None:
        super().__init__()
        self._screen = screen

    def write(self, text: str) -> int:
        """Show a whole line; a logging handler writes no less."""
        if text.strip():
            self._screen.say(text.rstrip("\n"))
        return len(text)


def _is_json_object(text: str) -> bool:
    if not text.startswith('{"ts"'):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
