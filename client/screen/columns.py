"""Tables of styled text: aligned columns, two blanks between them, as wide as what is in them."""

import re
from collections.abc import Collection, Iterable, Sequence

from edlz.client.screen.spans import UNICODE, Glyphs, Line, Span, width_of
from edlz.services.configuration.problems import EDLZ_COMMAND, ITS_WORDS

__all__ = ["Cell", "aligned", "cut", "shortened", "wrapped"]

Cell = str | Span
_CODE = re.compile(r"\s+\d+ \| ")
_WORD = re.compile(rf"\s*{EDLZ_COMMAND}\b{ITS_WORDS}|\s*\S+|\s+$")  # a command is one
_LONGEST_CELLS = 24  # of a row before its text
_LONGEST_LABEL = 12


def aligned(header: Sequence[str], rows: Sequence[Sequence[Cell]], right: Collection[str] = ()) -> list[Line]:
    """Return the header, dim, and the rows as lines.

    Parameters
    ----------
    header : sequence of str
        The columns' names.
    rows : sequence
        A cell for each column.
    right : collection of str
        The columns whose cells stand flush right among themselves, below the start of the name.
    """
    spans = [[cell if isinstance(cell, Span) else Span(cell) for cell in row] for row in rows]
    for place, name in enumerate(header):
        if name in right:
            widest = max((len(row[place].text) for row in spans), default=0)
            for row in spans:
                row[place] = row[place]._replace(text=row[place].text.rjust(widest))
    table = [[Span(name, "dim") for name in header], *spans]
    widths = [max(len(row[place].text) for row in table) for place in range(len(header))]
    widths[-1] = 0  # nothing follows
    return [_joined(row, widths) for row in table]


def cut(line: Line, width: int | None, glyphs: Glyphs = UNICODE) -> Line:
    """Return a line that fits, with a mark where its end is left out."""
    if width is None or width_of(line) <= width:
        return line
    out: list[Span] = []
    left = width - len(glyphs.ellipsis)
    for span in line:
        out.append(Span(span.text[: max(0, left)], span.role))
        left -= len(span.text)
    return [*out, Span(glyphs.ellipsis, "dim")]


def wrapped(lines: Iterable[Line], width: int | None, glyphs: Glyphs = UNICODE) -> list[Line]:
    """Return lines that fit: what does not goes on below the text of its line, but for a line of somebody's code.

    Neither a word nor a command is broken: they are to be copied.
    """
    out: list[Line] = []
    for line in lines:
        if width is None or width_of(line) <= width:
            out.append(line)
        elif _CODE.match("".join(span.text for span in line)):
            out.append(cut(line, width, glyphs))
        else:
            out += _wrapped(line, width)
    return out


def _wrapped(line: Line, width: int) -> list[Line]:
    indent = _text_begins(line)
    rows: list[list[Span]] = [[]]
    used = 0
    for span in line:
        for word in _WORD.findall(span.text):
            if used + len(word.rstrip()) > width and used > indent:
                rows.append([Span(" " * indent)])
                used, word = indent, word.lstrip()
            rows[-1].append(Span(word, span.role))
            used += len(word)
    return list(rows)


def _text_begins(line: Line) -> int:
    """Return the column at which a line's text stands behind its label, or a row's last cell behind the others."""
    before = "".join(span.text for span in line[:-1])
    if len(line) > 2 and before.endswith("  ") and len(before) <= _LONGEST_CELLS:
        return len(before)
    label, text = line[0].text, line[1].text if len(line) > 1 else ""
    if not text or len(label) > _LONGEST_LABEL:
        return len(label) - len(label.lstrip()) + 2
    return len(label) + len(text) - len(text.lstrip())


def shortened(text: str, width: int, glyphs: Glyphs = UNICODE) -> str:
    """Return a text that fits, with a mark where its end is left out."""
    return text if len(text) <= width else text[: width - len(glyphs.ellipsis)] + glyphs.ellipsis


def _joined(row: Sequence[Span], widths: Sequence[int]) -> Line:
    cells = [cell._replace(text=cell.text.ljust(width)) for cell, width in zip(row, widths, strict=True)]
    return [span for cell in cells for span in (cell, Span("  "))][:-1]
