"""A job in a notebook: its state, a bar, its metrics and its workers; plain HTML without scripts."""

from html import escape

from edlz.client.python.records import Status
from edlz.client.screen.wording import how_far

__all__ = ["html_of"]

_COLOURS = {"Succeeded": "#009e73", "Failed": "#d55e00", "Stopped": "#e69f00"}  # Okabe and Ito's
_BUSY = "#0072b2"


def html_of(status: Status) -> str:
    """Return a job's status for a page: every text in it is escaped."""
    job, progress = status.job, status.progress
    colour = _COLOURS.get(job.state, _BUSY)
    done = how_far(progress.ratio, progress.records)
    parts = [
        f'<div style="font-family:sans-serif"><b>{escape(job.name)}</b>'
        f' <span style="color:{colour};font-weight:bold">{escape(job.state)}</span>'
        f" {done} &middot; v{progress.version}",
        f" &middot; loss {status.loss:.4g}" if status.loss is not None else "",
        "" if progress.ratio is None else _bar(progress.ratio, done, colour),
        f"<p>{escape(job.reason)}</p>" if job.reason else "",
        _metrics(status),
        _page(status),
        _workers(status),
        "</div>",
    ]
    return "".join(parts)


def _bar(ratio: float, done: str, colour: str) -> str:
    width = f"{100 * min(1.0, max(0.0, ratio)):.1f}%"
    return (
        f'<div role="img" aria-label="{done} done" style="background:#8884;height:6px;max-width:30em;margin:4px 0">'
        f'<div style="background:{colour};height:6px;width:{width}"></div></div>'
    )


def _metrics(status: Status) -> str:
    if not status.evaluations:
        return ""
    last = status.evaluations[-1]
    values = ", ".join(f"{escape(name)} {_number(value)}" for name, value in last.metrics.items())
    return f"<div>v{last.version}: {values}</div>"


def _page(status: Status) -> str:
    """Return a link to the status page, or what leads there where its address is another machine's."""
    if not status.page:
        return ""
    where, _, namespace = status.job.where.partition("/")
    if where != "local":
        return f"<div><code>edlz open {escape(status.job.name)} -n {escape(namespace)}</code></div>"
    if not status.page.startswith("http://"):
        return ""
    return f'<div><a href="{escape(status.page)}">{escape(status.page)}</a></div>'


def _workers(status: Status) -> str:
    if not status.workers:
        return ""
    rows = "".join(
        f"<tr><td>{escape(worker.id)}</td><td>{escape(worker.state)}</td>"
        f"<td>{'' if worker.task is None else worker.task}</td><td>{worker.records_per_s:.0f}</td></tr>"
        for worker in status.workers
    )
    head = "<tr><th>worker</th><th>state</th><th>task</th><th>records/s</th></tr>"
    return f"<details><summary>{len(status.workers)} workers</summary><table>{head}{rows}</table></details>"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
