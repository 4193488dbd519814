"""What workers of a simulated job have their cores' instructions done by: reading, computing, evaluating."""

import dataclasses
import math
import zlib

import numpy as np

from edlz.services.parameters.store import initial_digest
from edlz.services.protocol.concluded_rounds import Decision
from edlz.services.protocol.layout import slice_bounds
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import (
    ANY_VERSION,
    DoneEvaluation,
    EvaluationLease,
    EvaluationResult,
    ExportLease,
    ExportReport,
    FailedTask,
    Failure,
    Initialise,
    PartFile,
)
from edlz.services.storage.state import State
from edlz.services.worker.core import inputs
from edlz.services.worker.core import instructions as worker_core
from edlz.services.worker.core.held_tasks import Phase
from edlz.services.worker.core.instructions import Outcome
from edlz.services.worker.partition_traffic import join_rows, split_gradients
from tests.simulation.callbacks import callback_needs, decide, loss_of, seen
from tests.simulation.model import (
    LAYOUT,
    OPTIMIZER,
    TABLES,
    compute_gradient,
    compute_rows,
    final_bytes,
    initial_vectors,
    make_push,
    same_ids,
    with_rows,
)
from tests.simulation.processes import Process, Violation
from tests.simulation.schedule import ids_of, raises_at
from tests.simulation.shells import Shell

__all__ = ["WorkerShell"]


class WorkerShell(Shell):
    """Of workers."""

    def _exit(self, process: Process, instruction: worker_core.Exit) -> None:
        self._job.exit(process)

    def _askmaster(self, process: Process, instruction: worker_core.AskMaster) -> None:
        self._job.network.ask(process, "m", None, instruction.body)

    def _askpartition(self, process: Process, instruction: worker_core.AskPartition) -> None:
        self._job.network.ask(
            process, instruction.endpoint, (instruction.index, instruction.key), instruction.body
        )

    def _sendinitialise(self, process: Process, instruction: worker_core.SendInitialise) -> None:
        self._job.reach("initialising")
        n = self._job.schedule.partitions
        parts = [v[slice(*slice_bounds(len(v), instruction.index, n))] for v in initial_vectors()]
        values = parts if instruction.with_values else (None, None, None)
        body = Initialise(
            run=self._job.job.run,
            plan_hash=self._job.plan.hash,
            digest=initial_digest(self._job.plan.hash, LAYOUT, OPTIMIZER, self._job.schedule.tables, *parts),
            layout=LAYOUT,
            optimizer=OPTIMIZER,
            tables=self._job.schedule.tables,
            dense=values[0],
            state=values[1],
            counters=values[2],
            incarnation=instruction.incarnation,
        )
        self._job.network.ask(process, instruction.endpoint, (instruction.index, instruction.key), body)

    def _build(self, process: Process, instruction: worker_core.Build) -> None:
        if self._job.known_at_refusal and process.name > self._job.known_at_refusal:
            raise Violation("a worker builds a model that was refused before it began")
        process.pace.begin("build", self._job.now)
        least_s, most_s = (self._job.schedule.build_s,) * 2 if self._job.schedule.build_s else (0.5, 4)
        self._job.within(least_s, most_s, self._on_built, process)

    def _on_built(self, process: Process) -> None:
        process.pace.end(self._job.now)
        if self._job.schedule.refuses:
            mistake = Failure(code="model", message="a mistake", where="model.py:3 in loss", is_mistake=True)
            self._job.event(process.name, inputs.Fatal(mistake))
            return
        needs = callback_needs(self._job.schedule)
        self._job.event(process.name, inputs.ModelBuilt(self._job.schedule.has_tables, needs, False))

    def _begin(self, process: Process, begin: worker_core.Begin) -> None:
        """Records are read when they are needed here."""
        if begin.records is not None and begin.records != self._job.schedule.grown_plan.task_range(
            begin.task
        ):
            raise Violation(f"task {begin.task} is leased with the records {begin.records}")
        process.ends.setdefault(begin.task, begin.end_at)  # a task in hand stays as it is

    def _drop(self, process: Process, drop: worker_core.Drop) -> None:
        process.ends.pop(drop.task, None)

    def _cancel(self, process: Process, cancel: worker_core.Cancel) -> None:
        self._job.network.hang_up(process, f"p{cancel.index}")

    def _findids(self, process: Process, find: worker_core.FindIds) -> None:
        bad = self._meets_bad(process, find.task, find.index)
        if bad is not None and bad % 2 == 0:
            self._fail(process, find.task, bad, find.attempt, self._job.rng.uniform(0, 0.5))
            return
        if self._is_poison(process, find.task, find.index) and find.index % 2 == 0:
            self._job.within(0, 0.5, self._job.die, process.name)
            return
        ids = ids_of(self._job.schedule, find.task, find.index, self._job.schedule.partitions)
        event = inputs.IdsFound(find.task, find.index, find.attempt, ids)
        self._job.within(0, 0.5, self._job.event, process.name, event)

    def _findevaluationids(self, process: Process, find: worker_core.FindEvaluationIds) -> None:
        ids = ids_of(
            dataclasses.replace(self._job.schedule, lengths=(1,)), 0, 0, self._job.schedule.partitions
        )
        event = inputs.EvaluationIdsFound((find.lease.round, find.lease.task), ids)
        self._job.within(0, 0.5, self._job.event, process.name, event)

    def _exportmodel(self, process: Process, export: worker_core.ExportModel) -> None:
        process.pace.begin("export", self._job.now)
        self._job.within(0.1, 3, self._publish, process, export.lease, self._finished_states(export.lease))

    def _finished_states(self, lease: ExportLease) -> list[State] | None:
        """What the folders hold of the finished model, as `finished_job` finds it."""
        if lease.result >= 0:
            kept = self._job.checkpoint_folder.versions.get(lease.result)
            return None if kept is None else kept[1]
        count = lease.task_count or self._job.plan.task_count
        found = [
            [state for state in disk.states.values() if self._is_full(state, count)]
            for disk in self._job.disks
        ]
        if not all(found):
            return None
        return [max(states, key=lambda state: (state.era, state.version)) for states in found]

    def _is_full(self, state: State, count: int) -> bool:
        return TaskSet(state.ledger.finished).first_missing() >= count and not state.ledger.marks

    def _publish(self, process: Process, lease: ExportLease, states: list[State] | None) -> None:
        """Rename what was written, unless another try has done so; the process hears of that a little later."""
        if not process.is_up:
            return
        if self._job.now < process.stalled_until:
            self._job.at(process.stalled_until, self._publish, process, lease, states)
            return
        if states is None:
            process.pace.end(self._job.now)
            failure = Failure(code="data", message="not to be seen")
            self._job.event(process.name, inputs.ExportFailed(failure))
            return
        if lease.digest not in [digest for digest, _ in self._job.exports]:
            self._job.exports.append((lease.digest, final_bytes(states)))
        place = 1 + [digest for digest, _ in self._job.exports].index(lease.digest)
        self._job.reach("published")
        report = ExportReport(digest=lease.digest, wish=lease.wish, place=f"out/{place}", size_bytes=1)
        self._job.within(0, 1, self._on_exported, process, report)

    def _on_exported(self, process: Process, report: ExportReport) -> None:
        process.pace.end(self._job.now)
        self._job.reach("exported")
        self._job.event(process.name, inputs.Exported(report))

    def _compute(self, process: Process, compute: worker_core.Compute) -> None:
        task, index, length = compute.task, compute.index, self._job.schedule.lengths[compute.task]
        if self._job.schedule.files and not self._job.schedule.grown_plan.task_range(task).count:
            raise Violation(f"task {task} only fills a round, and is computed")
        delay = self._job.rng.uniform(0.1, 1.0)
        bad = self._meets_bad(process, task, index)
        if self._is_poison(process, task, index):
            self._job.at(self._job.now + delay, self._job.die, process.name)
            return
        if bad is None and (process.role, task) in self._job.schedule.lame:
            bad = index
        if bad is None and self._job.failures_left.get(task):
            self._job.failures_left[task] -= 1
            bad = index
        if bad is not None:
            self._fail(process, task, bad, compute.attempt, delay)
            return
        if self._job.plan.is_sync and len({part.version for part in compute.vectors}) != 1:
            raise Violation(f"gradient of {task, index} on parameters of several versions")
        count, names = self._job.schedule.partitions, ("dense", "state", "counters")
        seen, row_gradients = b"", ()
        if self._job.schedule.has_tables:
            if self._job.plan.is_sync and {part.version for part in compute.rows} != {compute.version}:
                raise Violation(f"gradient of {task, index} on rows of other versions")
            if not same_ids(compute.ids, ids_of(self._job.schedule, task, index, count)):
                raise Violation(f"gradient of {task, index} on the rows of another minibatch")
            dims = [table.dim for table in TABLES]
            joined = join_rows(compute.ids, [part.rows for part in compute.rows], dims)
            seen, row_gradients = compute_rows(compute.ids, joined, task, index)
        vectors = [np.concatenate([getattr(part, name) for part in compute.vectors]) for name in names]
        parts = compute_gradient(*vectors, task, index, seen)
        loss = math.nan if (task, index) in self._job.schedule.nonfinite else loss_of(task, index)
        told = loss if self._job.schedule.has_callbacks else None
        rate = 0.01 if compute.learning_rate is None else compute.learning_rate
        pushes = []
        for p in range(count):
            mine = [v[slice(*slice_bounds(len(v), p, count))] for v in parts]
            pushes.append(make_push(task, index, length, *mine, rate=rate, loss=told))
        if self._job.schedule.has_tables:
            split = split_gradients(compute.ids, row_gradients)
            pushes = [with_rows(*each) for each in zip(pushes, compute.ids, split, strict=True)]
        ahead, has_looked = None, self._job.rng.random() > self._job.schedule.noise
        if compute.ahead is not None and has_looked:
            bad = self._meets_bad(process, task, compute.ahead)
            has_looked = bad is None or bad % 2 == 1
        if compute.ahead is not None and has_looked:
            ahead = ids_of(self._job.schedule, task, compute.ahead, count)
        outcome = Outcome(index + 1 >= length, tuple(pushes), ahead, has_looked, loss)
        event = inputs.MinibatchComputed(task, compute.attempt, outcome)
        process.step += 1
        process.pace.begin("step", self._job.now)
        if (task, index) in self._job.hangs_left:
            self._job.hangs_left.remove((task, index))
            return
        self._job.at(self._job.now + delay, self._on_step, process, process.step, event)

    def _on_step(self, process: Process, step: int, event: inputs.MinibatchComputed) -> None:
        if process.step == step:
            process.pace.end(self._job.now)
        self._job.event(process.name, event)
        if process.is_up and Phase.HELD_BACK in process.core.phases.values():
            self._job.reach("held back")

    def _evaluate(self, process: Process, evaluate: worker_core.Evaluate) -> None:
        lease = evaluate.lease
        if lease.task in self._job.schedule.poison_evaluations:
            self._job.within(0, 0.5, self._job.die, process.name)
            return
        if lease.task in self._job.schedule.bad_evaluations:
            failed = FailedTask(
                kind="evaluation",
                task=lease.task,
                index=0,
                error="ValueError: no",
                where="",
                traceback="",
                round=lease.round,
                attempt=self._job.rng.randrange(1 << 30),
            )
            event = inputs.EvaluationFailed(failed)
            self._job.at(self._job.now + 0.1, self._job.event, process.name, event)
            return
        if self._job.schedule.plan.gives_parts:
            self._job.within(0.1, 2, self._predict, process, evaluate)
            return
        versions = {part.version for part in evaluate.vectors}
        if lease.version != ANY_VERSION and versions != {lease.version}:
            raise Violation(f"evaluated v{versions}, not v{lease.version}")
        vectors = [
            np.concatenate([getattr(p, name) for p in evaluate.vectors]) for name in ("dense", "state")
        ]
        measured = seen(*(vector.tobytes() for vector in vectors))
        done = DoneEvaluation(
            round=lease.round,
            task=lease.task,
            records=lease.records.count,
            states={"n": [np.array([float(lease.records.count)])], "seen": [np.array([measured])]},
        )
        self._job.reach("evaluating")
        self._job.within(0.1, 2, self._job.event, process.name, inputs.Evaluated(done))

    def _predict(self, process: Process, evaluate: worker_core.Evaluate) -> None:
        """The outputs are computed; they are written while other work goes on."""
        if not process.is_up:
            return
        lease = evaluate.lease
        self._job.predicted[lease.task] += 1
        if {part.version for part in evaluate.vectors} != {self._job.schedule.begins_from}:
            raise Violation(
                f"task {lease.task} is predicted by {[part.version for part in evaluate.vectors]}, not the checkpoint"
            )
        values = b"".join(part.dense.tobytes() for part in evaluate.vectors)
        checksum = f"{zlib.crc32(values + repr(lease.records).encode()):x}"
        self._job.event(process.name, inputs.OutputsComputed((lease.round, lease.task)))
        self._job.within(0.1, 3, self._on_part, process, lease, checksum)

    def _on_part(self, process: Process, lease: EvaluationLease, checksum: str) -> None:
        """A part is written, unless its process was killed before; a zombie writes it late, perhaps too late."""
        if not process.is_up:
            return
        if self._job.now < process.stalled_until:
            self._job.at(process.stalled_until, self._on_part, process, lease, checksum)
            return
        job = self._job
        if job.published is None:
            if job.part_files.setdefault(lease.task, checksum) != checksum:
                raise Violation(f"task {lease.task} was written in two ways")
            job.reach("first part")
            if len(job.part_files) == job.schedule.evaluation_tasks - len(job.schedule.bad_evaluations):
                job.reach("last part")
        part = PartFile(bytes=1, checksum=checksum)
        done = DoneEvaluation(
            round=lease.round, task=lease.task, records=lease.records.count, states={}, part=part
        )
        job.event(process.name, inputs.Evaluated(done))

    def _conclude(self, process: Process, conclude: worker_core.Conclude) -> None:
        states, shown = conclude.conclusion.states, conclude.conclusion.shown
        metrics, measured = {}, 0.0
        if states:
            metrics = {"n": float(states["n"][0][0]), "loss": math.nan, "mape": math.inf}
            measured = float(states["seen"][0][0]) * 4 / metrics["n"]
            metrics["seen"] = measured
        decision = None
        if shown is not None:
            self._job.reach("shown")
            decision = decide(
                self._job.schedule, shown.version, measured, shown.loss, shown.before, is_end=shown.is_end
            )
            if not self._job.schedule.decides:
                decision = Decision(logs=decision.logs)
        result = EvaluationResult(round=conclude.conclusion.round, metrics=metrics, decision=decision)
        self._job.within(0.1, 2, self._job.event, process.name, inputs.Concluded(result))

    def _meets_bad(self, process: Process, task: int, index: int) -> int | None:
        end_at = process.ends.get(task)
        if end_at is not None and index >= end_at:
            raise Violation(f"minibatch {task, index} is looked at, but its task ends at {end_at}")
        return raises_at(self._job.schedule, task, index, end_at)

    def _is_poison(self, process: Process, task: int, index: int) -> bool:
        end_at = process.ends.get(task)
        return (task, index) in self._job.schedule.poison and (end_at is None or index < end_at)

    def _fail(self, process: Process, task: int, index: int, attempt: int, delay: float) -> None:
        failed = FailedTask(
            kind="training",
            task=task,
            index=index,
            error="ValueError: no",
            where="",
            traceback="",
            attempt=attempt,
        )
        event = inputs.TaskFailed(task, attempt, failed)
        self._job.at(self._job.now + delay, self._job.event, process.name, event)
