"""The shell of the master: sockets, the journal and the clock around its cores.

With no parameter servers it hosts the one partition in this process, behind the same address.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any

from edlz.services.checkpoints.pruning import prune, remove_unfinished, remove_version
from edlz.services.checkpoints.records import version_of
from edlz.services.checkpoints.writing import write_manifest
from edlz.services.config import JobConfig
from edlz.services.endpoints import local_endpoint
from edlz.services.errors import DataError, RemoteProtocolError
from edlz.services.job_status import FailureView, JobStatus, StatusRequest
from edlz.services.launcher import split_name
from edlz.services.logs import INCIDENT
from edlz.services.master.awake_clock import AwakeClock
from edlz.services.master.digest import take_digest
from edlz.services.master.entries import Added
from edlz.services.master.fleet import Loss
from edlz.services.master.full_disk import DiskFull
from edlz.services.master.instructions import (
    Announce,
    DropCheckpoint,
    DropParts,
    Exit,
    Instruction,
    PublishPredictions,
    Reply,
    Retire,
    RetireServer,
    TakeDigest,
    WriteManifest,
)
from edlz.services.master.instructions import Journal as Entry
from edlz.services.master.job import MasterCore
from edlz.services.master.journal import Journal, TermLost
from edlz.services.master.last_word import leave_last_word, note_end
from edlz.services.master.planning import lock_folder, make_fleet, open_journal
from edlz.services.master.progress import Progress
from edlz.services.master.publication import publish_predictions
from edlz.services.master.refusals import check_supervisor
from edlz.services.messages import (
    Exchange,
    Initialise,
    Job,
    NewestPull,
    PartitionStatus,
    ReadTables,
    ReadVector,
    Scaled,
    ScaleRequest,
    SupervisorOrders,
    SupervisorStatus,
    WorkerStatus,
)
from edlz.services.ps.service import PartitionService
from edlz.services.records import Message
from edlz.services.rpc import RpcClient, RpcServer
from edlz.services.runtime import Stop, when_failed
from edlz.services.security import Security

__all__ = ["Attend", "MasterService", "serve_master"]

TICK_S = 0.25
LINGER_S = 5.0  # who does not get the last answer waits for a master that will never come
PARTING_S = 0.5  # between the last answer and the end of the connections
FAREWELL_S = 8.0  # how long the end of the job waits for everybody to hear of it


logger = logging.getLogger(__name__)

Attend = Callable[["MasterService"], Coroutine[Any, Any, None]]


async def serve_master(
    config: JobConfig, stop: Stop, attend: Attend | None = None, *, holder: str = ""
) -> int:
    """Run the job's master to the end of the job; return the job's exit code.

    Parameters
    ----------
    attend : runs beside the service until the job's end, when it is cancelled: a launcher in this process
    holder : see `lock_folder`
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


class MasterService:
    """One life of the job's master."""

    def __init__(self, config: JobConfig, journal: Journal, job: Job, folder: Path, stop: Stop) -> None:
        self._config, self._journal, self._folder, self._stop = config, journal, folder, stop
        state = journal.state()
        self._core = MasterCore(
            job, state, config.evaluation_steps, config.checkpoint_steps, config.worker_hang_secs
        )
        self._fleet = make_fleet(config, state.fleet)
        self._fleet_record = state.fleet
        loop = asyncio.get_running_loop()
        # Waiting for the disk, this master hears nobody: that time is nobody's silence.
        self._clock = AwakeClock(lambda: loop.time() - journal.waited_s)
        self._progress = Progress(self._core, time.time(), self._clock(), state)
        self._tasks: asyncio.TaskGroup | None = None
        self._is_outdated = False  # a younger master has begun
        self._reading: asyncio.Task[None] | None = None  # of the digest
        self._is_supervised = self._has_supervisor_heard = False
        self._running: tuple[str, ...] = ()  # as the supervisor told it last
        self._is_led_here = False  # by a launcher in this process: then nobody leads it from outside
        self._awaited: dict[str, float] = {}  # workers in the place of lost ones -> since when
        self._spare_awaited_s: float | None = None  # since when any spare should take over
        self._stepping: set[str] = set()  # workers that have begun to train
        self._error: BaseException | None = None
        self._security = Security.of(config, "master")
        self._server = RpcServer(
            config.listen_endpoint,
            self._on_request,
            role="master",
            job=job.name,
            linger_s=LINGER_S,
            security=self._security,
        )
        when_failed(self._server.failed, self._on_server_failed)
        self._hosted_stop = Stop()
        self._hosted: PartitionService | None = None
        self._line: RpcClient | None = None
        if config.num_ps_pods == 0 and not self._core.is_complete:
            self._host_partition()

    def _host_partition(self) -> None:
        endpoint = self._config.reachable_at(self._server.endpoint)
        own = local_endpoint(self._server.endpoint)
        self._line = RpcClient(own, role="ps", identity="0", security=self._security)
        self._hosted = PartitionService(
            0, endpoint, self._server, self._line, self._folder, self._hosted_stop
        )

    async def run(self, attend: Attend | None = None) -> int:
        """Serve until the job is over and everybody has heard of it; see `serve_master`."""
        self._is_led_here = attend is not None
        self._carry_out(self._core.start())
        self._log_start()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                if self._hosted:
                    self._tasks.create_task(self._hosted.run(), name="partition")
                attending = self._tasks.create_task(attend(self), name="attend") if attend else None
                await self._serve()
                self._stop_reading()
                if attending is not None:
                    attending.cancel()
                await self._let_hosted_leave()
                self._hosted_stop.set(0, "the job is over")
        finally:
            self._hosted_stop.set(0, "the master ends")
        return self._end()

    async def _let_hosted_leave(self) -> None:
        """Told to end by SIGTERM, have the partition in this process saved first, as one in its own process."""
        hosted = self._hosted
        if hosted is None or self._core.is_over or self._stop.code != 128 + signal.SIGTERM:
            return
        hosted.leave(self._config.leave_secs)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.leave_secs):
                await self._hosted_stop.wait()

    async def _serve(self) -> None:
        over_since: float | None = None
        told_since: float | None = None
        while not self._stop.is_set:
            now = self._clock()
            self._note_standstill(self._clock.take_left_out())
            self._carry_out(self._core.on_tick(now))
            self._progress.sample(now)
            self._keep_events(now)
            if self._core.is_over:
                over_since = now if over_since is None else over_since
                told_since = (told_since or now) if self._core.is_everyone_told(self._running) else None
                if now - over_since > FAREWELL_S or (
                    told_since is not None and self._may_leave(now - told_since)
                ):
                    return
            await asyncio.sleep(TICK_S if over_since is None else TICK_S / 5)
        if self._error is not None:
            raise self._error

    def _note_standstill(self, seconds: float) -> None:
        """This master has not run for so long: say so, and show times of day as they are."""
        if seconds:
            self._progress.on_pause(seconds)
            logger.warning("this master has not run for %.0fs: nobody is taken for silent by that", seconds)

    def _may_leave(self, told_s: float) -> bool:
        """Whether nobody needs this master any more, so long after everybody was told of the end.

        A supervisor ends whoever is left.  Without one, an answer that is lost is waited for for ever, and
        closing a connection on which something has just come in may break it before it is read; and a master
        that found its job complete does not know who is there.
        """
        if self._is_supervised:
            return self._has_supervisor_heard
        return told_s > (FAREWELL_S if self._core.was_complete else PARTING_S)

    # -- for a launcher in this process

    def supervise(self, status: SupervisorStatus) -> SupervisorOrders:
        """Take what runs and what has ended; return what should run."""
        return self._on_supervisor(status, self._clock())

    def scale(self, workers: int) -> Scaled:
        """Want so many workers from now on; errors as for `ScaleRequest`."""
        return self._on_scale(ScaleRequest(workers=workers), self._clock())

    def status(self) -> JobStatus:
        """Return what a screen shows now."""
        return self._progress.status(0, self._clock())

    def announce(self, kind: str, text: str) -> None:
        """Let the log and every screen say what has happened."""
        self._announce(Announce(kind, text))

    def close(self) -> None:
        if self._hosted:
            self._hosted.close()
        if self._line:
            self._line.close()
        self._server.close()

    def _log_start(self) -> None:
        plan, core = self._core.plan, self._core
        logger.info(
            "master of job=%s listens at %s, term=%d", core.job.name, self._server.endpoint, core.term
        )
        tasks, records = plan.tasks_per_epoch, plan.records_per_epoch
        if not plan.is_training:
            tasks, records = len(plan.evaluation_ranges), plan.evaluation_records
        logger.info("%d tasks created with total of %d records.", tasks, records)
        if core.evaluation.has_data and not plan.predicts:
            logger.info("Evaluation service started")

    def _end(self) -> int:
        core, failure = self._core, self._core.failure
        if self._is_outdated:  # what is to be said of the job is another master's to say
            return self._stop.code
        if core.evaluation.has_data and not core.plan.predicts:
            logger.info("Evaluation service stopped")
        status = self._progress.status(0, self._clock())
        leave_last_word(self._folder, status)
        if core.is_complete:
            if not self._config.launch_id:  # or else that tells the next run from this one
                note_end(self._journal, core.term)
            logger.info("job=%s complete at version=%d digest=%s", core.job.name, status.version, core.digest)
            return 0
        if failure:
            logger.error("%s", _failure_text(core.job.name, failure))
            return failure.exit_code
        return self._stop.code

    # -- requests

    def _on_server_failed(self, error: BaseException) -> None:
        """A request handler raised: half-dead is worse than dead."""
        self._error = self._error or error
        self._stop.set(70, "a request could not be handled")

    def _on_request(self, to: Hashable, body: Message) -> None:
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
        elif isinstance(body, SupervisorStatus):
            self._server.reply(to, self._on_supervisor(body, now))
        elif isinstance(body, ScaleRequest):
            self._server.reply(to, self._on_scale(body, now))
        elif isinstance(body, PartitionStatus | WorkerStatus):
            instructions = self._core.on_request(to, body, now)  # what it refuses is in no figure
            if isinstance(body, WorkerStatus):
                if news := self._progress.on_worker(body, now):
                    self._announce(Announce("worker", news, logging.WARNING))
                self._tell_first_steps(body, now)
            self._carry_out(instructions)
        else:
            raise RemoteProtocolError(f"a master takes no {type(body).__name__}")

    def _on_supervisor(self, status: SupervisorStatus, now: float) -> SupervisorOrders:
        self._core.refuse_foreign("a supervisor", status.run)
        check_supervisor(status, self._core.job.partitions)
        self._is_supervised = True
        self._progress.notes = status.notes
        unreachable = [split_name(name) for name in status.unreachable]
        self._core.silence.unreachable = {ident for role, ident in unreachable if role == "ps"}
        self._core.crew.unreachable = {str(ident) for role, ident in unreachable if role == "worker"}
        if status.stop:
            self._carry_out(self._core.stop(now))
        self._running = status.running
        is_over = self._core.is_over and self._core.is_everyone_told(self._running)
        self._has_supervisor_heard = self._core.is_over
        if not self._core.is_over:
            losses = self._fleet.on_status(
                status.running,
                status.exits,
                status.room,
                now,
                placed=status.placed,
                crowded=status.crowded,
                achieved=self._core.achieved,
                furthest=self._core.furthest,
                busy=[f"worker-{worker}" for worker in self._core.crew.busy] if status.exits else (),
            )
            self._on_fleet(losses, now)
        desired = () if is_over else self._fleet.desired(now)
        if self._core.is_over:  # whoever has left will not be missed
            desired = tuple(name for name in desired if name in status.running)
        if self._core.was_complete and not is_over:  # whoever is there has not heard of it yet
            desired = status.running
        return SupervisorOrders(
            term=self._core.term,
            run=self._core.job.run,
            desired=desired,
            stop=is_over,
            hung=tuple(sorted(self._fleet.hung)),
            waiting=self._fleet.waiting(now),
        )

    def _on_scale(self, request: ScaleRequest, now: float) -> Scaled:
        if not self._is_supervised:
            raise RemoteProtocolError("nobody starts workers for this job; start and stop them by hand")
        ran = set(self._fleet.desired(now))
        before = self._fleet.scale(request.workers, now)
        self._on_fleet([], now)
        self._awaited |= {name: now for name in self._fleet.desired(now) if name not in ran}
        if before != request.workers:
            self._announce(Announce("workers", f"{before} -> {request.workers} workers."))
        return Scaled(before=before, after=request.workers, warning=self._warning_of(request.workers))

    def _warning_of(self, workers: int) -> str:
        """Return why so many workers would not help, or nothing."""
        plan = self._core.plan
        if not plan.is_sync or workers <= plan.slots:
            return ""
        first = plan.slots + 1
        who = f"worker {first}" if workers == first else f"workers {first} to {workers}"
        return f"grads_to_wait={plan.slots}, so {who} would wait; start with --grads_to_wait={workers}"

    def _on_fleet(self, losses: list[Loss], now: float) -> None:
        """The fleet has changed: make it durable before anybody hears of it."""
        self._progress.lost_workers, self._progress.target_workers = self._fleet.lost, self._fleet.target
        if self._is_supervised:
            self._core.crew.supervise(self._fleet.target)
        if self._fleet.record != self._fleet_record:
            self._fleet_record = self._fleet.record
            self._write_journal({"fleet": self._fleet_record})
        for name in self._fleet.take_dismissed():
            self._carry_out(self._core.dismiss(str(split_name(name)[1])))
        for name, server in self._fleet.take_yielded():
            self._announce(Announce("worker", f"{name} makes room for {server}, which fits nowhere else."))
            self._carry_out(self._core.dismiss(str(split_name(name)[1]), is_told=True))
        for loss in losses:
            self._on_loss(loss, now)

    def _on_loss(self, loss: Loss, now: float) -> None:
        if self._core.is_over:
            return
        role, ident = split_name(loss.name)
        if role == "worker":
            self._carry_out(self._core.lose_worker(str(ident), loss.reason, is_death=not loss.is_explained))
        else:
            self._core.lose_server(ident)
            self._announce(Announce("ps", f"{loss.name} lost: {loss.reason}."))
        if self._core.failure is not None:  # that is what the job ends of: nothing starts any more
            return
        if loss.replacement:
            self._announce(Announce(role, self._replacement_text(loss)))
            if role == "worker":
                self._await(loss.replacement, now)
        if loss.failure:
            self._carry_out(self._core.fail(loss.failure))

    def _await(self, replacement: str, now: float) -> None:
        """A worker was lost: note since when its place is empty."""
        if self._config.warm_spares:
            self._spare_awaited_s = now
        else:
            self._awaited[replacement] = now

    def _replacement_text(self, loss: Loss) -> str:
        when = f" in {loss.delay_s:.0f}s" if loss.delay_s >= 1 else ""
        if loss.replacement == loss.name:
            return f"{loss.name} starts again{when}; requests to it wait."
        if self._config.warm_spares:
            return f"a spare takes over; {loss.replacement} starts as the next one{when}."
        left = f"{len(self._core.crew.workers)} of {self._fleet.target} workers"
        return f"{loss.replacement} starts in its place{when}.  {left} {self._work} meanwhile."

    @property
    def _work(self) -> str:
        plan = self._core.plan
        return "training" if plan.is_training else "predicting" if plan.predicts else "evaluating"

    def _tell_first_steps(self, status: WorkerStatus, now: float) -> None:
        """Say when a worker that was waited for has begun to train, or to do what a job without training does."""
        name, plan = f"worker-{status.worker}", self._core.plan
        has_begun = bool(status.steps if plan.is_training else status.evaluated)
        if not has_begun or name in self._stepping:
            return
        self._stepping.add(name)
        self._fleet.note_ready(name)
        lost_s, spare_s = self._awaited.pop(name, None), self._spare_awaited_s
        self._spare_awaited_s = None
        if lost_s is not None:
            self._announce(Announce("worker", f"{name} {self._work} after {now - lost_s:.1f}s."))
        elif spare_s is not None:
            self._announce(Announce("worker", f"{name} has taken over after {now - spare_s:.1f}s."))

    # -- carrying out

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Reply(to, body):
                    self._server.reply(to, body)
                case Entry(fields, added):
                    try:
                        self._write_journal(self._with_final_status(fields), added)
                    except TermLost as error:
                        self._yield_to_younger(error)
                        return
                case Announce():
                    self._announce(instruction)
                case TakeDigest():
                    self._stop_reading()
                    self._reading = self._start(self._digest(instruction), "digest")
                case WriteManifest():
                    self._start(self._write_manifest(instruction), "manifest")
                case DropParts(version):
                    self._start(self._drop_parts(version), "drop parts")
                case PublishPredictions():
                    self._start(self._publish(instruction), "predictions")
                case DropCheckpoint(version):
                    self._start(self._drop_checkpoint(version), "drop checkpoint")
                case Retire(worker, reason, is_unreachable):
                    self._give_up(f"worker-{worker}", reason, is_unreachable=is_unreachable)
                    self._carry_out(
                        self._core.lose_worker(worker, reason)
                    )  # also one that nobody here started
                case RetireServer(index, reason, is_unreachable):
                    if self._is_supervised:  # else it is up to whoever has started it
                        self._give_up(f"ps-{index}", reason, is_unreachable=is_unreachable)
                case Exit(reason, code):
                    logger.info("master ends: %s", reason)
                    self._stop.set(code, reason)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        assert self._tasks is not None
        return self._tasks.create_task(work, name=name)

    def _give_up(self, name: str, reason: str, *, is_unreachable: bool) -> None:
        loss = self._fleet.retire(name, reason, self._clock(), is_unreachable=is_unreachable)
        self._on_fleet([loss] if loss else [], self._clock())

    def _with_final_status(self, fields: dict[str, object]) -> dict[str, object]:
        """Return journal entries; with that which completes the job goes how it looks then, for good."""
        if not fields.get("is_complete"):
            return fields
        return fields | {"final": self._progress.status(0, self._clock())}

    def _write_journal(self, fields: dict[str, object], added: dict[str, Added] | None = None) -> None:
        before_s, events = self._journal.waited_s, self._progress.events.to_keep
        fields = fields if events is None else fields | {"events": events}
        self._journal.write(self._core.term, fields, added)
        if events is not None:
            self._progress.events.on_kept(events, self._clock())
        waited_s = self._journal.waited_s - before_s
        if waited_s:
            self._progress.on_pause(waited_s)
            text = f"the disk of {self._folder} was full: the job has waited {waited_s:.0f}s for room."
            self._announce(Announce("job", text))

    def _keep_events(self, now: float) -> None:
        """Let the next master know what has happened; a disk that is full costs no more than that."""
        events = self._progress.events.due(now)
        if events is None:
            return
        try:
            self._journal.write(self._core.term, {"events": events}, patience_s=0)
        except DiskFull:
            self._progress.events.put_off(now)
        except TermLost as error:
            self._yield_to_younger(error)
        else:
            self._progress.events.on_kept(events, now)

    def _yield_to_younger(self, error: TermLost) -> None:
        """Another master has begun: nothing may be said any more."""
        logger.error("master ends: %s", error)
        self._is_outdated = True
        self._stop.set(error.exit_code, str(error))

    def _announce(self, announce: Announce) -> None:
        if announce.kind != "failed":  # that is the last line, with all there is to say
            logger.log(announce.level, "%s", announce.text, extra=INCIDENT)
        if announce.level >= logging.INFO:
            self._progress.add_event(announce.kind, announce.text, self._clock())

    async def _digest(self, asked: TakeDigest) -> None:
        server = "master" if self._hosted else "ps"
        run = self._core.job.run
        digest = await take_digest(asked.partitions, security=self._security, server=server, run=run)
        self._carry_out(self._core.on_digest(asked.lives, digest))

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _write_manifest(self, order: WriteManifest) -> None:
        """Make a checkpoint valid, and let go of those that are not kept."""
        error = ""
        try:
            await asyncio.to_thread(self._complete_checkpoint, order)
        except (OSError, DataError) as raised:
            error = str(raised)
        self._carry_out(self._core.on_manifest(order.version, error))

    async def _publish(self, order: PublishPredictions) -> None:
        """Make the predictions whole, or learn which files are not there."""
        missing, failure = await asyncio.to_thread(publish_predictions, self._config, self._core.job, order)
        self._carry_out(self._core.on_published(missing, failure))

    async def _drop_parts(self, version: int) -> None:
        folder = self._config.checkpoint_directory
        try:
            await asyncio.to_thread(remove_unfinished, folder, version)
        except OSError as error:
            logger.warning("parts of version %d in %s could not be removed: %s", version, folder, error)

    async def _drop_checkpoint(self, version: int) -> None:
        folder = self._config.checkpoint_directory
        if version in self._begun_from():
            return
        try:
            await asyncio.to_thread(remove_version, folder, version, self._core.job.name)
        except OSError as error:
            logger.warning("version %d in %s could not be removed: %s", version, folder, error)

    def _complete_checkpoint(self, order: WriteManifest) -> None:
        core, folder = self._core, self._config.checkpoint_directory
        done = len(core.queue.done)
        write_manifest(
            folder,
            order.version,
            order.parts,
            job=core.job.name,
            run=core.job.run,
            mode=core.plan.mode,
            number=order.number,
            epoch=min(core.plan.epochs, 1 + done // max(1, core.plan.tasks_per_epoch)),
            minibatches=self._progress.minibatches,
            tag=f"master-{core.term}",
            run_number=core.job.run_number,
            ends=order.ends,
            settings=self._config.model_settings(),
        )
        needed = (*order.needed, *self._begun_from())
        try:
            prune(folder, self._config.keep_checkpoint_max, needed=needed, finished=order.version)
        except OSError as error:
            logger.warning("old checkpoints in %s could not be removed: %s", folder, error)

    def _begun_from(self) -> tuple[int, ...]:
        """Return the version that the run began from, if it lies in the folder of its own checkpoints."""
        begins_from = self._core.job.begins_from
        if not begins_from:
            return ()
        version, place = version_of(Path(begins_from)), Path(begins_from).parent
        is_here = place.resolve() == self._config.checkpoint_directory.resolve()
        return (version,) if version is not None and is_here else ()


def _failure_text(job: str, failure: FailureView) -> str:
    rows = (("data", failure.data), ("code", failure.where), ("raised", failure.error))
    lines = [f'job "{job}" failed: {failure.text}', *(f"  {name}  {value}" for name, value in rows if value)]
    return "\n".join([*lines, failure.traceback.rstrip()]).rstrip()
