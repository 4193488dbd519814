"""What the terminal can do: whether it may be redrawn, in colour, and with which letters; and how a view is left by Ctrl-C."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, TextIO

from edlz.client.screen.columns import wrapped
from edlz.client.screen.spans import ASCII, UNICODE, Glyphs, Line, Span, paint, plain

__all__ = [
    "Display",
    "LeftTheView",
    "display_for",
    "glyphs_for",
    "has_colour",
    "left_the_view",
    "print_lines",
    "print_sentence",
    "print_text",
    "width_for",
]

Display = Literal["live", "plain", "quiet", "json"]


def display_for(progress: str, stream: TextIO, environ: Mapping[str, str]) -> Display:
    """Return how progress is shown.

    `auto` is live on a terminal that can be redrawn, plain in a pipe, a file or CI; `live` without a
    terminal is plain too, since nothing there can be redrawn.
    """
    if progress in ("quiet", "json", "plain"):
        return progress  # type: ignore[return-value]
    can_redraw = (
        stream.isatty() and environ.get("TERM") != "dumb" and environ.get("TTY_INTERACTIVE", "1") != "0"
    )
    if progress == "live":
        return "live" if can_redraw else "plain"
    return "live" if can_redraw and not environ.get("CI") else "plain"


def has_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to paint: a non-empty NO_COLOR wins over FORCE_COLOR, which wins over no terminal."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


def glyphs_for(stream: TextIO) -> Glyphs:
    """Return what bars and marks are drawn with: ASCII if the stream does not take the others."""
    try:
        "".join(UNICODE).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def width_for(stream: TextIO) -> int | None:
    """Return the columns that a line may have; None where nothing is cut off, as in a pipe."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def print_text(lines: Sequence[Line], stream: TextIO | None = None) -> None:
    """Print lines that are no table: on a terminal what does not fit goes on below."""
    to = stream or sys.stdout
    print_lines(wrapped(lines, width_for(to), glyphs_for(to)), to)


def print_sentence(text: str, stream: TextIO | None = None) -> None:
    """Print one line of text at once: on a terminal what does not fit goes on below."""
    print_text([[Span(text)]], stream)
    (stream or sys.stdout).flush()


def print_lines(lines: Sequence[Line], stream: TextIO | None = None) -> None:
    """Print lines on standard output or another stream, in colour where it takes it."""
    to = stream or sys.stdout
    to.write(paint(lines) if has_colour(to, os.environ) else plain(lines))


class LeftTheView(Exception):
    """Somebody has left a view; what there is to say has been said."""


def left_the_view(word: str, back: str) -> LeftTheView:
    """Say that the job goes on; return what ends the command."""
    print(file=sys.stderr)  # behind the terminal's own ^C
    print_sentence(f"Left the view; {word} goes on. Back: {back}   Stop: edlz stop {word}", sys.stderr)
    return LeftTheView()
