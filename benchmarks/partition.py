"""A real parameter server process, with this process as its master and its only worker."""

import asyncio
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import uvloop
import zmq

from benchmarks.processes import cpu_s, start
from edlz.core_ext.memory import aligned_zeros
from edlz.core_ext.optimizers import make_optimizer
from edlz.services.configuration.job_config import JobConfig
from edlz.services.parameters.store import initial_digest
from edlz.services.protocol.layout import Layout, Variable, VectorLayout
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    ANY_VERSION,
    NO_IDENTITY,
    Exchange,
    Exchanged,
    Granted,
    Initialise,
    InitializerSpec,
    Job,
    OptimizerSpec,
    PartitionOrders,
    PartitionStatus,
    Pull,
    Push,
    Refused,
    RowIds,
    TableSpec,
)
from edlz.services.protocol.plan import Plan, Shard
from edlz.services.transport.codec import Buffer, Codec
from edlz.services.transport.loop_socket import process_context
from edlz.services.transport.rpc import ReplyTo, RpcClient, RpcServer

__all__ = ["Partition", "adagrad_table"]

IDENTITY: Final = (1, 1)
RUN: Final = "benchmark"
MOST_RECORDS: Final = 1 << 30  # one task, whose minibatches never run out; int32 counts them
START_S, ANSWER_MS = 30.0, 60_000
SHARE_BYTES: Final = 64 << 10  # from here on sharing a frame with ZeroMQ is cheaper than copying it
RETRY_S: Final = 0.02
LEARNING_RATE: Final = 0.01


def adagrad_table(dim: int) -> TableSpec:
    """Return an embedding table that Adagrad trains."""
    initializer = InitializerSpec(kind="uniform", a=-0.05, b=0.05)
    return TableSpec(path="embedding", dim=dim, initializer=initializer, optimizer=_optimizer("Adagrad"))


class Partition:
    """Partition 0 of 1 of an asynchronous job, served by `python -m edlz.services.ps`.

    Parameters
    ----------
    folder : Path
        For the partition's files and sockets; its path must be short.
    dense : int
        Number of dense parameters.
    tables : tuple of TableSpec
    processors : set of int
        Where the process may run.
    settings : str, float, ...
        The job's settings that matter, as JobConfig names them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        dense: int = 16,
        tables: tuple[TableSpec, ...] = (),
        processors: Iterable[int] = (1,),
        **settings: Any,
    ) -> None:
        self._folder, self._dense, self._tables = folder, dense, tables
        self._job = _job(settings)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._processors = tuple(processors)
        self._gradient = aligned_zeros(dense, np.float32)
        self._master: RpcServer | None = None
        self._line: RpcClient | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._codec = Codec("answers")
        self._mark = 0  # minibatches pushed
        self._version = ANY_VERSION

    def __enter__(self) -> Self:
        endpoint = f"ipc://{self._folder}/p"
        master = f"ipc://{self._folder}/m"
        flags = [
            f"--endpoint={endpoint}",
            f"--master_addr={master}",
            f"--job_dir={self._folder}",
            "--ps_id=0",
        ]
        self.process: subprocess.Popen[bytes] = start(
            self._folder / "ps.log", ["edlz.services.ps", *flags], self._processors
        )
        try:
            self._runner.run(self._connect(master, endpoint))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._socket is not None:
            self._socket.close(0)
        self._runner.run(self._disconnect())
        self._runner.close()

    # -- messages

    def pull_rows(self, *ids: npt.NDArray[np.int64]) -> Exchange:
        """Return a pull of rows, for each table its ids, without the dense values."""
        return self._exchange(pull=Pull(task=0, have_version=self._version, rows=_row_ids(ids)))

    def pull_dense(self) -> Exchange:
        return self._exchange(pull=Pull(task=0, have_version=ANY_VERSION))

    def push(
        self, rows: RowIds | None = None, row_gradients: npt.NDArray[np.float32] | None = None
    ) -> Exchange:
        """Return the push of the next minibatch, which has to be sent; its dense gradient is zeros."""
        self._mark += 1
        return self._exchange(
            push=Push(
                task=0,
                index=self._mark - 1,
                is_last=False,
                learning_rate=LEARNING_RATE,
                gradient=self._gradient,
                state=None,
                counters=None,
                rows=rows,
                row_gradients=row_gradients,
            )
        )

    def push_rows(self, ids: npt.NDArray[np.int64], gradients: npt.NDArray[np.float32]) -> Exchange:
        """Return a push for the first table; see `push`."""
        return self.push(_row_ids((ids,)), gradients.reshape(-1))

    def _exchange(self, **parts: Any) -> Exchange:
        return Exchange(
            era=NO_IDENTITY, incarnation=IDENTITY, version=max(self._version, 0), run=RUN, **parts
        )

    # -- asking

    @property
    def cpu_s(self) -> float:
        """The CPU time that the process has taken so far, in seconds."""
        return cpu_s(self.process.pid)

    def ask(self, bodies: Iterable[Exchange], window: int) -> Exchanged:
        """Send requests, `window` of them under way at once, and return the last answer.

        It takes the socket itself: what is measured should not wait for a client's event loop.
        """
        self._runner.run(asyncio.sleep(0))  # the master's answers to statuses that came meanwhile
        socket, count = self._connected, 0
        for count, body in enumerate(bodies, 1):
            if count > window:
                self._receive()
            for frame, flag in _with_more(self._codec.encode(body, count)):
                socket.send(frame, flag, copy=len(frame) < SHARE_BYTES)
        for _ in range(min(window, count)):
            answer = self._receive()
        self._version = answer.version
        return answer

    @property
    def _connected(self) -> "zmq.Socket[bytes]":
        assert self._socket is not None, "enter the partition's context first"
        return self._socket

    def _receive(self) -> Exchanged:
        frames = [frame.buffer for frame in self._connected.recv_multipart(copy=False)]
        return _exchanged(self._codec.decode(frames)[1])

    # -- beginning

    async def _connect(self, master: str, endpoint: str) -> None:
        self._master = RpcServer(master, self._on_status, role="master", linger_s=0.1)
        self._line = line = RpcClient(endpoint, role="worker", identity="0", linger_s=0.1)
        async with asyncio.timeout(START_S):
            await _once_ready(line, self._initial)
            self._version = _exchanged(await _once_ready(line, self.pull_dense())).version
        self._socket = process_context().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.RCVTIMEO, ANSWER_MS)
        self._socket.connect(endpoint)

    async def _disconnect(self) -> None:
        for side in (self._master, self._line):
            if side is not None:
                side.close()

    def _on_status(self, to: ReplyTo, body: Message) -> None:
        assert self._master is not None
        assert isinstance(body, PartitionStatus), f"a {type(body).__name__} for the master"
        if body.incarnation is None:
            self._master.reply(to, Granted(term=1, incarnation=IDENTITY, job=self._job))
        else:
            self._master.reply(to, PartitionOrders(term=1, number=1, incarnation=IDENTITY))

    @property
    def _initial(self) -> Initialise:
        layout = Layout(dense=VectorLayout(variables=(Variable(path="dense", shape=(self._dense,)),)))
        optimizer = _optimizer("Adagrad")
        values = np.zeros(layout.dense.size, np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64)
        plan_hash = self._job.plan.hash
        return Initialise(
            run=RUN,
            plan_hash=plan_hash,
            digest=initial_digest(plan_hash, layout, optimizer, self._tables, *values),
            layout=layout,
            optimizer=optimizer,
            dense=values[0],
            state=values[1],
            counters=values[2],
            tables=self._tables,
        )


async def _once_ready(line: RpcClient, body: Message) -> Message:
    """Return the answer of a partition, asked again until it is ready to give one."""
    while True:
        answer = await line.request(body, START_S)
        if not isinstance(answer, Refused):
            return answer
        await asyncio.sleep(RETRY_S)


def _job(settings: dict[str, Any]) -> Job:
    plan = Plan(
        mode="async",
        seed=0,
        shards=(Shard(name="records", first=0, count=MOST_RECORDS),),
        records_per_task=MOST_RECORDS,
        minibatch_size=1,
        epochs=1,
        slots=1,
    )
    config = JobConfig(job_name="benchmark", use_async=True, **settings)
    return Job(name="benchmark", run=RUN, config=config.to_record(), plan=plan, partitions=1)


def _optimizer(name: str) -> OptimizerSpec:
    return OptimizerSpec(name=name, settings=make_optimizer(name, {}).settings)


def _row_ids(ids: tuple[npt.NDArray[np.int64], ...]) -> RowIds:
    flat = ids[0] if len(ids) == 1 else np.concatenate(ids)
    return RowIds(counts=tuple(map(len, ids)), ids=flat)


def _with_more(frames: list[Buffer]) -> Iterator[tuple[Buffer, int]]:
    """Yield each frame with the flag that says whether another one follows."""
    for frame in frames[:-1]:
        yield frame, zmq.SNDMORE
    yield frames[-1], 0


def _exchanged(answer: Message) -> Exchanged:
    if not isinstance(answer, Exchanged):
        raise RuntimeError(f"the partition answered {answer}")
    return answer
