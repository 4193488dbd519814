"""Styled text as plain data: a line is a list of spans, a span is a text and its role.

Five roles, never colour alone: good, wait, bad, dim, bold.  Owns nothing of what is said, only how it is
painted on a terminal.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

__all__ = ["ASCII", "UNICODE", "Glyphs", "Line", "Role", "Span", "bar", "fit", "paint", "plain", "width_of"]

Role = Literal["", "good", "wait", "bad", "dim", "bold"]


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    role: Role = ""


Line = Sequence[Span]


class Glyphs(NamedTuple):
    """What bars and marks are drawn with."""

    full: str
    half: str
    rest: str
    mark: str
    ellipsis: str
    bar: str


UNICODE = Glyphs("━", "╸", "─", "●", "…", "│")
ASCII = Glyphs("#", "#", "-", "*", "...", "|")

_CODES: dict[Role, str] = {"good": "32", "wait": "33", "bad": "31", "dim": "2", "bold": "1"}


def plain(lines: Iterable[Line]) -> str:
    """Return lines as text without colours, each ended by a newline."""
    return "".join("".join(span.text for span in line).rstrip() + "\n" for line in lines)


def paint(lines: Iterable[Line]) -> str:
    """Return lines as text with the terminal's colours (ECMA-48, SGR)."""
    return "".join("".join(_painted(span) for span in line).rstrip() + "\n" for line in lines)


def width_of(line: Line) -> int:
    """Return how many columns a line takes."""
    return sum(len(span.text) for span in line)


def fit(line: Line, width: int) -> list[Span]:
    """Return as much of a line as fits, cut at its end."""
    out: list[Span] = []
    left = width
    for span in line:
        out.append(Span(span.text[:left], span.role))
        left -= len(out[-1].text)
        if left <= 0:
            break
    return out


def bar(ratio: float, length: int, glyphs: Glyphs) -> list[Span]:
    """Return a bar of so many columns, of which a share is full."""
    halves = round(max(0.0, min(1.0, ratio)) * length * 2)
    full, half = divmod(halves, 2)
    filled = glyphs.full * full + glyphs.half * half
    return [Span(filled, "good"), Span(glyphs.rest * (length - len(filled)), "dim")]


def _painted(span: Span) -> str:
    code = _CODES.get(span.role)
    return f"\x1b[{code}m{span.text}\x1b[0m" if code and span.text else span.text
