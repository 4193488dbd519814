"""The core that calls the model's callbacks at their barriers, and does what they decide (PROTOCOL: section 8).

Theory of operation.  The first worker that has built the model tells what its callbacks need; that is journalled
before any task is leased.  A *barrier* stands behind the last task of a round of tasks, at places that follow from
the plan.  If some callback decides anything, a synchronous job holds there: nothing of a later round is leased, so
all partitions come to stand at one version, and the evaluation is of it.  One worker turns the merged metrics into
logs and asks the callbacks; its answer is journalled, metrics and decision in one transaction, and then the barrier
is passed for good: whatever is computed again later comes by it with the same decision.  A version that callbacks
refer to is kept as a checkpoint, which must be complete before the barrier is passed.

Until then nothing is kept: a master that was started again finds all partitions at the barrier, or brings them
there, and has it evaluated anew, with the same result.  Evaluations ask for their very version, so a partition that
is lost meanwhile only makes them wait; none is leased before all partitions are there again.  In asynchronous mode,
and for callbacks that only look on, nothing holds: they are shown the newest values when so many tasks are done, and
what they decide holds when it arrives.  If the model goes back before they have answered, they are asked anew when so
many tasks are done again.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.tasks.bad_tasks import BadTasks
from edlz.services.master.core.tasks.evaluation_rounds import EvaluationRounds, Finished
from edlz.services.master.core.tasks.task_queue import TaskQueue
from edlz.services.master.core.vocabulary.instructions import Announce, DropCheckpoint, Instruction, Journal
from edlz.services.master.core.vocabulary.records import Added, JournalState, PartitionEntry
from edlz.services.protocol.concluded_rounds import (
    NO_VERSION,
    NOT_YET,
    CallbackBeginning,
    CallbackNeeds,
    ConcludedRound,
    Decision,
    LossSum,
    ShownRound,
)
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.messages import Decided, PartitionStatus
from edlz.services.protocol.milestones import Milestones
from edlz.services.protocol.plan import Plan

__all__ = ["Barriers"]

Results = list[tuple[int, dict[str, float]]]

KEEP_AGAIN_S = 5.0  # a version that could not be saved is tried again so often,
KEEP_PATIENCE_S = 300.0  # and for so long


class Barriers:
    """The barriers of one job.

    Parameters
    ----------
    plan : Plan
    every : int
        Versions between barriers; 0 for epochs' ends.
    checkpoint_steps : int
        Versions between checkpoints that are not for callbacks; 0 for none.
    journal : JournalState
        What earlier masters left.
    cores : TaskQueue, EvaluationRounds, Checkpoints, BadTasks
        Told how far leases may go, what to evaluate, what to keep, where the last task ends.
    results : list of (int, dict)
        The metrics of all rounds, which are journalled together with decisions.
    max_steps : int
        Minibatches after which the job ends, whatever callbacks say; 0: none.

    Attributes
    ----------
    needs : CallbackNeeds or None
        What the callbacks need, as soon as it is known.
    rounds : list of ConcludedRound
        The barriers passed, in order; journalled.
    failure : FailureView or None
        Why the job cannot go on, if it cannot.
    """

    def __init__(
        self,
        plan: Plan,
        every: int,
        checkpoint_steps: int,
        journal: JournalState,
        cores: tuple[TaskQueue, EvaluationRounds, Checkpoints, BadTasks],
        results: Results,
        max_steps: int = 0,
    ) -> None:
        self._plan, self._steps = plan, checkpoint_steps
        self._queue, self._evaluation, self._checkpoints, self._bad_tasks = cores
        self._results, self._max_steps = results, max_steps
        self.needs: CallbackNeeds | None = journal.callbacks
        self._is_told = False  # what they need, by a worker of this master
        self._beginning = journal.callbacks_begin
        self._is_cut = False  # it is settled behind how many minibatches the job ends
        self.rounds = list(journal.rounds)
        self.failure: FailureView | None = None
        self._next: int | None = None  # the last task before the next barrier; None: there is none
        self._open: tuple[int, ShownRound, LossSum] | None = None  # number of the round under way
        self._concluded: Finished | None = None  # it is, but a version is still to be kept
        self._milestones = Milestones(plan, every)
        self._is_at_barrier = False  # sync: all partitions stand there
        self._version = 0  # where they do
        self._trying_since_s = self._tried_s = -1.0  # to keep the version
        if journal.task_count:
            self._queue.task_count = self._queue.fence = journal.task_count
        if self.rounds and plan.is_sync:  # async: partitions may have lost some of that model since
            self._evaluation.concluded_version = self.rounds[-1].version
        if self.needs is not None:
            self._move_on()

    # -- what is told

    @property
    def are_used(self) -> bool:
        """Whether callbacks are called, and so rounds of evaluation opened here."""
        return self.needs is not None and self.needs.runs and self._plan.is_training

    @property
    def _holds(self) -> bool:
        """Whether training waits for the callbacks."""
        return self._plan.is_sync and self.needs is not None and self.needs.decides

    @property
    def are_passed(self) -> bool:
        """Whether none is left: the job may end."""
        return self._next is None

    @property
    def fence(self) -> int:
        """As the orders of partitions have it."""
        return self._queue.fence if self._holds and self._next is not None else 0

    @property
    def task_count(self) -> int:
        """As the orders of partitions have it."""
        count = self._queue.task_count
        return count if count < self._plan.task_count else 0

    @property
    def stands_at(self) -> int:
        """The version at which all partitions stand, held by a barrier; 0 if none holds them."""
        return self._version if self._is_at_barrier else 0

    @property
    def kept(self) -> tuple[int, ...]:
        """The versions that callbacks refer to, or may: their checkpoints stay."""
        kept = self.rounds[-1].decision.kept if self.rounds else ()
        wanted = self._concluded.decision if self._concluded is not None else None
        return kept if wanted is None else (*kept, *wanted.kept)

    @property
    def result(self) -> int:
        """The version whose checkpoint is the job's result, since its weights have been put back; -1: the last one."""
        return self.rounds[-1].decision.result if self.rounds and self.are_passed else -1

    def learning_rate(self, task: int) -> float | None:
        """Return what callbacks have set for a task; None if the model's own holds."""
        passed = self.rounds
        if self._plan.is_sync:  # a task that is computed again comes before barriers that have been passed
            passed = passed[: bisect_left(passed, task, key=lambda round_: round_.task)]
        rates = (round_.decision.learning_rate for round_ in reversed(passed))
        return next((rate for rate in rates if rate is not None), None)

    def decided(self, task: int) -> Decided:
        """Return what the members of a group are told, who have this task and later ones to train on."""
        rate = self.learning_rate(task)
        later = self.rounds[bisect_left(self.rounds, task, key=lambda round_: round_.task) :]
        rates = [(round_.task + 1, round_.decision.learning_rate) for round_ in later]
        return Decided(
            fence=self._queue.fence,
            task_count=self._queue.task_count,
            rates=tuple((first, rate) for first, rate in [(task, rate), *rates] if rate is not None),
        )

    # -- events

    def begin(self) -> list[Instruction]:
        """The first instructions of a master: the job may have been cut before."""
        return self._cut(None)

    def on_running(self, entries: Sequence[PartitionEntry]) -> list[Instruction]:
        """All partitions are known, and nothing has been leased since: what depends on where they stand is decided."""
        out: list[Instruction] = []
        if self._beginning.done == NOT_YET:
            self._beginning = self._beginning_at(entries)
            self._move_on()
            out.append(Journal({"callbacks_begin": self._beginning}))
        return [*out, *self._cut(entries)]

    def _cut(self, entries: Sequence[PartitionEntry] | None) -> list[Instruction]:
        """Cut the plan behind the first tasks that make as many minibatches as the job may have, the last of them at an index.

        Parameters
        ----------
        entries : sequence of PartitionEntry, optional
            Where all partitions stand: it can only be cut behind that.
        """
        wished = (self._max_steps, self.needs.max_steps if self.needs is not None else 0)
        steps = min(filter(None, wished), default=0)
        if self._is_cut or not self._plan.is_training:
            return []
        end_of_steps = self._milestones.end_after(steps) if steps > 0 else None
        last, index = end_of_steps or (self._plan.task_count - 1, None)
        end = self._bad_tasks.ends.get(last)  # it may have raised before
        is_known = self._queue.task_count == last + 1 and (
            index is None or (end is not None and end <= index)
        )
        if is_known and index is not None and end == index:
            self._bad_tasks.end_job_at(last, index)
        if is_known or entries is None:
            self._is_cut = is_known
            return []
        self._is_cut = True
        if last >= self._queue.task_count:  # callbacks have stopped it before
            is_stopped = bool(self.rounds) and self.rounds[-1].decision.stop
            return (
                []
                if is_stopped
                else [_stays("another end of the job comes too late: the one before is settled")]
            )
        if not all(_is_before(entry, last, index) for entry in entries):
            return [_stays(f"an end after {steps} minibatches comes too late: what is behind it has begun")]
        self._queue.task_count = last + 1
        self._queue.fence = min(self._queue.fence, last + 1)
        if index is not None:
            self._bad_tasks.end_job_at(last, index)
        if self.needs is not None:
            self._move_on()
        return [Journal({"task_count": self.task_count, "ends": self._bad_tasks.journalled})]

    def on_more(self, entries: Sequence[PartitionEntry] | None) -> list[Instruction]:
        """There are more tasks than before, none of them leased: the next barrier may be among them, or the end.

        Parameters
        ----------
        entries : sequence of PartitionEntry, optional
            Where all partitions stand, if the job runs.
        """
        self._is_cut = False
        if self.needs is not None:
            self._move_on()
        return self._cut(entries)

    def learn(
        self, needs: CallbackNeeds, entries: Sequence[PartitionEntry] | None = None
    ) -> list[Instruction]:
        """A worker has built the model; what its callbacks need is durable before anything is leased to it.

        The first word counts, of each master: a job that is resumed may have others than before.

        Parameters
        ----------
        entries : sequence of PartitionEntry, optional
            Where all partitions stand, if the job runs already.
        """
        if self._is_told or self.needs == needs:
            self._is_told = True
            return []
        were_used, self._is_told, self.needs = self.are_used, True, needs
        self._is_cut = False
        self._close()
        if self.are_used and not were_used:
            self._beginning = self._beginning_at(entries)
        entry: dict[str, object] = {"callbacks": needs, "callbacks_begin": self._beginning}
        out: list[Instruction] = [Journal(entry), *self._cut(entries)]
        if self._plan.is_training:
            self._move_on()
        if needs.decides and not self._plan.is_sync:
            text = "callbacks decide in asynchronous mode: what they decide holds when it arrives."
            out.append(Announce("callbacks", text))
        return out

    def _beginning_at(self, entries: Sequence[PartitionEntry] | None) -> CallbackBeginning:
        """Callbacks see what comes from here on, of a job that was begun elsewhere, or without them."""
        if entries is None:
            return CallbackBeginning(done=NOT_YET)
        done = self._queue.done
        count = done.first_missing() if self._plan.is_sync else len(done)
        return CallbackBeginning(done=count, losses=entries[0].status.losses)

    def on_other_history(self) -> None:
        """A task ends elsewhere than before: what was evaluated may be of another model."""
        self._close()

    def begin_again(self, *, is_another: bool = False) -> None:
        """The model goes back: the newest values will be older than the round under way, which is opened anew.

        Where training stands still, the round is put off: it is of its very version, which comes again.

        Parameters
        ----------
        is_another : bool
            Whether the model may be another one at that version.
        """
        if is_another or not self._stands_still:
            self._close()
        elif self._open is not None:
            self._evaluation.put_off(self._open[0])

    def advance(self, statuses: Sequence[PartitionStatus], version: int) -> list[Instruction]:
        """Go as far as the partitions' newest statuses allow; all of them are in the era."""
        self._is_at_barrier = False
        if self._next is None or not self._is_reached(statuses):
            return []
        self._is_at_barrier, self._version = self._holds, version
        if self._concluded is not None:
            return self._keep(self._concluded)
        if self._open is not None and self._stands_still and self._open[1].version != version:
            self._close()
        if self._open is None:
            return self._begin(statuses, version)
        self._evaluation.resume(self._open[0])
        return []

    def on_tick(self, now: float) -> list[Instruction]:
        """Try again to save a version that is to be kept; give up at last."""
        if self._concluded is None:
            self._trying_since_s = -1.0
            return []
        if self._trying_since_s < 0:
            self._trying_since_s = self._tried_s = now
        version = self._concluded.version
        if now - self._tried_s >= KEEP_AGAIN_S and self._checkpoints.is_idle and self._is_at_barrier:
            self._tried_s = now
            self._checkpoints.ask_again(version)
        if now - self._trying_since_s >= KEEP_PATIENCE_S and self._is_at_barrier:
            self.failure = FailureView(
                text=f"the checkpoint of v{version}, which callbacks refer to, could not be saved",
                help="make room for checkpoints, then: edlz resume",
            )
        return []

    def conclude(self, finished: Finished) -> list[Instruction]:
        """The callbacks have answered; the first answer counts."""
        if self._open is None or finished.round != self._open[0] or self._next is None:
            return []
        return self._keep(_keeping_only(finished, self._keepable(finished.version)))

    def _keepable(self, version: int) -> tuple[int, ...]:
        """The versions that callbacks may refer to: this one, if training waits at it, and those that are kept already.

        Others are over: of a job that was resumed with other callbacks, which are shown the rounds before.
        """
        before = self.rounds[-1].decision.kept if self.rounds else ()
        return (*before, version) if self._holds else ()

    # -- the way from one barrier to the next

    def _move_on(self) -> None:
        """Find the next barrier, and let leases go as far."""
        self._next = self._following() if self.are_used else None
        count = self._queue.task_count
        self._queue.fence = self._next + 1 if self._holds and self._next is not None else count

    def _following(self) -> int | None:
        last = self.rounds[-1].task if self.rounds else self._beginning.done - 1
        end = self._queue.task_count - 1
        if last >= end or (self.rounds and self.rounds[-1].decision.stop):
            return None
        found = self._milestones.next_barrier(last)
        is_cut = self._queue.task_count < self._plan.task_count
        if found is None and self._plan.is_endless and not is_cut:
            return None  # there is none as yet
        return end if found is None else min(end, found)

    @property
    def _is_last(self) -> bool:
        return self._next == self._queue.task_count - 1

    @property
    def _stands_still(self) -> bool:
        """Whether training does at the next barrier: behind its end also where it does not wait for callbacks."""
        return self._plan.is_sync and (self._holds or self._is_last)

    def _is_reached(self, statuses: Sequence[PartitionStatus]) -> bool:
        assert self._next is not None
        # What workers report comes before what the partitions say of their versions and losses.
        are_told = all(status.finished_tasks > self._next for status in statuses)
        if not self._stands_still:
            return are_told and len(self._queue.done) > self._next
        is_finished = are_told and self._queue.done.first_missing() > self._next
        return is_finished and all(status.version == statuses[0].version for status in statuses)

    def _begin(self, statuses: Sequence[PartitionStatus], version: int) -> list[Instruction]:
        losses = statuses[0].losses
        before = self.rounds[-1].losses if self.rounds else self._beginning.losses
        shown = ShownRound(
            version=version,
            loss=losses.mean_since(before),
            is_end=self._is_last,
            before=tuple(self.rounds),
        )
        number = self._evaluation.open_shown(shown, is_of_version=self._stands_still)
        self._open = (number, shown, losses)
        return [Announce("evaluation", f"Evaluation of v{version} begins.", 10)]

    def _close(self) -> None:
        if self._open is not None:
            self._evaluation.withdraw(self._open[0])
        self._open = self._concluded = None

    def _keep(self, finished: Finished) -> list[Instruction]:
        """Go on, as soon as the version is saved, if the callbacks refer to it."""
        assert finished.decision is not None
        version = finished.version
        if version not in finished.decision.kept or self._checkpoints.newest == version:
            return self._pass(finished, finished.decision)
        if self._concluded is None:
            self._concluded = finished
            self._checkpoints.ask(version)
        return []

    def _pass(self, finished: Finished, decision: Decision) -> list[Instruction]:
        assert self._open is not None
        assert self._next is not None
        kept = self.rounds[-1].decision.kept if self.rounds else ()
        losses, is_end = self._open[2], self._open[1].is_end
        self.rounds.append(
            ConcludedRound(task=self._next, version=finished.version, decision=decision, losses=losses)
        )
        self._open = self._concluded = None
        self._is_at_barrier = False
        known = len(self._results)
        if finished.metrics:
            self._results.append((finished.version, finished.metrics))
        if decision.stop and not is_end:
            # What has been begun in asynchronous mode is finished.
            self._queue.task_count = self._next + 1 if self._holds else max(self._next + 1, self._queue.begun)
        self._move_on()
        if self.result >= 0:
            of_result = next((m for v, m in reversed(self._results) if v == self.result), None)
            if of_result is not None and self.result != finished.version:
                self._results.append((self.result, of_result))
        added = {
            "evaluations": Added(known, tuple(self._results[known:])),
            "rounds": Added(len(self.rounds) - 1, (self.rounds[-1],)),
        }
        gone = [v for v in kept if v not in decision.kept and not (self._steps and v % self._steps == 0)]
        return [
            Journal({"task_count": self.task_count}, added),
            *self._announced(finished, decision),
            *map(DropCheckpoint, gone),
        ]

    def _announced(self, finished: Finished, decision: Decision) -> list[Announce]:
        out = []
        version = finished.version
        if finished.metrics:
            out.append(Announce("evaluation", f"Evaluation metrics[v={version}]: {finished.metrics}"))
        if decision.learning_rate is not None:
            text = (
                f"the learning rate is {decision.learning_rate:g} from v{version} on: a callback has set it."
            )
            out.append(Announce("callbacks", text))
        if version in decision.kept:
            out.append(Announce("callbacks", f"v{version} is kept as the best one so far."))
        if decision.stop:
            out.append(Announce("callbacks", f"training ends at v{version}: a callback has stopped it."))
        if self.result >= 0:
            out.append(Announce("callbacks", f"the result is v{self.result}: a callback has put it back."))
        return out

    # -- checks

    def check_invariants(self) -> None:
        tasks = [round_.task for round_ in self.rounds]
        assert tasks == sorted(set(tasks)), "barriers were passed out of order"
        assert self._concluded is None or self._open is not None, "concluded, but not open"
        if self._holds and self._next is not None:
            assert self._queue.fence == self._next + 1, "leases may go beyond the barrier"


def _keeping_only(finished: Finished, versions: tuple[int, ...]) -> Finished:
    """Return a round whose decision refers to no other versions than these."""
    decision = finished.decision
    assert decision is not None
    kept = tuple(version for version in decision.kept if version in versions)
    result = decision.result if decision.result in kept else NO_VERSION
    return replace(finished, decision=msgspec.structs.replace(decision, kept=kept, result=result))


def _is_before(entry: PartitionEntry, task: int, index: int | None) -> bool:
    """Whether a partition has nothing behind this minibatch; None: behind the task."""
    bounds, marks = entry.ledger.finished, dict(entry.ledger.marks)
    furthest = max([*bounds[-1:], *(begun + 1 for begun in marks)], default=0)
    if index is None:
        return furthest <= task + 1
    is_finished = task in entry.finished
    return furthest <= task + 1 and not is_finished and marks.get(task, 0) <= index


def _stays(text: str) -> Announce:
    return Announce("job", f"{text}; the job goes on to its end.", 30)
