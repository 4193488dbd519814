"""The core of a job's processes: which should run, which are there, and what the loss of one means for the work.

Theory of operation.  Whoever runs the processes (a *supervisor*) tells what runs and what has ended; the `DesiredProcesses` decides
what should run, and the answer says so.  The processes themselves speak too: `LiveWorkers` knows the live workers, `SilentServers`
notices servers that say nothing.  A process that hangs, or whose machine does not answer, is given up here: what should run
replaces it, as if it had ended.  What a lost worker held is free at once.  What the next master has to know is
journalled before anybody hears of it.  A job whose processes are started by hand has no supervisor: its losses are
noticed by their silence only, and nobody is replaced.
"""

from collections.abc import Sequence

from edlz.services.configuration.job_size import scale_warning
from edlz.services.errors import ConfigError, RemoteProtocolError
from edlz.services.master.core.processes.desired_processes import DesiredProcesses, Loss
from edlz.services.master.core.processes.live_workers import LiveWorkers
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.processes.silent_servers import SilentServers
from edlz.services.master.core.vocabulary.identities import Identities
from edlz.services.master.core.vocabulary.instructions import Announce, Instruction, Journal
from edlz.services.master.core.vocabulary.records import JournalState, WorkerEntry
from edlz.services.master.core.vocabulary.verdict import Verdict
from edlz.services.master.core.work import Work
from edlz.services.protocol.messages import PartitionStatus, SupervisorStatus, WorkerStatus
from edlz.services.protocol.plan import Plan
from edlz.services.supervision.launcher import split_name

__all__ = ["JobProcesses"]


class JobProcesses:
    """The processes of one job.

    Parameters
    ----------
    plan : Plan
    desired : DesiredProcesses
        What should run.
    live : LiveWorkers
        The workers that are there.
    journal : JournalState
        What earlier masters left.
    hang_s : float
        Seconds without progress until a worker is replaced.
    cores : Partitions, Identities, Work, Verdict
        Told of losses.

    Attributes
    ----------
    silent_servers : SilentServers
        The parameter servers that say nothing.
    is_supervised : bool
        Whether somebody starts and ends processes as this master says.
    running : tuple of str
        What runs, as the supervisor has told it last.
    notes : dict of str to str
        Why services do not run (yet), by name, as it told.
    lost_workers, target_workers : int
        For display: how many have been lost, how many are wanted.
    """

    def __init__(
        self,
        plan: Plan,
        desired: DesiredProcesses,
        live: LiveWorkers,
        journal: JournalState,
        hang_s: float,
        cores: tuple[Partitions, Identities, Work, Verdict],
    ) -> None:
        self._plan, self.desired, self.live = plan, desired, live
        self._partitions, self._identities, self._work, self._verdict = cores
        self.silent_servers = SilentServers(hang_s)
        self.is_supervised = False
        self.running: tuple[str, ...] = ()
        self.notes: dict[str, str] = {}
        self.lost_workers = journal.fleet.lost if journal.fleet else 0
        self.target_workers = 0
        self._record = journal.fleet  # as the journal has it
        self.recovery_s: dict[str, float] = {}  # by role: how long the newest recovery took
        self._gone_servers: dict[int, float] = {}  # since when
        self._awaited: dict[str, float] = {}  # workers in the place of lost ones -> since when
        self._spare_awaited_s: float | None = None  # since when any spare should take over
        self._stepping: set[str] = set()  # workers that have begun to train
        self._ended: list[str] = []  # workers that have ended, or were given up, since `take_ended`

    # -- the supervisor

    def on_status(
        self, status: SupervisorStatus, achieved: int, furthest: int, now: float
    ) -> list[Instruction]:
        """What runs and what has ended.

        Parameters
        ----------
        achieved, furthest : int
            As for `DesiredProcesses.on_status`.
        """
        self.is_supervised = True
        self.notes = status.notes
        unreachable = [split_name(name) for name in status.unreachable]
        self.silent_servers.unreachable = {ident for role, ident in unreachable if role == "ps"}
        self.live.unreachable = {str(ident) for role, ident in unreachable if role == "worker"}
        if self._verdict.is_over:
            return []
        losses = self.desired.on_status(
            status.running,
            status.exits,
            status.room,
            now,
            placed=status.placed,
            crowded=status.crowded,
            achieved=achieved,
            furthest=furthest,
            busy=[f"worker-{worker}" for worker in self.live.busy] if status.exits else (),
        )
        return self._settle(losses, now)

    def names(self, now: float, *, is_told: bool) -> tuple[str, ...]:
        """Return what should run now; `is_told`: the job is over, and everybody has heard of it."""
        if is_told:
            return ()
        if self._verdict.was_complete:  # whoever is there has not heard of it yet
            return self.running
        desired = self.desired.names(now)
        if self._verdict.is_over:  # whoever has left will not be missed
            return tuple(name for name in desired if name in self.running)
        return desired

    def scale(self, workers: int, now: float) -> tuple[int, list[Instruction]]:
        """Want so many workers from now on; return how many were wanted before.

        Raises
        ------
        ConfigError
            If the job may not have so many; nothing has changed.
        RemoteProtocolError
            If nobody starts workers.
        """
        if not self.is_supervised:
            raise RemoteProtocolError("nobody starts workers for this job; start and stop them by hand")
        ran = set(self.desired.names(now))
        before = self.desired.scale(workers, now)
        out = self._settle([], now)
        self._awaited |= {name: now for name in self.desired.names(now) if name not in ran}
        if before != workers:
            out.append(Announce("workers", f"{before} -> {workers} workers."))
        return before, out

    def warning_of(self, workers: int) -> str:
        """Return why so many workers would not help, or nothing."""
        return scale_warning(workers, self._plan.slots) if self._plan.is_sync else ""

    def _settle(self, losses: Sequence[Loss], now: float) -> list[Instruction]:
        """What should run may be another: that is durable before anybody hears of it."""
        self.lost_workers, self.target_workers = self.desired.lost, self.desired.target
        if self.is_supervised:
            self.live.supervise(self.desired.target)
        out: list[Instruction] = []
        if self.desired.record != self._record:
            self._record = self.desired.record
            out.append(Journal({"fleet": self._record}))
        for name in self.desired.take_dismissed():
            out += self._dismiss(name)
        for name, server in self.desired.take_yielded():
            out.append(Announce("worker", f"{name} makes room for {server}, which fits nowhere else."))
            out += self._dismiss(name, is_told=True)
        for loss in losses:
            out += self._on_loss(loss, now)
        return out

    # -- time

    def on_tick(self, now: float) -> list[Instruction]:
        """Lose who is silent, and give up who hangs."""
        out: list[Instruction] = []
        for worker, last in self.live.silent(now):
            out += self.lose(worker, f"nothing heard for {now - last.seen_s:.0f}s")
            self.live.note_silence(worker, last)
        for given_up in list(self.live.give_up(now)):
            name, reason = given_up.name, given_up.reason
            out += self._replace(name, reason, now, is_unreachable=given_up.is_unreachable)
            out += self.lose(str(split_name(name)[1]), reason)  # also one that nobody here started
            self._ended.append(str(split_name(name)[1]))
        for said in () if self._verdict.is_over else self.silent_servers.on_tick(now):
            if isinstance(said, Announce):
                out.append(said)
            elif self.is_supervised:  # else it is up to whoever has started it
                out += self._replace(said.name, said.reason, now, is_unreachable=said.is_unreachable)
        return out

    def _replace(self, name: str, reason: str, now: float, *, is_unreachable: bool) -> list[Instruction]:
        """Give up a process that runs, as far as is known, but does nothing."""
        loss = self.desired.retire(name, reason, now, is_unreachable=is_unreachable)
        return self._settle([loss] if loss else [], now)

    # -- workers that speak

    def on_worker(self, status: WorkerStatus, now: float) -> list[Instruction]:
        """Say when a worker that was waited for has begun to train, or to do what a job without training does."""
        name = f"worker-{status.worker}"
        has_begun = bool(status.steps if self._plan.is_training else status.evaluated)
        if not has_begun or name in self._stepping:
            return []
        self._stepping.add(name)
        self.desired.note_ready(name)
        lost_s, spare_s = self._awaited.pop(name, None), self._spare_awaited_s
        self._spare_awaited_s = None
        if lost_s is not None or spare_s is not None:
            self.recovery_s["worker"] = now - (spare_s if lost_s is None else lost_s)  # type: ignore[operator]
        if lost_s is not None:
            return [Announce("worker", f"{name} {self._doing} after {now - lost_s:.1f}s.")]
        if spare_s is not None:
            return [Announce("worker", f"{name} has taken over after {now - spare_s:.1f}s.")]
        return []

    def on_server(self, status: PartitionStatus, now: float) -> None:
        """A parameter server has spoken: one that was lost is back, when it has its state again."""
        if self._gone_servers and status.has_base and status.partition in self._gone_servers:
            self.recovery_s["ps"] = now - self._gone_servers.pop(status.partition)

    def note(self, worker: str, entry: WorkerEntry) -> None:
        """A worker is alive, and this is its newest word."""
        self.live.note(worker, entry)
        self._work.deadly_tasks.note(entry)

    # -- losses

    def take_ended(self) -> list[str]:
        """Return the workers that have ended, or are not wanted any more, since the last time."""
        ended, self._ended = self._ended, []
        return ended

    def evict(
        self, worker: str, reason: str, now: float, *, has_hung: bool = False, is_replaced: bool = True
    ) -> list[Instruction]:
        """A worker cannot work with the others: another one takes its place, if one may."""
        self.live.dismiss(worker, has_hung=has_hung)
        out = self._replace(f"worker-{worker}", reason, now, is_unreachable=False)
        out += self.lose(worker, reason)
        return out if is_replaced else [*out, *self._do_without(now)]

    def _do_without(self, now: float) -> list[Instruction]:
        """Want one worker less, if somebody starts workers and the job may have fewer."""
        if not self.is_supervised:
            return []
        try:
            _, out = self.scale(self.desired.target - 1, now)
        except ConfigError:
            return []
        return out

    def lose(self, worker: str, reason: str, *, is_death: bool = False) -> list[Instruction]:
        """A worker is gone (its launcher says so, or it is silent): its leases are free at once.

        Parameters
        ----------
        is_death : bool
            It has ended, nobody took it away, and its launcher says so.
        """
        last, text = self.live.last_word(worker), f"worker-{worker} lost: {reason}."
        back = self._remove(worker)
        if not self._verdict.is_over and not self.live.has_heard(worker):  # it never joined
            return [Announce("worker", text)]
        is_death = is_death and last is not None and not self._verdict.is_over
        death = self._work.on_death(worker, reason, last) if is_death and last else []
        if back is None:
            return death
        if back:
            has_others = bool(self.live.workers)
            if len(back) == 1:
                how = "goes to another worker" if has_others else "waits for the next worker"
                which = f"Task {back[0]} {how}"
            else:
                how = "go to other workers" if has_others else "wait for the next worker"
                which = f"Tasks {', '.join(map(str, back))} {how}"
            text += f" {which}: no minibatch is lost, none counts twice."
        return [Announce("worker", text), *death]

    def _dismiss(self, name: str, *, is_told: bool = False) -> list[Instruction]:
        """A worker is not wanted any more: its leases are free at once, and it hears that it should go.

        Parameters
        ----------
        is_told : bool, optional
            Whether it has been announced already why it leaves.
        """
        worker = str(split_name(name)[1])
        self.live.dismiss(worker)
        self._ended.append(worker)
        if self._remove(worker) is None or is_told:
            return []
        return [Announce("worker", f"{name} leaves; it is not wanted any more.")]

    def _remove(self, worker: str) -> list[int] | None:
        """Free a worker's leases and return its tasks; None if it was not there, or that matters no more."""
        entry = self.live.forget(worker)
        self._identities.forget(f"worker-{worker}")
        if entry is None or self._verdict.is_over:
            return None
        back = self._work.held_by(entry)
        self._work.release(entry.incarnation)
        return back

    def _on_loss(self, loss: Loss, now: float) -> list[Instruction]:
        if self._verdict.is_over:
            return []
        role, ident = split_name(loss.name)
        out: list[Instruction] = []
        if role == "worker":
            self._ended.append(str(ident))
            out += self.lose(str(ident), loss.reason, is_death=not loss.is_explained)
        else:  # its next life tells the rest
            self.silent_servers.on_gone(ident)
            self._gone_servers.setdefault(ident, now)
            self._partitions.on_gone(ident)
            out.append(Announce("ps", f"{loss.name} lost: {loss.reason}."))
        if self._verdict.failure is not None:  # what the job ends of: nothing starts any more
            return out
        if loss.replacement:
            out.append(Announce(role, self._replacement_text(loss)))
            if role == "worker":
                self._await(loss.replacement, now)
        if loss.failure:
            out += self._verdict.fail(loss.failure)
        return out

    def _await(self, replacement: str, now: float) -> None:
        """A worker was lost: note since when its place is empty."""
        if self.desired.has_spares:
            self._spare_awaited_s = now
        else:
            self._awaited[replacement] = now

    def _replacement_text(self, loss: Loss) -> str:
        when = f" in {loss.delay_s:.0f}s" if loss.delay_s >= 1 else ""
        if loss.replacement == loss.name:
            return f"{loss.name} starts again{when}; requests to it wait."
        if self.desired.has_spares:
            return f"a spare takes over; {loss.replacement} starts as the next one{when}."
        left = f"{len(self.live.workers)} of {self.desired.target} workers"
        return f"{loss.replacement} starts in its place{when}.  {left} {self._doing} meanwhile."

    @property
    def _doing(self) -> str:
        doing = {"evaluation": "evaluating", "prediction": "predicting", "analysis": "analyzing"}
        return "training" if self._plan.is_training else doing[self._plan.other_work]

    # -- checks

    def check_invariants(self) -> None:
        """Assert what must hold between events."""
        self.desired.check_invariants()
        self.live.check_invariants()
