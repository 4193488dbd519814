"""What a master writes on its own pod: the job's status as an annotation, its phase as a label.

The status is an object with names, as in the job's `status.json`.  A pod's annotations may have 256 KiB in all, and
`kubectl apply` keeps some of them twice, so a status that is too long loses its oldest events first.
"""

import time
from dataclasses import dataclass
from typing import Literal

import msgspec

from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.names import STATUS, Owner
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import FailureView, JobStatus

__all__ = [
    "STATUS_LABEL",
    "Note",
    "StatusNote",
    "failed_status",
    "note_of_status",
    "status_text",
    "write_note",
]

STATUS_LABEL = "status"
EVERY_S, BEAT_S = 2.0, 30.0
MAX_BYTES = 64 << 10

Phase = Literal["Pending", "Running", "Finished"]
_FINAL = ("Succeeded", "Failed", "Stopped")
_WAITING = ("Pending", "Starting")


@dataclass(frozen=True, slots=True)
class Note:
    """What to write: annotations and labels of the master pod."""

    annotations: dict[str, str]
    labels: dict[str, str]


class StatusNote:
    """Decides when the status is written: when it has changed, but not more often than each two seconds.

    One that does not change is written each half minute, so that an old one means that its master is cut off.
    """

    def __init__(self) -> None:
        self._written: JobStatus | None = None
        self._written_s = 0.0

    def due(self, status: JobStatus, now: float) -> Note | None:
        """Return what to write now, if anything."""
        if self._written is not None:
            is_new = _essence(status) != _essence(self._written)
            if now - self._written_s < (EVERY_S if is_new else BEAT_S):
                return None
        return note_of_status(status)

    def on_written(self, status: JobStatus, now: float) -> None:
        """The server has taken it."""
        self._written, self._written_s = status, now


def note_of_status(status: JobStatus) -> Note:
    """Return what to write of a status."""
    return Note({STATUS: status_text(status)}, {STATUS_LABEL: phase_of(status)})


async def write_note(cluster: Cluster, pod: Owner, note: Note, *, patience_s: float) -> None:
    """Write a note on the master pod.

    Raises
    ------
    EdlzError
        If the cluster does not take it; Conflict if the pod is another one.
    """
    await cluster.patch_pod(
        pod.name, annotations=note.annotations, labels=note.labels, uid=pod.uid, patience_s=patience_s
    )


def phase_of(status: JobStatus) -> Phase:
    """Return the label's value: it has no more words than those that users of the older tool select by."""
    if status.state in _FINAL:
        return "Finished"
    return "Pending" if status.state in _WAITING else "Running"


def status_text(status: JobStatus) -> str:
    """Return the status as JSON, shortened if need be."""
    while True:
        text = named_status.encode(status)
        if len(text) <= MAX_BYTES or not (status.events or status.evaluations or status.tables):
            return text.decode()
        status = msgspec.structs.replace(
            status,
            events=status.events[(len(status.events) + 1) // 2 :],
            evaluations=status.evaluations[(len(status.evaluations) + 1) // 2 :],
            tables=status.tables if status.events else (),
        )


def failed_status(config: JobConfig, error: EdlzError) -> JobStatus:
    """Return the status of a job that could not begin."""
    now, slots = time.time(), config.grads_to_wait
    failure = FailureView(text=error.message, help=error.help, exit_code=error.exit_code)
    return JobStatus(
        name=config.job_name,
        state="Failed",
        mode="sync" if config.is_sync else "async",
        slots=slots,
        started_at=now,
        now=now,
        failure=failure,
    )


def _essence(status: JobStatus) -> JobStatus:
    """Return what counts as a change: not the mere passing of time."""
    return msgspec.structs.replace(
        status,
        now=0.0,
        checkpoint_age_s=None,
        snapshot_age_s=None,
        stalled_s=None if status.stalled_s is None else 0.0,
    )
