"""The shell of the master: sockets, the journal and the clock around its cores.

With no parameter servers it hosts the one partition in this process, behind the same address.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import LocalProtocolError, RemoteProtocolError
from edlz.services.master.awake_clock import AwakeClock
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary.inputs import (
    DigestRead,
    Input,
    ManifestWritten,
    Published,
    Request,
    Start,
    StateWritten,
    Tick,
)
from edlz.services.master.core.vocabulary.instructions import (
    Announce,
    DropCheckpoint,
    DropParts,
    Instruction,
    Leave,
    PublishPredictions,
    Reply,
    TakeDigest,
    WriteManifest,
    WriteState,
)
from edlz.services.master.core.vocabulary.instructions import Journal as Entry
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.data_watch import watch_of_job
from edlz.services.master.digest import take_digest
from edlz.services.master.durable_states import CheckpointFolder, GroupStates
from edlz.services.master.hosted_partition import HostedPartition
from edlz.services.master.journal.journal import Journal, TermLost
from edlz.services.master.page.look import looking_at
from edlz.services.master.page.report import forget_report, write_report
from edlz.services.master.page.status_page import StatusPage, bound, bound_beside
from edlz.services.master.planning import desired_processes, lock_folder, open_journal, with_origins_of
from edlz.services.master.progress.progress import Progress
from edlz.services.master.publication import publish_predictions
from edlz.services.master.tensorboard.curve_files import CurveFiles
from edlz.services.master.tensorboard.points import Board
from edlz.services.master.written_records import JournalWriting, leave_last_word, note_end
from edlz.services.process.logs import INCIDENT
from edlz.services.process.runtime import Stop, when_failed
from edlz.services.process.shell import Instructions, Shell
from edlz.services.protocol.job_status import FailureView, JobStatus, StatusRequest
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    Exchange,
    Initialise,
    Job,
    NewestPull,
    ReadTables,
    ReadVector,
    Scaled,
    ScaleRequest,
    SupervisorOrders,
    SupervisorStatus,
    WorkerStatus,
)
from edlz.services.storage.replica_files import ReplicaFiles
from edlz.services.transport.rpc import RpcServer
from edlz.services.transport.security import Security
from edlz.services.transport.traffic import Traffic

__all__ = ["Attend", "MasterService", "serve_master"]

TICK_S = 0.25
AGAIN_S = 1.0  # between tries to complete a state
LINGER_S = 5.0  # who does not get the last answer waits for a master that will never come

logger = logging.getLogger(__name__)

Attend = Callable[["MasterService"], Coroutine[Any, Any, None]]


async def serve_master(
    config: JobConfig, stop: Stop, attend: Attend | None = None, *, holder: str = ""
) -> int:
    """Run the job's master to the end of the job; return the job's exit code.

    Parameters
    ----------
    attend : Attend, optional
        Runs beside the service until the job's end, when it is cancelled: a launcher in this process.
    holder : str
        See `lock_folder`.
    """
    folder = config.job_directory
    lock = lock_folder(folder, config.job_name, holder)
    try:
        journal, job = open_journal(config, folder)
        with journal:
            service = MasterService(config, journal, job, folder, stop)
            try:
                return await service.run(attend)
            finally:
                service.close()
    finally:
        lock.close()


@dataclass(eq=False, slots=True)
class _Asker:
    """Somebody in this process who has asked the master something."""

    answer: Message | None = None


class MasterService(Shell[Input, Instruction]):
    """One life of the job's master.

    Parameters
    ----------
    config : JobConfig
        Of this start; what the job was planned with is in `job`.
    journal : Journal
        Open; its term is that of the master before.
    job : Job
        As the journal has it.
    folder : Path
        The job's.
    stop : Stop
        Set when this process is to end.
    """

    carries = Instructions["MasterService"]()

    def __init__(self, config: JobConfig, journal: Journal, job: Job, folder: Path, stop: Stop) -> None:
        super().__init__(stop)
        self._config, self._journal, self._folder = config, journal, folder
        state, replicas = journal.state(), ReplicaFiles(job)
        if config.is_allreduce and not config.private_job_dir:
            replicas.mark()
        self._core = _core_of(job, config, state, replicas)
        self._checkpoints = CheckpointFolder(config, self._core)
        self._states = GroupStates(replicas, self._core)
        loop = asyncio.get_running_loop()
        # Waiting for the disk, this master hears nobody: that time is nobody's silence.
        self._clock = AwakeClock(lambda: loop.time() - journal.waited_s)
        self._progress = Progress(self._core, time.time(), self._clock(), state)
        self._tasks: asyncio.TaskGroup | None = None
        self._is_outdated = False  # a younger master has begun
        self._reading: asyncio.Task[None] | None = None  # of the digest
        self._has_left = False
        self._is_led_here = False  # by a launcher in this process: then nobody leads it from outside
        self._security = Security.of(config, "master")
        self._server = RpcServer(
            config.listen_endpoint,
            self._on_request,
            role="master",
            job=job.name,
            linger_s=LINGER_S,
            security=self._security,
        )
        when_failed(self._server.failed, self.fail)
        self._board = self._opened_board(config, state.began or time.time())
        self._hosted: HostedPartition | None = None
        self._watch = watch_of_job(config, job, state.pieces, self.feed, self._announce)
        self._look = looking_at(
            with_origins_of(config, job), self._core, self._progress, self._clock, self._network
        )
        self._page = self._opened_page(config, state.page_port)
        self._writing = JournalWriting(journal, self._core, self._progress, self._clock, self._page)
        if self._core.settings.hosts_partition and not self._core.verdict.is_complete:
            self._hosted = HostedPartition(config, self._server, self._security, folder)

    def _network(self) -> tuple[int, int]:
        """Return the bytes that this master has taken and given, without those of the partition in it."""
        all_of_it, hosted = self._server.traffic, self._hosted.traffic if self._hosted else Traffic()
        return all_of_it.bytes_in - hosted.bytes_in, all_of_it.bytes_out - hosted.bytes_out

    def _opened_page(self, config: JobConfig, port: int) -> StatusPage | None:
        listening = bound(config, port)
        if listening is None:
            return None
        page = StatusPage(listening, self._look, config.status_host, bound_beside(config, listening))
        self._progress.page = page.address
        return page

    def _opened_board(self, config: JobConfig, began: float) -> Board | None:
        if not config.tensorboard_log_dir or self._core.verdict.was_complete:
            return None
        files = CurveFiles(Path(config.tensorboard_log_dir), config.job_name, began)
        return Board(files, self._core, self._progress)

    async def run(self, attend: Attend | None = None) -> int:
        """Serve until the job is over and everybody has heard of it; see `serve_master`."""
        self._is_led_here = attend is not None
        self.feed(Start())
        self.raise_failure()  # here, since a group would wrap it
        self._log_start()
        if not self._core.verdict.was_complete:
            forget_report(self._folder)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                if self._hosted:
                    self._tasks.create_task(self._hosted.run(), name="partition")
                beside = [self._start(work, name) for name, work in self._works_beside(attend)]
                await self._serve()
                self._stop_reading()
                for work in beside:
                    work.cancel()
                if self._hosted:
                    if not self._core.verdict.is_over:
                        await self._hosted.leave(self._stop)
                    self._hosted.end("the job is over")
        finally:
            if self._hosted:
                self._hosted.end("the master ends")
        self.raise_failure()  # of what went on until now
        return self._end()

    def _works_beside(self, attend: Attend | None) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield what goes on as long as the job does."""
        if self._page:
            yield "page", self._page.run()
        if attend:
            yield "attend", attend(self)
        if self._watch is not None and not self._core.verdict.is_over:
            yield "watch", self._watch.run()

    async def _serve(self) -> None:
        while not self._stop.is_set and not self._has_left:
            now = self._clock()
            self._note_standstill(self._clock.take_left_out())
            self.feed(Tick())
            self._progress.sample(now)
            self._keep_shown(now)
            if self._board is not None:
                self._board.take(time.time())
            await asyncio.sleep(TICK_S / 5 if self._core.verdict.is_over else TICK_S)
        self.raise_failure()

    def _note_standstill(self, seconds: float) -> None:
        """This master has not run for so long: say so, and show times of day as they are."""
        if seconds:
            self._progress.on_pause(seconds)
            logger.warning("this master has not run for %.0fs: nobody is taken for silent by that", seconds)

    # -- for a launcher in this process

    def supervise(self, status: SupervisorStatus) -> SupervisorOrders | None:
        """Take what runs and what has ended; return what should run, or None if another master says that now."""
        answer = self._answer(status)
        assert answer is None or isinstance(answer, SupervisorOrders)
        return answer

    def scale(self, workers: int) -> Scaled | None:
        """Want so many workers from now on; errors as for `ScaleRequest`, None as of `supervise`."""
        answer = self._answer(ScaleRequest(workers=workers))
        assert answer is None or isinstance(answer, Scaled)
        return answer

    def _answer(self, body: Message) -> Message | None:
        """Have the core answer somebody in this process; None if this master may say nothing any more."""
        asker = _Asker()
        self.carry_out(self._decide_on(asker, body))
        return asker.answer

    def status(self) -> JobStatus:
        """Return what a screen shows now."""
        return self._progress.status(0, self._clock())

    def announce(self, kind: str, text: str) -> None:
        """Let the log and every screen say what has happened."""
        self._announce(Announce(kind, text))

    def close(self) -> None:
        if self._board is not None:
            self._board.take(time.time())
            self._board.close()
        if self._hosted:
            self._hosted.close()
        if self._page:
            self._page.close()
        self._server.close()

    def _log_start(self) -> None:
        plan, core, work = self._core.plan, self._core, self._core.work
        logger.info(
            "master of job=%s listens at %s, term=%d", core.job.name, self._server.endpoint, core.term
        )
        tasks, records = plan.tasks_per_epoch, plan.records_per_epoch
        if not plan.is_training:
            tasks, records = len(plan.evaluation_ranges), plan.evaluation_records
        logger.info("%d tasks created with total of %d records.", tasks, records)
        if work.evaluation.has_data and not plan.gives_parts:
            logger.info("Evaluation service started")

    def _end(self) -> int:
        core, verdict = self._core, self._core.verdict
        if self._is_outdated:  # what is to be said of the job is another master's to say
            return self._stop.code
        if core.work.evaluation.has_data and not core.plan.gives_parts:
            logger.info("Evaluation service stopped")
        self._progress.page = ""
        self._progress.finish(self._clock())
        status = self._progress.status(0, self._clock())
        self._keep_shown(math.inf)
        leave_last_word(self._folder, status)
        write_report(self._folder, self._look())
        if verdict.is_complete:
            if not self._config.launch_id:  # or else that tells the next run from this one
                note_end(self._journal, core.term)
            logger.info(
                "job=%s complete at version=%d digest=%s", core.job.name, status.version, verdict.digest
            )
            return 0
        if verdict.failure:
            logger.error("%s", _failure_text(core.job.name, verdict.failure))
            return verdict.failure.exit_code
        return self._stop.code

    # -- requests

    def _on_request(self, to: Hashable, body: Message) -> None:
        if self._is_mute:
            return
        now = self._clock()
        if isinstance(body, Exchange | Initialise | NewestPull | ReadVector | ReadTables):
            if self._hosted is None:
                raise RemoteProtocolError("this master hosts no partition; ask the parameter servers")
            self._hosted.on_request(to, body)
        elif isinstance(body, StatusRequest):
            self._server.reply(to, self._progress.status(body.since, now))
        elif isinstance(body, SupervisorStatus | ScaleRequest) and self._is_led_here:
            raise RemoteProtocolError(
                "this job is led from inside its master's pod, and takes no orders from the network",
                "edlz scale, edlz stop",
            )
        else:
            instructions = self._decide_on(to, body)  # what it refuses is in no figure
            if isinstance(body, WorkerStatus) and (news := self._progress.on_worker(body, now)):
                self._announce(Announce("worker", news, logging.WARNING))
            self.carry_out(instructions)

    # -- carrying out

    def decide(self, event: Input) -> list[Instruction]:
        return self._core.feed(event, self._clock())

    def _decide_on(self, to: Hashable, body: Message) -> list[Instruction]:
        """Give the core a request; what it refuses is raised, and a bug of it ends this master as anywhere else."""
        try:
            return self.decide(Request(to, body))
        except LocalProtocolError as error:
            self.fail(error)
            return []

    @property
    def _is_mute(self) -> bool:
        """Whether something was not carried out: what the core knows may not be durable, so nothing of it may be said."""
        return self._is_outdated or self._error is not None

    def carry_out(self, instructions: Iterable[Instruction]) -> None:
        """Do what the core asks for; if that fails, or another master has begun, leave the rest, and end."""
        if self._is_mute:
            return
        try:
            super().carry_out(instructions)
        except TermLost as error:
            self._yield_to_younger(error)
        except Exception as error:  # not the fault of who has asked, if anybody has
            self.fail(error)

    @carries.out(Reply)
    def _reply(self, reply: Reply) -> None:
        if isinstance(reply.to, _Asker):
            reply.to.answer = reply.body
        else:
            self._server.reply(reply.to, reply.body)

    @carries.out(Entry)
    def _enter(self, entry: Entry) -> None:
        waited_s = self._writing.enter(entry)
        if waited_s:
            text = f"the disk of {self._folder} was full: the job has waited {waited_s:.0f}s for room."
            self._announce(Announce("job", text))

    @carries.out(TakeDigest)
    def _take_digest(self, asked: TakeDigest) -> None:
        self._stop_reading()
        self._reading = self._start(self._digest(asked), "digest")

    @carries.out(WriteManifest)
    def _complete_checkpoint(self, order: WriteManifest) -> None:
        self._start(self._write_manifest(order), "manifest")

    @carries.out(DropParts)
    def _drop_parts(self, order: DropParts) -> None:
        self._start(self._checkpoints.drop_parts(order.version), "drop parts")

    @carries.out(DropCheckpoint)
    def _drop_checkpoint(self, order: DropCheckpoint) -> None:
        self._start(self._checkpoints.drop(order.version), "drop checkpoint")

    @carries.out(PublishPredictions)
    def _publish_predictions(self, order: PublishPredictions) -> None:
        self._start(self._publish(order), "predictions")

    @carries.out(Leave)
    def _leave(self, _: Leave) -> None:
        self._has_left = True

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        assert self._tasks is not None
        return self._tasks.create_task(work, name=name)

    def _keep_shown(self, now: float) -> None:
        try:
            self._writing.keep_shown(now)
        except TermLost as error:
            self._yield_to_younger(error)

    def _yield_to_younger(self, error: TermLost) -> None:
        """Another master has begun: nothing may be said any more."""
        logger.error("master ends: %s", error)
        self._is_outdated = True
        self._stop.set(error.exit_code, str(error))

    @carries.out(Announce)
    def _announce(self, announce: Announce) -> None:
        if announce.kind != "failed":  # that is the last line, with all there is to say
            logger.log(announce.level, "%s", announce.text, extra=INCIDENT)
        if announce.level >= logging.INFO:
            self._progress.add_event(announce.kind, announce.text, self._clock())

    async def _digest(self, asked: TakeDigest) -> None:
        is_on_workers = self._core.settings.is_allreduce
        server = "worker" if is_on_workers else "master" if self._hosted else "ps"
        run = self._core.job.run
        digest = await take_digest(asked.partitions, security=self._security, server=server, run=run)
        self.feed(DigestRead(asked.lives, digest))

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _write_manifest(self, order: WriteManifest) -> None:
        error = await self._checkpoints.complete(order, self._progress.minibatches)
        self.feed(ManifestWritten(order.version, error))

    @carries.out(WriteState)
    def _complete_state(self, order: WriteState) -> None:
        self._start(self._write_state(order), "state")

    async def _write_state(self, order: WriteState) -> None:
        error = await self._states.complete(order, self._progress.minibatches)
        if error:  # it may be tried again as soon as that is known
            await asyncio.sleep(AGAIN_S)
        self.feed(StateWritten(order.name, error))

    async def _publish(self, order: PublishPredictions) -> None:
        """Make the predictions whole, or learn which files are not there."""
        missing, failure = await asyncio.to_thread(publish_predictions, self._config, self._core.job, order)
        self.feed(Published(tuple(missing), failure))


def _core_of(job: Job, config: JobConfig, state: JournalState, replicas: ReplicaFiles) -> MasterCore:
    return MasterCore(
        job,
        state,
        config.evaluation_steps,
        config.checkpoint_steps,
        config.worker_hang_secs,
        desired_processes(config, state.fleet),
        replicas.names() if config.is_allreduce else (),
    )


def _failure_text(job: str, failure: FailureView) -> str:
    rows = (("data", failure.data), ("code", failure.where), ("raised", failure.error))
    lines = [f'job "{job}" failed: {failure.text}', *(f"  {name}  {value}" for name, value in rows if value)]
    return "\n".join([*lines, failure.traceback.rstrip()]).rstrip()
