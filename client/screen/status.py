"""One job in words: the screen of `edlz status`.

Pure: what is known of the job, the time and a width give lines.
"""

from collections.abc import Sequence

import msgspec

from edlz.client.screen.columns import aligned, cut, wrapped
from edlz.client.screen.job_view import JobView
from edlz.client.screen.jobs import STATE_ROLES
from edlz.client.screen.spans import UNICODE, Glyphs, Line, Span, width_of
from edlz.client.screen.verdict_text import Ending, exported_text, failure_block
from edlz.client.screen.wording import (
    age,
    count_of,
    duration,
    how_far,
    memory,
    metric,
    nonfinite_losses,
    percent,
    role_of,
    short_count,
)
from edlz.services.protocol.job_status import JobStatus, PartitionView, TableView

__all__ = ["next_commands", "status_screen"]

_SHOWN_EVENTS = 4


def status_screen(
    job_view: JobView,
    now: float,
    *,
    width: int | None = None,
    is_wide: bool = False,
    has_checkpoints: bool = False,
    glyphs: Glyphs = UNICODE,
) -> list[Line]:
    """Return the screen.

    Parameters
    ----------
    job_view : JobView
        The job.
    now : float
        Seconds since the epoch.
    width : int, optional
        Of the terminal; None to cut nothing off.
    is_wide : bool
        With the times of a step, the embedding tables and the folder.
    has_checkpoints : bool
        Whether there is one to look at.
    """
    status = job_view.status
    said = _head(job_view, now, width)
    if job_view.note and status.state != "Failed":
        said.append([Span(f"  {_explained(job_view.note)}", "wait")])
    body = _body(job_view, now, is_wide=is_wide)
    lines = [*wrapped(said, width, glyphs), *(cut(line, width, glyphs) for line in body)]
    if status.state == "Failed" and status.failure is not None:
        ending = Ending(0.0, job_view.logs, word=job_view.word, report=job_view.report)
        lines += wrapped(
            failure_block(status.failure, status.name, ending, _aged(status, now)), width, glyphs
        )
    commands = "    ".join(next_commands(job_view, has_checkpoints=has_checkpoints))
    return [*lines, [Span("next: ", "dim"), Span(commands, "bold")]]


def _body(job_view: JobView, now: float, *, is_wide: bool) -> list[Line]:
    """Return what stands between the head and how a failed job ended; lines that are cut, not wrapped."""
    status = job_view.status
    lines: list[Line] = []
    if job_view.is_live:  # what the last word of a job that has ended says of its processes is no more true
        lines += _workers(status, now, is_wide=is_wide)
        lines += _partitions(status, is_wide=is_wide)
    if status.nonfinite_losses:
        lines.append([Span(f"  {nonfinite_losses(status)}", "bad")])
    if is_wide:
        lines += _tables(status.tables)
    if status.exported is not None:
        lines.append([Span("EXPORTED  ", "dim"), Span(exported_text(status.exported))])
    if status.predictions:
        lines.append([Span("OUTPUT  ", "dim"), Span(status.predictions)])
    lines += _events(status, now)
    if is_wide:
        kind = "FOLDER    " if job_view.where == "local" else "POD       "
        lines.append([Span(kind, "dim"), Span(job_view.place)])
    return lines


def _aged(status: JobStatus, now: float) -> JobStatus:
    """Return a status with the age that its snapshot has now."""
    if status.snapshot_age_s is None:
        return status
    return msgspec.structs.replace(status, snapshot_age_s=status.snapshot_age_s + now - status.now)


def next_commands(job_view: JobView, *, has_checkpoints: bool) -> list[str]:
    """Return the commands that make sense now."""
    word, state = job_view.word, job_view.status.state
    if job_view.by_hand is not None:
        return [f"edlz wait {word}"]
    if job_view.is_live:
        has_master = not job_view.note
        return [f"edlz logs -f {word}" + ("" if has_master else " --master"), f"edlz stop {word}"]
    if job_view.is_earlier:
        return [f"edlz logs {word}"]
    look = [f"edlz checkpoint ls {word}"] if has_checkpoints else []
    if state == "Succeeded":
        return [*look, f"edlz logs {word}", f"edlz rm {word}"]
    if job_view.note == "never began":
        return [f"edlz logs {word} --master", f"edlz rm {word}"]
    resume = [f"edlz resume {word}"] if job_view.can_resume else []
    return [*resume, *look, f"edlz rm {word}"]


def _explained(note: str) -> str:
    if note == "interrupted":
        return "interrupted before it could save; it goes on from its last snapshots"
    if note in ("the master starts", "the master restarts"):
        return f"{note}: no answer yet; ask again in a few seconds"
    return note


def _head(job_view: JobView, now: float, width: int | None) -> list[Line]:
    status = job_view.status
    facts = []
    if job_view.has_figures:
        epoch = [status.epoch_text] if status.is_training else []
        facts = [how_far(status.share, status.records), *epoch, f"v{status.version:,}"]
        if status.evaluations:
            newest = status.evaluations[-1]
            facts += [
                f"{name} {metric(value)} (v{newest.version:,})" for name, value in newest.metrics.items()
            ]
        elif status.loss is not None:
            facts.append(f"loss {metric(status.loss)}")
        if status.waits_for_data_s is not None and job_view.is_live:
            facts.append(f"waits for data {duration(status.waits_for_data_s)}")
        elif status.stalled_s is not None and job_view.is_live:
            facts.append(f"stalled {duration(status.stalled_s)}")
        elif status.eta_s is not None and status.state == "Training":
            facts.append(f"ETA {'~' if status.is_eta_rough else ''}{duration(status.eta_s)}")
    line = [
        Span(job_view.name, "bold"),
        Span("  "),
        Span(status.state, STATE_ROLES[status.state]),
        Span("".join(f"  {fact}" for fact in facts)),
    ]
    where = Span(f"   {job_view.where}, {age(now - status.started_at)}", "dim")
    is_fitting = width is None or width_of([*line, where]) <= width
    return [[*line, where]] if is_fitting else [line, [where]]


def _workers(status: JobStatus, now: float, *, is_wide: bool) -> list[Line]:
    workers, is_member = status.workers, status.is_allreduce
    if not workers:
        return []
    header, right = ["WORKER", "STATE", "TASK", "REC/S"], {"TASK", "REC/S"}
    parts = (
        [*(name.upper() for name in workers[0].times_ms(is_member=is_member)), "MEMORY"] if is_wide else []
    )
    parts += ["SENT"] if is_wide and is_member else []
    header += parts
    header += ["RANK"] if any(worker.rank is not None for worker in workers) else []
    header += ["AGE"] if any(worker.started_at for worker in workers) else []
    header += ["NOTE"] if any(worker.note for worker in workers) else []
    rows: list[list[str | Span]] = []
    for worker in workers:
        row: list[str | Span] = [
            f"worker-{worker.id}",
            Span(worker.state, role_of(worker.state)),
            "-" if worker.task is None else f"{worker.task:,}",
            f"{worker.records_per_s:,.0f}" if worker.records_per_s else "-",
        ]
        if is_wide:
            times = tuple(worker.times_ms(is_member=is_member).values())
            row += [f"{time_ms:,.1f} ms" if any(times) else "-" for time_ms in times]
            row.append(memory(worker.memory_bytes))
            row += [memory(round(worker.step_bytes_out))] if is_member else []
        if "RANK" in header:
            row.append("-" if worker.rank is None else f"{worker.rank}")
        if "AGE" in header:
            row.append(age(now - worker.started_at) if worker.started_at else "-")
        rows.append([*row, worker.note] if "NOTE" in header else row)
    return aligned(header, rows, right={*right, *parts, "RANK"})


def _partitions(status: JobStatus, *, is_wide: bool) -> list[Line]:
    saved = ""
    if status.checkpoint is not None and status.checkpoint_age_s is not None:
        saved = f"v{status.checkpoint:,}, {age(status.checkpoint_age_s)} ago"
    if status.is_allreduce:
        facts = [count_of(len(status.members), "member")]
        facts += ["generation {}.{}".format(*status.generation)] if is_wide and status.generation else []
        facts += [f"checkpoint {saved}"] if saved else []
        return [[Span("GROUP  ", "dim"), Span(", ".join(facts))]]
    if not status.servers:
        return []
    header = ["PS", "STATE", "ROWS", "MEMORY", "CPU", "CHECKPOINT"]
    rows = [[*_partition(view), saved or "-"] for view in status.servers]
    if any(view.note for view in status.servers):
        header.append("NOTE")
        rows = [[*row, view.note] for row, view in zip(rows, status.servers, strict=True)]
    return aligned(header, rows)


def _partition(view: PartitionView) -> list[str | Span]:
    return [
        f"ps-{view.id}",
        Span(view.state, role_of(view.state)),
        short_count(view.rows) if view.rows else "-",
        memory(view.memory_bytes),
        f"{view.cpu_share * 100:.0f} %",
    ]


def _tables(tables: Sequence[TableView]) -> list[Line]:
    if not tables:
        return []
    rows = [
        [
            table.path,
            short_count(table.rows),
            memory(table.memory_bytes),
            "-" if table.hit_rate is None else percent(table.hit_rate),
            f"{table.new_rows_per_s:,.0f}",
        ]
        for table in tables
    ]
    return aligned(["TABLE", "ROWS", "MEMORY", "KNOWN", "NEW/S"], rows)


def _events(status: JobStatus, now: float) -> list[Line]:
    lines: list[Line] = []
    for event in status.events[-_SHOWN_EVENTS:]:
        title = "" if lines else "EVENTS"
        lines.append([Span(f"{title:<10}", "dim"), Span(f"{age(now - event.at):<5}{event.text}")])
    return lines
