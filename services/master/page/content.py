"""What the status page shows, as JSON: the object of `/api/status`, and what it is made of.

A `Content` is taken on the master's loop, from what its core knows, as quickly as may be; it is encoded elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from edlz.services.master.progress.measures import Measured
from edlz.services.protocol.curves import CurveRow
from edlz.services.protocol.job_status import EventView, JobStatus, WorkerView
from edlz.services.protocol.status_object import event_objects, group_object, status_object
from edlz.services.redaction import without_secrets
from edlz.services.strict_json import plain

__all__ = ["Content", "shown_events", "workers_of"]

_DIGITS = 5  # of a number in a curve


@dataclass(frozen=True, slots=True)
class Content:
    """How a job stands.

    Attributes
    ----------
    status : JobStatus
        With all events that are known.
    rows : sequence of CurveRow
        Its curves.
    tasks : dict
        Of `task_map`.
    settings : sequence of dict
        Of `settings_rows`.
    command : str
        That repeats it.
    where : str
        `local`, or `k8s/NAMESPACE`.
    measured : Measured
        What its metrics are made of.
    """

    status: JobStatus
    rows: Sequence[CurveRow]
    tasks: dict[str, object]
    settings: Sequence[dict[str, str]]
    command: str
    where: str = "local"
    measured: Measured = Measured()  # noqa: RUF009  nothing in it is changed

    def tree(self, since: int = 0) -> dict[str, Any]:
        """Return the whole object, with the events after a number; nothing in it is to be hidden."""
        found = self.tree_without_workers()
        found["workers"] = msgspec.to_builtins(
            workers_of(self.status.workers, are_members=self.status.is_allreduce)
        )
        found["events"] = shown_events(self.status.events, since)
        return found

    def tree_without_workers(self) -> dict[str, Any]:
        """Return the object without workers and events, of which there may be many."""
        quiet = msgspec.structs.replace(self.status, events=(), workers=())
        found: dict[str, Any] = plain(_redacted(status_object(quiet, self.where)))
        del found["events"], found["workers"]
        found["group"] = group_object(self.status)  # its members are workers
        leased = int(str(self.tasks["leased_count"]))
        found["tasks"].update(self.tasks, leased=leased)
        found["tasks"]["todo"] = max(0, self.status.tasks_total - self.status.tasks_done - leased)
        found["curves"] = curves_object(self.rows)
        found["configuration"] = {"settings": list(self.settings), "command": self.command}
        found["now"] = self.status.now
        found["seq"] = max((event.seq for event in self.status.events), default=0)
        return found


class _StepTimes(msgspec.Struct):
    read: float
    pull: float
    compute: float
    push: float
    wait: float


class WorkerObject(msgspec.Struct):
    """A worker as it stands in the object of a status: there may be thousands, and dictionaries take their time."""

    id: str
    state: str
    task: int | None
    records_per_s: float
    step_s: _StepTimes | dict[str, float]  # of a member of a group
    memory_bytes: int
    note: str | None
    started_at: float | None
    joined_at: float | None
    restarts: int
    rank: int | None
    step_bytes: dict[str, int] | None = None


def workers_of(views: Sequence[WorkerView], *, are_members: bool = False) -> list[WorkerObject]:
    """Return workers as they are shown."""
    if are_members:  # not many
        return [_member_of(view) for view in views]
    return [
        WorkerObject(
            view.id,
            view.state,
            view.task,
            view.records_per_s,
            _StepTimes(
                view.read_ms / 1000,
                view.pull_ms / 1000,
                view.compute_ms / 1000,
                view.push_ms / 1000,
                view.wait_ms / 1000,
            ),
            view.memory_bytes,
            without_secrets(view.note) if view.note else None,
            view.started_at or None,
            view.joined_at or None,
            view.restarts,
            view.rank,
        )
        for view in views
    ]


def _member_of(view: WorkerView) -> WorkerObject:
    [found] = workers_of([view])
    found.step_s = {name: ms / 1000 for name, ms in view.times_ms(is_member=True).items()}
    found.step_bytes = {"in": round(view.step_bytes_in), "out": round(view.step_bytes_out)}
    return found


def curves_object(rows: Sequence[CurveRow]) -> dict[str, list[Any]]:
    """Return the curves as columns; null where there is nothing to draw."""
    pairs = [row.staleness or (None, None) for row in rows]
    return {
        "at": [round(row.at, 2) for row in rows],
        "span_s": [round(row.span_s, 2) for row in rows],
        "version": [row.version for row in rows],
        "records_per_s": [_short(row.records_per_s) for row in rows],
        "loss": [_short(row.loss) for row in rows],
        "training": [round(row.training, 2) for row in rows],
        "starting": [round(row.starting, 2) for row in rows],
        "lost": [round(row.missing, 2) for row in rows],
        "wait": [_short(row.wait) for row in rows],
        "staleness_p50": [_short(low) for low, _ in pairs],
        "staleness_p95": [_short(high) for _, high in pairs],
    }


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.{_DIGITS}g}")


def shown_events(events: Sequence[EventView], since: int) -> list[dict[str, Any]]:
    shown = event_objects([event for event in events if event.seq > since])
    for event in shown:
        event["text"] = without_secrets(event["text"])
    return shown


def _redacted(found: dict[str, Any]) -> dict[str, Any]:
    """Return the object of a status without secrets in what a user's code or a cluster says."""
    if found["job"]["reason"]:
        found["job"]["reason"] = without_secrets(found["job"]["reason"])
    for row in found["ps"]:
        if row["note"]:
            row["note"] = without_secrets(row["note"])
    return found
