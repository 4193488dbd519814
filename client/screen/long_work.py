"""How far something is that a command does for longer than a moment: redrawn on a terminal, a line now and then elsewhere.

It stands on standard error, so what a command prints may be piped.  What is over within half a second, or in a pipe within
ten, is not spoken of.  Drawing is a thread's work: who does the work only counts.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from edlz.client.screen.interruption import Interrupted
from edlz.client.screen.spans import UNICODE, Glyphs, Line, Span, bar, fit, width_of
from edlz.client.screen.terminal import display_for, glyphs_for, has_colour
from edlz.client.screen.wording import count_of, due_again_s, duration, percent, size

__all__ = ["Advance", "Amount", "long_work"]

SOON_S = 0.5
_ETA_AFTER_S = 5.0
_BAR, _SHORTEST_BAR = 40, 10
_DISPLAYS = ("auto", "live", "plain", "quiet")

Advance = Callable[[int], None]
"""Told of so much more that is done."""


class Amount:
    """How much is done.

    Parameters
    ----------
    title : str
        What is done: "reading version-300".
    noun : str
        What is counted: "record"; nothing for bytes.
    total : int
        How much there is in all; 0 if nobody knows.

    Attributes
    ----------
    done : int
    """

    def __init__(self, title: str, noun: str, total: int) -> None:
        self._title, self._noun, self._total = title, noun, total
        self.done = 0

    def advance(self, more: int) -> None:
        """So much more is done."""
        self.done += more

    def line(self, elapsed_s: float, width: int | None = None, glyphs: Glyphs = UNICODE) -> Line:
        """Return what there is to say, as long as it may be; without a width there is no bar."""
        facts = self._facts(elapsed_s)
        tail = Span("".join(f"  {fact}" for fact in facts))
        line = [Span(self._title, "bold"), tail]
        if width is None or not self._ratio:
            return line if width is None else fit(line, width)
        length = min(_BAR, width - width_of(line) - 2)
        drawn = [Span("  "), *bar(self._ratio, length, glyphs)] if length >= _SHORTEST_BAR else []
        return fit([line[0], *drawn, tail], width)

    @property
    def _ratio(self) -> float:
        return min(1.0, self.done / self._total) if self._total else 0.0

    def _facts(self, elapsed_s: float) -> list[str]:
        took = duration(elapsed_s)
        if not self.done:
            return [took]
        if not self._total:
            return [self._told(self.done), took]
        facts = [percent(self._ratio), f"{self._told(self.done)} of {self._told(self._total)}"]
        if elapsed_s >= _ETA_AFTER_S and self._ratio < 1:
            facts.append(f"ETA {duration(elapsed_s * (1 - self._ratio) / self._ratio)}")
        return facts

    def _told(self, amount: int) -> str:
        return count_of(amount, self._noun) if self._noun else size(amount)


@contextmanager
def long_work(
    title: str, *, noun: str = "", total: int = 0, stream: TextIO | None = None
) -> Iterator[Advance]:
    """Show how far a piece of work is until the block ends; see `Amount`.

    Yields
    ------
    Advance
        To be called with what was done since the last call, by any thread.

    Raises
    ------
    Interrupted
        If a signal or Ctrl-C ends it: it says what was done.
    """
    try:
        with _shown(title, noun, total, stream or sys.stderr) as advance:
            yield advance
    except KeyboardInterrupt:
        raise Interrupted(signal.SIGINT, title) from None
    except Interrupted as e:
        raise Interrupted(e.number, e.work or title) from None


@contextmanager
def _shown(title: str, noun: str, total: int, to: TextIO) -> Iterator[Advance]:
    asked = os.environ.get("EDLZ_PROGRESS", "")
    display = display_for(asked if asked in _DISPLAYS else "auto", to, os.environ)
    amount, over = Amount(title, noun, total), threading.Event()
    show = {"live": _redraw, "plain": _write_lines}.get(display)
    if show is None:
        yield amount.advance
        return
    showing = threading.Thread(target=show, args=(amount, over, to), name="progress", daemon=True)
    showing.start()
    try:
        yield amount.advance
    finally:
        over.set()
        showing.join()


def _write_lines(amount: Amount, over: threading.Event, stream: TextIO) -> None:
    began_s = time.monotonic()
    while not over.wait(due_again_s(time.monotonic() - began_s)):
        text = "".join(span.text for span in amount.line(time.monotonic() - began_s))
        stream.write(f"{text}\n")
        stream.flush()


def _redraw(amount: Amount, over: threading.Event, stream: TextIO) -> None:
    began_s = time.monotonic()
    with _kept(stream) as to:  # the stream's descriptor may lead elsewhere meanwhile
        if over.wait(SOON_S):
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        is_coloured = has_colour(stream, os.environ)
        console = Console(
            file=to, force_terminal=True, no_color=not is_coloured, highlight=False, markup=False
        )
        glyphs = glyphs_for(stream)

        def drawn() -> Text:
            line = amount.line(time.monotonic() - began_s, console.width, glyphs)
            return Text.assemble(*((span.text, span.role) for span in line))

        live = Live(
            console=console,
            get_renderable=drawn,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with live:
            over.wait()


@contextmanager
def _kept(stream: TextIO) -> Iterator[TextIO]:
    """Return a stream to where another one leads now."""
    with os.fdopen(os.dup(stream.fileno()), "w", encoding=stream.encoding or "utf-8") as same:
        yield same
