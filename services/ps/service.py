"""The shell of a partition: sockets, threads and files around its core.

It runs as a process of its own (`python -m edlz.services.ps`) or inside the master's, which then routes the
requests of workers to it.
"""

import asyncio
import logging
import resource
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Protocol

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, EdlzError
from edlz.services.process.contact import Contact
from edlz.services.process.runtime import EventQueue, Stop, when_failed
from edlz.services.process.shell import Instructions, Shell
from edlz.services.protocol.buckets import DURATIONS_S, Buckets
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    ErrorReply,
    Exchange,
    Identity,
    Initialise,
    NewestPull,
    OperationTelemetry,
    PartInfo,
    PartitionTelemetry,
    ReadTables,
    ReadVector,
    Refused,
)
from edlz.services.ps.core.heartbeat import HEARTBEAT_S
from edlz.services.ps.core.inputs import (
    Answered,
    Input,
    LeaveWanted,
    NoRoom,
    PartFailed,
    PartWritten,
    Request,
    SnapshotOver,
    Tick,
    Written,
)
from edlz.services.ps.core.instructions import Drop, Exit, Instruction, Link, Reply, Report, Warn, Write
from edlz.services.ps.core.partition import Partition
from edlz.services.storage.checkpoint_writing import write_part
from edlz.services.storage.durable import NO_ROOM
from edlz.services.storage.snapshots import SnapshotFolder
from edlz.services.transport.rpc import RpcClient, RpcServer
from edlz.services.transport.security import Security
from edlz.services.transport.traffic import Traffic

__all__ = ["Answering", "PartitionService", "serve_partition"]

LONG_KERNEL_BYTES = 4 << 20  # above this a kernel holds the loop for more than about a millisecond
FULL_S = 300.0  # a disk that stays full ends the job: it holds its machines no longer
_OPERATIONS: dict[type[Message], str] = {
    Exchange: "exchange",
    Initialise: "initialise",
    NewestPull: "newest",
    ReadVector: "read_vector",
    ReadTables: "read_tables",
}
ROW_BYTES = 128  # what a row of an embedding table counts for

logger = logging.getLogger(__name__)


async def serve_partition(
    config: JobConfig, stop: Stop, attend: Callable[["PartitionService"], None] = lambda service: None
) -> int:
    """Serve one partition in this process until the master says that the job is over; return the exit code.

    Parameters
    ----------
    attend : callable, optional
        Given the service before it begins.
    """
    name, security = f"ps-{config.ps_id}", Security.of(config, "ps")
    at, folder = config.listen_endpoint, Path(config.job_dir) if config.job_dir else None
    with ExitStack() as opened:  # closed from the last to the first
        server = RpcServer(at, lambda to, body: None, role=name, job=config.job_name, security=security)
        opened.callback(server.close)
        master = RpcClient(config.master_endpoint, role="ps", identity=str(config.ps_id), security=security)
        opened.callback(master.close)
        service = PartitionService(
            config.ps_id,
            config.reachable_at(server.endpoint),
            server,
            master,
            folder,
            stop,
            Contact(config.master_endpoint, config.orphan_secs),
            server.traffic,
        )
        opened.callback(service.close)
        server.handler = service.on_request
        when_failed(server.failed, service.fail)
        attend(service)
        await service.run()
    return stop.code


class Answering(Protocol):
    """The server whose requests this partition answers."""

    def reply(self, to: Hashable, body: Message) -> None: ...


class PartitionService(Shell[Input, Instruction]):
    """One partition: its core, its disk, its line to the master.

    Parameters
    ----------
    index : int
        Which partition.
    endpoint : str
        Where workers reach it, as told to the master.
    server : Answering
        Sends its answers; whoever owns the server hands requests to `on_request`.
    master : RpcClient
        The line to the master.
    job_folder : Path, optional
        Where snapshots go; see SnapshotFolder.
    stop : Stop
        Set when the core says that it is over.
    contact : Contact, optional
        Ends it when the master is gone for good.
    traffic : Traffic, optional
        Of its server, if that is its own.
    """

    carries = Instructions["PartitionService"]()

    def __init__(
        self,
        index: int,
        endpoint: str,
        server: Answering,
        master: RpcClient,
        job_folder: Path | None,
        stop: Stop,
        contact: Contact | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        super().__init__(stop)
        self._loop = asyncio.get_running_loop()
        self._cpu_seen = (time.monotonic(), 0.0)
        self._snapshots = SnapshotFolder(index, job_folder)
        self._core = Partition(index, secrets.randbits(62), endpoint, self._snapshots, self._telemetry)
        self._server, self._master = server, master
        self._contact = contact
        self._kernels = ThreadPoolExecutor(1, thread_name_prefix="kernel")
        self._writes = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._events = EventQueue(self._kernels, self.fail)
        self._status_request: tuple[int, float, bool] | None = (
            None  # under way, since when, if it may be held
        )
        self._waiting: Report | None = None  # to be sent when that is answered
        # How long requests took, by kind, one at a time being worked on; and those that no status has told of yet.
        self._times: defaultdict[type[Message], Buckets] = defaultdict(lambda: Buckets(DURATIONS_S))
        self._new_times_s: defaultdict[type[Message], list[float]] = defaultdict(list)
        self._rejected: Counter[str] = Counter()
        self._traffic = traffic
        # The era in which the base, or the seal, does not fit on the disk, and since when.
        self._full_since: tuple[Identity, float] | None = None
        when_failed(master.failed, self.fail)

    async def run(self) -> None:
        """Tick until stopped; a bug in here is raised, so that the process ends."""
        while not self._stop.is_set:
            self.feed(Tick())
            if self._contact and (error := self._contact.on_tick(self._loop.time())):
                self.fail(error)
            await asyncio.sleep(self._core.tick_s)
        self.raise_failure()

    def leave(self, grace_s: float) -> None:
        """Told to end: go within so many seconds, with what this partition has saved if that can be."""
        self.feed(LeaveWanted(grace_s))

    def close(self) -> None:
        """Finish the write that is under way and end the threads."""
        self._kernels.shutdown(wait=True)
        self._writes.shutdown(wait=True)

    # -- inputs

    def decide(self, event: Input) -> list[Instruction]:
        return self._core.feed(event, self._loop.time())

    def feed(self, event: Input) -> None:
        """Give the core an input when it is done with those before."""
        self._events.put(lambda: self.decide(event), self.carry_out)

    def on_request(self, to: Hashable, body: Message) -> None:
        """A worker's or the master's request, from the server; most are answered at once, none after an error."""
        if self._error is not None:
            return
        request, events, is_long = Request(to, body), self._events, _tensor_bytes(body) > LONG_KERNEL_BYTES
        if is_long or events.is_busy:
            events.put(
                lambda: self._outcome(request),
                lambda outcome: self._answer(request, outcome),
                is_long=is_long,
            )
            return
        events.is_busy, began_s = True, perf_counter()
        try:  # no more calls than must be: most requests take this way
            try:
                instructions = self._core.feed(request, self._loop.time())
            except EdlzError as error:
                self._answer(request, error)
            else:
                methods = self.carries.methods
                for instruction in instructions:
                    methods[type(instruction)](self, instruction)
        except Exception as error:
            self.fail(error)
        finally:
            self._new_times_s[type(body)].append(perf_counter() - began_s)
            events.end()

    def _outcome(self, request: Request) -> list[Instruction] | EdlzError:
        began_s = perf_counter()
        try:
            return self.decide(request)
        except EdlzError as error:
            return error
        finally:
            self._new_times_s[type(request.body)].append(perf_counter() - began_s)

    def _answer(self, request: Request, outcome: list[Instruction] | EdlzError) -> None:
        if isinstance(outcome, EdlzError):
            logger.warning("request %s refused: %s", type(request.body).__name__, outcome)
            refusal = ErrorReply(code=outcome.code, message=outcome.message, help=outcome.help)
            self._server.reply(request.to, refusal)
        else:
            self.carry_out(outcome)

    # -- carrying out

    @carries.out(Reply)
    def _reply(self, reply: Reply) -> None:
        if isinstance(reply.body, Refused):
            self._rejected[reply.body.reason] += 1
        self._server.reply(reply.to, reply.body)

    @carries.out(Link)
    def _link(self, link: Link) -> None:
        self._disk(lambda: self._snapshots.link(link.name, self._incarnation))

    @carries.out(Drop)
    def _drop(self, drop: Drop) -> None:
        self._disk(lambda: self._snapshots.drop(drop.name, self._incarnation))

    @carries.out(Warn)
    def _warn(self, warning: Warn) -> None:
        logger.warning("ps=%d: %s", self._core.index, warning.text)

    @carries.out(Exit)
    def _exit(self, instruction: Exit) -> None:
        logger.info("ps=%d ends: %s", self._core.index, instruction.reason)
        self._stop.set(instruction.code, instruction.reason)

    @property
    def _incarnation(self) -> tuple[int, int]:
        assert self._core.incarnation is not None
        return self._core.incarnation

    @carries.out(Report)
    def _report(self, report: Report) -> None:
        status = report.body
        if self._status_request is not None:
            request, since, can_wait = self._status_request
            is_near = self._loop.time() - since < HEARTBEAT_S and not can_wait
            if is_near:  # the newest one follows its answer
                self._waiting = report
                return
            self._master.cancel(request)

        def on_answer(answer: Message | EdlzError) -> None:
            self._status_request = None
            if self._contact:
                self._contact.on_heard()
            if isinstance(answer, EdlzError):
                self.fail(answer)
                return
            self.feed(Answered(status, answer))
            waiting, self._waiting = self._waiting, None
            if waiting is not None and self._status_request is None:
                self._report(waiting)

        self._status_request = (self._master.send(status, on_answer), self._loop.time(), status.can_wait)

    @carries.out(Write)
    def _write(self, write: Write) -> None:
        if write.kind == "checkpoint":
            self._write_part(write)
            return
        life = None if write.kind == "base" else self._incarnation
        prepared = self._loop.run_in_executor(self._writes, self._snapshots.prepare, write.state, life)
        prepared.add_done_callback(lambda done: self._publish(write, done))

    def _write_part(self, write: Write) -> None:
        job = self._core.job
        assert job is not None
        folder = JobConfig.from_record(job.config).checkpoint_directory
        tag = f"{self._core.boot:x}"

        def work() -> PartInfo | None:
            return write_part(
                folder, write.state, version=write.version, number=write.number, run=job.run, tag=tag
            )

        def finish(done: "asyncio.Future[PartInfo | None]") -> None:
            try:
                info = done.result()
            except OSError as error:
                reason = f"{folder}: {error.strerror or error}"
                self.feed(PartFailed(write, reason))
            except Exception as error:
                self.fail(error)
            else:
                taken = PartFailed(write, "a later checkpoint has taken its place")
                self.feed(taken if info is None else PartWritten(write, info))

        self._loop.run_in_executor(self._writes, work).add_done_callback(finish)

    def _publish(self, write: Write, done: "asyncio.Future[tuple[Path, Path]]") -> None:
        try:
            files = done.result()
            if not self._core.is_wanted(write):
                self._full_since = None  # nobody tries to write that any more
                self._snapshots.discard(*files)
                if write.kind == "snapshot":
                    self.feed(SnapshotOver())
                return
            self._snapshots.publish(*files)
        except OSError as error:
            self._on_write_error(write, error)
            return
        except Exception as error:
            self.fail(error)
            return
        self._full_since = None
        logger.debug("ps=%d wrote %s v%d", self._core.index, write.kind, write.state.version)
        self.feed(Written(write))

    def _on_write_error(self, write: Write, error: OSError) -> None:
        """A recovery snapshot may fail (the next one is due soon); base and seal wait for room on a full disk."""
        what = f"cannot write the {write.kind} of ps-{self._core.index} to {self._snapshots.place}"
        what += f": {error.strerror or error}"
        if write.kind == "snapshot":
            logger.warning("%s; training goes on, the snapshot before stays", what)
            self.feed(SnapshotOver())
            return
        is_full, now = error.errno in NO_ROOM, self._loop.time()
        if self._full_since is None or self._full_since[0] != write.state.era:
            self._full_since = write.state.era, now
        if is_full and now - self._full_since[1] < FULL_S:
            logger.warning("%s; it is tried again until there is room", what)
            self.feed(NoRoom(write))
            return
        self.fail(ConfigError(what, "make room on the disk" if is_full else "set --job_dir elsewhere"))

    def _disk(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            logger.warning("ps=%d: a snapshot could not be linked or removed: %s", self._core.index, error)

    def _telemetry(self) -> PartitionTelemetry:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        now, cpu_s = time.monotonic(), usage.ru_utime + usage.ru_stime
        since, before = self._cpu_seen
        self._cpu_seen = (now, cpu_s)
        for kind, times_s in self._new_times_s.items():
            self._times[kind].note_all(times_s)
        self._new_times_s.clear()
        store, exchanges, traffic = self._core.store, self._core.exchanges, self._traffic
        return PartitionTelemetry(
            memory_bytes=store.memory_bytes if store else 0,
            cpu_share=(cpu_s - before) / max(now - since, 1e-3),
            requests=sum(sum(times.counts) for times in self._times.values()),
            tables=store.tables.telemetry() if store else (),
            duplicates=exchanges.duplicates if exchanges else 0,
            rejected=tuple(self._rejected.items()),
            staleness=tuple(exchanges.staleness.counts) if exchanges and not self._core.plan.is_sync else (),
            staleness_sum=exchanges.staleness.total if exchanges else 0.0,
            operations=tuple(
                OperationTelemetry(
                    name=_OPERATIONS.get(kind, "other"), seconds=times.total, counts=tuple(times.counts)
                )
                for kind, times in self._times.items()
            ),
            bytes_in=traffic.bytes_in if traffic else 0,
            bytes_out=traffic.bytes_out if traffic else 0,
        )


def _tensor_bytes(body: Message) -> int:
    """How much a request makes the kernels move, as if it were all dense."""
    if isinstance(body, Exchange):
        push, pull = body.push, body.pull
        size = 0
        if push is not None:
            if push.gradient is not None:
                size = push.gradient.nbytes
            if push.rows is not None:
                size += push.rows.ids.size * ROW_BYTES
        if pull is not None and pull.rows is not None:
            size += pull.rows.ids.size * ROW_BYTES
        return size
    if isinstance(body, NewestPull) and body.rows is not None:
        return body.rows.ids.size * ROW_BYTES
    if isinstance(body, ReadTables):
        return LONG_KERNEL_BYTES + 1  # all rows are read
    if isinstance(body, Initialise) and body.dense is not None:
        return int(body.dense.nbytes)
    return 0
