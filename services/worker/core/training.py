"""The training tasks that a worker has in hand: which minibatch is next, on which parameters, for whom.

Theory of operation.  Each *held task* pulls (where does each partition stand with
it, and what are its parameters), computes the smallest minibatch that some partition lacks,
pushes it to all, and so on; a partition that has the minibatch ignores it.  One exchange carries a
push and the next pull.  When all partitions have finished the task it is reported.  After any refusal
it begins again with a pull.  PROTOCOL: sections 3 to 5.

This is what the two modes have in common.  Which tasks begin, what the answers to a pull and to a push mean
and which push asks for more are `SynchronousTraining`'s and `AsynchronousTraining`'s affair.

A model with embedding tables needs to know a minibatch's ids before it pulls.  They are found one
minibatch ahead, so that an exchange names the next one's rows; then every task pulls for itself, since its
rows are its own.

The core knows no tensors: parameters and ids pass through it as the messages that brought them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    DoneTask,
    Exchanged,
    FailedTask,
    Identity,
    Lease,
    Push,
    Refused,
    RowIds,
)
from edlz.services.protocol.plan import Plan
from edlz.services.worker.core.held_tasks import BACK_OFF_S, HeldTask, HeldTasks, Phase, Wait
from edlz.services.worker.core.instructions import (
    Compute,
    Drop,
    FindIds,
    Instruction,
    Outcome,
)
from edlz.services.worker.core.partition_directory import PartitionDirectory
from edlz.services.worker.core.requests import Requests, end_push, pushes_of

__all__ = ["Training"]


class Training(ABC):
    """The held tasks of one worker, in one era: what the two modes have in common.

    Parameters
    ----------
    plan : Plan
    partitions : PartitionDirectory
    requests : Requests
    has_tables : bool
        Whether the model has embedding tables.
    tell : callable (now) -> list of Instruction
        Tells the master at once what has changed.
    """

    _ids_ahead = 1  # so many minibatches ahead of the one in work ids are found

    def __init__(
        self,
        plan: Plan,
        partitions: PartitionDirectory,
        requests: Requests,
        has_tables: bool,
        tell: Callable[[float], list[Instruction]],
    ) -> None:
        self.plan, self._partitions, self._requests, self._tell = plan, partitions, requests, tell
        self.steps = 0  # minibatches pushed
        self._has_tables = has_tables
        self._held = HeldTasks(plan)
        self._failed: list[FailedTask] = []
        self._wait = Wait(self._held)

    @property
    def era(self) -> Identity:
        return self._requests.era

    # -- what is told

    @property
    def phases(self) -> dict[int, Phase]:
        """Where each held task stands."""
        return {held.task: held.phase for held in self._held}

    @property
    def holding(self) -> tuple[int, ...]:
        return self._held.tasks

    @property
    def done(self) -> tuple[DoneTask, ...]:
        finished = (held for held in self._held if held.phase is Phase.REPORTING)
        return tuple(held.done(self.era, self._count) for held in finished)

    @property
    def failed(self) -> tuple[FailedTask, ...]:
        return tuple(self._failed)

    @property
    def barred(self) -> tuple[int, ...]:
        """The tasks in hand that wait for their barrier."""
        return tuple(held.task for held in self._held if held.is_barred)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do, nor to report, before the master says more."""
        return self._held.are_held_back and not self._failed

    @property
    def is_busy(self) -> bool:
        return self._held.computing is not None

    @property
    def is_waiting(self) -> bool:
        """Whether all that has begun has waited for others for a while: it is not just asking for its next values."""
        return self._wait.is_long(self.steps)

    @property
    def wants_task(self) -> bool:
        return self._held.wants_task

    # -- events

    def on_tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        self._wait.note(self.steps, now)
        for held in self._held:
            if held.pause is not None and now >= held.pause.until_s:
                out += self._probe(held) if held.pause.is_lost else self._pull(held)
        return out

    def enter(self, era: Identity) -> list[Instruction]:
        """Another era has begun: nothing in hand belongs to it."""
        self._requests.enter(era)
        return self._drop(self._held.tasks)

    def take(self, lease: Lease, end_at: int | None = None) -> list[Instruction]:
        """Take a leased task in hand.

        Parameters
        ----------
        end_at : int, optional
            The master has ended it before this minibatch.
        """
        task, records = lease.task, lease.records
        if self._held.get(task) is not None:
            return []
        held = self._held.take(task)
        held.learning_rate, held.is_barred, held.records = lease.learning_rate, lease.is_barred, records
        if records is not None and not records.count:  # it only fills a round
            end_at = 0
        if end_at is not None:
            held.end(end_at)
        return [*held.begun()]

    def end(self, ends: Iterable[tuple[int, int]]) -> list[Instruction]:
        """The master has ended tasks; the records behind must not be looked at any more."""
        out: list[Instruction] = []
        for task, end_at in ends:
            held = self._held.get(task)
            if held is not None and (held.end_at is None or end_at < held.end_at):
                held.end(end_at)
                if held.phase is not Phase.REPORTING:
                    # The stream may have read past the new end already: it begins anew, and stops there.
                    out += [Drop(task), *held.begun()]
        return out

    def holds_back(self, task: int, attempt: int, result: Outcome | FailedTask) -> bool:
        """Keep what has come of a minibatch, if the barrier before its task is not passed yet; return whether it is so."""
        held = self._held.get(task)
        awaited = (Phase.LOOKING, Phase.COMPUTING)
        if held is None or held.attempt != attempt or not held.is_barred or held.phase not in awaited:
            return False
        held.enter(Phase.HELD_BACK)
        held.result = result
        return True

    def release(
        self, task: int, learning_rate: float | None
    ) -> tuple[int, Outcome | FailedTask | None, list[Instruction]]:
        """The barrier before a task is passed; return an attempt and what was held back of it, to be told again now."""
        held = self._held.get(task)
        if held is None or not held.is_barred:
            return 0, None, []
        held.is_barred = False
        is_other, held.learning_rate = learning_rate != held.learning_rate, learning_rate
        is_in_push = (
            learning_rate is not None and not self._has_tables
        )  # where it can be put in place of the one before
        if is_other and not is_in_push and held.phase in (Phase.COMPUTING, Phase.HELD_BACK):
            return held.attempt, None, self._pull(held)
        return held.attempt, held.result, []

    def forget(self, tasks: Iterable[int]) -> list[Instruction]:
        """The master has noted how these ended."""
        return self._drop(tasks)

    def note_failures(self, keys: Iterable[tuple[int, int]]) -> None:
        """The master has noted these failed tasks, evaluation's among them."""
        noted = set(keys)
        self._failed = [failed for failed in self._failed if failed.key not in noted]

    def begin_again(self, task: int) -> list[Instruction]:
        """The master does not believe this report: a partition has lost what it had."""
        held = self._held.get(task)
        if held is None or held.phase is not Phase.REPORTING:
            return []
        return [*held.begun(), *self._probe(held)]  # its records were given back

    def on_moved(self, partitions: Iterable[int]) -> list[Instruction]:
        """Partitions are others, or elsewhere: who waits for one of them begins again."""
        out: list[Instruction] = []
        for index in partitions:
            for held in self._held:
                waits = (held.phase is Phase.PULLING and index not in held.answers) or held.ahead
                if waits or (held.phase is Phase.PUSHING and index not in held.acks):
                    out += self._pull(held)
        return out

    def on_evaluating(self) -> None:
        """An evaluation loads other vectors: a copy that was trained locally is gone."""
        self._requests.renew_vectors()

    def _drop(self, tasks: Iterable[int]) -> list[Instruction]:
        return [Drop(task) for task in tasks if self._held.drop(task) is not None]

    # -- scheduling

    def schedule(self, *, is_evaluating: bool = False) -> list[Instruction]:
        """Begin what can begin: a queued task, a computation, a pull nobody else will send.

        Parameters
        ----------
        is_evaluating : bool
            Whether there is an evaluation to be done, which comes before what waits for it.
        """
        is_ahead = not is_evaluating and not any(held.phase is Phase.REPORTING for held in self._held)
        return [*self._begin(), *self._start_computing(is_ahead=is_ahead)]

    @abstractmethod
    def _begin(self) -> list[Instruction]:
        """Begin the tasks whose turn it is."""

    def _start_computing(self, *, is_ahead: bool) -> list[Instruction]:
        """Begin with the earliest task that is ready; `is_ahead`: with one behind a barrier, too."""
        if self._held.computing is not None:
            return []
        out: list[Instruction] = []
        for held in sorted(self._held, key=lambda held: held.task):  # others may wait for the earliest
            if held.phase is not Phase.READY or (held.is_barred and not is_ahead):
                continue
            vectors = self._requests.vectors
            if vectors is None or self._are_of_another_step(held, vectors):
                out += self._pull(held)  # the parameters in hand are others meanwhile
                continue
            if held.index == held.end_at:
                out += [] if held.is_barred else self._push_end(held)
                continue
            return [*out, *self._compute(held, vectors)]
        return out

    def _are_of_another_step(self, held: HeldTask, vectors: tuple[Exchanged, ...]) -> bool:
        """Whether a task's next minibatch must not be computed on these parameters."""
        return False

    def _compute(self, held: HeldTask, vectors: tuple[Exchanged, ...]) -> list[Instruction]:
        held.enter(Phase.COMPUTING)
        rate = held.learning_rate
        if not self._has_tables:
            return [Compute(held.task, held.index, held.attempt, held.version, vectors, learning_rate=rate)]
        rows, ids = tuple(held.answers[p] for p in range(self._count)), held.ids[held.index] or ()
        ahead = held.looks_ahead_to(held.index + self._ids_ahead)
        return [
            *self._look_ahead(held),
            Compute(held.task, held.index, held.attempt, held.version, vectors, ids, rows, ahead, rate),
        ]

    @property
    def _count(self) -> int:
        return self._partitions.count

    # -- pulling

    def _pull(self, held: HeldTask) -> list[Instruction]:
        """Ask every partition where it stands with this task, for what this worker lacks."""
        if self._has_tables and held.index not in held.ids:
            held.abandon(Phase.LOOKING, self._held.new_attempt())
            return [FindIds(held.task, held.index, held.attempt)]
        held.abandon(Phase.PULLING, self._held.new_attempt())
        return list(self._requests.pull_all(held, held.index))

    def _probe(self, held: HeldTask) -> list[Instruction]:
        """Ask every partition where it stands with this task, without rows: the minibatch is unknown."""
        held.abandon(Phase.PULLING, self._held.new_attempt())
        held.index = 0
        return list(self._requests.pull_all(held, None if self._has_tables else 0))

    def on_ids(
        self, task: int, index: int, attempt: int, ids: tuple[RowIds, ...] | None
    ) -> list[Instruction]:
        """The rows that a minibatch needs from each partition; None if the task ends before it."""
        held = self._held.get(task)
        if held is None:
            return []
        held.note_ids(index, ids)  # true whoever has asked: they follow from the records alone
        if held.attempt != attempt:
            return []
        if held.phase is Phase.LOOKING and index == held.index:
            held.enter(Phase.PULLING)
            out: list[Instruction] = [*self._requests.pull_all(held, index)]
            if self._ids_ahead > 1 and not held.ends_before(index) and index + 1 not in held.ids:
                out.append(FindIds(task, index + 1, attempt))
            return out
        return self._look_ahead(held)

    def _look_ahead(self, held: HeldTask) -> list[Instruction]:
        """Ask for the next minibatch's rows while this one is computed, if that is to be done."""
        return []

    # -- answers

    def on_answer(
        self, index: int, key: tuple[int, int, str, int | None], answer: Message, now: float
    ) -> list[Instruction]:
        """A partition's answer to an exchange of a task."""
        task, attempt, kind, asked = key
        held = self._held.get(task)
        if held is None or held.attempt != attempt:
            return []
        if isinstance(answer, Refused):
            return self._on_refused(held, answer, now)
        assert isinstance(answer, Exchanged)
        held.incarnations[index] = answer.incarnation
        # "pushed": other requests ask for what comes next; "ack": nothing else does; "ahead": it brings the rows of a
        # later minibatch; otherwise it is a pull for the next one.
        if kind == "pushed":
            return []
        if kind == "ack":
            return self._on_ack(held, index, now)
        self._requests.note(index, answer)
        if kind == "ahead":
            if asked in held.ahead:
                held.ahead[asked][index] = answer
            return self._go_on(held, now)
        held.answers[index] = answer
        return self._on_params(held, now) if len(held.answers) == self._count else []

    def _on_refused(self, held: HeldTask, refusal: Refused, now: float) -> list[Instruction]:
        if refusal.reason == "era":  # the master will tell the new one, and lease again
            return [*self._drop((held.task,)), *self._tell(now)]
        self._requests.drop_dead()
        are_pushes_held, is_lost = refusal.reason == "held", refusal.reason != "not ready"
        held.back_off(self._held.new_attempt(), now, are_pushes_held=are_pushes_held, is_lost=is_lost)
        return []

    def _on_params(self, held: HeldTask, now: float) -> list[Instruction]:
        """All partitions have answered a pull."""
        if self._requests.vectors is None:
            # Its values were in hand when it was asked, and are no more.
            held.back_off(self._held.new_attempt(), now, are_pushes_held=False, is_lost=False)
            return []
        held.back_off_s = BACK_OFF_S
        return self._on_all(held, now)

    @abstractmethod
    def _on_all(self, held: HeldTask, now: float) -> list[Instruction]:
        """All partitions have answered a pull, and their vectors are there."""

    def _resume(self, held: HeldTask, version: int, now: float) -> list[Instruction]:
        """Go on with the smallest minibatch that some partition lacks."""
        left = [answer.mark for answer in held.answers.values() if not answer.finished]
        return self._get_ready(held, min(left), version) if left else self._finish(held, now)

    def _get_ready(self, held: HeldTask, index: int, version: int) -> list[Instruction]:
        """Minibatch `index` is next; if other rows were pulled, pull again."""
        has_rows = not self._has_tables or held.asked == index
        held.index, held.version = index, version
        if not has_rows:
            return self._pull(held)
        held.enter(Phase.READY)
        return self._look_ahead(held)

    def _go_on(self, held: HeldTask, now: float) -> list[Instruction]:
        """Go on when a later minibatch's rows are there, if they were asked for."""
        return []

    def _finish(self, held: HeldTask, now: float) -> list[Instruction]:
        # In hand until the master has noted it: should that be lost with its master, the next one is told again.
        held.enter(Phase.REPORTING)
        held.attempt = self._held.new_attempt()  # what is still under way says nothing any more
        return [Drop(held.task), *self._tell(now)]

    # -- pushing

    def takes(self, task: int, attempt: int) -> bool:
        """Whether what this attempt computes will be pushed: it was not abandoned, nor the task ended before it."""
        held = self._held.get(task)
        return held is not None and held.attempt == attempt and not held.is_ended

    def on_computed(self, task: int, attempt: int, outcome: Outcome, now: float) -> list[Instruction]:
        """A gradient is there: push it to all partitions."""
        held = self._held.get(task)
        if held is None or held.attempt != attempt or held.phase not in (Phase.COMPUTING, Phase.HELD_BACK):
            return []  # abandoned meanwhile
        self.steps += 1  # pushed or not: it is a sign of life
        self._requests.note_computed()
        if held.is_ended and not outcome.is_empty:
            return self._probe(held)  # the master has ended the task before it meanwhile
        held.is_last = outcome.is_last and held.may_end(outcome)
        pushes = pushes_of(held, outcome)
        if self._has_tables and outcome.has_looked_ahead:
            held.note_ids(held.index + self._ids_ahead, outcome.ahead)
        return [*self._push(held, pushes), *self._go_on(held, now)]

    def _push_end(self, held: HeldTask) -> list[Instruction]:
        """The task has been ended before this minibatch: nothing is computed, an empty one ends it."""
        held.is_last = True
        return self._push(held, [end_push(held)] * self._count)

    @abstractmethod
    def _push(self, held: HeldTask, pushes: list[Push]) -> list[Instruction]:
        """Push to all partitions, and ask for what comes next if nothing else brings it."""

    def _push_only(self, held: HeldTask, pushes: list[Push]) -> list[Instruction]:
        """Push, and ask for nothing but that it has come."""
        held.enter(Phase.PUSHING)
        return list(self._requests.push_all(held, pushes, "ack"))

    def _push_and_pull(self, held: HeldTask, pushes: list[Push]) -> list[Instruction]:
        """Push, and ask for what comes next in the same message."""
        held.wants_vectors = self._requests.wants_vectors(held, self._held.of_step(held))
        following = held.index + 1
        held.asked = following if not self._has_tables or following in held.ids else None
        out: list[Instruction] = [
            self._requests.pull(held, p, held.asked, push=push) for p, push in enumerate(pushes)
        ]
        held.enter(Phase.PULLING)
        return out

    def _on_ack(self, held: HeldTask, index: int, now: float) -> list[Instruction]:
        if held.phase is not Phase.PUSHING:
            return []
        held.acks.add(index)
        return self._on_all_acks(held, now) if len(held.acks) == self._count else []

    @abstractmethod
    def _on_all_acks(self, held: HeldTask, now: float) -> list[Instruction]:
        """A push without a pull is with all partitions."""

    def on_failed(self, task: int, attempt: int, failed: FailedTask, now: float) -> list[Instruction]:
        """The user's code raised on this task's records."""
        held = self._held.get(task)
        if held is None or held.attempt != attempt:
            return []
        self._failed.append(failed)
        return [*self._drop((task,)), *self._tell(now)]

    def note_failed(self, failed: FailedTask) -> None:
        """The user's code raised on an evaluation task's records."""
        self._failed.append(failed)

    # -- checks

    def check_invariants(self) -> None:
        self._held.check_invariants()
