"""Tables of styled text: aligned columns, two blanks between them, as wide as what is in them."""

from collections.abc import Collection, Sequence

from edlz.client.screen.spans import UNICODE, Glyphs, Line, Span, width_of

__all__ = ["Cell", "aligned", "cut", "shortened"]

Cell = str | Span


def aligned(header: Sequence[str], rows: Sequence[Sequence[Cell]], right: Collection[str] = ()) -> list[Line]:
    """Return the header, dim, and the rows as lines.

    Parameters
    ----------
    header : the columns' names
    rows : a cell for each column
    right : the columns whose cells stand flush right among themselves, below the start of the name
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


def shortened(text: str, width: int, glyphs: Glyphs = UNICODE) -> str:
    """Return a text that fits, with a mark where its end is left out."""
    return text if len(text) <= width else text[: width - len(glyphs.ellipsis)] + glyphs.ellipsis


def _joined(row: Sequence[Span], widths: Sequence[int]) -> Line:
    cells = [cell._replace(text=cell.text.ljust(width)) for cell, width in zip(row, widths, strict=True)]
    return [span for cell in cells for span in (cell, Span("  "))][:-1]
