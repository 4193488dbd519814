"""What a member's core does when something happens: event by event, as tables.

Each line is `event | instructions`.  All begin with a worker whose replica is built and which has told the master so.
"""

import numpy as np
import pytest

from edlz.services.protocol.messages import Reduce, SlotHeader
from edlz.services.worker.core.groups.inputs import (
    Advanced,
    BlockComputed,
    Digested,
    Request,
    SlotComputed,
)
from edlz.services.worker.core.groups.instructions import (
    Abandon,
    Advance,
    AskMember,
    Compute,
    DigestState,
    Instruction,
    Reply,
    StageOwn,
    Tell,
    WritePart,
)
from edlz.services.worker.core.groups.node_sums import NodeSums
from edlz.services.worker.core.groups.reduction import OWN
from edlz.services.worker.core.groups.state_transfer import state_digest
from tests.unit.groups.test_replica import MEMBERS, orders, replica

TABLES = {
    "alone it takes one step after the other, and seals when there is no more to do": """
        generation 1          | tell, abandon, tell
        formed 1 1            | compute v0 0.0 1.0, tell
        computed              | stage, stage
        staged                | step
        advanced              | compute v1 0.1 1.1
        computed              | stage, stage
        staged                | step
        advanced              | write part, tell
        generation 1          |
        """,
    "of two it computes its share, and asks nobody before it knows what it has": """
        generation 1          | tell, abandon, tell
        formed 1 1 2          | compute v0 0.0, tell
        computed              | digest
        digested              | ask 2 Reduce, ask 2 Reduce
        """,
    "another generation ends a step that is not complete: what is computed of it says nothing any more": """
        generation 1          | tell, abandon, tell
        formed 1 1 2          | compute v0 0.0, tell
        generation 2          | abandon, tell
        computed              |
        formed 2 1            | compute v0 0.0 1.0, tell
        computed              | stage, stage
        staged                | step
        advanced              | compute v1 0.1 1.1
        """,
    "another generation waits until the step is taken whose means are there": """
        generation 1          | tell, abandon, tell
        formed 1 1            | compute v0 0.0 1.0, tell
        computed              | stage, stage
        staged                | step
        generation 2          |
        advanced              | abandon, tell
        """,
    "what a member owes itself of a step that is dropped says nothing any more": """
        generation 1          | tell, abandon, tell
        formed 1 1            | compute v0 0.0 1.0, tell
        computed              | stage, stage
        generation 2          | abandon, tell
        staged                |
        formed 2 1            | compute v0 0.0 1.0, tell
        """,
    "who has no slot in a step waits for the others": """
        generation 1          | tell, abandon, tell
        formed 1 1 2 3        | compute v0, tell
        generation 2          | abandon, tell
        formed 2 1 3          | compute v0 0.0, tell
        """,
    "an older generation is not gone back to": """
        generation 2          | tell, abandon, tell
        generation 1          |
        formed 1 1            |
        formed 2 1            | compute v0 0.0 1.0, tell
        """,
}


@pytest.mark.parametrize("title", TABLES)
def test_a_member(title: str) -> None:
    script, lines = Script(), [line for line in TABLES[title].splitlines() if line.strip()]
    events = [line.partition("|")[0].strip() for line in lines]
    told = [f"{event:<22}| {script.play(event)}".rstrip() for event in events]
    assert told == [line.strip() for line in lines]


class Script:
    """One member, fed by lines of a table."""

    def __init__(self) -> None:
        self.core = replica(1)
        self.order: Compute | None = None  # the newest
        self.digest: DigestState | None = None
        self.advance: Advance | None = None
        self.own: list[Reduce] = []

    def play(self, line: str) -> str:
        word, *rest = line.split()
        out = getattr(self, f"_{word}")(*rest)
        for one in out:
            if isinstance(one, Compute):
                self.order = one
            elif isinstance(one, DigestState):
                self.digest = one
            elif isinstance(one, Advance):
                self.advance = one
            elif isinstance(one, StageOwn):
                self.own.append(one.part)
        return ", ".join(filter(None, map(self._told, out)))

    def _told(self, one: Instruction) -> str:
        match one:
            case Tell():
                return "tell"
            case Compute(_, version, slots):
                return " ".join([f"compute v{version}", *(f"{slot.task}.{slot.index}" for slot in slots)])
            case Advance():
                return "step"
            case Abandon():
                return "abandon"
            case AskMember(member, _, body):
                return f"ask {member.worker} {type(body).__name__}"
            case Reply(_, body):
                return f"reply {type(body).__name__}"
            case DigestState():
                return "digest"
            case StageOwn():
                return "stage"
            case WritePart():
                return "write part"
        raise AssertionError(f"no word for {one}")

    def _generation(self, number: str) -> list[Instruction]:
        return self.core.feed(orders(int(number)), 0.0)

    def _formed(self, number: str, *members: str) -> list[Instruction]:
        group = tuple(MEMBERS[int(name) - 1] for name in members)
        return self.core.feed(orders(int(number), members=group, holders=((1, 1),)), 0.0)

    def _digested(self) -> list[Instruction]:
        assert self.digest is not None
        return self.core.feed(Digested(self.digest.key, state_digest(self.digest.state)), 0.0)

    def _staged(self) -> list[Instruction]:
        own, self.own = self.own, []
        return [one for part in own for one in self.core.feed(Request(OWN, part), 0.0)]

    def _advanced(self) -> list[Instruction]:
        assert self.advance is not None
        self.advance.values.run()
        return self.core.feed(Advanced(), 0.0)

    def _computed(self) -> list[Instruction]:
        out: list[Instruction] = []
        assert self.order is not None
        order = self.order
        sums = NodeSums(order.block, order.count)
        for slot in order.slots:
            header = SlotHeader(
                slot=slot.slot, task=slot.task, index=slot.index, is_last=slot.index == 1, is_empty=False
            )
            sums.add(slot.slot, np.full(80, slot.slot + 1, np.float32), np.zeros(32, np.float32))
            out += self.core.feed(SlotComputed(order.attempt, header, np.zeros(16, np.int64)), 0.0)
        return out + self.core.feed(BlockComputed(order.attempt, 0.1, sums.take()), 0.0)
