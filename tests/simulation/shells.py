"""What masters and partitions of a simulated job have their cores' instructions done by."""

import dataclasses
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from simulation.model import final_bytes
from simulation.processes import Process, Violation

from edlz.services.master import instructions as master_core
from edlz.services.master.crew import HANG_S
from edlz.services.master.digest import Reading, Unreadable, read_digest
from edlz.services.messages import PartInfo
from edlz.services.ps import instructions as ps_core
from edlz.services.ps.state import MemoryRows
from edlz.services.records import Message

if TYPE_CHECKING:
    from simulation.job import SimulatedJob

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
        self._job.network.reply(instruction.to, instruction.body)

    def _exit(self, process: Process, instruction: master_core.Exit) -> None:
        self._job.exit(process)

    def _announce(self, process: Process, instruction: master_core.Announce) -> None:
        self._job.log.append(f"{self._job.now:8.2f} {instruction.text}")

    def _journal(self, process: Process, instruction: master_core.Journal) -> None:
        stored, is_start = self._job.journal["term"], "term" in instruction.fields
        term = process.core.term
        if term <= stored if is_start else term != stored:
            self._job.exit(process)
            return
        self._job.journal.update(instruction.fields)

    def _retire(self, process: Process, instruction: master_core.Retire) -> None:
        hung = self._job.process(f"w{instruction.worker}")
        if hung is not None and hung.pace.told(self._job.now)[0] < HANG_S:
            raise Violation(f"worker-{instruction.worker} was given up, but gets on: {instruction.reason}")
        self._job.replace(instruction.worker)
        lost = process.core.lose_worker(instruction.worker, instruction.reason, is_death=True)
        self._job.carry_out(process, lost)

    def _takedigest(self, process: Process, instruction: master_core.TakeDigest) -> None:
        self._job.reach("digest")
        reading = read_digest(len(instruction.partitions), self._job.job.run)
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
            self._job.carry_out(process, process.core.on_digest(asked.lives, digest))
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
        self._job.checkpoints[order.version] = states
        self._job.within(0.1, 2, self._on_manifest, process.name, order.version)

    def _on_manifest(self, name: int, version: int) -> None:
        process = self._job.processes[name]
        if process.is_up:
            self._job.carry_out(process, process.core.on_manifest(version))

    def _dropparts(self, process: Process, order: master_core.DropParts) -> None:
        """Nothing is kept of what was not completed."""


class PartitionShell(Shell):
    """Of partitions: their disks."""

    def _reply(self, process: Process, instruction: ps_core.Reply) -> None:
        self._job.network.reply(instruction.to, instruction.body)

    def _exit(self, process: Process, instruction: ps_core.Exit) -> None:
        self._job.exit(process)

    def _report(self, process: Process, instruction: ps_core.Report) -> None:
        self._job.network.ask(process, "m", None, instruction.body)

    def _write(self, process: Process, instruction: ps_core.Write) -> None:
        kept = msgspec.structs.replace(
            instruction.state, rows=[MemoryRows.of(rows) for rows in instruction.state.rows]
        )
        instruction.state.close()
        instruction = dataclasses.replace(instruction, state=kept)
        self._job.within(0.1, 5, self._on_written, process, instruction)

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
            event, args = (
                ("on_snapshot_over", ())
                if write.kind == "snapshot"
                else ("on_no_room", (write, self._job.now))
            )
            self._job.feed(process, event, *args)
            return
        if core.is_wanted(write):
            self._job.disks[core.index].write(write.state, core.incarnation)
            if write.kind == "seal":
                self._job.sealed[core.index, core.incarnation] = write.state
        self._job.feed(process, "on_written", write, self._job.now)

    def _is_full(self, process: Process) -> bool:
        return bool(self._job.now < self._job.disks[process.core.index].full_until)

    def _finish_part(self, process: Process, write: ps_core.Write) -> None:
        if self._is_full(process) or self._job.rng.random() < self._job.schedule.noise:
            self._job.feed(process, "on_part_failed", write, "no room", self._job.now)
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
        self._job.feed(process, "on_part_written", write, info, self._job.now)

    def _link(self, process: Process, instruction: ps_core.Link) -> None:
        core = process.core
        self._job.disks[core.index].links.setdefault(instruction.name, set()).add(core.incarnation)

    def _drop(self, process: Process, instruction: ps_core.Drop) -> None:
        core = process.core
        self._job.disks[core.index].unlink(instruction.name, core.incarnation)
