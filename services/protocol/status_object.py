"""A job's status as the JSON object that scripts read: `edlz status -o json` and `/api/status`, version 1.

Fields are only ever added.  Times in seconds, sizes in bytes, ids as strings.
"""

from collections.abc import Sequence
from typing import Any

from edlz.services.protocol.job_status import EventView, JobStatus, PartitionView, TableView, WorkerView
from edlz.services.protocol.named_status import named

__all__ = ["API_VERSION", "event_objects", "group_object", "status_object"]

API_VERSION = 1
_OTHER_WORK = ("evaluating", "exporting", "predicting", "analyzing")  # than training tasks


def status_object(status: JobStatus, where: str = "local") -> dict[str, Any]:
    """Return the status, of a job that is `local` or in `k8s/NAMESPACE`, as nested dictionaries and lists."""
    held = {worker.task for worker in status.workers if worker.state not in _OTHER_WORK} - {None}
    leased = min(len(held), status.tasks_total - status.tasks_done)
    return {
        "api": API_VERSION,
        "seq": max((event.seq for event in status.events), default=0),
        "job": _job(status, where),
        "progress": _progress(status),
        "loss": status.loss,
        "evaluations": [{"version": view.version, "metrics": view.metrics} for view in status.evaluations],
        "tasks": {
            "todo": status.tasks_total - status.tasks_done - leased,
            "leased": leased,
            "done": status.tasks_done,
            "skipped": status.skipped_tasks,
            "failed_attempts": status.failed_attempts,
        },
        "workers": [_worker(worker, is_member=status.is_allreduce) for worker in status.workers],
        "ps": [_partition(partition, status.checkpoint) for partition in status.servers],
        "group": group_object(status),
        "tables": [_table(table) for table in status.tables],
        "checkpoint": None
        if status.checkpoint is None
        else {"version": status.checkpoint, "age_s": status.checkpoint_age_s},
        "events": event_objects(status.events),
        "nonfinite_losses": status.nonfinite_losses,
        "exported": None if status.exported is None else named(status.exported),
        "predictions": status.predictions or None,
        "page": status.page or None,
    }


def group_object(status: JobStatus) -> dict[str, Any] | None:
    """Return who trains together, of an all-reduce job."""
    if not status.is_allreduce:
        return None
    return {
        "generation": None if status.generation is None else ".".join(map(str, status.generation)),
        "members": list(status.members),
        "version": status.version,
        "checkpoint_version": status.checkpoint,
    }


def event_objects(events: Sequence[EventView]) -> list[dict[str, Any]]:
    """Return events as they stand in the object of a status."""
    return [{"seq": event.seq, "at": event.at, "kind": event.kind, "text": event.text} for event in events]


def _job(status: JobStatus, where: str) -> dict[str, Any]:
    return {
        "name": status.name,
        "state": status.state,
        "reason": status.failure.text if status.failure else None,
        "where": where,
        "strategy": status.strategy,
        "mode": status.mode,
        "started_at": status.started_at,
        "digest": status.digest or None,
        "worker_threads": status.threads or None,
    }


def _progress(status: JobStatus) -> dict[str, Any]:
    return {
        "ratio": status.share,
        "epoch": status.epoch,
        "epochs": status.epochs,
        "records": status.records,
        "records_total": status.records_total,
        "minibatches": status.minibatches,
        "minibatches_total": status.minibatches_total,
        "duplicates_ignored": status.duplicates_ignored,
        "version": status.version,
        "records_per_s": status.records_per_s,
        "eta_s": status.eta_s,
        "stalled_s": status.stalled_s,
        "is_endless": status.is_endless,
        "waits_for_data_s": status.waits_for_data_s,
    }


def _worker(worker: WorkerView, *, is_member: bool) -> dict[str, Any]:
    times = worker.times_ms(is_member=is_member)
    return {
        "id": worker.id,
        "state": worker.state,
        "task": worker.task,
        "records_per_s": worker.records_per_s,
        "step_s": {name: time_ms / 1000 for name, time_ms in times.items()},
        "memory_bytes": worker.memory_bytes,
        "note": worker.note or None,
        "started_at": worker.started_at or None,
        "joined_at": worker.joined_at or None,
        "restarts": worker.restarts,
        "rank": worker.rank,
        "step_bytes": {"in": round(worker.step_bytes_in), "out": round(worker.step_bytes_out)}
        if is_member
        else None,
    }


def _partition(partition: PartitionView, checkpoint: int | None) -> dict[str, Any]:
    return {**named(partition), "checkpoint_version": checkpoint}


def _table(table: TableView) -> dict[str, Any]:
    return {
        "name": table.path,
        "rows": table.rows,
        "memory_bytes": table.memory_bytes,
        "hit_rate": table.hit_rate,
        "new_rows_per_s": table.new_rows_per_s,
    }
