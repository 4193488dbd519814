"""The supervisor of a job's processes on this machine.

It starts the master, has the rounds of `Supervision` tell it what runs and make its answer true, and shows the
job's status.  It decides nothing about the work.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from edlz.client.local.job_directory import JobDirectory
from edlz.client.local.job_launcher import GRACE_S, MASTER, JobLauncher
from edlz.client.local.launching.process_launcher import ProcessLauncher
from edlz.client.local.live_status import LiveStatus
from edlz.client.local.share.share_file import LocalSlots
from edlz.client.local.start_watch import StartWatch
from edlz.client.local.verdict import Evidence, written_status
from edlz.client.screen.screens import Screen
from edlz.services.errors import EdlzError, PeerUnavailable
from edlz.services.protocol.job_status import FINAL_STATES, JobStatus, StatusRequest, events_before
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import ProcessExit, SupervisorOrders, SupervisorStatus
from edlz.services.supervision.backoff import Backoff
from edlz.services.supervision.loop import Supervision
from edlz.services.supervision.post_mortem import Cause, cause_of

__all__ = ["MASTER", "STOP_S", "MasterLink", "Supervisor"]

logger = logging.getLogger(__name__)

ANSWER_S = 2.0
MOST_UNHEARD_LIVES = 5  # of the master, in a row: short ones in which it has not answered once
STOP_S = 25.0  # for the master to save the job and to leave, when it is asked to stop
LEAVE_S = 15.0  # the master's time to leave after the job is over
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class MasterLink(Protocol):
    """The supervisor's connection to the master."""

    async def request(self, body: Message, deadline_s: float) -> Message:
        """Send a request and return its answer.

        Raises
        ------
        PeerUnavailable
            If none came in time.
        """
        ...


class Supervisor:
    """Runs one job to its end.

    Parameters
    ----------
    job_name, folder, screen : str, JobDirectory, Screen
        The job, its folder, where it is shown.
    link : MasterLink
        The connection to the master.
    command_of : callable
        A service's name to its program and arguments.
    restarts_master : bool
        Start the master again if it is lost.
    slots : LocalSlots, optional
        The job's part of this machine's slots, if it shares them with other jobs.

    Attributes
    ----------
    evidence : Evidence
        What was seen, complete when `run` has returned.
    """

    def __init__(
        self,
        job_name: str,
        folder: JobDirectory,
        screen: Screen,
        link: MasterLink,
        command_of: Callable[[str], Sequence[str]],
        *,
        restarts_master: bool = True,
        slots: LocalSlots | None = None,
    ) -> None:
        self.evidence = Evidence(job_name, folder.logs)
        self._folder, self._screen, self._link, self._command_of = folder, screen, link, command_of
        self._slots = slots
        self._seen: int | None = None  # number of the last event shown, or of the last before this run
        self._losses: dict[str, str] = {}  # processes whose loss nobody has told yet, and what to say
        self._signalled = asyncio.Event()  # nothing more is waited for
        self._asked_to_stop_s: float | None = None
        self._restarts_master = restarts_master
        self._master_backoff = Backoff()
        self._has_master_answered = False  # in its present life
        self._unheard_lives = 0
        self._master_since_s = 0.0
        self._master_due_s: float | None = None  # when it is started again
        self._over_since_s: float | None = None  # since when the job is over, as the master says
        self._processes: ProcessLauncher
        self._launcher: JobLauncher
        self._rounds: Supervision
        self._start = StartWatch(time.monotonic())
        self._live = LiveStatus(folder.sockets)

    async def run(self) -> None:
        """Start the master, follow the job to its end, and end every process.

        Raises
        ------
        EdlzError
            If a process cannot be started, or the master speaks another protocol.
        """
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup, &
        for number in heard:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            await self._run_processes()
        finally:
            for number in heard:
                loop.remove_signal_handler(number)
        self.evidence.took_s = time.monotonic() - began
        self._take_last_word()

    def _take_last_word(self) -> None:
        """Go by what the master has left, as everybody does who looks later, not by what it said before."""
        last, written = self.evidence.status, written_status(self._folder.path)
        if written is None:
            return
        if last is None or last.state not in FINAL_STATES:
            self.evidence.status = written
            self._screen.update(written)
        elif written.state == last.state:
            self.evidence.status = written

    async def _run_processes(self) -> None:
        error: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            self._processes = ProcessLauncher(
                tasks,
                self._command_of,
                self._folder.logs,
                self._folder.scratch,
                self._screen.log_line,
                self._screen.say,
            )
            self._launcher = JobLauncher(self._processes, self._slots, self._on_exit)
            self._rounds = Supervision(self._launcher)
            try:
                await self._launch_master()
                await self._rounds.run(self)
            except Exception as e:  # kept: a group would wrap it
                error = e
            finally:
                await self._processes.stop_all(GRACE_S)
                if self._slots is not None:
                    self._slots.leave()
        crashed = [gone.name for gone in (self.evidence.master, self.evidence.first_crash) if gone]
        if self.evidence.status is not None and self.evidence.status.failure is not None:
            crashed.append(self.evidence.status.failure.process)
        self.evidence.tails = {name: self._processes.tail(name) for name in crashed if name}
        error = error or self._processes.error
        if error is not None:
            raise error

    # ------------------------------------------------------------ following the job, as Home has it

    @property
    def is_over(self) -> bool:
        """Whether the master has ended, a second signal has come, or a time limit is over."""
        if self._signalled.is_set() or self.evidence.master is not None or self._processes.error is not None:
            return True
        if self._asked_to_stop_s is not None and time.monotonic() - self._asked_to_stop_s > STOP_S:
            return True
        return self._over_since_s is not None and time.monotonic() - self._over_since_s > LEAVE_S

    @property
    def changes(self) -> Sequence[asyncio.Event]:
        return (self._signalled, self._processes.exited)

    async def begin_round(self) -> bool:
        """See what has ended, and start the master again when it is due."""
        status, now = self.evidence.status, time.monotonic()
        if waits := self._start.due(status, self._processes.running(), now):
            self._screen.wait(waits)
        if status is not None and status.state in FINAL_STATES:
            self._over_since_s = self._over_since_s or now
            if now - self._over_since_s > LEAVE_S:
                logger.warning("the master did not leave within %.0fs of the job's end", LEAVE_S)
        self._launcher.collect_exits()
        if self.is_over:
            return False
        if self._master_due_s is not None and now >= self._master_due_s:
            await self._launch_master()
        return self._master_due_s is None

    async def ask(self, status: SupervisorStatus) -> SupervisorOrders | None:
        """Tell the master what runs, and show what it says of the job."""
        orders = await self._request(status)
        if orders is None:
            return None
        self._has_master_answered = True
        if self._seen is None and isinstance(orders, SupervisorOrders):
            self._seen = events_before(orders.term)  # a job that is resumed has events that are old news
        shown = await self._request(StatusRequest(since=self._seen or 0))
        if isinstance(shown, JobStatus):
            self._show(shown)
        return orders if isinstance(orders, SupervisorOrders) else None

    def end_round(self) -> None:
        """Nothing is left to do."""

    async def _request(self, body: Message) -> Message | None:
        """Return the master's answer; None if none came in time, or a signal came first."""
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(self._ask(body), name="ask the master")
            signalled = tasks.create_task(self._signalled.wait(), name="wait for a signal")
            await asyncio.wait((asking, signalled), return_when=asyncio.FIRST_COMPLETED)
            asking.cancel()
            signalled.cancel()
        answer = None if asking.cancelled() else asking.result()
        if isinstance(answer, EdlzError):
            raise answer
        return answer

    async def _ask(self, body: Message) -> Message | EdlzError | None:
        try:
            return await self._link.request(body, ANSWER_S)
        except PeerUnavailable:
            return None  # it starts, or it has just ended; the next round sees which
        except EdlzError as e:  # returned: a group would wrap it
            return e

    def _show(self, status: JobStatus) -> None:
        self.evidence.status = status
        self._seen = max((event.seq for event in status.events), default=self._seen)
        self._tell_losses(status)
        self._screen.update(status)
        self._live.note(status, time.monotonic())

    def _on_signal(self, number: int) -> None:
        if self.evidence.signal is not None:
            if number == signal.SIGHUP:  # a terminal that goes away tells this more than once, and means once
                return
            if self.evidence.signal == signal.SIGHUP:  # the session is ended after its shell
                self.evidence.signal = number
                return
            self._signalled.set()
            self._processes.kill(self._processes.running())
            return
        self.evidence.signal = number
        status = self.evidence.status
        if status is None or status.state in FINAL_STATES:  # nothing that could be saved
            self._signalled.set()
        self._rounds.stop()
        self._asked_to_stop_s = time.monotonic()
        self._screen.say("stopping … Ctrl-C again to kill at once.")

    # ------------------------------------------------------------ losses

    def _on_exit(self, gone: ProcessExit) -> None:
        """A process has ended by itself."""
        if gone.name == MASTER:
            self._on_master_exit(gone)
        elif gone.code != 0:
            self._losses[gone.name] = f"{gone.name} lost: {gone.reason}."
            if gone.code is not None:
                self.evidence.first_crash = self.evidence.first_crash or gone

    async def _launch_master(self) -> None:
        self._master_due_s, self._master_since_s = None, time.monotonic()
        self._has_master_answered = False
        logger.info("starting the master; all logs are in %s", self._folder.logs)
        await self._processes.launch(MASTER)

    def _on_master_exit(self, gone: ProcessExit) -> None:
        """Start the master again, unless it ended the job or it is of no use.

        One that answers counts by itself the masters that achieve nothing; see `VainTerms`.
        """
        now = time.monotonic()
        delay_s = self._master_backoff.on_end(now - self._master_since_s)
        is_unheard = self._master_backoff.short_lives > 0 and not self._has_master_answered
        self._unheard_lives = self._unheard_lives + 1 if is_unheard else 0
        status = self.evidence.status
        is_over = (
            cause_of(gone) not in (Cause.KILLED, Cause.PREEMPTED, Cause.OUT_OF_MEMORY)
            or self._rounds.is_stopping
            or (status is not None and status.state in ("Failed", "Stopped"))
        )
        if is_over or not self._restarts_master or self._unheard_lives >= MOST_UNHEARD_LIVES:
            self.evidence.master = gone
            return
        self._master_due_s = now + delay_s
        self._screen.say(f"master lost: {gone.reason}. It starts again; the others go on meanwhile.")

    def _tell_losses(self, status: JobStatus) -> None:
        """Say what the master does not say itself, with more to it: it knows which task was at stake."""
        texts = [event.text for event in status.events]
        if status.failure is not None:  # whoever ends now ends for that
            self._losses.clear()
        for name, text in self._losses.items():
            if not any(told.startswith(f"{name} lost") or f"{name} was lost" in told for told in texts):
                self._screen.say(text)
        self._losses.clear()
