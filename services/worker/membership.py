"""What a worker carries out as a member of an all-reduce group: lines to the others, blocks of slots, files of its state."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from edlz.services.configuration.endpoints import parse_endpoint
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, DataError
from edlz.services.parameters.store import Store
from edlz.services.process.shell import Fail
from edlz.services.protocol.messages import Job, PartInfo, Reduce, SnapshotName
from edlz.services.storage.durable import NO_ROOM
from edlz.services.storage.replica_files import ReplicaFiles
from edlz.services.storage.state import State
from edlz.services.transport.security import Security
from edlz.services.worker.block_computing import BlockComputing
from edlz.services.worker.computing import Computing
from edlz.services.worker.core.groups.inputs import (
    Advanced,
    Assembled,
    Digested,
    Input,
    Loaded,
    PartWritten,
    Request,
)
from edlz.services.worker.core.groups.instructions import (
    Advance,
    AskMember,
    AssembleState,
    Compute,
    DigestState,
    Load,
    Proceed,
    Reply,
    StageOwn,
    WritePart,
)
from edlz.services.worker.core.groups.reduction import OWN
from edlz.services.worker.core.groups.state_transfer import copy_of, state_digest
from edlz.services.worker.members import MemberLines

__all__ = ["Membership"]

Result = TypeVar("Result")

LONG_ELEMENTS = 1 << 18  # of a vector: what takes all of them holds the loop for about a millisecond
AGAIN_S = 5.0  # the state that the job ends with is tried again so often
FULL_S = 300.0  # a disk that stays full ends the job

logger = logging.getLogger(__name__)


class Membership:
    """The means of one member, on the running event loop.

    Parameters
    ----------
    config : JobConfig
        This process's own flags.
    job : Job
    security : Security
        A worker's.
    computing : Computing
    feed : callable
        Given what the member's core is told.
    fail : callable
        Ends the worker.

    Attributes
    ----------
    endpoint : str
        Where other members ask this one.
    sees_job_dir : bool
        Whether the job's folder here is the one that the master has.
    """

    def __init__(
        self,
        config: JobConfig,
        job: Job,
        security: Security,
        computing: Computing,
        feed: Callable[[Input], None],
        fail: Fail,
    ) -> None:
        self._computing, self._feed, self._fail = computing, feed, fail
        self._own: deque[Reduce] = deque()  # parts that this member owes itself
        self._lines = MemberLines(
            config.listen_endpoint,
            worker=str(config.worker_id),
            job=job.name,
            security=security,
            feed=feed,
            fail=fail,
        )
        self.endpoint = config.reachable_at(self._lines.endpoint)
        _warn_if_elsewhere(self.endpoint, config.master_endpoint)
        self._files = ReplicaFiles(job)
        self.sees_job_dir = self._files.are_marked
        self._tag = f"worker-{config.worker_id}-{secrets.token_hex(4)}"
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._copy: _Copy | None = None  # of this member's part, as long as its state stays as it is
        # For what would hold the loop for long, one after another: see `_with_state`.
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="state")
        self._under_way = 0
        self._blocks: BlockComputing | None = None
        self._loop = asyncio.get_running_loop()
        self._last: object = None  # the state that the job ends with, while it has to be written
        self._is_closed = False

    def close(self) -> None:
        """Hang up; a part that is being written is given up with the process."""
        self._is_closed = True
        self._lines.close()
        self._disk.shutdown(wait=False, cancel_futures=True)
        self._aside.shutdown(wait=False, cancel_futures=True)

    # -- the others

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes that have come from other members, and gone to them."""
        return self._lines.traffic

    def ask(self, asked: AskMember) -> None:
        self._lines.ask(asked)

    def stage(self, order: StageOwn) -> None:
        """Take in a part of this member's own: one in each turn of the loop."""
        if not self._own:
            self._loop.call_soon(self._stage_next)
        self._own.append(order.part)

    def _stage_next(self) -> None:
        if self._own and not self._is_closed:
            part = self._own.popleft()
            if self._own:
                self._loop.call_soon(self._stage_next)
            self._feed(Request(OWN, part))

    def reply(self, reply: Reply) -> None:
        self._lines.reply(reply)

    def abandon(self) -> None:
        """What is computed and what others were asked is of no use any more."""
        self._last = self._copy = None
        self._own.clear()
        self._lines.abandon()
        if self._blocks is not None:
            self._blocks.abandon()

    # -- the model

    def compute(self, order: Compute, store: Store) -> None:
        self._blocks = self._blocks or self._computing.block_computing(self._feed)
        self._blocks.compute(order, store)

    def proceed(self, order: Proceed) -> None:
        if self._blocks is not None:
            self._blocks.proceed(order)

    # -- its state

    def advance(self, order: Advance) -> None:
        self._copy = None
        self._with_state(order.values.run, lambda _: self._feed(Advanced()), order.values.size)

    def digest(self, order: DigestState) -> None:
        def done(digest: str) -> None:
            self._feed(Digested(order.key, digest))

        self._with_state(lambda: state_digest(order.state), done, len(order.state.dense))

    def assemble(self, order: AssembleState) -> None:
        def done(state: State | None) -> None:
            self._feed(Assembled(order.attempt, state))

        self._with_state(order.incoming.whole, done, order.incoming.size)

    def _with_state(self, work: Callable[[], Result], then: Callable[[Result], None], size: int) -> None:
        """Have something done that reads or changes a state's vectors of this size, after all that was to be done before."""
        if size <= LONG_ELEMENTS and not self._under_way:
            self._loop.call_soon(self._finish, then, work())
            return

        def done(result: Result) -> None:
            self._under_way -= 1
            then(result)

        self._under_way += 1
        self._run(self._aside, work, done)

    # -- the disk

    def load(self, load: Load) -> None:
        def done(state: State | None) -> None:
            self._feed(Loaded(load.name, state))

        self._run(self._disk, lambda: self._read(load.name), done)

    def _read(self, name: SnapshotName) -> State | None:
        try:
            return self._files.load(name)
        except (DataError, OSError) as error:
            logger.warning("v%d cannot be read: %s", name[1], error)
            return None

    def write(self, order: WritePart) -> None:
        # What is kept is not the order: it has the state that is copied.
        wish, about = object(), (order.is_checkpoint, order.is_last)
        if order.is_last:
            self._last = wish
        copy = self._copy
        if copy is None:
            copy = self._copy = _Copy()
            self._with_state(partial(copy_of, order.state), copy.end, len(order.state.dense))
        generation = order.generation
        copy.then(lambda state: self._begin_to_write(wish, WritePart(generation, state, *about)))

    def _begin_to_write(self, wish: object, copied: WritePart) -> None:
        """The state is copied; the last one is written as long as it is the last one."""
        if wish is self._last:
            self._last = copied
        self._try_to_write(copied, self._loop.time())

    def _try_to_write(self, order: WritePart, since_s: float) -> None:
        self._run(
            self._disk,
            lambda: self._write(order),
            lambda written: self._on_written(order, written, since_s),
        )

    def _on_written(self, order: WritePart, written: PartInfo | OSError | None, since_s: float) -> None:
        """A state to go on from may fail (the next one is due soon); the last one waits for room on a full disk."""
        state = order.state
        about = (order.generation, state.name, state.partition, state.partitions, order.is_checkpoint)
        if isinstance(written, PartInfo):
            self._feed(PartWritten(*about, info=written))
            return
        reason = written.strerror or str(written) if written else "a later one has its place"
        what = f"cannot write v{state.version} to {self._files.place(order.is_checkpoint)}: {reason}"
        if not order.is_last:
            if not order.is_checkpoint:
                logger.warning("%s; training goes on, the state before stays", what)
            self._feed(PartWritten(*about, error=reason))
        elif order is self._last:
            self._go_on_with_last(order, written, what, since_s)

    def _go_on_with_last(self, order: WritePart, error: OSError | None, what: str, since_s: float) -> None:
        is_full = error is not None and error.errno in NO_ROOM
        if error is not None and not (is_full and self._loop.time() - since_s < FULL_S):
            helps = "make room on the disk" if is_full else "set --job_dir elsewhere"
            self._computing.on_fatal(ConfigError(what, helps))
            return
        logger.warning("%s; it is tried again", what)
        self._loop.call_later(AGAIN_S, self._try_again, order, since_s)

    def _try_again(self, order: WritePart, since_s: float) -> None:
        if order is self._last:
            self._try_to_write(order, since_s)

    def _write(self, order: WritePart) -> PartInfo | OSError | None:
        try:
            return self._files.write(order.state, self._tag, is_checkpoint=order.is_checkpoint)
        except OSError as error:
            return error

    def _run(
        self, pool: ThreadPoolExecutor, work: Callable[[], Result], then: Callable[[Result], None]
    ) -> None:
        """Have a thread of ours do something, then the loop."""
        if self._is_closed:
            return

        def run() -> None:
            try:
                result = work()
            except BaseException as error:
                self._loop.call_soon_threadsafe(self._fail, error)
            else:
                self._loop.call_soon_threadsafe(self._finish, then, result)

        pool.submit(run)

    def _finish(self, then: Callable[[Result], None], result: Result) -> None:
        if not self._is_closed:
            then(result)


class _Copy:
    """A copy of a part that is under way, or made, for all who write it."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._waiting: list[Callable[[State], None]] = []

    def end(self, state: State) -> None:
        """It is made."""
        self._state = state
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call(state)

    def then(self, call: Callable[[State], None]) -> None:
        """Have somebody given it as soon as it is made."""
        if self._state is None:
            self._waiting.append(call)
        else:
            call(self._state)


def _warn_if_elsewhere(endpoint: str, master: str) -> None:
    """Say that workers of other machines cannot reach this one, if the master is on one of those."""
    if parse_endpoint(master).is_beyond and not parse_endpoint(endpoint).is_beyond:
        logger.warning(
            "this worker listens at %s, where only workers of this machine reach it, but the master is at %s; if there are"
            " workers on other machines start it with --host=HOST",
            *(endpoint, master),
        )
