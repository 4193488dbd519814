"""Jobs in words: a table for people, an object for scripts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edlz.client.screen.columns import aligned, cut, shortened
from edlz.client.screen.job_view import JobView
from edlz.client.screen.json_objects import API_VERSION, status_object
from edlz.client.screen.spans import UNICODE, Glyphs, Line, Role, Span
from edlz.client.screen.wording import age, how_far, metric, working

if TYPE_CHECKING:
    from edlz.services.protocol.messages import Scaled

__all__ = ["STATE_ROLES", "job_object", "jobs_object", "jobs_table", "scaled_lines"]

STATE_ROLES: dict[str, Role] = {
    "Training": "good",
    "Evaluating": "good",
    "Exporting": "good",
    "Predicting": "good",
    "Analyzing": "good",
    "Succeeded": "good",
    "Failed": "bad",
    "Stopped": "wait",
    "Stopping": "wait",
    "Starting": "wait",
    "Pending": "wait",
    "Unknown": "bad",
}
_MOST_OF_LAST = 100


def jobs_table(
    views: Sequence[JobView],
    now: float,
    *,
    width: int | None = None,
    is_wide: bool = False,
    glyphs: Glyphs = UNICODE,
) -> list[Line]:
    """Return the table of `edlz ls`, newest first, and the next command.

    Parameters
    ----------
    views : sequence of JobView
        The jobs.
    now : float
        Seconds since the epoch.
    width : int, optional
        Of the terminal; None in a pipe, where the last column alone has a limit.
    is_wide : bool
        With version, process, status page and folder, and nothing cut off.
    """
    if not views:
        return [[Span("No job has been run here yet.")], _next("edlz train --help")]
    header = ["NAME", "STATE", "DONE", "WORKERS", "WHERE", "AGE", "LAST"]
    newest_first = sorted(views, key=lambda view: -view.status.started_at)
    rows = [_row(view, now) for view in newest_first]
    if is_wide:
        header += ["VERSION", "PID", "PAGE", "FOLDER"]
        for row, view in zip(rows, newest_first, strict=True):
            pid = "-" if view.pid is None else str(view.pid)
            row += [f"v{view.status.version:,}", pid, _page(view), view.place]
    else:  # a failure may have a whole page to say, and its status says it
        rows = [[*row[:-1], shortened(str(row[-1]), _MOST_OF_LAST, glyphs)] for row in rows]
    lines = [cut(line, width, glyphs) for line in aligned(header, rows, right={"DONE"})]
    return [*lines, _next(*_commands(newest_first))]


def jobs_object(views: Sequence[JobView]) -> dict[str, Any]:
    """Return what `edlz ls -o json` prints."""
    return {"api": API_VERSION, "jobs": [job_object(view) for view in views]}


def job_object(view: JobView) -> dict[str, Any]:
    """Return what `edlz status -o json` prints: the object of `/api/status`, and where the job is."""
    found = status_object(view.status, view.where)
    found["job"]["name"] = view.name
    found["job"]["reason"] = found["job"]["reason"] or view.note or None
    found["job"].update(view.facts())
    found["job"]["asked_workers"] = view.status.target_workers or view.asked_workers
    return found


def scaled_lines(word: str, scaled: "Scaled") -> list[Line]:
    """Return what `edlz scale` says."""
    before, after = scaled.before, scaled.after
    text = (
        f"{word}: {before} -> {after} workers." if before != after else f"{word}: {after} workers, as before."
    )
    warning = [Span("  warning: ", "wait"), Span(scaled.warning)] if scaled.warning else []
    return [[Span(text), *warning], _next(f"edlz status {word}")]


def _page(view: JobView) -> str:
    """Return where the status page of a job is, or what leads there."""
    if not view.is_live or not view.status.page:
        return "-"
    return view.status.page if view.where == "local" else f"edlz open {view.word}"


def _row(view: JobView, now: float) -> list[str | Span]:
    status = view.status
    return [
        Span(view.name, "bold"),
        Span(status.state, STATE_ROLES[status.state]),
        how_far(status.share, status.records) if view.has_figures else "-",
        _workers(view),
        view.where,
        age(now - status.started_at),
        " ".join(line.strip() for line in _last(view).splitlines() if line.strip()),
    ]


def _workers(view: JobView) -> str:
    """Return how many take part, of how many that were asked for; by hand nobody has said how many."""
    count = working(view.status.workers) if view.is_live else 0
    asked = view.status.target_workers or view.asked_workers
    return f"{count}/{asked}" if view.is_led or asked else str(count)


def _last(view: JobView) -> str:
    """Return the newest thing worth knowing, after the command that it asks for: the end may be cut off."""
    status, word = view.status, view.word
    if status.state == "Failed":
        return _after(f"edlz status {word}", status.failure.text if status.failure else view.note)
    if status.state == "Stopped" and view.can_resume:
        return _after(f"edlz resume {word}", view.note)
    if view.note or view.trouble:
        return view.note or view.trouble
    if status.evaluations and status.evaluations[-1].metrics:
        name, value = next(iter(status.evaluations[-1].metrics.items()))
        return f"{name} {metric(value)}"
    return "" if status.loss is None else f"loss {metric(status.loss)}"


def _after(command: str, text: str) -> str:
    return f"{command}   {text}".rstrip()


def _commands(views: Sequence[JobView]) -> list[str]:
    live = next((view for view in views if view.is_live), None)
    if live is not None:
        word = live.word
        return [f"edlz status {word}", f"edlz wait {word}" if live.by_hand else f"edlz logs -f {word}"]
    return [f"edlz status {views[0].word}"]


def _next(*commands: str) -> Line:
    return [Span("next: ", "dim"), Span("    ".join(commands), "bold")]
