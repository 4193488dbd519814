"""The live block: a job's status as the few lines that a terminal redraws.

Pure: a status and a width give lines of at most that width.  Columns that do not fit are left out from the
right.
"""

from collections import Counter
from collections.abc import Sequence

from edlz.client.screen.spans import UNICODE, Glyphs, Line, Span, bar, fit, width_of
from edlz.client.screen.wording import (
    best_evaluation,
    count_of,
    duration,
    joined,
    memory,
    metric,
    percent,
    rate_now,
    role_of,
    short_count,
)
from edlz.services.protocol.job_status import EvaluationView, JobStatus, PartitionView, WorkerView

__all__ = ["FOOTER", "MAX_WORKERS", "live_block"]

FOOTER = " Ctrl-C: stop, can go on later"
_FOOTER_OF_STOP = " Ctrl-C: kill at once"
MAX_WORKERS = 8
_MAX_PARTITIONS = 6  # with which the block still fits 24 rows
_LABEL = 7  # columns of the first column
_STATE_AND_TASK = 16  # columns of the two together: a long state takes from the task's
_SHORTEST_BAR, _LONGEST_BAR = 10, 40
_LOAD = 30  # columns of what a parameter server takes, before its checkpoint
_NOT_YET = ("Pending", "Starting")
_STEP_PARTS = {
    False: (("read", 4), ("pull", 4), ("compute", 7), ("push", 4), ("wait", 4)),
    True: (("read", 4), ("compute", 7), ("send", 4), ("sum", 4), ("wait", 4)),  # of a member of a group
}


def live_block(
    status: JobStatus,
    width: int,
    *,
    asked_workers: int,
    is_eta_rough: bool = False,
    glyphs: Glyphs = UNICODE,
    footer: str = FOOTER,
) -> list[Line]:
    """Return the block.

    Parameters
    ----------
    status : JobStatus
        What the master said last.
    width : int
        Columns of the terminal.
    asked_workers : int
        --num_workers.
    is_eta_rough : bool
        The number of workers has changed within the last 30 s.
    glyphs : Glyphs
        What bars and marks are drawn with.
    footer : str
        The last line; the one that offers to stop gives way when that has been asked for.
    """
    lines: list[Line] = [_progress_line(status, width, asked_workers, is_eta_rough, glyphs)]
    if status.state not in _NOT_YET:
        lines.append(_metrics_line(status, width))
    if status.workers:
        lines.append(
            _fitted([Span(_labelled("worker")), *_worker_head(is_member=status.is_allreduce)], width)
        )
    lines += [
        _fitted(_worker_row(worker, glyphs, is_member=status.is_allreduce), width)
        for worker in status.workers[:MAX_WORKERS]
    ]
    lines += _rest(status.workers[MAX_WORKERS:], "more")
    if status.is_allreduce and status.state not in _NOT_YET:
        lines.append(_fitted(_group_row(status), width))
    shown = status.servers[:_MAX_PARTITIONS]
    lines += [_fitted(_partition_row(partition, status, glyphs), width) for partition in shown]
    lines += _rest(status.servers[_MAX_PARTITIONS:], "more ps")
    is_told = status.state == "Stopping" and footer == FOOTER
    lines.append(_last_line(status.page, _FOOTER_OF_STOP if is_told else footer, width))
    return [fit(line, width) for line in lines]


def _last_line(page: str, footer: str, width: int) -> list[Span]:
    """Return where the status page is, if there is room for it, and what keys do."""
    lead = f" page {page}      " if page else ""
    if len(lead) + len(footer) > width:
        lead = ""
    return [Span(lead), Span(footer, "dim")] if lead else [Span(footer, "dim")]


def _labelled(text: str) -> str:
    return f" {text:<{_LABEL}} "


def _progress_line(
    status: JobStatus, width: int, asked_workers: int, is_eta_rough: bool, glyphs: Glyphs
) -> list[Span]:
    label = Span(_labelled(status.name), "bold")
    if status.state in _NOT_YET:
        servers = "" if status.is_allreduce else f"{len(status.servers)} ps, "
        there = f"{servers}{joined(status.workers)} of {count_of(asked_workers, 'worker')}"
        is_building = any(worker.state == "starting" and not worker.note for worker in status.workers)
        what = ", building the model" if is_building and not status.is_analysis else ""
        return [label, Span(f"{status.state.lower()}: {there} there{what}", "wait")]
    epoch = f"{status.epoch_text} " if status.is_training else ""
    end = _end_of_progress(status, is_eta_rough)
    if status.share is None:
        return _fitted([label, Span(epoch), Span(f" {count_of(status.records, 'record')}"), end], width)
    share = f"{percent(status.share):>6}"
    records = f"  {status.records:,}/{status.records_total:,}"
    tail = [Span(share), Span(records, "dim"), end]
    used = len(label.text) + len(epoch)
    while len(tail) > 1 and used + width_of(tail) + _SHORTEST_BAR > width:
        tail.pop(1)
    length = min(width - used - width_of(tail) - 1, _LONGEST_BAR)
    return [label, Span(epoch), *bar(status.share, max(0, length), glyphs), *tail]


def _end_of_progress(status: JobStatus, is_eta_rough: bool) -> Span:
    if status.waits_for_data_s is not None and status.state == "Training":
        return Span(f"  waits for data {duration(status.waits_for_data_s)}")
    if status.stalled_s is not None:
        last = next((worker for worker in status.workers if worker.task is not None), None)
        where = f", last: task {last.task} on worker-{last.id}" if last else ""
        return Span(f"  stalled {duration(status.stalled_s)}{where}", "wait")
    if status.state == "Evaluating" or (status.state in ("Predicting", "Analyzing") and status.eta_s is None):
        return Span(f"  {status.state.lower()}")
    if status.state not in ("Training", "Predicting", "Analyzing"):
        return Span(f"  {status.state.lower()}")
    if status.eta_s is None:
        return Span("")
    return Span(f"  ETA {'~' if is_eta_rough else ''}{duration(status.eta_s)}")


def _metrics_line(status: JobStatus, width: int) -> list[Span]:
    parts = []
    if status.loss is not None:
        parts.append(f"loss {metric(status.loss)}")
    if status.evaluations:
        newest = status.evaluations[-1]
        parts += [_metric_text(status, newest, name) for name in newest.metrics]
    line = [Span(_labelled(f"v{status.version:,}"))]
    rate = f"{rate_now(status):,.0f} records/s" if rate_now(status) else ""
    while parts and width_of(line) + len("   ".join([*parts, rate])) > width:
        parts.pop()
    if rate:
        parts.append(rate)
    return [*line, Span("   ".join(parts))]


def _metric_text(status: JobStatus, newest: EvaluationView, name: str) -> str:
    best = best_evaluation(status, name)
    text = f"{name} {metric(newest.metrics[name])} (v{newest.version:,}"
    if best is not None and best.metrics[name] != newest.metrics[name]:
        text += f"; best {metric(best.metrics[name])} v{best.version:,}"
    return text + ")"


def _fitted(row: Sequence[Span], width: int) -> list[Span]:
    """Return the cells that fit; what does not is left out from the right."""
    cells = list(row)
    while len(cells) > 1 and width_of(cells) > width:
        cells.pop()
    return cells


def _worker_head(*, is_member: bool) -> list[Span]:
    head = [Span("state     "), Span("task".rjust(_STATE_AND_TASK - 10)), Span(f"{'rec/s':>7}")]
    first, *others = _STEP_PARTS[is_member]
    head.append(Span(f"    ms per step:{first[0]:>{first[1] + 1}}"))
    head += [Span(f"{name:>{size + 1}}") for name, size in others]
    return [Span(cell.text, "dim") for cell in head]


def _worker_row(worker: WorkerView, glyphs: Glyphs, *, is_member: bool) -> list[Span]:
    task = "" if worker.task is None else f"{worker.task:,}"
    rate = f"{worker.records_per_s:,.0f}" if worker.records_per_s else ""
    state = _state(worker.state, glyphs)
    place = max(_STATE_AND_TASK - len(state.text), 0)
    cells = [Span(_labelled(worker.id)), state, Span(f"{task:>{place}}"), Span(f"{rate:>7}")]
    times = worker.times_ms(is_member=is_member)
    if worker.note and (worker.state == "waiting" or not any(times.values())):
        return [*cells, Span(f"    {worker.note}", "dim")]
    for place, (name, size) in enumerate(_STEP_PARTS[is_member]):
        columns = size + 1 + (len("    ms per step:") if place == 0 else 0)
        text = f"{times[name]:,.0f}" if any(times.values()) else ""
        cells.append(Span(f"{text:>{columns}}"))
    return cells


def _partition_row(partition: PartitionView, status: JobStatus, glyphs: Glyphs) -> list[Span]:
    load = f"   {partition.cpu_share:.0%} of a core, ".replace("%", " %") + memory(partition.memory_bytes)
    if partition.rows:
        load += f", {short_count(partition.rows)} rows"
    cells = [Span(_labelled(f"ps {partition.id}")), _state(partition.state, glyphs), Span(load)]
    if saved := _saved(status):
        cells[-1] = Span(load.ljust(_LOAD))
        cells.append(saved)
    return cells


def _group_row(status: JobStatus) -> list[Span]:
    """Who holds the model, in an all-reduce job."""
    cells = [Span(_labelled("group")), Span(count_of(len(status.members), "member"))]
    saved = _saved(status)
    return [*cells, saved] if saved else cells


def _saved(status: JobStatus) -> Span | None:
    if status.checkpoint is None or status.checkpoint_age_s is None:
        return None
    age = duration(status.checkpoint_age_s)
    return Span(f"   checkpoint v{status.checkpoint:,}, {age} ago", "dim")


def _state(state: str, glyphs: Glyphs) -> Span:
    return Span(f"{glyphs.mark} {state:<8}", role_of(state))


def _rest(views: Sequence[WorkerView | PartitionView], more: str) -> list[Line]:
    counts = Counter(view.state for view in views)
    return [[Span(f" + {count:,} {more} {state}", "dim")] for state, count in counts.items()]
