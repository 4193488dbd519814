"""Checkpoints in words: a table for people, an object for scripts.

Fields of the objects are only ever added.  Times in seconds, sizes in bytes.
"""

from collections.abc import Sequence
from typing import Any

from edlz.client.screen.columns import aligned
from edlz.client.screen.spans import Line, Role, Span
from edlz.client.screen.wording import age, count_of, size
from edlz.services.protocol.layout import VectorLayout
from edlz.services.protocol.ledger import Ledger
from edlz.services.storage.state_head import StateHead
from edlz.services.storage.versions import Damage, VersionInfo

__all__ = [
    "contents_block",
    "contents_object",
    "verified_object",
    "verified_table",
    "versions_object",
    "versions_table",
]

_ROLES: dict[str, Role] = {"good": "good", "incomplete": "wait", "damaged": "bad"}
_PLAN_LETTERS = 8
_MOST_VARIABLES = 20

Checked = Sequence[tuple[VersionInfo, Sequence[Damage]]]


# ---------------------------------------------------------------- ls


def versions_table(versions: Sequence[VersionInfo], now: float, *, is_all: bool = True) -> list[Line]:
    """Return the table of `edlz checkpoint ls`; jobs and plans are shown when there are several.

    `is_all`: whether these are all versions of the folder, so that one of them is the newest.
    """
    header = ["VERSION", "EPOCH", "MINIBATCHES", "PARTS", "SIZE", "AGE", "STATE"]
    rows = []
    for info in versions:
        about = info.manifest
        rows.append(
            [
                str(info.version),
                str(about.epoch) if about else "-",
                f"{about.minibatches:,}" if about else "-",
                f"{info.parts}/{info.partitions or '?'}",
                size(info.size_bytes),
                age(now - info.at),
            ]
        )
    owners = [(info.manifest.job, info.manifest.plan_hash) for info in versions if info.manifest]
    if len(set(owners)) > 1:
        header[-1:] = ["JOB", "PLAN", "STATE"]
        for row, info in zip(rows, versions, strict=True):
            about = info.manifest
            row += [about.job, about.plan_hash[:_PLAN_LETTERS]] if about else ["-", "-"]
    newest = next((info for info in versions if info.is_good and is_all), None)
    lines = _table(header, rows, right={"MINIBATCHES"})
    states = [[Span(_state(info), _ROLES[info.state])] for info in versions]
    if newest is not None:
        states[versions.index(newest)].append(Span("   <- resume, newest", "dim"))
    return [lines[0], *([*line, *state] for line, state in zip(lines[1:], states, strict=True))]


def versions_object(path: object, versions: Sequence[VersionInfo]) -> dict[str, Any]:
    """Return what `edlz checkpoint ls -o json` prints."""
    newest = next((info for info in versions if info.is_good), None)
    return {
        "path": str(path),
        "versions": [{**_version(info), "is_newest_good": info is newest} for info in versions],
    }


def _state(info: VersionInfo) -> str:
    return f"damaged: {'; '.join(one.short for one in info.damage)}" if info.damage else info.state


def _version(info: VersionInfo) -> dict[str, Any]:
    about = info.manifest
    return {
        "version": info.version,
        "path": str(info.folder),
        "state": info.state,
        "damage": [_damage(one) for one in info.damage],
        "parts": info.parts,
        "partitions": info.partitions,
        "size_bytes": info.size_bytes,
        "at": info.at,
        "job": about.job if about else None,
        "run": about.run if about else None,
        "plan_hash": about.plan_hash if about else None,
        "mode": about.mode if about else None,
        "epoch": about.epoch if about else None,
        "minibatches": about.minibatches if about else None,
    }


def _damage(damage: Damage) -> dict[str, Any]:
    return {
        "path": str(damage.path),
        "part": damage.part[0] if damage.part else None,
        "reason": damage.reason,
    }


# ---------------------------------------------------------------- show


def contents_block(info: VersionInfo, heads: Sequence[StateHead], now: float) -> list[Line]:
    """Return what `edlz checkpoint show` prints of a good version."""
    about, head = info.manifest, heads[0]
    assert about is not None
    ledger = Ledger(about.ledger)
    finished, begun = count_of(len(ledger.finished), "task"), count_of(len(ledger.marks), "task")
    facts = [
        ("job", f"{about.job}, {about.mode}, plan {about.plan_hash[:_PLAN_LETTERS]}"),
        ("ledger", f"{count_of(ledger.minibatches, 'minibatch')}; {finished} finished, {begun} begun"),
        ("epoch", str(about.epoch)),
        ("optimizer", _optimizer(head)),
        ("parts", f"{about.partitions}, {size(info.size_bytes)}"),
    ]
    title = [Span(str(info.folder)), Span("  "), Span("good", "good"), Span(f"  {age(now - info.at)} old")]
    lines: list[Line] = [title, *([Span(f"  {name:<11}", "dim"), Span(text)] for name, text in facts)]
    for name, layout in (
        ("dense parameters", head.layout.dense),
        ("state", head.layout.state),
        ("counters", head.layout.counters),
    ):
        if layout.variables:
            title = [
                Span(f"{name}: {layout.element_count:,} in {count_of(len(layout.variables), 'variable')}")
            ]
            lines += [[], title, *_variables(layout)]
    if head.tables:
        rows = [
            [
                table["path"],
                f"{table['rows']:,}",
                str(table["dim"]),
                size(table["size_bytes"]),
                table["columns"],
            ]
            for table in _tables(heads)
        ]
        header = ["TABLE", "ROWS", "DIM", "SIZE", "A ROW IS"]
        lines += [[], [Span("embedding tables")], *_table(header, rows, right={"ROWS", "DIM"}, indent="  ")]
    return lines


def contents_object(info: VersionInfo, heads: Sequence[StateHead]) -> dict[str, Any]:
    """Return what `edlz checkpoint show -o json` prints."""
    about, head = info.manifest, heads[0]
    assert about is not None
    ledger = Ledger(about.ledger)
    layouts = {"dense": head.layout.dense, "state": head.layout.state, "counters": head.layout.counters}
    return {
        **_version(info),
        "ledger": {
            "minibatches": ledger.minibatches,
            "finished_tasks": len(ledger.finished),
            "marks": {str(task): mark for task, mark in sorted(ledger.marks.items())},
        },
        "optimizer": {"name": head.optimizer.name, "settings": head.optimizer.settings, "slots": head.slots},
        "variables": {
            name: [{"path": variable.path, "shape": variable.shape} for variable in layout.variables]
            for name, layout in layouts.items()
        },
        "tables": _tables(heads),
    }


def _optimizer(head: StateHead) -> str:
    given = ", ".join(f"{name}={value}" for name, value in head.optimizer.settings.items())
    return f"{head.optimizer.name}({given}); slots: {', '.join(head.slots) or 'none'}"


def _variables(layout: VectorLayout) -> list[Line]:
    rows = [[v.path, " x ".join(map(str, v.shape)) or "scalar", f"{v.size:,}"] for v in layout.variables]
    lines = _table(["VARIABLE", "SHAPE", "NUMBERS"], rows[:_MOST_VARIABLES], right={"NUMBERS"}, indent="  ")
    if len(rows) > _MOST_VARIABLES:
        lines.append([Span(f"  and {len(rows) - _MOST_VARIABLES:,} more: -o json", "dim")])
    return lines


def _tables(heads: Sequence[StateHead]) -> list[dict[str, Any]]:
    out = []
    for place, table in enumerate(heads[0].tables):
        rows = sum(head.tables[place].row_count for head in heads)
        out.append(
            {
                "path": table.spec.path,
                "dim": table.spec.dim,
                "rows": rows,
                "size_bytes": rows * (8 + 4 * table.width),
                "optimizer": table.spec.optimizer.name,
                "columns": ", ".join(table.columns),
            }
        )
    return out


# ---------------------------------------------------------------- verify


def verified_table(checked: Checked) -> list[Line]:
    """Return what `edlz checkpoint verify` prints of each version; damage is named in errors besides."""
    rows = [[str(info.version), size(info.size_bytes)] for info, _ in checked]
    lines = _table(["VERSION", "SIZE", "STATE"], rows)
    states = [_verdict(info, damage) for info, damage in checked]
    ends = [[Span(state, _ROLES[state])] for state in states]
    return [lines[0], *([*line, *end] for line, end in zip(lines[1:], ends, strict=True))]


def verified_object(path: object, checked: Checked) -> dict[str, Any]:
    """Return what `edlz checkpoint verify -o json` prints."""
    return {
        "path": str(path),
        "versions": [
            {**_version(info), "state": _verdict(info, damage), "damage": [_damage(one) for one in damage]}
            for info, damage in checked
        ],
    }


def _verdict(info: VersionInfo, damage: Sequence[Damage]) -> str:
    return "damaged" if damage else "incomplete" if info.state == "incomplete" else "good"


# ---------------------------------------------------------------- tables


def _table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[str] | set[str] = frozenset(),
    indent: str = "",
) -> list[Line]:
    """Return aligned lines; a header may have one more cell than the rows, which the caller appends."""
    has_more = len(header) > len(rows[0])
    lines = aligned(header, [[*row, ""] if has_more else row for row in rows], right)
    return [[Span(indent), *line] for line in lines]
