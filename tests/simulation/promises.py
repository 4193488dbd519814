"""What a job promises, checked at its end against what its partitions' states hold."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from edlz.services.master.core.tasks.task_failures import MAX_ATTEMPTS
from edlz.services.master.digest import read_digest
from edlz.services.parameters.store import Store, read
from edlz.services.protocol.concluded_rounds import ConcludedRound
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import ReadVector, TableDigests
from edlz.services.storage.state import State
from tests.simulation.callbacks import seen
from tests.simulation.model import final_bytes
from tests.simulation.processes import Violation
from tests.simulation.reference import barriers_of, reference_run, version_behind
from tests.simulation.schedule import Schedule, bad_minibatches

if TYPE_CHECKING:
    from tests.simulation.job import SimulatedJob

__all__ = ["check_end", "check_failure", "seen_of"]


def check_end(job: "SimulatedJob") -> None:
    """Check what a job that is over has promised, against what its partitions' states hold."""
    if not job.journal["is_complete"]:
        raise Violation("the job does not end: nothing left to happen")
    finals = [job.sealed[p, job.journal["sealed"][p]] for p in range(job.schedule.partitions)]
    ends = dict(job.journal["ends"])
    _check_ends(job.schedule, ends)
    count = job.journal["task_count"] or job.plan.task_count
    lengths = enumerate(job.schedule.lengths)
    wanted = [min(ends.get(t, length), length) if t < count else 0 for t, length in lengths]
    for p, state in enumerate(finals):
        is_folded = state.folded >= 0  # when all is done, nothing but their sum is left
        applied, all_of_it = ([state.folded], [sum(wanted)]) if is_folded else (list(state.counts), wanted)
        if applied != all_of_it or (is_folded and len(state.counts)):
            raise Violation(f"partition {p} applied {applied}, not {all_of_it}")
        if len(TaskSet(state.ledger.finished)) != count:
            raise Violation(f"partition {p} sealed {state.ledger}")
    if job.plan.is_sync:
        _check_bits(job, finals, ends)
    if job.schedule.has_callbacks:
        _check_rounds(job, count)
    if job.journal["digest"] != _digest_of([Store(state, job.plan.seed) for state in finals]):
        raise Violation("the digest is not that of the sealed parameters")
    if job.schedule.exports:
        _check_exports(job, finals)
    if job.plan.gives_parts:
        _check_predictions(job)
    elif job.schedule.evaluation_tasks:
        _check_evaluations(job, finals)


def _check_exports(job: "SimulatedJob", finals: list[State]) -> None:
    """The finished model lies in one numbered folder, and the journal knows which; trained again, it is another."""
    digests, report = [digest for digest, _ in job.exports], job.journal["exported"]
    is_one = len(digests) == 1 or (not job.plan.is_sync and len(set(digests)) == len(digests))
    if not is_one or digests[-1] != job.journal["digest"]:
        raise Violation(f"exported {digests}, not only {job.journal['digest']}")
    if (report.digest, report.place) != (digests[-1], f"out/{len(digests)}"):
        raise Violation(f"the journal has {report}, of exports {digests}")
    rounds = job.journal["rounds"]
    result = rounds[-1].decision.result if rounds else -1
    wanted = finals if result < 0 else job.checkpoints[result]
    if job.exports[-1][1] != final_bytes(wanted):
        raise Violation(f"what was exported is not what is sealed, or v{result}")


def _check_bits(job: "SimulatedJob", finals: list[State], ends: dict[int, int]) -> None:
    """The parameters, and what callbacks have decided on the way, do not depend on who ran what, or died."""
    values, rounds = reference_run(job.schedule, ends)
    if job.schedule.decides and shown(job.journal["rounds"]) != shown(rounds):
        raise Violation(f"callbacks decided {job.journal['rounds']}, not {rounds}")
    if final_bytes(finals) != values:
        raise Violation("the final parameters are not the same bits")


def shown(rounds: Iterable[ConcludedRound]) -> str:
    return repr(list(rounds))  # NaN equals NaN in there


def _check_rounds(job: "SimulatedJob", count: int) -> None:
    """Callbacks were called at each barrier up to the job's end, and what they refer to is there."""
    rounds = [round_.task for round_ in job.journal["rounds"]]
    stop = job.schedule.stops_behind if job.schedule.decides else -1
    end = job.schedule.task_count - 1
    planned = [t for t in barriers_of(job.schedule) if t < end] + [end]
    wanted = planned[: stop + 1] if 0 <= stop < len(planned) else planned
    if rounds != wanted or (job.plan.is_sync and rounds[-1] != count - 1):
        raise Violation(f"barriers behind {rounds}, not {wanted}; the job had {count} tasks")
    if job.plan.is_sync and not job.schedule.skips:
        old = [r for r in job.journal["rounds"] if r.version < version_behind(job.schedule, r.task)]
        if old:
            raise Violation(f"callbacks were shown a model without what is before their barrier: {old}")
    if job.schedule.decides and job.schedule.keeps_best:
        kept = job.journal["rounds"][-1].decision.kept
        missing = [version for version in kept if version not in job.checkpoint_folder.versions]
        if missing:
            raise Violation(f"callbacks refer to v{missing}, which is not kept")


def _digest_of(stores: list[Store]) -> str:
    reading = read_digest([(1, 1)] * len(stores), "1")
    index, body = next(reading)
    while True:
        store = stores[index]
        if isinstance(body, ReadVector):
            answer = read(body, store)
        else:
            answer = TableDigests(
                digests=[digest.to_bytes(16, "little") for digest in store.tables.digests()]
            )
        try:
            index, body = reading.send(answer)
        except StopIteration as end:
            return end.value


def check_failure(schedule: Schedule, failure: FailureView) -> None:
    """A job may only fail for a task that cannot be left out, a loss that it was to end at, or with nothing to train."""
    if schedule.stops_on_nan and schedule.nonfinite and "--stop_on_nan" in failure.text:
        return
    sometimes, often = _sometimes_bad(schedule)
    if schedule.home != "hand":
        often = sometimes  # workers that are killed with such a task in hand count among its failures
    bad = {task for task, _ in schedule.bad if bad_minibatches(schedule, task)}
    bad |= {task for task, _ in schedule.poison}
    if "no minibatch was trained on" in failure.text and all(
        length == 0 or task in often | bad for task, length in enumerate(schedule.lengths[: _least(schedule)])
    ):
        return
    if failure.task not in (often if schedule.skips else often | bad):
        raise Violation(f"the job failed: {failure}")


def _least(schedule: Schedule) -> int:
    """How many tasks the job has at least, if callbacks stop it."""
    barriers = barriers_of(schedule)
    stop = schedule.stops_behind if schedule.decides else -1
    return min(
        schedule.task_count, barriers[stop] + 1 if 0 <= stop < len(barriers) else len(schedule.lengths)
    )


def _check_ends(schedule: Schedule, ends: dict[int, int]) -> None:
    """What always raises has ended its task, and nothing else has, but for what raised often."""
    sometimes, often = _sometimes_bad(schedule)
    poison = dict(schedule.poison)
    if schedule.last_end is not None and schedule.last_end not in ends.items():
        raise Violation(f"the last task was to end at {schedule.last_end}, not {ends}")
    for task in range(schedule.task_count):
        if schedule.last_end is not None and task == schedule.last_end[0]:
            continue
        end, bad = ends.get(task), bad_minibatches(schedule, task)
        if task in poison:  # it ends where training stands
            if end is None or end > poison[task]:
                raise Violation(f"task {task} was ended at {end}, but ends its workers at {poison[task]}")
            continue
        if not bad and end is not None and task not in often:
            raise Violation(f"task {task} was ended at {end}, but could be computed")
        if bad and (end is None or end > bad[0] or (end < bad[0] and task not in sometimes)):
            raise Violation(f"task {task} was ended at {end}, but raises at {bad[0]}")


def _sometimes_bad(schedule: Schedule) -> tuple[set[int], set[int]]:
    """The tasks that raise for somebody, and those of them that do so often enough to be ended."""
    failing, lame = schedule.failing, {task for _, task in schedule.lame}
    often = {task for task, times in failing if times >= MAX_ATTEMPTS}
    return {task for task, _ in failing} | lame, often | lame


def _check_predictions(job: "SimulatedJob") -> None:
    """Each task that does not always raise has its file, once, and the manifest has each of them."""
    bad = {*job.schedule.bad_evaluations, *job.schedule.poison_evaluations}
    wanted = [task for task in range(job.schedule.evaluation_tasks) if task not in bad]
    manifest = job.published
    if manifest is None:
        raise Violation("the job is complete, but its predictions are not published")
    if [entry.task for entry in manifest["tasks"]] != wanted or list(manifest["skipped"]) != sorted(bad):
        raise Violation(f"predicted {manifest}, not {wanted} without {bad}")
    for entry in manifest["tasks"]:
        if entry.records != 4 or job.part_files.get(entry.task) != entry.checksum:
            raise Violation(f"{entry} is not the file {job.part_files.get(entry.task)}")


def _check_evaluations(job: "SimulatedJob", finals: list[State]) -> None:
    versions = [version for version, _ in job.journal["evaluations"]]
    wanted = float(
        (
            job.schedule.evaluation_tasks
            - len({*job.schedule.bad_evaluations, *job.schedule.poison_evaluations})
        )
        * 4
    )
    if not wanted:
        if versions:
            raise Violation(f"evaluated, but every task raises: {versions}")
        return
    if any(metrics["n"] != wanted for _, metrics in job.journal["evaluations"]):
        raise Violation(f"a round counted a record twice or never: {job.journal['evaluations']}")
    result = job.journal["rounds"][-1].decision.result if job.journal["rounds"] else -1
    final_version = result if result >= 0 else finals[0].version
    if not versions or (job.plan.is_sync and versions[-1] != final_version):
        raise Violation(f"no evaluation of the final model: {versions}")
    is_final = job.plan.is_sync and result < 0
    if is_final and job.journal["evaluations"][-1][1]["seen"] != seen_of(finals):
        raise Violation(f"the final evaluation is of another model: {job.journal['evaluations']}")


def seen_of(states: list[State]) -> float:
    """What an evaluation of these parameters measures."""
    vectors = [
        np.concatenate([getattr(state, name) for state in states]).tobytes() for name in ("dense", "state")
    ]
    return seen(*vectors)
