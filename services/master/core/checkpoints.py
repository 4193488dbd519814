"""The core that takes checkpoints: when, of which cut, and when one is complete (PROTOCOL: section 8).

Theory of operation.  A checkpoint is a cut in which all partitions have the same ledger.  In synchronous
mode every version is one, so partitions cut by themselves at multiples of `checkpoint_steps`, and the master
only collects their parts; a cut out of turn is ordered from partition 0, which spreads the word.  In
asynchronous mode the master brings the partitions *near* (they report often from then on), *freezes* them,
hears their ledgers, and has them *level* to the greatest marks; each cuts when it is there and goes on at
once.  Meanwhile only tasks that some partition lacks are leased.  A version is complete when every partition has reported its part; then the manifest is
written, which makes it valid.  A partition's new life abandons a cut that is under way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from edlz.services.master.core.vocabulary.instructions import Announce, DropParts, WriteManifest
from edlz.services.master.core.vocabulary.records import PartitionEntry
from edlz.services.protocol.ledger import Ledger, LedgerRecord
from edlz.services.protocol.messages import CheckpointOrder, CheckpointPart, Ends, Identity, PartInfo
from edlz.services.transitions import Transitions

__all__ = ["STAGES", "Checkpoints", "Stage"]

CUT_S = 30.0  # for which a cut may hold up training before it is given up


class Stage(Enum):
    """How far a cut of an asynchronous job is: what the partitions are ordered to do for it."""

    NONE = "none"  # no cut is under way
    NEAR = "near"
    FREEZE = "freeze"
    LEVEL = "level"


STAGES = Transitions(
    "a cut",
    Stage.NONE,
    {
        Stage.NONE: {Stage.NEAR},
        Stage.NEAR: {Stage.FREEZE, Stage.NONE},
        Stage.FREEZE: {Stage.LEVEL, Stage.NONE},
        Stage.LEVEL: {Stage.NONE},
    },
)


@dataclass(frozen=True)
class _Cut:
    """A checkpoint under way (asynchronous mode)."""

    number: int
    version: int  # as far as partitions had told when it began; when they are frozen, the newest of theirs
    lives: tuple[Identity | None, ...]  # of the partitions when it began
    stage: Stage = Stage.NEAR
    marks: LedgerRecord = field(default_factory=LedgerRecord)  # to which all come level
    was_asked: bool = False
    urgent: frozenset[int] = frozenset()  # tasks that some partition has to catch up with


class Checkpoints:
    """Checkpoints of one master's term.

    Parameters
    ----------
    is_sync : bool
    steps : int
        Versions between checkpoints; 0 for none but those that are asked for.
    first_number : int
        No earlier master has used it or a greater one.
    """

    def __init__(self, *, is_sync: bool, steps: int, first_number: int) -> None:
        self._is_sync, self._steps = is_sync, steps
        self._next_number = first_number
        self._cut: _Cut | None = None
        self._wanted = 0  # sync: number of a cut out of turn that is not complete yet
        self._wanted_since = -1  # the version when it was asked for
        self._is_asked = False  # async: out of turn
        self._begun_at = -1  # async: the version at the last beginning; -1 before the first look
        self._failed: set[tuple[int, int, int]] = set()  # (partition, number, attempt): noticed failures
        self._cut_since_s: float | None = None  # when the cut under way was first seen by `on_tick`
        self._told: set[str] = set()  # why checkpoints failed: each reason is a warning once
        self._written: int | None = None  # version whose manifest is being written
        self._is_written_asked = False  # async: that one was asked for
        self._spoilt: int | None = None  # sync: newest version whose manifest could not be written
        self.completed = 0  # greatest number (sync: version) that is complete or abandoned
        self.newest: int | None = None  # version of the newest complete checkpoint of this term

    @property
    def urgent(self) -> frozenset[int] | None:
        """The tasks that may be leased while the partitions are levelled; None for all."""
        return self._cut.urgent if self._cut is not None and self._cut.stage is Stage.LEVEL else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way or asked for."""
        return self.is_answered and self._cut is None and self._written is None

    @property
    def is_answered(self) -> bool:
        """Whether what was asked for is complete, or will not be."""
        is_under_way = self._is_asked or (self._cut is not None and self._cut.was_asked)
        return not (is_under_way or self._wanted or self._is_written_asked)

    def ask(self, version: int, *, is_training: bool = False) -> None:
        """Take one now, whatever the version, but not of one whose parts were there already.

        Parameters
        ----------
        is_training : bool
            Partitions may be further than they have told.
        """
        if version in (self.newest, self._spoilt) and not is_training:
            return
        if self._is_sync:
            if not self._wanted:
                self._wanted, self._wanted_since = self._number(), version
        else:
            self._is_asked = True

    def ask_again(self, version: int) -> None:
        """Sync: all partitions stand at this version; have it cut once more if its manifest could not be written."""
        if self._spoilt == version:
            self._spoilt = None
            self.completed = min(self.completed, version - 1)
        self.ask(version)

    def find(self, version: int) -> bool:
        """Sync: this version's lies there whole, of an earlier master perhaps; whether that answers what was asked for."""
        if not self._wanted or self._is_cut or version < self._wanted_since:
            return False
        self._wanted, self.newest = 0, version
        self.completed = max(self.completed, version)
        return True

    def rewind(self, version: int) -> None:
        """What comes after `version` may differ from what was computed before all partitions went back to it."""
        if self._is_sync:
            self.completed = min(self.completed, version)
            self._wanted_since = min(
                self._wanted_since, version
            )  # the job may end before it comes there again
            if self.newest is not None and self.newest > version:
                self.newest = None
            if self._spoilt is not None and self._spoilt > version:
                self._spoilt = None

    def withdraw(self) -> None:
        """Give up what is asked for and not complete."""
        self._abandon()
        self._wanted, self._is_asked = 0, False

    def orders(self, index: int, *, is_sealed: bool, stands_at: int = 0) -> CheckpointOrder | None:
        """Return what a partition should do for the checkpoint under way.

        Parameters
        ----------
        stands_at : int
            Sync: the version at which all partitions stand for now; 0 if they do not.
        """
        if self._is_sync:  # where they stand there is no push to spread it
            is_told = self._wanted and not self._is_cut and (index == 0 or is_sealed or stands_at)
            return CheckpointOrder(number=self._wanted, phase="cut", version=stands_at) if is_told else None
        cut = self._cut
        if cut is None:
            return None
        if cut.stage is Stage.LEVEL:
            return CheckpointOrder(number=cut.number, phase="level", version=cut.version, marks=cut.marks)
        return CheckpointOrder(number=cut.number, phase="freeze" if cut.stage is Stage.FREEZE else "near")

    def advance(
        self,
        partitions: Mapping[int, PartitionEntry],
        version: int,
        ends: Ends = (),
        needed: tuple[int, ...] = (),
    ) -> list[WriteManifest | DropParts | Announce]:
        """Go as far as the partitions' newest statuses allow; all partitions are known.

        Parameters
        ----------
        version : int
            The job's.
        ends : tuple of (int, int)
            The tasks that have been ended by now.
        needed : tuple of int
            The versions of checkpoints that partitions may have to go back to.
        """
        entries = [partitions[index] for index in sorted(partitions)]
        if not self._is_sync:
            self._advance_cut(entries, version)
        return [
            replace(one, ends=ends, needed=needed) if isinstance(one, WriteManifest) else one
            for one in self._collect(entries)
        ]

    def on_manifest(self, version: int, *, is_written: bool) -> None:
        """The manifest of a version is durable, or could not be written."""
        self._written, self._is_written_asked = None, False
        if is_written:
            self.newest = version
        elif self._is_sync:  # its parts are reported once, so nothing would come of waiting for them
            self._spoilt = version
        if self._is_sync and version >= self._wanted_since:
            self._wanted = 0

    def on_tick(self, partitions: Mapping[int, PartitionEntry], now: float) -> list[Announce]:
        """Give up a cut for which pushes have waited too long."""
        cut = self._cut
        if cut is None or not any(e.status.near == cut.number for e in partitions.values()):
            self._cut_since_s = None
            return []
        if self._cut_since_s is None:
            self._cut_since_s = now
        if now - self._cut_since_s < CUT_S:
            return []
        self._abandon()
        return [
            Announce("checkpoint", f"checkpoint v{cut.version} is given up: no cut within {CUT_S:.0f}s", 30)
        ]

    @property
    def _is_cut(self) -> bool:
        """Sync: whether all parts of what is asked for are there: cut again, one might replace what the manifest names."""
        return self._written is not None and self._written >= self._wanted_since

    # -- asynchronous mode

    def _advance_cut(self, entries: list[PartitionEntry], version: int) -> None:
        cut = self._cut
        lives = tuple(entry.status.incarnation for entry in entries)
        if cut is not None and cut.lives != lives:
            self._abandon()
            cut = None
        if cut is None:
            self._begin_if_due(entries, version, lives)
        elif cut.stage is Stage.NEAR and all(entry.status.near == cut.number for entry in entries):
            self._go_on(replace(cut, stage=Stage.FREEZE))
        elif cut.stage is Stage.FREEZE and all(entry.status.frozen == cut.number for entry in entries):
            self._level(cut, entries)

    def _go_on(self, cut: _Cut | None) -> None:
        """The cut under way is at another stage; None: there is none any more."""
        stage = Stage.NONE if self._cut is None else self._cut.stage
        STAGES.check(stage, Stage.NONE if cut is None else cut.stage)
        self._cut = cut

    def _begin_if_due(
        self, entries: list[PartitionEntry], version: int, lives: tuple[Identity | None, ...]
    ) -> None:
        if self._begun_at < 0:
            self._begun_at = version
        is_due = bool(self._steps) and version // self._steps > self._begun_at // self._steps
        if self._written is not None or not (is_due or self._is_asked):
            return
        self._begun_at, was_asked, self._is_asked = version, self._is_asked, False
        self._go_on(_Cut(self._number(), _newest_version(entries), lives, was_asked=was_asked))
        self._cut_since_s = None

    def _level(self, cut: _Cut, entries: list[PartitionEntry]) -> None:
        """All partitions are frozen: name the version after what they have, and have them come level."""
        version = _newest_version(entries)
        if self.newest is not None and version <= self.newest:
            self._end(cut.number)  # nothing was trained since
        else:
            self._go_on(_level(replace(cut, version=version), [Ledger(entry.ledger) for entry in entries]))

    def _abandon(self) -> None:
        if self._cut is not None:
            self._is_asked = self._is_asked or self._cut.was_asked
            self.completed = self._cut.number
            self._go_on(None)

    # -- both modes

    def _number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number

    def _collect(self, entries: list[PartitionEntry]) -> list[WriteManifest | DropParts | Announce]:
        """Find the greatest number of which every partition has reported its part, and those that failed."""
        if not any(entry.status.parts for entry in entries):
            return []
        reported = [{part.number: part for part in entry.status.parts} for entry in entries]
        out: list[WriteManifest | DropParts | Announce] = []
        for index, parts in enumerate(reported):
            for part in parts.values():
                out += self._take_failure(index, part) if part.error else ()
        whole = [{number for number, part in parts.items() if part.info} for parts in reported]
        numbers = {number for number in set.intersection(*whole) if number > self.completed}
        if self._written is not None or not numbers:
            return out
        number = max(numbers)
        parts_of = [parts[number] for parts in reported]
        self._written = parts_of[0].version
        self._end(number)
        infos: tuple[PartInfo, ...] = tuple(part.info for part in parts_of if part.info is not None)
        return [*out, WriteManifest(self._written, number, infos)]

    def _take_failure(self, index: int, part: CheckpointPart) -> tuple[Announce | DropParts, ...]:
        """A partition could not write its part: once for each attempt, the checkpoint is given up."""
        key = (index, part.number, part.attempt)
        if part.number <= self.completed or key in self._failed:
            return ()
        self._failed.add(key)
        is_known = part.error in self._told
        self._told.add(part.error)
        if self._cut is not None and self._cut.number == part.number:
            self._go_on(None)
        if self._is_sync and part.version >= self._wanted_since:
            self._wanted = 0
        where = part.where or f"ps-{index}"
        text = f"checkpoint v{part.version} fails on {where}: {part.error}"
        return Announce("checkpoint", text, 10 if is_known else 30), DropParts(part.version)

    def _end(self, number: int) -> None:
        """A checkpoint is complete."""
        self.completed = max(self.completed, number)
        if self._cut is not None and self._cut.number <= number:
            self._is_written_asked = self._cut.was_asked and self._written is not None
            self._go_on(None)


def _newest_version(entries: list[PartitionEntry]) -> int:
    return max(entry.status.version for entry in entries)


def _level(cut: _Cut, ledgers: list[Ledger]) -> _Cut:
    """Find the greatest mark of each task, and the tasks that some partition has to catch up with."""
    finished = sorted({task for ledger in ledgers for task in ledger.finished})
    marks: dict[int, int] = {}
    for ledger in ledgers:
        for task, mark in ledger.marks.items():
            marks[task] = max(mark, marks.get(task, 0))
    union = Ledger()
    for task in finished:
        marks.pop(task, None)
        union.finished.add(task)
    union.marks = marks
    urgent = frozenset(
        task
        for ledger in ledgers
        for task in (*finished, *marks)
        if (task not in ledger.finished if task in union.finished else ledger.mark(task) < marks[task])
    )
    return replace(cut, stage=Stage.LEVEL, marks=union.record(), urgent=urgent)
