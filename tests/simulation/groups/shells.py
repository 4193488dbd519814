"""What the master and the members of a whole simulated all-reduce job have their cores' instructions done by.

`GroupJob` has the cores of groups alone; here they lie in a whole master and in whole workers.
"""

import math
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from edlz.services.master.core.vocabulary import instructions as master_core
from edlz.services.master.core.vocabulary.inputs import StateWritten
from edlz.services.parameters.store import Store
from edlz.services.protocol.groups import DurableState, number_of
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import ExportLease, FailedTask, PartInfo, SlotHeader, SnapshotName
from edlz.services.storage.state import State
from edlz.services.worker.core.groups import inputs
from edlz.services.worker.core.groups import instructions as members
from edlz.services.worker.core.groups.node_sums import NodeSums
from edlz.services.worker.core.groups.reduction import OWN
from edlz.services.worker.core.groups.state_transfer import copy_of, state_digest
from edlz.services.worker.core.inputs import ModelBuilt, OfGroup
from tests.simulation.callbacks import callback_needs, loss_of
from tests.simulation.model import compute_gradient, final_bytes, initial_state
from tests.simulation.processes import Process, Violation
from tests.simulation.schedule import raises_at
from tests.simulation.shells import MasterShell, make_manifest
from tests.simulation.worker_shell import WorkerShell

__all__ = ["GroupMasterShell", "MemberShell", "Replicas", "joined", "moments_of"]


@dataclass
class Replicas:
    """What lies on the disk of states that members of a group have."""

    parts: dict[tuple[SnapshotName, int, bool], dict[int, State]] = field(default_factory=dict)
    last: dict[Any, dict[int, State]] = field(default_factory=dict)  # of the finished state, by generation
    whole: dict[SnapshotName, State] = field(default_factory=dict)
    durable: set[DurableState] = field(default_factory=set)  # the same, as a master finds them

    def complete(self, state: State, *, is_checkpoint: bool) -> None:
        """A manifest says that a state is whole."""
        self.whole[state.name] = state
        self.durable.add((state.name, is_checkpoint))


def joined(parts: list[State]) -> State:
    """Return the whole state of all members' parts."""
    first = parts[0]
    for part in parts[1:]:
        if (part.name, part.ledger, list(part.counts)) != (first.name, first.ledger, list(first.counts)):
            raise Violation(f"parts of {first.name} differ: {part.ledger}, {first.ledger}")
    return msgspec.structs.replace(
        first,
        partition=0,
        partitions=1,
        dense=np.concatenate([part.dense for part in parts]),
        state=np.concatenate([part.state for part in parts]),
        slots={name: np.concatenate([part.slots[name] for part in parts]) for name in first.slots},
    )


def moments_of(process: Process) -> list[str]:
    """Return where a member stands, as a moment of its job's life."""
    member = process.core._member
    return [] if member is None else [f"member {member.replica.phase.value}"]


class GroupMasterShell(MasterShell):
    """Of masters: members' parts are what manifests are written of."""

    def _parts_of(self, name: SnapshotName, count: int, *, is_checkpoint: bool) -> State:
        parts = self._job.replicas.parts.get((name, count, is_checkpoint), {})
        if sorted(parts) != list(range(count)):
            raise Violation(f"{name} of {count} was said to be written, but {sorted(parts)} are")
        return joined([parts[rank] for rank in range(count)])

    def _journal(self, process: Process, instruction: master_core.Journal) -> None:
        """Nothing is complete before what it ends with is found again."""
        super()._journal(process, instruction)
        if not instruction.fields.get("is_complete"):
            return
        replicas, journal = self._job.replicas, self._job.journal
        count = journal["task_count"] or self._job.schedule.task_count
        found = [replicas.whole[name] for name, is_checkpoint in replicas.durable if not is_checkpoint]
        if not any(TaskSet(state.ledger.finished).first_missing() >= count for state in found):
            raise Violation("the job is complete, and its last state is not")

    def _writemanifest(self, process: Process, order: master_core.WriteManifest) -> None:
        found = [
            name
            for name, count, is_checkpoint in self._job.replicas.parts
            if (number_of(name[0]), name[1], count) == (order.number, order.version, len(order.parts))
            and is_checkpoint
        ]
        state = self._parts_of(found[0], len(order.parts), is_checkpoint=True)
        self._job.reach("keeping")
        manifest = make_manifest(self._job.job, order.version, order.number, [state], order.ends)
        self._job.within(0.1, 2, self._complete_state, process, manifest, state, order.needed)

    def _complete_state(self, process: Process, manifest: Any, state: State, needed: tuple[int, ...]) -> None:
        if process.is_up:
            self._job.replicas.complete(state, is_checkpoint=True)
        self._complete(process, manifest, [state], needed)

    def _writestate(self, process: Process, order: master_core.WriteState) -> None:
        state = self._parts_of(order.name, len(order.parts), is_checkpoint=False)
        self._job.within(0.1, 4, self._make_valid, process, state)

    def _make_valid(self, process: Process, state: State) -> None:
        if process.is_up:
            self._job.replicas.complete(state, is_checkpoint=False)
            self._job.within(0, 0.5, self._on_state, process, state.name)

    def _on_state(self, process: Process, name: SnapshotName) -> None:
        if process.is_up:
            self._job.give(process, StateWritten(name))


class MemberShell(WorkerShell):
    """Of workers: blocks of slots, other members, parts of states."""

    def carry_out(self, process: Process, instruction: Any) -> None:
        match instruction:
            case members.AskMember():
                self._ask_member(process, instruction)
            case members.StageOwn(part):
                event = OfGroup(inputs.Request(OWN, part))
                self._job.at(self._job.now + 0.01, self._job.event, process.name, event)
            case members.Reply(to, body):
                self._job.network.reply(to, body)
            case members.Compute():
                process.step = instruction.attempt
                process.sums = NodeSums(instruction.block, instruction.count)
                self._compute_slot(process, instruction, 0)
            case members.Proceed(attempt, task):
                slow = process.slow
                if slow is not None and (attempt, task) == (slow[0].attempt, slow[0].slots[slow[1]].task):
                    process.slow = None
                    self._on_slot(process, *slow, is_heard=True)
            case members.Abandon():
                process.step = 0
                for role in [role for role in process.outboxes if role[0] == "w"]:
                    del process.outboxes[role]
            case members.DigestState() | members.AssembleState() | members.Advance():
                self._job.within(0.05, 0.5, self._work_beside, process, instruction)
            case members.Load(name):
                self._job.within(0.2, 2, self._load, process, name)
            case members.WritePart():
                copied = replace(instruction, state=copy_of(instruction.state))
                self._job.within(0.1, 1.5, self._write_part, process, copied)
            case _:
                super().carry_out(process, instruction)

    def _tell(self, process: Process, event: inputs.Input) -> None:
        self._job.event(process.name, OfGroup(event))

    def _when_awake(self, process: Process, method: Any, *args: Any) -> bool:
        """Whether a process can do something now; one that stalls does it when it goes on, one that has ended never."""
        if process.is_up and self._job.now < process.stalled_until:
            self._job.at(process.stalled_until, method, process, *args)
            return False
        return process.is_up

    def _on_built(self, process: Process) -> None:
        process.pace.end(self._job.now)
        schedule = self._job.schedule
        about = (False, callback_needs(schedule), schedule.stops_on_nan)
        base = Store(initial_state(schedule.plan), schedule.plan.seed)
        self._job.event(process.name, ModelBuilt(*about, base=base, endpoint=process.role))

    def _ask_member(self, process: Process, asked: members.AskMember) -> None:
        def on_answer(body: Any) -> None:
            self._tell(process, inputs.Answered(asked.member.incarnation, asked.key, body))

        self._job.network.ask(process, asked.member.endpoint, on_answer, asked.body, again=asked.again)

    def _work_beside(
        self, process: Process, order: members.DigestState | members.AssembleState | members.Advance
    ) -> None:
        """A thread of a member has done something that takes a while; steps go on meanwhile."""
        if not self._when_awake(process, self._work_beside, order):
            return
        match order:
            case members.DigestState(key, state):
                self._tell(process, inputs.Digested(key, state_digest(state)))
            case members.Advance(values):
                values.run()
                self._tell(process, inputs.Advanced())
            case members.AssembleState(attempt, incoming):
                self._tell(process, inputs.Assembled(attempt, incoming.whole()))

    # -- a block

    def _compute_slot(self, process: Process, order: members.Compute, place: int) -> None:
        """Compute a block's slots one after another."""
        delay = self._job.rng.uniform(0.05, 0.6) if place < len(order.slots) else 0.0
        process.pace.begin("step", self._job.now)
        self._job.at(self._job.now + delay, self._on_slot, process, order, place)

    def _on_slot(
        self, process: Process, order: members.Compute, place: int, *, is_heard: bool = False
    ) -> None:
        is_wanted = self._when_awake(process, self._on_slot, order, place)
        if not is_wanted or process.step != order.attempt:
            return
        if order.is_slow and place < len(order.slots) and not is_heard:
            process.slow = order, place
            slot = order.slots[place]
            self._tell(process, inputs.SlotBegins(order.attempt, slot.task, slot.index))
            return
        process.pace.end(self._job.now)
        if place == len(order.slots):
            rate = 0.01 if order.learning_rate is None else order.learning_rate
            self._tell(process, inputs.BlockComputed(order.attempt, rate, process.sums.take()))
            return
        slot = order.slots[place]
        is_there = slot.end_at is None or slot.index < slot.end_at
        if is_there and (slot.task, slot.index) in self._job.schedule.poison:
            self._job.die(process.name)
            return
        event = self._computed(process, order.attempt, slot)
        self._tell(process, event)
        if isinstance(event, inputs.SlotComputed):
            self._compute_slot(process, order, place + 1)

    def _computed(
        self, process: Process, attempt: int, slot: members.Slot
    ) -> inputs.SlotComputed | inputs.SlotFailed:
        schedule, task, index = self._job.schedule, slot.task, slot.index
        if slot.end_at is not None and index > slot.end_at:
            raise Violation(f"minibatch {task, index} is computed, but its task ends at {slot.end_at}")
        length = schedule.lengths[task]
        is_empty = index >= (length if slot.end_at is None else min(length, slot.end_at))
        is_before_end = slot.end_at is None or index + 1 < slot.end_at
        bad = None if is_empty else raises_at(schedule, task, index, slot.end_at)
        if bad is not None:
            failed = FailedTask(
                kind="training",
                task=task,
                index=bad,
                error="ValueError: no",
                where="",
                traceback="",
                attempt=attempt,
            )
            return inputs.SlotFailed(attempt, task, bad, failed.error, failed)
        loss = math.nan if (task, index) in schedule.nonfinite else loss_of(task, index)
        header = SlotHeader(
            slot=slot.slot,
            task=task,
            index=index,
            is_last=index + 1 >= length and (is_empty or is_before_end),
            is_empty=is_empty,
            loss=None if is_empty or not schedule.has_callbacks else loss,
        )
        if is_empty:
            return inputs.SlotComputed(attempt, header)
        values = process.core.replica.values()
        gradient, state, counters = compute_gradient(values.dense, values.state, values.counters, task, index)
        process.sums.add(slot.slot, gradient, state)
        return inputs.SlotComputed(attempt, header, counters)

    # -- the disk

    def _load(self, process: Process, name: SnapshotName) -> None:
        if self._when_awake(process, self._load, name):
            state = self._job.replicas.whole.get(name)
            self._tell(process, inputs.Loaded(name, None if state is None else copy_of(state)))

    def _write_part(self, process: Process, order: members.WritePart) -> None:
        if not self._when_awake(process, self._write_part, order):
            return
        part, replicas = order.state, self._job.replicas
        replicas.parts.setdefault((part.name, part.partitions, order.is_checkpoint), {})[part.partition] = (
            part
        )
        if order.is_last:
            last = replicas.last.setdefault(order.generation, {})
            last[part.partition] = part
            if len(last) == part.partitions:
                whole = joined([last[rank] for rank in range(part.partitions)])
                self._job.sealed[0, order.generation] = whole
        info = PartInfo(
            partition=part.partition,
            partitions=part.partitions,
            bytes=1,
            body_checksum=f"{zlib.crc32(final_bytes([part])):x}",
            head_checksum="",
        )
        about = (order.generation, part.name, part.partition, part.partitions, order.is_checkpoint)
        self._tell(process, inputs.PartWritten(*about, info=info))

    def _finished_states(self, lease: ExportLease) -> list[State] | None:
        if lease.result >= 0:
            return super()._finished_states(lease)
        count = lease.task_count or self._job.plan.task_count
        full = [state for state in self._job.replicas.whole.values() if self._is_full(state, count)]
        return [max(full, key=lambda state: state.name)] if full else None
