"""The core that runs evaluation rounds.

Theory of operation.  A round is opened at a version trigger and at the end of the job; each of its
tasks is leased until some worker has reported the task's metric state, and the first report counts.
The states are added in task order (so that the sum's bits do not depend on who reported first), and one
worker is asked to turn the merged state into metrics.  Everything is level-triggered: an order stands
in each answer until its effect is reported.  In a job that predicts there are no states to add up: its round
is over with the last task, and what an earlier master has noted of it is not done again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edlz.services.errors import RemoteProtocolError
from edlz.services.master.core.tasks.leases import Leases
from edlz.services.master.core.tasks.refusals import difference
from edlz.services.master.core.tasks.task_failures import Attempts, FailedAttempts
from edlz.services.protocol.concluded_rounds import Decision, ShownRound
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import (
    ANY_VERSION,
    Conclusion,
    DoneEvaluation,
    EvaluationLease,
    EvaluationResult,
    FailedTask,
    Identity,
    MetricState,
)
from edlz.services.protocol.plan import Plan

__all__ = ["EvaluationRounds", "Finished", "merge_states"]

LEASE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Finished:
    """A round's metrics are known."""

    round: int
    version: int
    metrics: dict[str, float]
    records: int
    is_final: bool
    decision: Decision | None = None  # of the callbacks, if they were shown it


@dataclass
class _Round:
    number: int
    version: int
    is_final: bool
    states: dict[int, DoneEvaluation] = field(default_factory=dict)
    leases: Leases = field(default_factory=Leases)  # closed there: the tasks that have a state
    leased: Counter[int] = field(default_factory=Counter)  # how often, by task
    concluder: tuple[Identity, float] | None = None
    merged: MetricState | None = None
    shown: ShownRound | None = None  # to the callbacks, if this is the round of a barrier
    is_of_version: bool = False  # it is of the parameters of its very version: training stands still there
    is_put_off: bool = False  # the model has gone back behind that version: nobody can evaluate it now


@dataclass
class EvaluationRounds:
    """Rounds in work, oldest first.

    Parameters
    ----------
    plan : Plan
    every : int
        Model versions between rounds; 0 for the final round only.
    first_number : int
        Of this master's rounds: a restarted master must not take an old round's report for its own.
    """

    plan: Plan
    every: int
    first_number: int = 1
    concluded_version: int = -1  # of the newest round whose metrics are known
    skipped: set[int] = field(default_factory=set)  # tasks that count as no records
    known: dict[int, DoneEvaluation] = field(default_factory=dict)  # done before a round is opened
    reported: int = 0  # tasks and rounds so far
    suspects: set[tuple[int, int]] = field(
        default_factory=set
    )  # (round, task) in hand at a death; see `DeadlyTasks`
    _rounds: dict[int, _Round] = field(default_factory=dict)
    _triggered: int = 0  # last version that opened a round
    _opened: int = 0
    _failed: FailedAttempts = field(default_factory=FailedAttempts)

    @property
    def has_data(self) -> bool:
        return len(self.skipped) < len(self.plan.evaluation_ranges)

    @property
    def final_records(self) -> int:
        """Records that the round of the finished model has evaluated so far, of a feed that keeps every one."""
        final = self._final
        return sum(self.plan.evaluation_ranges[task].count for task in final.states) if final else 0

    @property
    def final_tasks(self) -> int:
        """Tasks that the round of the finished model has done so far."""
        final = self._final
        return len(self.known if final is None else final.states)

    @property
    def _final(self) -> _Round | None:
        return next((round_ for round_ in self._rounds.values() if round_.is_final), None)

    @property
    def is_idle(self) -> bool:
        return not self._rounds

    # -- opening

    def on_version(self, version: int) -> int | None:
        """Open a round if a trigger was passed; return the version it stands for."""
        if not self.every or not self.has_data:
            return None
        trigger = version - version % self.every
        if trigger <= self._triggered:
            return None
        self._triggered = trigger
        self._open(trigger, is_final=False)
        return trigger

    def open_at(self, version: int) -> bool:
        """Open a round of a very version at which training waits; whether there is one, its metrics not being known."""
        if not self.has_data or version <= self._triggered:
            return self.is_open_at(version)
        self._triggered = version
        self._rounds[self._open(version, is_final=False)].is_of_version = True
        return True

    def is_open_at(self, version: int) -> bool:
        """Whether a round of this version is under way."""
        return any(round_.version == version for round_ in self._rounds.values())

    def open_shown(self, shown: ShownRound, *, is_of_version: bool) -> int:
        """Open the round of a barrier; return its number.  There may be nothing to evaluate: then it is concluded at once.

        Parameters
        ----------
        is_of_version : bool
            Whether all partitions stand at its version, so that no other is to be evaluated.
        """
        number = self._open(shown.version, is_final=False)
        round_ = self._rounds[number]
        round_.shown, round_.is_of_version = shown, is_of_version
        self._merge_if_whole(round_)
        return number

    def withdraw(self, number: int) -> None:
        """Forget a round: what it was opened for is not so any more."""
        self._rounds.pop(number, None)
        self.suspects = {(of, task) for of, task in self.suspects if of != number}

    def put_off(self, number: int) -> None:
        """Lease nothing of a round until `resume`: the model has gone back behind its version."""
        if number in self._rounds:
            self._rounds[number].is_put_off = True

    def resume(self, number: int) -> None:
        """The model has come to the round's version again."""
        if number in self._rounds:
            self._rounds[number].is_put_off = False

    def begin_again(self, *, is_another: bool = False) -> None:
        """The model has gone back: rounds in work are opened anew when it has come to their versions again.

        Those of barriers are for `Barriers`; what does not train never goes back.

        Parameters
        ----------
        is_another : bool
            Whether it will be another model at the same version, so that the final round is to be repeated.
        """
        if is_another:
            self.concluded_version = -1
        for round_ in list(self._rounds.values()) if self.plan.is_training else ():
            if round_.shown is None:
                self.withdraw(round_.number)
                self._triggered = min(self._triggered, round_.version - 1)

    def on_other_history(self) -> None:
        """A task ends elsewhere than before: the finished model will be another one at the same version."""
        if self.plan.is_training:
            self.concluded_version = -1

    def open_final(self, version: int) -> None:
        """Open the round of the finished model, unless one of that very version is under way."""
        for round_ in self._rounds.values():
            if round_.version == version:
                round_.is_final = True
        if not any(round_.is_final for round_ in self._rounds.values()):
            self._open(version, is_final=True)

    def _open(self, version: int, *, is_final: bool) -> int:
        number = self.first_number + self._opened
        states = {task: done for task, done in self.known.items() if task not in self.skipped}
        round_ = self._rounds[number] = _Round(number, version, is_final, states)
        for task in self.skipped | states.keys():
            round_.leases.close(task)
        self._opened += 1
        self._merge_if_whole(round_)
        return number

    def repeat(self, tasks: Collection[int]) -> None:
        """Have tasks done again that no round needs any more: in the next one."""
        for task in tasks:
            self.known.pop(task, None)
        self.concluded_version = -1

    def skip_to(self, version: int) -> None:
        """Open no round of this version or an older one any more: its metrics are known."""
        self._triggered = max(self._triggered, version)

    # -- leases

    @property
    def has_free_suspect(self) -> bool:
        """Whether some suspect waits for a worker that is at nothing else."""
        return any(
            number in self._rounds
            and not self._rounds[number].is_put_off
            and self._rounds[number].leases.is_free(task)
            for number, task in self.suspects
        )

    def next_lease(
        self,
        incarnation: Identity,
        holding: tuple[tuple[int, int], ...],
        now: float,
        *,
        is_alone: bool = True,
        wanted_by: int = 0,
    ) -> EvaluationLease | None:
        """Lease the first task of the oldest round that nobody works on.

        Parameters
        ----------
        wanted_by : int
            How many workers there must be a task for: else this one gets none, as it has one in hand.
        is_alone : bool
            Whether it would be all that the worker is at: only then it may be a suspect.
        """
        ranges = self.plan.evaluation_ranges
        if not self.suspects.isdisjoint(holding):
            return None
        for round_ in self._rounds.values():
            if round_.is_put_off:
                continue
            mine = [task for number, task in holding if number == round_.number]
            if not is_alone or holding:
                mine += [task for number, task in self.suspects if number == round_.number]
            if len(ranges) - round_.leases.taken_count < wanted_by:
                continue
            late = [task for task in round_.leases.overdue(now, LEASE_TIMEOUT_S) if task not in mine]
            task = round_.leases.first(range(len(ranges)), late, mine)
            if task is not None:
                round_.leases.give(task, incarnation, now)
                attempt = round_.leased[task]
                round_.leased[task] += 1
                return EvaluationLease(
                    round=round_.number,
                    task=task,
                    records=ranges[task],
                    attempt=attempt,
                    version=round_.version if round_.is_of_version else ANY_VERSION,
                )
        return None

    def reconcile(self, incarnation: Identity, holding: tuple[tuple[int, int], ...]) -> None:
        """A worker's leases are what it says it holds."""
        for round_ in self._rounds.values():
            for task in round_.leases.held_by(incarnation):
                if (round_.number, task) not in holding:
                    round_.leases.end(task)

    def release(self, incarnation: Identity) -> None:
        """A worker is gone."""
        self.reconcile(incarnation, ())
        for round_ in self._rounds.values():
            if round_.concluder and round_.concluder[0] == incarnation:
                round_.concluder = None

    # -- reports

    def check(self, reports: Iterable[DoneEvaluation]) -> None:
        """Raise RemoteProtocolError if the metric states of a round's tasks could not be added up; nothing has changed."""
        first = {number: next(iter(round_.states.values()), None) for number, round_ in self._rounds.items()}
        for done in reports:
            known = first.get(done.round) or done
            if problem := difference(done, known):
                raise RemoteProtocolError(
                    problem, "the metrics of a model have the same state on every record"
                )
            first[done.round] = known

    def report(self, done: DoneEvaluation) -> bool:
        """Keep a task's metric state; the first report counts: whether it is that."""
        round_ = self._rounds.get(done.round)
        is_task = 0 <= done.task < len(self.plan.evaluation_ranges) and done.task not in self.skipped
        if round_ is None or not is_task:
            return False
        is_first = done.task not in round_.states
        self.reported += is_first
        round_.states.setdefault(done.task, done)
        round_.leases.close(done.task)
        self.suspects.discard((done.round, done.task))
        self._merge_if_whole(round_)
        return is_first

    def skip(self, task: int) -> None:
        """Leave out a task that always fails, in the rounds in work and in later ones."""
        self.skipped.add(task)
        self.suspects = {(number, other) for number, other in self.suspects if other != task}
        for round_ in list(self._rounds.values()):
            round_.leases.close(task)
            if (
                not round_.states and not self.has_data and round_.shown is None
            ):  # nothing is left that could be evaluated
                del self._rounds[round_.number]
            self._merge_if_whole(round_)

    def _is_whole(self, round_: _Round) -> bool:
        left_out = sum(task not in round_.states for task in self.skipped)
        return len(round_.states) + left_out == len(self.plan.evaluation_ranges)

    def _merge_if_whole(self, round_: _Round) -> None:
        has_something = round_.states or round_.shown is not None
        if not has_something or round_.merged is not None or not self._is_whole(round_):
            return
        if self.plan.gives_parts:
            del self._rounds[round_.number]
            self.concluded_version = max(self.concluded_version, round_.version)
        else:
            round_.merged = merge_states([round_.states[task].states for task in sorted(round_.states)])

    def conclusion(self, incarnation: Identity, now: float, rounds: int = 0) -> Conclusion | None:
        """Return the oldest round, once merged, for this worker to conclude, if it is the one to do it.

        One round at a time, so that metrics appear in the order of their versions.

        Parameters
        ----------
        rounds : int
            How many barriers' rounds it has been told of: they are left out.
        """
        oldest = next(iter(self._rounds.values()), None)
        if oldest is None or oldest.merged is None:
            return None
        if oldest.concluder is None or now - oldest.concluder[1] > LEASE_TIMEOUT_S:
            oldest.concluder = (incarnation, now)
        if oldest.concluder[0] != incarnation:
            return None
        shown = None if oldest.shown is None else oldest.shown.from_number(rounds)
        return Conclusion(round=oldest.number, states=oldest.merged, shown=shown)

    def conclude(self, result: EvaluationResult) -> Finished | None:
        """Take a round's metrics; None if they were known already."""
        round_ = self._rounds.get(result.round)
        if round_ is None or round_.merged is None:
            return None
        del self._rounds[result.round]
        self.reported += 1
        self.concluded_version = max(self.concluded_version, round_.version)
        self.skip_to(round_.version)  # metrics appear in the order of versions, also after a way back
        records = sum(done.records for done in round_.states.values())
        decision = result.decision or Decision(logs=result.metrics) if round_.shown is not None else None
        return Finished(round_.number, round_.version, result.metrics, records, round_.is_final, decision)

    def fail(self, worker: str, boot: int, failed: FailedTask) -> Attempts | None:
        """Count a failed attempt; return all attempts, when this was the last one allowed."""
        round_ = self._rounds.get(failed.round)
        if round_ and not self._failed.is_counted(boot, failed):
            round_.leases.end(failed.task)
        return self._failed.count(worker, boot, failed)

    # -- checks

    def check_invariants(self) -> None:
        for round_ in self._rounds.values():
            closed = TaskSet()
            for task in round_.states.keys() | self.skipped:
                closed.add(task)
            round_.leases.check_invariants(closed)
            is_whole = self._is_whole(round_)
            assert (round_.merged is not None) == is_whole, "a round is merged when it is whole"


def merge_states(states: Sequence[MetricState]) -> MetricState:
    """Add metric states array by array, in the given order.

    Float addition is not associative, so a fixed order keeps the sum's bits whoever reported first.

    Returns
    -------
    dict of lists of ndarray, float64

    Raises
    ------
    ValueError
        If the states are not of the same metrics and shapes.
    """
    if not states:
        return {}
    total = {name: [np.array(part, np.float64) for part in parts] for name, parts in states[0].items()}
    for state in states[1:]:
        if state.keys() != total.keys():
            raise ValueError(f"metric states of {sorted(state)} and {sorted(total)} cannot be added")
        for name, parts in state.items():
            if [part.shape for part in parts] != [part.shape for part in total[name]]:
                raise ValueError(f"states of metric {name!r} differ in shape")
            for into, part in zip(total[name], parts, strict=True):
                into += part
    return total
