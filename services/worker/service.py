"""The shell of a worker: sockets in the event loop, what it computes in a thread of its own, the core between them."""

import asyncio
import faulthandler
import logging
import secrets
import time

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError, LocalProtocolError
from edlz.services.process.contact import Contact
from edlz.services.process.runtime import Stop, when_failed
from edlz.services.process.shell import Instructions, Shell
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import WorkerOrders
from edlz.services.transport.rpc import RpcClient
from edlz.services.transport.security import Security
from edlz.services.worker.computing import Computing
from edlz.services.worker.connections import Connections
from edlz.services.worker.core.computation import MakeEngine
from edlz.services.worker.core.groups import instructions as members
from edlz.services.worker.core.inputs import Answered, Input, OfGroup, Ordered, Tick
from edlz.services.worker.core.instructions import (
    AskMaster,
    AskPartition,
    Begin,
    Build,
    Cancel,
    Compute,
    Conclude,
    Drop,
    Evaluate,
    Exit,
    ExportModel,
    FindEvaluationIds,
    FindIds,
    Instruction,
    SendInitialise,
)
from edlz.services.worker.core.worker import WorkerCore
from edlz.services.worker.engine.user_code.user_code import without_exit
from edlz.services.worker.membership import Membership

__all__ = ["WorkerService"]

TICK_S = 0.05

logger = logging.getLogger(__name__)


class WorkerService(Shell[Input, Instruction]):
    """One life of a worker.

    Parameters
    ----------
    config : JobConfig
        This process's own flags; the job's come from the master.
    stop : Stop
        Set when the core says that it is over.
    make_engine : MakeEngine
        Makes what computes.
    """

    carries = Instructions["WorkerService"]()

    def __init__(self, config: JobConfig, stop: Stop, make_engine: MakeEngine) -> None:
        super().__init__(stop)
        self._config = config
        self._computing = Computing(config, make_engine, stop, self.feed, self.fail)
        self._meter = self._computing.meter
        self._core = WorkerCore(
            str(config.worker_id),
            secrets.randbits(62),
            self._meter.telemetry,
            lambda: self._computing.pace.told(time.monotonic()),
        )
        security = Security.of(config, "worker")
        self._master = RpcClient(
            config.master_endpoint, role="worker", identity=str(config.worker_id), security=security
        )
        self._contact = Contact(config.master_endpoint, config.orphan_secs)
        self._connections = Connections(config, security, self.fail)
        self._security = security
        self._membership: Membership | None = None  # in an all-reduce job
        when_failed(self._master.failed, self.fail)

    async def run(self) -> int:
        """Work until the job is over or the master says stop; return the exit code."""
        logger.info("Starting worker: %d, master=%s", self._config.worker_id, self._config.master_endpoint)
        try:
            while not self._stop.is_set:
                self.feed(Tick())
                if error := self._contact.on_tick(asyncio.get_running_loop().time()):
                    self.fail(error)
                await asyncio.sleep(TICK_S)
        finally:
            await self._close()
        self.raise_failure()
        return self._stop.code

    async def _close(self) -> None:
        try:
            await self._computing.close()
        finally:
            if self._membership is not None:
                self._membership.close()
            self._connections.close()
            self._master.close()

    # -- the core

    def decide(self, event: Input) -> list[Instruction]:
        if self._stop.is_set:
            return []
        began = time.perf_counter()
        out = self._core.feed(event, asyncio.get_running_loop().time())
        if isinstance(event, OfGroup):
            self._meter.note_sum(time.perf_counter() - began)
        return out

    def fail(self, error: BaseException) -> None:
        if (told := without_exit(error)) is not error:
            self._computing.on_fatal(told)
            return
        super().fail(error)

    @carries.out(Exit)
    def _exit(self, instruction: Exit) -> None:
        logger.info("worker=%s ends: %s", self._core.worker, instruction.reason)
        self._stop.set(instruction.code, instruction.reason)

    # -- messages

    @carries.out(AskMaster)
    def _ask_master(self, instruction: AskMaster) -> None:
        status = instruction.body

        def on_answer(answer: Message | EdlzError) -> None:
            self._contact.on_heard()
            if isinstance(answer, WorkerOrders):
                if answer.dump:
                    _dump_stacks()
                self._meter.reset(status.telemetry)
                self.feed(Ordered(answer))
            elif isinstance(answer, EdlzError):
                self.fail(answer)
            else:
                kind = type(answer).__name__
                self.fail(LocalProtocolError(f"the master answered a status with {kind}"))

        self._master.send(status, on_answer)

    @carries.out(AskPartition)
    def _ask_partition(self, instruction: AskPartition) -> None:
        index, key = instruction.index, instruction.key
        line = self._connections.to(index, instruction.endpoint)
        began = time.perf_counter()
        line.send(instruction.body, lambda answer: self.feed(Answered(index, key, answer)))
        self._meter.push_s += time.perf_counter() - began

    @carries.out(Cancel)
    def _cancel(self, instruction: Cancel) -> None:
        self._connections.hang_up(instruction.index)

    @carries.out(SendInitialise)
    def _send_initialise(self, instruction: SendInitialise) -> None:
        body = self._computing.initial_values(instruction)
        self._ask_partition(AskPartition(instruction.index, instruction.endpoint, instruction.key, body))

    # -- what is computed

    @carries.out(Build)
    def _build(self, instruction: Build) -> None:
        self._connections.server_role = "master" if self._core.settings.hosts_partition else "ps"
        if self._core.settings.is_allreduce:
            about = (self._config, instruction.job, self._security, self._computing)
            self._membership = Membership(*about, lambda event: self.feed(OfGroup(event)), self.fail)
            self._computing.endpoint = self._membership.endpoint
            self._computing.sees_job_dir = self._membership.sees_job_dir
            self._meter.traffic = lambda: self._member.traffic
        self._computing.build(instruction)

    @carries.out(Begin)
    def _begin(self, instruction: Begin) -> None:
        self._computing.begin(instruction)

    @carries.out(Drop)
    def _drop(self, instruction: Drop) -> None:
        self._computing.drop(instruction)

    @carries.out(FindIds)
    def _find_ids(self, instruction: FindIds) -> None:
        self._computing.find_ids(instruction)

    @carries.out(Compute)
    def _compute(self, instruction: Compute) -> None:
        self._computing.compute(instruction)

    @carries.out(FindEvaluationIds)
    def _find_evaluation_ids(self, instruction: FindEvaluationIds) -> None:
        self._computing.tasks.find_ids(instruction)

    @carries.out(Evaluate)
    def _evaluate(self, instruction: Evaluate) -> None:
        self._computing.tasks.evaluate(instruction)

    @carries.out(Conclude)
    def _conclude(self, instruction: Conclude) -> None:
        self._computing.tasks.conclude(instruction)

    @carries.out(ExportModel)
    def _export(self, instruction: ExportModel) -> None:
        self._computing.tasks.export(instruction)

    # -- as a member of a group

    @property
    def _member(self) -> Membership:
        assert self._membership is not None, "the job has no groups"
        return self._membership

    @carries.out(members.AskMember)
    def _ask_member(self, instruction: members.AskMember) -> None:
        began = time.perf_counter()
        self._member.ask(instruction)
        self._meter.note_send(time.perf_counter() - began)

    @carries.out(members.StageOwn)
    def _stage_own(self, instruction: members.StageOwn) -> None:
        self._member.stage(instruction)

    @carries.out(members.Reply)
    def _reply_to_member(self, instruction: members.Reply) -> None:
        self._member.reply(instruction)

    @carries.out(members.Compute)
    def _compute_block(self, instruction: members.Compute) -> None:
        self._member.compute(instruction, self._core.replica)

    @carries.out(members.Advance)
    def _advance(self, instruction: members.Advance) -> None:
        self._member.advance(instruction)

    @carries.out(members.Proceed)
    def _proceed(self, instruction: members.Proceed) -> None:
        self._member.proceed(instruction)

    @carries.out(members.Abandon)
    def _abandon(self, _: members.Abandon) -> None:
        self._member.abandon()

    @carries.out(members.DigestState)
    def _digest_state(self, instruction: members.DigestState) -> None:
        self._member.digest(instruction)

    @carries.out(members.AssembleState)
    def _assemble_state(self, instruction: members.AssembleState) -> None:
        self._member.assemble(instruction)

    @carries.out(members.Load)
    def _load(self, instruction: members.Load) -> None:
        self._member.load(instruction)

    @carries.out(members.WritePart)
    def _write_part(self, instruction: members.WritePart) -> None:
        self._member.write(instruction)


def _dump_stacks() -> None:
    logger.warning("this worker makes no progress and is given up; its threads are here:")
    faulthandler.dump_traceback(all_threads=True)
