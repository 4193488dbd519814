"""The status page as one HTML file: the same while the job runs, and as the report that is left of it.

It asks no other address, and its Content-Security-Policy lets no browser do so: style and script are in it, and
are the only ones that may run, by their hashes.  Tables are in it as HTML too, for whoever runs no scripts.
"""

import base64
import hashlib
import html
import json
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from edlz.services.protocol.job_status import FINAL_STATES

__all__ = ["header_policy", "render"]

_HERE = Path(__file__).parent
_WORKER_TIMES = ("read", "pull", "compute", "push", "wait")
_MEMBER_TIMES = ("read", "compute", "send", "sum", "wait")


@cache
def _part(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _hash(name: str) -> str:
    digest = hashlib.sha256(_part(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _policy(*, is_live: bool) -> str:
    asked = "'self'" if is_live else "'none'"
    return (
        f"default-src 'none'; script-src {_hash('page.js')}; style-src {_hash('page.css')}; "
        f"connect-src {asked}; img-src data:; base-uri 'none'; form-action 'none'"
    )


def header_policy() -> str:
    """Return the policy as a header, which says more than a page can say of itself."""
    return f"{_policy(is_live=True)}; frame-ancestors 'none'"


def render(tree: dict[str, Any], *, is_report: bool) -> bytes:
    """Return the page of a content.

    Parameters
    ----------
    tree : dict
        Of `Content.tree`.
    is_report : bool
        It shows what has been, and asks nobody for more.
    """
    job, progress = tree["job"], tree["progress"]
    escaped = {
        "title": f"{job['name']} {job['state']} {_how_far(progress)}",
        "name": job["name"],
        "state": job["state"],
        "facts": "   ".join(_facts(tree)),
        "fresh": f"{'written' if is_report else 'as of'} {_clock(tree['now'])} UTC",
        "ratio": f"{progress['ratio'] or 0:.4f}",
        "percent": _how_far(progress),
        "epoch": ""
        if progress["ratio"] is None
        else f"{progress['records']:,} of {progress['records_total']:,} records",
        "banner": (job["reason"] or "") if job["state"] == "Failed" else "",
        "command": tree["configuration"]["command"],
        "version": _version(),
        "kept": "This file needs no network." if is_report else "",
    }
    parts = {name: html.escape(text) for name, text in escaped.items()}
    parts |= {name: _table(*about) for name, about in _tables(tree).items()}
    parts |= {
        "policy": html.escape(_policy(is_live=not is_report)),
        "style": _part("page.css"),
        "script": _part("page.js"),
        "data": _script_text({"is_report": is_report, "status": tree}),
        "no_bar": " hidden" if progress["ratio"] is None else "",
        "no_banner": "" if escaped["banner"] else " hidden",
        "no_ps": " hidden" if tree["group"] else "",
        "no_group": "" if tree["group"] else " hidden",
        "no_tables": "" if tree["tables"] else " hidden",
        "no_evaluations": "" if tree["evaluations"] else " hidden",
    }
    return Template(_part("page.html")).substitute(parts).encode()


def _script_text(value: object) -> str:
    """Return JSON that ends no script element, whatever is in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _facts(tree: dict[str, Any]) -> list[str]:
    facts = [_how_far(tree["progress"]), f"v{tree['progress']['version']:,}"]
    if tree["loss"] is not None:
        facts.append(f"loss {_number(tree['loss'])}")
    if tree["evaluations"]:
        newest = tree["evaluations"][-1]
        facts += [
            f"{name} {_number(value)} (v{newest['version']:,})" for name, value in newest["metrics"].items()
        ]
    if tree["job"]["state"] not in FINAL_STATES and tree["progress"]["records_per_s"]:
        facts.append(f"{tree['progress']['records_per_s']:,.0f} records/s")
    return facts


# ---------------------------------------------------------------- tables

_Table = tuple[Sequence[str], Iterable[Sequence[str]]]


def _tables(tree: dict[str, Any]) -> dict[str, _Table]:
    times = _WORKER_TIMES if tree["group"] is None else _MEMBER_TIMES
    return {
        "workers": (
            ("id", "state", "task", "rec/s", *times, "memory", "note"),
            [_of_worker(row, times) for row in tree["workers"]],
        ),
        "ps": (
            ("id", "state", "version", "rows", "memory", "cpu", "checkpoint", "note"),
            [_of_server(row) for row in tree["ps"]],
        ),
        "group": (
            ("generation", "members, by rank", "version", "checkpoint"),
            [_of_group(tree["group"])] if tree["group"] else [],
        ),
        "tables": (
            ("name", "rows", "memory"),
            [(row["name"], _number(row["rows"]), _megabytes(row["memory_bytes"])) for row in tree["tables"]],
        ),
        "evaluations": (
            ("version", "metrics"),
            [
                (
                    _number(row["version"]),
                    ", ".join(f"{name} {_number(value)}" for name, value in row["metrics"].items()),
                )
                for row in reversed(tree["evaluations"])
            ],
        ),
        "events": (
            ("time (UTC)", "what", "why"),
            [(_clock(event["at"]), event["kind"], event["text"]) for event in reversed(tree["events"])],
        ),
        "settings": (
            ("setting", "value", "from"),
            [(row["name"], row["value"], row["origin"]) for row in tree["configuration"]["settings"]],
        ),
    }


def _of_worker(row: dict[str, Any], times: Sequence[str]) -> tuple[str, ...]:
    rank = "" if row["rank"] is None else f", rank {row['rank']}"
    return (
        row["id"] + rank,
        row["state"],
        _number(row["task"]),
        _number(row["records_per_s"]),
        *(f"{row['step_s'][name] * 1000:,.1f} ms" for name in times),
        _megabytes(row["memory_bytes"]),
        row["note"] or "",
    )


def _of_group(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["generation"] or "-",
        ", ".join(f"worker-{member}" for member in row["members"]) or "-",
        _number(row["version"]),
        _number(row["checkpoint_version"]),
    )


def _of_server(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["id"],
        row["state"],
        _number(row["version"]),
        _number(row["rows"]),
        _megabytes(row["memory_bytes"]),
        _percent(row["cpu_share"]),
        _number(row["checkpoint_version"]),
        row["note"] or "",
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(title)}</th>' for title in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    body = body or f'<tr><td colspan="{len(header)}" class="dim">none</td></tr>'
    return f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"


# ---------------------------------------------------------------- words


def _number(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _how_far(progress: dict[str, Any]) -> str:
    """Return the share that is done; how many records, where nobody knows of how many."""
    if progress["ratio"] is not None:
        return _percent(progress["ratio"])
    return f"{progress['records']:,} record{'' if progress['records'] == 1 else 's'}"


def _percent(ratio: float) -> str:
    return f"{int(100 * ratio + 1e-9)} %"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count else "-"


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("edlz")
    except PackageNotFoundError:  # run from its sources
        return ""
