"""The core that decides which processes of the job should run, and what the loss of one means.

Theory of operation.  The job wants a number of workers (its *target*, which `scale` changes) and, beyond them,
spares; its *workers* are the ids that should run now.  A worker that is lost leaves, and a new id joins,
never the same one again, after a delay if lives are short.  A parameter server keeps its id.  Whoever runs
processes tells what runs and what has ended, and makes the answer true; nothing depends on an event being told
once: an exit that comes twice is known by its launch, one that is never told is a name that should run and does
not.  What the next master has to know (ids and the target) is journalled with each change.  Where room is short,
parameter servers come before workers: see `Places`.

A worker and those that take its place, one after the other, are a *line*; so are the lives of a parameter server.
Losses are free as long as the job gets on between them, on machines that are taken away all day.  A line in which
so many have ended without any progress in between is given up, whatever ended them; the pauses double meanwhile.
Fewer are needed if they ended by themselves.  Who dies with a task in hand is that task's affair first: see `DeadlyTasks`.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from edlz.services.configuration.job_size import check_workers
from edlz.services.master.core.processes.places import Places
from edlz.services.master.core.vocabulary.records import FleetRecord
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.messages import ProcessExit
from edlz.services.supervision.backoff import Backoff
from edlz.services.supervision.launcher import count_workers, is_worker, split_name
from edlz.services.supervision.post_mortem import Cause, cause_of

__all__ = ["DesiredProcesses", "Loss"]

# Lives of one line in a row without progress in between:
MOST_FAILED = 5  # of a parameter server that ended by an error of its own
MOST_VAIN = 10  # that ended for no known reason
MOST_TAKEN = 30  # that were taken away
_BLAMELESS = frozenset((Cause.KILLED, Cause.PREEMPTED))


@dataclass(frozen=True)
class Loss:
    """A process that has ended.

    Attributes
    ----------
    replacement : str
        The process that is started in its place; nothing if none is.
    delay_s : float
        Seconds until then.
    failure : FailureView, optional
        When the job cannot go on without it.
    is_explained : bool
        Whether it was taken away: what it worked on has nothing to do with it.
    """

    name: str
    reason: str
    replacement: str = ""
    delay_s: float = 0.0
    failure: FailureView | None = None
    is_explained: bool = False


@dataclass(slots=True)
class _Process:
    """A process that should run."""

    not_before_s: float = 0.0
    seen_s: float | None = None  # when it was first told to run
    line: Backoff = field(default_factory=Backoff)


class DesiredProcesses:
    """Desired processes, by name: `ps-0`, `worker-1`.

    Parameters
    ----------
    workers, servers, spares : int
        How many the job asked for.
    least, most : int, optional
        Bounds of what it can be scaled to; `most` None for none.
    relaunches : int
        How many workers that ended by an error of their own, with no task in hand, are replaced without any
        progress in between.
    record : FleetRecord, optional
        What an earlier master left; it does not count if the job asks for another number of workers now.

    Attributes
    ----------
    target : int
        How many workers the job wants, spares aside.
    hung : set of str
        Processes that were given up although they run.
    lost : int
        Workers that have been lost so far.
    replaced : Counter
        Those that this master has lost, by cause.
    """

    def __init__(
        self,
        workers: int,
        servers: int,
        *,
        spares: int = 0,
        least: int = 0,
        most: int | None = None,
        relaunches: int = 1,
        record: FleetRecord | None = None,
    ) -> None:
        self._least, self._most, self._spares, self._relaunches = least, most, spares, relaunches
        self._asked = self.target = workers
        self.hung: set[str] = set()
        self.lost = 0
        self.replaced: Counter[str] = Counter()
        self._processes: dict[str, _Process] = {f"ps-{index}": _Process() for index in range(servers)}
        self._places = Places(tuple(self._processes))
        self._next_id = 0
        self._failures = Backoff()  # of workers that ended by an error of their own
        self._achieved = self._furthest = 0
        self._busy: Collection[str] = ()
        self._heirless: list[Backoff] = []  # lines whose last worker has gone, and that there is no room for
        self._lost_for_good: dict[str, str] = {}  # workers that are not replaced -> why
        self._room: int | None = None
        self._launches: dict[str, int] = {}  # of the newest exit of each name that counted
        self._ready: set[str] = set()
        self._dismissed: list[str] = []
        self._yielded: list[tuple[str, str]] = []
        if record is not None and record.asked == workers:
            self.target, self._next_id, self.lost = record.target, record.next_id, record.lost
            self._processes |= {f"worker-{ident}": _Process() for ident in record.crew}
            self._lost_for_good = dict(record.given_up)
            for name, vain in record.vain:
                if name in self._processes:
                    self._processes[name].line.vain_lives = vain

    @property
    def has_spares(self) -> bool:
        """Whether workers wait to take over from those that are lost."""
        return self._spares > 0

    @property
    def record(self) -> FleetRecord:
        """What the next master has to know."""
        return FleetRecord(
            asked=self._asked,
            target=self.target,
            next_id=self._next_id,
            lost=self.lost,
            crew=tuple(split_name(name)[1] for name in self._workers),
            vain=tuple((name, vain) for name in self._processes if (vain := self._vain(name))),
            given_up=tuple(self._lost_for_good.items()),
        )

    def waiting(self, now: float) -> int:
        """Return how many workers the job could use beyond those that should run now."""
        return max(0, self._wanted - count_workers(self.names(now)))

    def names(self, now: float) -> tuple[str, ...]:
        """Return what should run now: no workers before it is known how many have room."""
        due = (name for name, process in self._processes.items() if now >= process.not_before_s)
        return tuple(name for name in due if name not in self.hung and self._places.may_run(name))

    # -- events

    def on_status(
        self,
        running: Sequence[str],
        exits: Sequence[ProcessExit],
        room: int | None,
        now: float,
        *,
        placed: Sequence[str] | None = None,
        crowded: Sequence[str] = (),
        achieved: int = 0,
        furthest: int = 0,
        busy: Collection[str] = (),
    ) -> list[Loss]:
        """What runs, what has ended by itself since the status before, and how many workers may run.

        Parameters
        ----------
        placed, crowded : sequence of str, optional
            What of it has its place, and the parameter servers that there is no room for.
        achieved, furthest : whatever the job has achieved since this master began, with and without what was done
            again, as rising numbers
        busy : collection of str, optional
            Workers with a task in hand.
        """
        self._achieved, self._furthest, self._busy = achieved, furthest, busy
        for name in running:
            if name in self._processes and self._processes[name].seen_s is None:
                self._processes[name].seen_s = now
        losses = [loss for exit_ in exits if (loss := self._on_exit(exit_, now)) is not None]
        self.hung &= set(running)
        self._room = room
        self._shrink()
        self._places.on_status(placed, crowded)
        self._make_room(running, now)
        self._fill(now)
        return losses

    def note_ready(self, name: str) -> None:
        """A worker trains: those that only start are let go before it."""
        self._ready.add(name)

    def take_dismissed(self) -> list[str]:
        """Return the workers that have become too many since this was asked before."""
        dismissed, self._dismissed = self._dismissed, []
        return dismissed

    def take_yielded(self) -> list[tuple[str, str]]:
        """Return the workers that make room since this was asked before, each with the server that needs it."""
        yielded, self._yielded = self._yielded, []
        return yielded

    def retire(self, name: str, reason: str, now: float, *, is_unreachable: bool = False) -> Loss | None:
        """Give up a process that runs but does nothing; None if that is known, or it is not of this job.

        One whose machine does not answer was taken away.
        """
        if name not in self._processes or name in self.hung:
            return None
        self.hung.add(name)
        give_up = self._replace if is_worker(name) else self._restart
        return give_up(name, reason, Cause.PREEMPTED if is_unreachable else Cause.KILLED, now)

    def scale(self, workers: int, now: float) -> int:
        """Want so many workers from now on; return how many were wanted before.

        Raises
        ------
        ConfigError
            If it is not within the job's bounds; nothing has changed.
        """
        check_workers(workers, self._least, self._most)
        before, self.target = self.target, workers
        self._lost_for_good.clear()  # whoever asks for workers wants them tried again
        self._failures, self._heirless = Backoff(), []
        self._shrink()
        self._fill(now)
        return before

    def _on_exit(self, exit_: ProcessExit, now: float) -> Loss | None:
        name = exit_.name
        if exit_.launch and exit_.launch <= self._launches.get(name, 0):
            return None
        self._launches[name] = exit_.launch
        if name not in self._processes or name in self.hung:  # its loss has been told
            return None
        code = f"exited with code {exit_.code}" if exit_.signal is None else f"signal {exit_.signal}"
        reason, cause = exit_.reason or code, Cause.PREEMPTED if exit_.is_remedied else cause_of(exit_)
        if is_worker(name):
            return self._replace(name, reason, cause, now)
        return self._restart(name, reason, cause, now)

    # -- parameter servers

    def _restart(self, name: str, reason: str, cause: Cause, now: float) -> Loss:
        process = self._processes[name]
        delay_s = process.line.on_end(self._lived_s(process, now), self._furthest)
        if process.line.vain_lives >= (MOST_FAILED if cause not in _BLAMELESS else _most_vain(cause)):
            text = f"{name} ended {process.line.vain_lives} times while the job got no further, at last: {reason}"
            return Loss(name, reason, failure=FailureView(text=text, help="its log says why", process=name))
        process.not_before_s, process.seen_s = now + delay_s, None
        return Loss(name, reason, replacement=name, delay_s=delay_s, is_explained=_is_explained(cause))

    def _vain(self, name: str) -> int:
        """How many of a line have ended without any progress up to now."""
        return self._processes[name].line.vain_until(self._achieved if is_worker(name) else self._furthest)

    # -- workers

    @property
    def _workers(self) -> list[str]:
        return list(filter(is_worker, self._processes))

    @property
    def _wanted(self) -> int:
        """Workers that should run, had they room: those that nothing can keep running are not."""
        target = max(0, self.target - len(self._lost_for_good))
        return target + self._spares if target else 0

    def _replace(self, name: str, reason: str, cause: Cause, now: float) -> Loss:
        self.lost += 1
        self.replaced[cause.value] += 1
        self._ready.discard(name)
        process = self._processes.pop(name)
        delay_s = process.line.on_end(self._lived_s(process, now), self._achieved)
        is_explained = _is_explained(cause)
        if self._has_failed_too_often(name, cause) or process.line.vain_lives >= _most_vain(cause):
            return self._lose_for_good(name, reason, process.line.vain_lives)
        self._heirless.insert(0, process.line)
        joined = self._fill(now + delay_s)
        replacement = joined[0] if joined else ""
        return Loss(name, reason, replacement=replacement, delay_s=delay_s, is_explained=is_explained)

    def _has_failed_too_often(self, name: str, cause: Cause) -> bool:
        """Count a worker's own error, unless it is rather its task's."""
        if cause in _BLAMELESS or (name in self._busy and self._relaunches):
            return False
        self._failures.on_end(0.0, self._achieved)
        return self._failures.vain_lives > self._relaunches

    def _lose_for_good(self, name: str, reason: str, vain_lives: int) -> Loss:
        before = f", like {vain_lives - 1} before it in its place" if vain_lives > 1 else ""
        self._lost_for_good[name] = reason + before
        if self._workers or self._wanted:
            return Loss(name, reason)
        by_reason: dict[str, list[str]] = {}
        for lost, why in self._lost_for_good.items():
            by_reason.setdefault(why, []).append(lost)
        reasons = "; ".join(f"{', '.join(lost)} {why}" for why, lost in by_reason.items())
        text = f"no worker is left: {reasons}"
        failure = FailureView(text=text, help="the workers' logs say why they ended", process=name)
        return Loss(name, reason, failure=failure)

    def _lived_s(self, process: _Process, now: float) -> float:
        return 0.0 if process.seen_s is None else now - process.seen_s

    def _fill(self, not_before_s: float) -> list[str]:
        """Let new workers join until there are as many as wanted, or as have room; return their names."""
        missing = max(0, self._most_now() - len(self._workers))
        joined = [f"worker-{self._next_id + number}" for number in range(missing)]
        for name in joined:
            self._processes[name] = _Process(
                not_before_s, line=self._heirless.pop(0) if self._heirless else Backoff()
            )
        self._next_id += missing
        return joined

    def _shrink(self) -> None:
        """Let those leave that are too many."""
        for name in self._by_worth()[self._most_now() :]:
            del self._processes[name]
            self._dismissed.append(name)

    def _make_room(self, running: Sequence[str], now: float) -> None:
        """Let a worker leave whose room a parameter server needs; nobody is to blame, and another one joins."""
        found = self._places.who_yields(running, self._processes, self._by_worth(), now)
        if found is not None:
            self._heirless.append(self._processes.pop(found[0]).line)
            self._ready.discard(found[0])
            self._yielded.append(found)

    def _by_worth(self) -> list[str]:
        """Return the workers; the last one leaves first: who does not train yet, the youngest before others."""
        return sorted(self._workers, key=lambda name: (name not in self._ready, split_name(name)[1]))

    def _most_now(self) -> int:
        return self._wanted if self._room is None else min(self._wanted, self._room)

    # -- checks

    def check_invariants(self) -> None:
        ids = [split_name(name)[1] for name in self._workers]
        assert ids == sorted(set(ids)), f"ids are not in order: {ids}"
        assert not ids or ids[-1] < self._next_id, "an id is not used up"
        assert len(ids) <= max(self._most_now(), 0), f"{len(ids)} workers, {self._most_now()} wanted"
        assert not self.hung & set(self._workers), "given up and wanted"


def _is_explained(cause: Cause) -> bool:
    return cause is Cause.PREEMPTED


def _most_vain(cause: Cause) -> int:
    return MOST_TAKEN if _is_explained(cause) else MOST_VAIN
