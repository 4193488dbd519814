"""Whether a job kept its promises, from what it left on the disk."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.chaos_schedule import ALL, Schedule
from edlz.services.configuration.job_settings import JobSettings
from edlz.services.master.journal.journal import Journal
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import JobStatus
from edlz.services.protocol.ledger import Ledger
from edlz.services.protocol.messages import Job
from edlz.services.storage.replica_files import ReplicaFiles
from edlz.services.storage.snapshots import SnapshotFolder
from edlz.services.storage.state import State

__all__ = ["Outcome", "examine", "problems_of_group"]

# Events of a group's master.
GONE_BACK, DIFFERENT, MEMBERS = "training goes back to v", "has another state of v", "the model is on "


@dataclass(frozen=True)
class Outcome:
    """What a job left.

    Attributes
    ----------
    digest : of its parameters
    minibatches : of the plan
    problems : each broken promise, in words
    """

    digest: str
    minibatches: int
    problems: tuple[str, ...]


def examine(folder: Path, *, evaluated: int) -> Outcome:
    """Recount a job that has ended.

    Parameters
    ----------
    folder : Path
        The job's.
    evaluated : int
        Records to evaluate on, numbered from 0; each evaluation has the metrics `records` and `numbers`, and two
        that are no finite numbers.
    """
    with Journal(folder / "journal.sqlite") as journal:
        job = journal.job()
    assert job is not None
    status = named_status.decode((folder / "status.json").read_bytes())
    problems = [*_of_states(folder, job), *_of_status(status, job), *_of_evaluations(status, evaluated)]
    return Outcome(status.digest, int(job.plan.minibatches.sum()), tuple(problems))


def problems_of_group(log: Path, schedule: Schedule) -> tuple[str, ...]:
    """Return what is wrong if members differed, or went back to an earlier state though one stayed that no fault has met.

    Parameters
    ----------
    log : Path
        The master's.
    schedule : Schedule
        What happened to the group.
    """
    lines = log.read_text(errors="replace").splitlines()
    problems = [line for line in lines if DIFFERENT in line]
    met = {name for fault in schedule.faults for name in (fault.target, fault.other)}
    if ALL not in met and "disk" not in met:
        stayed = sorted(_who_stayed(lines) - met)
        problems += [f"the group went back, and {name} was a member all the time" for name in stayed]
    return tuple(problems)


def _who_stayed(lines: list[str]) -> set[str]:
    """Return the members of groups that went back to an earlier state who had been members before, too."""
    before: set[str] = set()
    members: set[str] = set()
    stayed: set[str] = set()
    for line in lines:
        if MEMBERS in line:
            before, members = members, set(line.split(MEMBERS)[1].rstrip(".").split(", "))
        elif GONE_BACK in line:  # told behind its group
            stayed |= before & members
    return stayed


def _of_states(folder: Path, job: Job) -> list[str]:
    """The newest durable state of each partition: its own counts, whatever its ledger says."""
    problems = []
    plan = job.plan
    for who, state in _last_states(folder, job):
        difference = state.counts - plan.minibatches
        for task in np.flatnonzero(difference):
            problems.append(
                f"{who} has {state.counts[task]} of {plan.minibatches[task]} minibatches of task {task}"
            )
        ledger = Ledger(state.ledger)
        if len(ledger.finished) != plan.task_count or ledger.minibatches != plan.minibatches.sum():
            problems.append(f"the sealed ledger of {who} is not full: {ledger}")
        state.close()
    return problems


def _last_states(folder: Path, job: Job) -> Iterator[tuple[str, State]]:
    """Yield the newest durable state of the group, or of each parameter server."""
    if JobSettings.of(job.config).is_allreduce:
        replicas = ReplicaFiles(job)
        yield "the group", replicas.load(max(name for name, _ in replicas.names()))
        return
    for index in range(job.partitions):
        snapshots = SnapshotFolder(index, folder)
        snapshots.open(job)
        yield f"ps-{index}", snapshots.load(max(snapshots.names(), key=lambda name: (name[1], name[0])))


def _of_status(status: JobStatus, job: Job) -> list[str]:
    problems = [] if status.state == "Succeeded" else [f"the job is {status.state}"]
    wanted = int(job.plan.minibatches.sum())
    if len(status.partitions) != job.partitions:
        problems.append(f"status.json has {len(status.partitions)} of {job.partitions} partitions")
    for view in status.partitions:
        if (view.expected, view.applied, view.missing, view.doubled) != (wanted, wanted, 0, 0):
            problems.append(f"status.json, of {wanted} minibatches: {view}")
    return problems


def _of_evaluations(status: JobStatus, evaluated: int) -> list[str]:
    wanted: dict[str, float] = {
        "records": float(evaluated),
        "numbers": float(sum(range(evaluated))),
        "nan": math.nan,
        "inf": math.inf,
    }
    problems = [
        f"evaluation at v{evaluation.version} of {evaluation.metrics}, not {wanted}"
        for evaluation in status.evaluations
        if not _is_same(evaluation.metrics, wanted)
    ]
    if not status.evaluations or status.evaluations[-1].version != status.version:
        problems.append(f"no evaluation of the final v{status.version}")
    return problems


def _is_same(found: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    """Whether all metrics are equal; a NaN equals another one here."""
    return {name: str(value) for name, value in found.items()} == {
        name: str(value) for name, value in wanted.items()
    }
