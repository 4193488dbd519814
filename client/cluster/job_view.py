"""How a job on a cluster fares: its master's word, joined with what its pods say of themselves.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from edlz.client.cluster.index import Place
from edlz.client.cluster.pod_facts import PodFacts, facts_of
from edlz.client.job_files.job_index import REPORT
from edlz.client.job_files.settings_text import asked_workers_in, settings_in, status_from
from edlz.client.screen.wording import age
from edlz.k8s.cluster.api_records import Pod
from edlz.k8s.cluster.names import CONFIG, MASTER, STATUS, WORKERS, pod_name
from edlz.k8s.cluster.rights import with_own_path
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import FINAL_STATES, FailureView, JobStatus, PartitionView, WorkerView

__all__ = ["ClusterJobView", "view_of", "view_without_answer"]

_LOST = "the node of its master does not answer"
_OLD_S = 100.0  # of what a master writes each half minute
_EQUAL_CLOCKS_S = 2.0  # an answer tells the cluster's time to a second


@dataclass(frozen=True, slots=True)
class ClusterJobView:
    """What is known of a job on a cluster now; the properties are those of `screen.job_view.JobView`.

    Attributes
    ----------
    at : Place
        Where it is.
    context : str
        Of the kubeconfig, through which it was seen.
    pods : sequence of PodFacts
        What its pods say, the master's first.
    is_live : bool
        Whether it runs, or waits to.
    """

    at: Place
    context: str
    status: JobStatus
    asked_workers: int
    is_live: bool
    note: str = ""
    has_figures: bool = True
    pods: Sequence[PodFacts] = field(default_factory=tuple)

    by_hand = None
    pid = None
    is_earlier = False
    has_checkpoints = False  # they lie in the cluster

    @property
    def name(self) -> str:
        return self.at.name

    @property
    def word(self) -> str:
        return self.at.word

    @property
    def where(self) -> str:
        return f"k8s/{self.at.namespace}"

    @property
    def place(self) -> str:
        return pod_name(self.at.name, MASTER) + (f" in {self.context}" if self.context else "")

    @property
    def logs(self) -> str:
        return f"edlz logs {self.word}"

    @property
    def report(self) -> str:
        has_one = self.at.job_dir and self.has_figures and not self.is_live
        return f"{self.at.job_dir}/{REPORT}, on the volume" if has_one else ""

    @property
    def is_led(self) -> bool:
        return self.is_live

    @property
    def master(self) -> PodFacts | None:
        return next((pod for pod in self.pods if pod.name == MASTER), None)

    @property
    def trouble(self) -> str:
        """What one of its pods waits for."""
        if not self.is_live:
            return ""
        waiting = (pod for pod in self.pods if pod.name != MASTER and pod.waits_for and not pod.is_leaving)
        return next((f"{pod.name} {pod.phase}: {pod.waits_for}" for pod in waiting), "")

    @property
    def is_master_in_vain(self) -> bool:
        """Whether the master ends whenever its container is started, before it has a word to say on the job."""
        master = self.master
        if master is None or self.has_figures or not self.is_live:
            return False
        return bool(master.error and master.restarts) and not master.is_running

    @property
    def is_silent(self) -> bool:
        """Whether the master runs, and has not written a word on its pod."""
        return self.is_live and not self.has_figures and self.master is not None and self.master.is_running

    def has_fallen_silent(self, now: float) -> bool:
        """Whether the master runs, and has long written nothing new on its pod; `now`: seconds since the epoch."""
        is_running = self.is_live and self.master is not None and self.master.is_running
        return is_running and self.has_figures and now - self.status.now > _OLD_S

    def as_of(self, now: float) -> "ClusterJobView":
        """Return the same, with a note if its master has fallen silent and nothing is known of why."""
        if self.note or not self.has_fallen_silent(now):
            return self
        note = f"these figures are {age(now - self.status.now)} old: the master writes no new ones"
        return replace(self, note=note)

    def by_our_clock(self, ahead_s: float) -> "ClusterJobView":
        """Return the same with its times as this machine's clock has them; the cluster's is so much ahead."""
        if abs(ahead_s) < _EQUAL_CLOCKS_S:
            return self
        status = self.status
        here = msgspec.structs.replace(
            status,
            started_at=status.started_at - ahead_s,
            now=status.now - ahead_s,
            workers=tuple(_shifted(worker, -ahead_s) for worker in status.workers),
            events=tuple(msgspec.structs.replace(event, at=event.at - ahead_s) for event in status.events),
        )
        return replace(self, status=here)

    @property
    def is_deaf(self) -> bool:
        """Whether its master would not hear of a wish to stop: it waits, is cut off, or never gets far enough."""
        master = self.master
        if master is None:
            return False
        if master.is_out_of_reach:
            return True
        return master.phase == "Pending" or (master.restarts > 0 and not self.has_figures)

    @property
    def has_lost_pods(self) -> bool:
        """Whether some of its pods were asked to go, and cannot, since their nodes do not answer."""
        return any(pod.is_leaving and pod.is_out_of_reach for pod in self.pods)

    @property
    def can_resume(self) -> bool:
        """Whether its files lie on a volume, as far as is known here."""
        return bool(self.at.job_dir)

    def facts(self) -> Mapping[str, Any]:
        """Return its context, namespace and master pod."""
        pod = pod_name(self.at.name, MASTER)
        context = self.context or None
        return {"folder": None, "pid": None, "context": context, "namespace": self.at.namespace, "pod": pod}


def view_of(
    at: Place,
    context: str,
    pods: Sequence[Pod],
    warnings: Mapping[str, str] | None = None,
    trouble: str = "",
) -> ClusterJobView:
    """Return how a job fares.

    Parameters
    ----------
    at : Place
        Where it is.
    context : str
        Through which it was seen.
    pods : sequence of Pod
        Those with its labels.
    warnings : mapping, optional
        The newest about each pod, as `pod_facts.warnings_by_pod` gives them.
    trouble : str
        What its master's log says of the cluster, if it has written nothing on its pod, or nothing new.
    """
    known = {pod.name: pod for pod in pods}
    master = known.get(pod_name(at.name, MASTER))
    facts = sorted((facts_of(at.name, pod, warnings) for pod in pods), key=_order)
    if master is None:
        return _without_master(at, context, facts)
    settings = settings_in(master.annotations.get(CONFIG, "") or at.settings)
    written, unread = _written(master)
    asked = _asked_workers(master, settings)
    bare = status_from(at.name, settings, _seconds(master.metadata.creation_timestamp))
    about = next(one for one in facts if one.name == MASTER)
    status, note = _state(written or bare, about, trouble, has_spoken=written is not None)
    is_live = status.state not in FINAL_STATES
    if is_live:
        status = _with_pods(status, facts)
    return ClusterJobView(at, context, status, asked, is_live, note or unread, written is not None, facts)


def view_without_answer(at: Place, why: str) -> ClusterJobView:
    """Return what is known of a job whose cluster does not answer."""
    settings = settings_in(at.settings)
    status = msgspec.structs.replace(status_from(at.name, settings, at.submitted_at), state="Unknown")
    asked = asked_workers_in(settings)
    return ClusterJobView(at, at.context, status, asked, is_live=False, note=why, has_figures=False)


def _without_master(at: Place, context: str, facts: Sequence[PodFacts]) -> ClusterJobView:
    settings = settings_in(at.settings)
    bare = status_from(at.name, settings, at.submitted_at)
    asked, note = asked_workers_in(settings), "its master pod is gone"
    return ClusterJobView(
        at, context, bare, asked, is_live=False, note=note, has_figures=False, pods=tuple(facts)
    )


def _written(master: Pod) -> tuple[JobStatus | None, str]:
    """Return what the master says of the job, or why that cannot be read."""
    text = with_own_path(master.annotations.get(STATUS, ""))
    if not text:
        return None, ""
    try:
        return named_status.decode(text), ""
    except msgspec.DecodeError:
        return (
            None,
            f"the annotation {STATUS} of its master is not a status: another version of edlz wrote it",
        )


def _state(status: JobStatus, master: PodFacts, trouble: str, *, has_spoken: bool) -> tuple[JobStatus, str]:
    """Return the status with the state that the master's pod leaves it in, and what that does not say."""
    if has_spoken and status.state in FINAL_STATES:
        return status, ""
    if master.phase == "Failed" or (master.phase == "Succeeded" and not has_spoken):
        return msgspec.structs.replace(status, state="Failed", failure=_failure(master)), ""
    if master.phase == "Succeeded":
        return msgspec.structs.replace(status, state="Stopped"), "interrupted"
    if (
        master.is_leaving and master.is_out_of_reach
    ):  # nobody there hears of it, and nothing of it counts any more
        return msgspec.structs.replace(status, state="Stopped"), _LOST
    if master.is_leaving:
        return msgspec.structs.replace(status, state="Stopping"), "its pods are removed"
    if master.phase == "Pending":
        return msgspec.structs.replace(status, state="Pending"), f"the master waits: {_advised(master)}"
    if not master.is_running:
        return msgspec.structs.replace(status, state="Starting"), f"the master waits: {_advised(master)}"
    if not has_spoken:
        note = (
            f"the master starts again; it ended: {_with_help(master)}"
            if master.error
            else "the master starts"
        )
        note = f"the master runs, but cannot say a word: {trouble}" if trouble else note
        return msgspec.structs.replace(status, state="Starting"), note
    if trouble:
        return status, f"these figures are old, as the master cannot write new ones: {trouble}"
    return status, _LOST if master.is_out_of_reach else ""


def _failure(master: PodFacts) -> FailureView:
    text = f"its master ended: {master.end}" + (f": {master.error}" if master.error else "")
    return FailureView(text=text, help=master.help, exit_code=master.code if master.error else 1)


def _advised(master: PodFacts) -> str:
    """Return what a master waits for, and what it said was to do."""
    return f"{master.waits_for or 'its container starts'}" + (f"; {master.help}" if master.help else "")


def _with_help(master: PodFacts) -> str:
    return f"{master.error}; {master.help}" if master.help else master.error


def _with_pods(status: JobStatus, facts: Sequence[PodFacts]) -> JobStatus:
    """Return the status with the pods that its master has not heard of, and why they wait."""
    by_name = {pod.name: pod for pod in facts}
    workers = [
        msgspec.structs.replace(
            view,
            note=_joined(view.note, by_name.get(f"worker-{view.id}")),
            started_at=_created_at(by_name.get(f"worker-{view.id}")),
        )
        for view in status.workers
    ]
    seen = {f"worker-{view.id}" for view in workers} | {f"ps-{view.id}" for view in status.partitions}
    unseen = [pod for pod in facts if pod.name not in seen and not pod.has_ended and not pod.is_leaving]
    workers += [
        WorkerView(id=pod.index, state="starting", note=_joined("", pod), started_at=pod.created_at)
        for pod in unseen
        if pod.role == "worker"
    ]
    partitions = [
        *(
            msgspec.structs.replace(view, note=_joined(view.note, by_name.get(f"ps-{view.id}")))
            for view in status.partitions
        ),
        *(
            PartitionView(id=pod.index, state="starting", version=0, note=_joined("", pod))
            for pod in unseen
            if pod.role == "ps"
        ),
    ]
    return msgspec.structs.replace(status, workers=tuple(workers), partitions=tuple(partitions))


def _shifted(worker: WorkerView, by_s: float) -> WorkerView:
    if not worker.started_at:  # it is not known
        return worker
    return msgspec.structs.replace(worker, started_at=worker.started_at + by_s)


def _created_at(pod: PodFacts | None) -> float:
    return pod.created_at if pod is not None else 0.0


def _joined(note: str, pod: PodFacts | None) -> str:
    if pod is None or not pod.waits_for or note.startswith(pod.phase):  # its master has seen it too
        return note
    return f"{pod.phase}: {pod.waits_for}" + (f"; {note}" if note else "")


def _order(pod: PodFacts) -> tuple[int, int]:
    roles = (MASTER, "ps", "worker")
    place = roles.index(pod.role) if pod.role in roles else len(roles)
    return place, int(pod.index) if pod.index.isdigit() else 0


def _asked_workers(master: Pod, settings: Mapping[str, Any]) -> int:
    """Return how many workers were asked for last: by a command, else at submission."""
    scaled = master.annotations.get(WORKERS, "")
    return int(scaled) if scaled.isdecimal() else asked_workers_in(settings)


def _seconds(at: datetime | None) -> float:
    return at.timestamp() if at is not None else 0.0
