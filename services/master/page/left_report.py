"""The report of a job whose master has left none, since it was killed for good: made of what its journal has.

Whoever notices the end writes it: the supervisor of the job, or a command that looks at it later.  Which tasks are done
stands in the partitions' ledgers alone, so the report does not show that; nor does it show workers, of which none is left.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.journal.journal import Journal, planned_job
from edlz.services.master.page.content import Content
from edlz.services.master.page.report import REPORT, write_report
from edlz.services.master.page.settings_table import command_to_repeat, settings_rows
from edlz.services.master.page.task_map import unknown_task_map
from edlz.services.master.progress.curves import Curves
from edlz.services.master.progress.shown_evaluations import ShownEvaluations
from edlz.services.protocol.job_status import FINAL_STATES, EventView, JobStatus
from edlz.services.protocol.messages import Job

__all__ = ["leave_report"]

LOST = "the master was lost: this page is what its journal has, and what came after that is not in it."


def leave_report(folder: Path, journal: Path, last: JobStatus | None = None) -> str:
    """Write the report into the folder of a job that nobody runs, if there is none.

    Parameters
    ----------
    folder, journal : Path
    last : JobStatus, optional
        What was heard of the job last, which may be more than its journal has.

    Returns
    -------
    str
        Why there can be none; nothing if it is there.
    """
    if (folder / REPORT).is_file():
        return ""
    job = planned_job(journal)
    if job is None:
        return "it has no journal with a plan"
    try:
        with Journal(journal) as opened:
            content = _content(job, opened.state(), last, time.time())
    except (EdlzError, OSError) as error:
        return str(error)
    write_report(folder, content)
    return "" if (folder / REPORT).is_file() else f"{folder} cannot be written"


def _content(job: Job, state: JournalState, last: JobStatus | None, now: float) -> Content:
    config = JobConfig.from_record(job.config)
    status = state.final or _status(job, state, last, config, now)
    where = f"k8s/{config.namespace or 'default'}" if config.image_name else "local"
    rows, count = Curves(state.curves, state.curve_end).rows, status.tasks_total
    settings, command = settings_rows(config), command_to_repeat(config)
    return Content(status, tuple(rows), unknown_task_map(count), settings, command, where)


def _status(
    job: Job, state: JournalState, last: JobStatus | None, config: JobConfig, now: float
) -> JobStatus:
    """Return how the job stood: what its master has left, or what was heard of it and its journal, whichever is later."""
    if last is not None and last.state in FINAL_STATES:
        return msgspec.structs.replace(last, events=_events(state.events, last), page="")
    heard = last or _beginning(job, state, config)
    known_until = max(heard.now, state.curve_end.at if state.curve_end else state.began)
    events = _events(state.events, heard)
    lost = EventView(seq=events[-1].seq + 1 if events else 1, at=known_until, kind="job", text=LOST)
    return msgspec.structs.replace(
        heard,
        state="Stopped",
        now=now,
        workers=(),
        partitions=(),
        events=(*events, lost),
        eta_s=None,
        stalled_s=None,
        records_per_s=0.0,
        page="",
        **_later_figures(state, heard),
    )


def _beginning(job: Job, state: JournalState, config: JobConfig) -> JobStatus:
    """Return how the job stood when it was planned; of one without an end, with as much to do as has been done."""
    plan, end = job.plan, state.curve_end
    tasks = state.task_count or plan.task_count
    if plan.is_endless:
        tasks = min(tasks, (end.records if end else 0) // plan.records_per_task)
        records, minibatches = end.records if end else 0, 0
    else:
        records, minibatches = plan.size_of(tasks)
    return JobStatus(
        name=job.name,
        state="Starting",
        mode=plan.mode,
        slots=plan.slots,
        started_at=state.began,
        now=state.began,
        records_total=records,
        minibatches_total=minibatches,
        tasks_total=tasks,
        is_allreduce=config.is_allreduce,
        is_endless=plan.is_endless,
    )


def _later_figures(state: JournalState, heard: JobStatus) -> dict[str, Any]:
    """Return what the journal knows better than who was heard last."""
    found: dict[str, Any] = {}
    evaluations, end, total = ShownEvaluations(state.evaluations).views, state.curve_end, heard.records_total
    if len(evaluations) > len(heard.evaluations):
        found["evaluations"] = evaluations
    if end is not None and heard.is_endless:
        records = max(end.records, heard.records)
        found |= {"version": max(end.version, heard.version), "records": records}
        found["records_total"] = max(records, total)
    elif end is not None and end.records > heard.records:
        ratio = min(1.0, end.records / total) if total else 0.0
        found |= {"version": end.version, "records": end.records, "ratio": ratio}
        found["tasks_done"] = int(ratio * heard.tasks_total)
    return found


def _events(kept: Sequence[EventView], heard: JobStatus) -> tuple[EventView, ...]:
    """Return those of the journal and those that were heard, in their order."""
    events = {event.seq: event for event in (*kept, *heard.events)}
    return tuple(events[seq] for seq in sorted(events))
