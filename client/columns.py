"""Tables of styled text: aligned columns, two blanks between them, as wide as what is in them."""

from collections.abc import Collection, Sequence

from edlz.client.spans import UNICODE, Glyphs, Line, Span, width_of

__all__ = ["Cell", "aligned", "cut"]

Cell = str | Span


def aligned(header: Sequence[str], rows: Sequence[Sequence[Cell]], right: Collection[str] = ()) -> list[Line]:
    """Return the header, dim, and the rows as lines.

    Parameters
    ----------
    header : the columns' names
    rows : a cell for each column
    right : the columns whose cells stand at the right
    """
    table = [[Span(name, "dim") for name in header]]
    table += [[cell if isinstance(cell, Span) else Span(cell) for cell in row] for row in rows]
    widths = [max(len(row[place].text) for row in table) for place in range(len(header))]
    lines: list[Line] = []
    for number, row in enumerate(table):
        line: list[Span] = []
        for name, cell, width in zip(header, row, widths, strict=True):
            is_right, is_last = name in right and number > 0, name == header[-1]
            text = cell.text.rjust(width) if is_right else cell.text if is_last else cell.text.ljust(width)
            line += [Span(text, cell.role), Span("  ")]
        lines.append(line[:-1])
    return lines


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
