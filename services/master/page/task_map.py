"""The tasks of a job as a row of cells: what is done, leased and tried again; each cell stands for as many as it must."""

from collections.abc import Iterable

from edlz.services.protocol.ledger import TaskSet

__all__ = ["MOST_CELLS", "task_map", "unknown_task_map"]

MOST_CELLS = 1000


def task_map(count: int, done: TaskSet, leased: Iterable[int], again: TaskSet) -> dict[str, object]:
    """Return the map.

    Returns
    -------
    dict
        `count`: the tasks; `leased_count`: those in work; `per_cell`: of each cell but the last.  `done_map`, a letter a cell: the tenths of it that are done,
        or `d` for all.  `marks`: `l` if one of it is leased, `r` if one was tried again, `b` for both, else `-`.
    """
    leased = tuple(leased)
    per_cell = max(1, -(-count // MOST_CELLS))
    cells = -(-count // per_cell)
    done_counts = [0] * cells
    for first, end in _intervals(done, count):
        _fill(done_counts, first, end, per_cell)
    marks = [0] * cells
    for task in leased:
        if 0 <= task < count:
            marks[task // per_cell] |= 1
    for first, end in _intervals(again, count):
        for cell in range(first // per_cell, (end - 1) // per_cell + 1):
            marks[cell] |= 2
    sizes = [per_cell] * cells
    if cells:
        sizes[-1] = count - per_cell * (cells - 1)
    letters = (
        "d" if part >= size else str(10 * part // size) for part, size in zip(done_counts, sizes, strict=True)
    )
    return {
        "count": count,
        "per_cell": per_cell,
        "leased_count": len(leased),
        "done_map": "".join(letters),
        "marks": "".join("-lrb"[mark] for mark in marks),
    }


def unknown_task_map(count: int) -> dict[str, object]:
    """Return the map of so many tasks of which nobody knows which are done: it has no cells."""
    return {"count": count, "per_cell": 1, "leased_count": 0, "done_map": "", "marks": ""}


def _intervals(tasks: TaskSet, count: int) -> Iterable[tuple[int, int]]:
    bounds = tasks.bounds
    for first, end in zip(bounds[::2], bounds[1::2], strict=True):
        if first < count:
            yield first, min(end, count)


def _fill(counts: list[int], first: int, end: int, per_cell: int) -> None:
    """Count the tasks of an interval into their cells."""
    while first < end:
        cell = first // per_cell
        upto = min(end, (cell + 1) * per_cell)
        counts[cell] += upto - first
        first = upto
