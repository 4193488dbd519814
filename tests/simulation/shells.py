"""What masters and partitions of a simulated job have their cores' instructions done by."""

import dataclasses
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edlz.services.master.core.vocabulary import instructions as master_core
from edlz.services.master.core.vocabulary.inputs import DigestRead, ManifestWritten, Published
from edlz.services.master.digest import Reading, Unreadable, read_digest
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Ends, Job, PartInfo
from edlz.services.ps.core import inputs as ps_inputs
from edlz.services.ps.core import instructions as ps_core
from edlz.services.storage.checkpoint_records import Manifest, Part
from edlz.services.storage.state import MemoryRows, State
from tests.simulation.model import final_bytes, initial_state, initial_vectors, trained_vectors
from tests.simulation.processes import Process, Violation

if TYPE_CHECKING:
    from tests.simulation.job import SimulatedJob

__all__ = ["MasterShell", "PartitionShell", "Shell"]


class Shell:
    """Carries out the instructions of one role's cores, by the method that is named like the instruction."""

    def __init__(self, job: "SimulatedJob") -> None:
        self._job = job

    def carry_out(self, process: Process, instruction: Any) -> None:
        getattr(self, f"_{type(instruction).__name__.lower()}")(process, instruction)


class MasterShell(Shell):
    """Of masters: the journal, the digest, manifests."""

    def _reply(self, process: Process, instruction: master_core.Reply) -> None:
        if callable(instruction.to):  # somebody in its own process
            instruction.to(instruction.body)
        else:
            self._job.network.reply(instruction.to, instruction.body)

    def _announce(self, process: Process, instruction: master_core.Announce) -> None:
        self._job.log.append(f"{self._job.now:8.2f} {instruction.text}")

    def _journal(self, process: Process, instruction: master_core.Journal) -> None:
        stored, is_start = self._job.journal["term"], "term" in instruction.fields
        term = process.core.term
        if term <= stored if is_start else term != stored:
            self._job.exit(process)
            return
        if "rounds" in instruction.added:
            self._job.reach("decided")
        self._job.journal.update(instruction.fields)
        for name, added in instruction.added.items():
            if added.first != len(self._job.journal[name]):
                raise Violation(f'"{name}" goes on at {added.first}: {self._job.journal[name]}')
            self._job.journal[name] += added.values
        if "pieces" in instruction.added:
            self._job.schedule = self._job.schedule.grown(self._job.journal["pieces"])
            self._job.reach("grown")
        if instruction.fields.get("refusal"):
            self._job.known_at_refusal = max(self._job.processes)
            self._job.reach("refused")

    def _leave(self, process: Process, instruction: master_core.Leave) -> None:
        """The simulation is over when all others have left."""

    def _takedigest(self, process: Process, instruction: master_core.TakeDigest) -> None:
        self._job.reach("digest")
        reading = read_digest(instruction.lives, self._job.job.run)
        self._ask_on(process, instruction, reading, lambda: next(reading))

    def _ask_on(
        self,
        process: Process,
        asked: master_core.TakeDigest,
        reading: Reading,
        go_on: Callable[[], tuple[int, Message]],
    ) -> None:
        """Ask for the next piece, or tell the core what all of them amount to."""
        try:
            partition, body = go_on()
        except (StopIteration, Unreadable) as end:
            digest = end.value if isinstance(end, StopIteration) else None
            self._job.give(process, DigestRead(asked.lives, digest))
            return

        def on_answer(answer: Message) -> None:
            self._ask_on(process, asked, reading, lambda: reading.send(answer))

        self._job.network.ask(process, asked.partitions[partition].endpoint, on_answer, body)

    def _writemanifest(self, process: Process, order: master_core.WriteManifest) -> None:
        states = [
            self._job.parts[order.number, order.version, p] for p in range(self._job.schedule.partitions)
        ]
        if [part.partition for part in order.parts] != list(range(self._job.schedule.partitions)):
            raise Violation(f"a manifest of {order.parts}")
        if any(state.ledger != states[0].ledger for state in states):
            raise Violation(f"checkpoint {order.version} is no cut: {[state.ledger for state in states]}")
        self._job.reach("keeping")
        manifest = make_manifest(self._job.job, order.version, order.number, states, order.ends)
        self._job.within(0.1, 2, self._complete, process, manifest, states, order.needed)

    def _complete(
        self, process: Process, manifest: Manifest, states: list[State], needed: tuple[int, ...]
    ) -> None:
        """The manifest is durable, unless the process was killed before; it hears of that a little later."""
        if process.is_up:
            self._job.checkpoints[manifest.version] = states
            needed = (*needed, *self._job.begun_from)
            self._job.checkpoint_folder.complete(manifest, states, needed)
            self._job.within(0, 0.5, self._on_manifest, process.name, manifest.version)

    def _on_manifest(self, name: int, version: int) -> None:
        process = self._job.processes[name]
        if process.is_up:
            self._job.give(process, ManifestWritten(version))

    def _publishpredictions(self, process: Process, order: master_core.PublishPredictions) -> None:
        self._job.reach("publishing")
        self._job.within(0.1, 2, self._publish, process, order)

    def _publish(self, process: Process, order: master_core.PublishPredictions) -> None:
        if not process.is_up:
            return
        job, files = self._job, self._job.part_files
        for task in job.files_to_lose:
            files.pop(task, None)
        job.files_to_lose = set()
        missing = [entry.task for entry in order.tasks if files.get(entry.task) != entry.checksum]
        if not missing:
            manifest = {"version": order.version, "tasks": order.tasks, "skipped": order.skipped}
            if job.published not in (None, manifest):
                raise Violation(f"published twice: {job.published}, {manifest}")
            job.published = manifest
            job.reach("published")
        job.within(0, 0.5, self._on_published, process.name, missing)

    def _on_published(self, name: int, missing: list[int]) -> None:
        process = self._job.processes[name]
        if process.is_up:
            self._job.give(process, Published(tuple(missing)))

    def _dropcheckpoint(self, process: Process, order: master_core.DropCheckpoint) -> None:
        if order.version not in self._job.begun_from:
            self._job.checkpoint_folder.versions.pop(order.version, None)

    def _dropparts(self, process: Process, order: master_core.DropParts) -> None:
        """Nothing is kept of what was not completed."""


def make_manifest(job: Job, version: int, number: int, states: list[State], ends: Ends) -> Manifest:
    """Return what makes a checkpoint of these states valid."""
    parts = tuple(
        Part(
            size_bytes=1,
            body_checksum="",
            head_checksum="",
            table_rows=(),
            era=state.era,
            version=state.version,
        )
        for state in states
    )
    return Manifest(
        job=job.name,
        run=job.run,
        plan_hash=job.plan.hash,
        mode=job.plan.mode,
        version=version,
        number=number,
        epoch=1,
        minibatches=states[0].ledger.minibatches,
        created_at=0.0,
        ledger=states[0].ledger,
        parts=parts,
        run_number=job.run_number,
        ends=ends,
    )


def leave_foreign_checkpoint(job: "SimulatedJob") -> None:
    """Let the folder hold another run's checkpoint of this plan, as far as it can be, and of other bits."""
    count = job.plan.task_count
    everything = LedgerRecord(finished=(0, count), minibatches=count)
    states = _states_of(job, initial_vectors(), job.plan.hash, 1 << 20)
    states = [msgspec.structs.replace(state, ledger=everything) for state in states]
    _leave(job, states, number=1 << 20)


def leave_first_checkpoint(job: "SimulatedJob") -> None:
    """Let the folder hold what this job begins from: a checkpoint of another plan."""
    _leave(job, _states_of(job, trained_vectors(), "another plan", job.schedule.begins_from), number=1)


def _states_of(
    job: "SimulatedJob", vectors: tuple[np.ndarray, ...], plan_hash: str, version: int
) -> list[State]:
    count, tables = job.schedule.partitions, job.schedule.tables
    states = [
        initial_state(job.plan, vectors, tables, plan_hash=plan_hash, place=(index, count))
        for index in range(count)
    ]
    return [msgspec.structs.replace(state, era=(1, 1), version=version) for state in states]


def _leave(job: "SimulatedJob", states: list[State], number: int) -> None:
    another = msgspec.structs.replace(job.job, run="another")
    manifest = make_manifest(another, states[0].version, number, states, ends=())
    job.checkpoint_folder.complete(manifest, states, job.begun_from)


class PartitionShell(Shell):
    """Of partitions: their disks."""

    def _reply(self, process: Process, instruction: ps_core.Reply) -> None:
        self._job.network.reply(instruction.to, instruction.body)

    def _exit(self, process: Process, instruction: ps_core.Exit) -> None:
        self._job.exit(process)

    def _warn(self, process: Process, instruction: ps_core.Warn) -> None:
        self._job.log.append(f"{self._job.now:8.2f} {process.role}: {instruction.text}")

    def _report(self, process: Process, instruction: ps_core.Report) -> None:
        self._job.network.ask(process, "m", None, instruction.body, is_newest=True)

    def _write(self, process: Process, instruction: ps_core.Write) -> None:
        if instruction.kind == "base":
            self._job.reach("base")
        kept = msgspec.structs.replace(
            instruction.state, rows=[MemoryRows.of(rows) for rows in instruction.state.rows]
        )
        instruction.state.close()
        instruction = dataclasses.replace(instruction, state=kept)
        process.written_s = max(process.written_s, self._job.now + self._job.rng.uniform(0.1, 5))
        self._job.at(process.written_s, self._on_written, process, instruction)

    def _on_written(self, process: Process, write: ps_core.Write) -> None:
        if not process.is_up:
            return
        if self._job.now < process.stalled_until:
            self._job.at(process.stalled_until, self._on_written, process, write)
            return
        core = process.core
        if write.kind == "checkpoint":
            self._finish_part(process, write)
            return
        if self._is_full(process):
            is_snapshot = write.kind == "snapshot"
            self._job.feed(process, ps_inputs.SnapshotOver() if is_snapshot else ps_inputs.NoRoom(write))
            return
        if core.is_wanted(write):
            self._job.disks[core.index].write(write.state, core.incarnation)
            if write.kind == "seal":
                self._job.sealed[core.index, core.incarnation] = write.state
        self._job.feed(process, ps_inputs.Written(write))

    def _is_full(self, process: Process) -> bool:
        return bool(self._job.now < self._job.disks[process.core.index].full_until)

    def _finish_part(self, process: Process, write: ps_core.Write) -> None:
        if self._is_full(process) or self._job.rng.random() < self._job.schedule.noise:
            self._job.feed(process, ps_inputs.PartFailed(write, "no room"))
            return
        index = process.core.index
        self._job.parts[write.number, write.version, index] = write.state
        checksum = f"{zlib.crc32(final_bytes([write.state])):x}"
        info = PartInfo(
            partition=index,
            partitions=self._job.schedule.partitions,
            bytes=1,
            body_checksum=checksum,
            head_checksum="",
        )
        self._job.feed(process, ps_inputs.PartWritten(write, info))

    def _link(self, process: Process, instruction: ps_core.Link) -> None:
        core = process.core
        self._job.disks[core.index].links.setdefault(instruction.name, set()).add(core.incarnation)

    def _drop(self, process: Process, instruction: ps_core.Drop) -> None:
        core = process.core
        self._job.disks[core.index].unlink(instruction.name, core.incarnation)
