"""The disk of a member: what becomes of a state that it cannot write."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edlz.services.configuration.job_config import JobConfig
from edlz.services.parameters.mean_step import MeanStep
from edlz.services.process.runtime import Stop
from edlz.services.protocol.messages import PartInfo, Reduce
from edlz.services.storage.replica_files import ReplicaFiles
from edlz.services.storage.state import State
from edlz.services.transport.security import Security
from edlz.services.worker import membership
from edlz.services.worker.computing import Computing
from edlz.services.worker.core.groups.incoming_state import IncomingState
from edlz.services.worker.core.groups.inputs import Advanced, Assembled, Digested, PartWritten, Request
from edlz.services.worker.core.groups.instructions import (
    Advance,
    AssembleState,
    DigestState,
    StageOwn,
    WritePart,
)
from edlz.services.worker.core.groups.reduction import OWN
from edlz.services.worker.core.groups.state_transfer import copy_of, cut, part_of, state_digest
from edlz.services.worker.core.inputs import Fatal
from edlz.services.worker.membership import Membership
from tests import builders
from tests.simulation.groups.reference import initial_store
from tests.simulation.groups.schedule import GroupSchedule
from tests.unit.worker.test_computing import PredictingEngine

LIMIT_S = 30.0
SCHEDULE = GroupSchedule(seed=1, slots=2, epochs=1, lengths=(2, 2), workers=2)

Told = asyncio.Queue[object]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "AGAIN_S", 0.01)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Have files put in place fail with the errors in the list that is returned: the first of it each time."""

    def begin(*errors: int) -> list[int]:
        real, left = os.replace, list(errors)

        def replace(source: Path, target: Path) -> None:
            if left:
                code = left.pop(0)
                raise OSError(code, os.strerror(code))
            real(source, target)

        monkeypatch.setattr(os, "replace", replace)
        return left

    return begin


def told_of(
    folder: Path, *, is_last: bool, count: int = 1, master_addr: str = "localhost:50001"
) -> list[object]:
    """Return what a member and its worker hear when a state is written."""
    state = part_of(initial_store(SCHEDULE).view((1, 1)), 0, 1)
    order = WritePart((1, 1), state, is_last=is_last)
    return told_when(folder, lambda member: member.write(order), count, master_addr)


def told_when(
    folder: Path, begin: Callable[[Membership], None], count: int, master_addr: str = "localhost:50001"
) -> list[object]:
    """Return what a member and its worker hear when something has begun."""

    async def main() -> list[object]:
        told = Told()
        config = JobConfig(job_name="j", job_dir=str(folder), worker_id=0, master_addr=master_addr, port=0)
        job = builders.job(SCHEDULE.plan, config=config.to_record())
        computing = Computing(config, PredictingEngine, Stop(), told.put_nowait, told.put_nowait)
        member = Membership(config, job, Security(), computing, told.put_nowait, told.put_nowait)
        try:
            async with asyncio.timeout(LIMIT_S):
                begin(member)
                return [await told.get() for _ in range(count)]
        finally:
            member.close()
            await computing.close()

    return asyncio.run(main())


def test_a_state_is_put_together_and_its_digest_is_told(tmp_path: Path) -> None:
    state = initial_store(SCHEDULE).view((1, 1))
    digest = state_digest(state)
    pieces = tuple(cut(state, (1, 2), piece, 2, digest) for piece in range(2))

    def begin(member: Membership) -> None:
        member.digest(DigestState(3, state))
        for attempt, came in ((4, pieces), (5, pieces[:1])):
            incoming = IncomingState(state, state.name, 2)
            for piece in came:
                incoming.take(piece)
            member.assemble(AssembleState(attempt, incoming))

    found, whole, bad = told_when(tmp_path, begin, 3)
    assert found == Digested(3, digest)
    assert isinstance(whole, Assembled)
    assert whole.state is not None
    assert state_digest(whole.state) == digest
    assert bad == Assembled(5, None)


def test_the_last_state_is_written_when_there_is_room_again(
    tmp_path: Path, failing: Callable[..., list[int]]
) -> None:
    left = failing(errno.ENOSPC, errno.EDQUOT)
    [written] = told_of(tmp_path, is_last=True)
    assert isinstance(written, PartWritten)
    assert written.info
    assert not left


def test_a_job_whose_last_state_nobody_can_write_ends(
    tmp_path: Path, failing: Callable[..., list[int]]
) -> None:
    """Else its members would wait for ever, and say nothing."""
    failing(errno.EACCES)
    [fatal] = told_of(tmp_path, is_last=True)
    assert isinstance(fatal, Fatal)
    assert "cannot write v0 to" in fatal.failure.message
    assert fatal.failure.message.endswith("Permission denied")
    assert fatal.failure.help == "set --job_dir elsewhere"


def test_a_disk_that_stays_full_ends_the_job(
    tmp_path: Path, failing: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "FULL_S", 0.0)
    failing(errno.ENOSPC)
    [fatal] = told_of(tmp_path, is_last=True)
    assert isinstance(fatal, Fatal)
    assert fatal.failure.help == "make room on the disk"


@pytest.mark.parametrize("long_elements", [1 << 18, 0], ids=["on the loop", "beside it"])
def test_a_part_has_the_state_before_the_step_that_follows(
    long_elements: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written while the next values are worked out in place."""
    monkeypatch.setattr(membership, "LONG_ELEMENTS", long_elements)
    store = initial_store(SCHEDULE)
    before, place = copy_of(part_of(store.view((1, 1)), 0, 1)), store.dense.ctypes.data
    step = MeanStep(
        minibatches=((0, 0, False, False, None),), learning_rate=0.1, gradient=(np.ones(80, np.float32),)
    )
    seen: list[State] = []
    real = ReplicaFiles.write

    def write(self: ReplicaFiles, state: State, tag: str, *, is_checkpoint: bool) -> PartInfo | None:
        seen.append(state)
        return real(self, state, tag, is_checkpoint=is_checkpoint)

    monkeypatch.setattr(ReplicaFiles, "write", write)

    values = store.prepare(step)

    def begin(member: Membership) -> None:
        member.write(WritePart((1, 1), part_of(store.view((1, 1)), 0, 1)))
        member.advance(Advance(values))

    advanced, written = sorted(told_when(tmp_path, begin, 2), key=lambda event: type(event).__name__)
    assert advanced == Advanced()
    assert isinstance(written, PartWritten)
    assert written.info
    [state] = seen
    np.testing.assert_array_equal(state.dense, before.dense)
    for name, slot in before.slots.items():
        np.testing.assert_array_equal(state.slots[name], slot)
    assert values.dense.ctypes.data == place, "whoever has copied the state holds it no longer"
    assert not any(
        np.array_equal(slot, before.slots[name]) for name, slot in store.view((1, 1)).slots.items()
    )


def test_each_part_is_of_the_state_that_is_there_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy serves all who write the same part, and nobody behind the next step, or in another group."""
    store = initial_store(SCHEDULE)
    seen: list[State] = []

    def write(self: ReplicaFiles, state: State, tag: str, *, is_checkpoint: bool) -> PartInfo | None:
        seen.append(state)
        return None

    monkeypatch.setattr(ReplicaFiles, "write", write)
    values = store.prepare(MeanStep(minibatches=((0, 0, False, False, None),), learning_rate=0.1))

    def begin(member: Membership) -> None:
        for is_checkpoint in (False, True):
            member.write(WritePart((1, 1), part_of(store.view((1, 1)), 0, 1), is_checkpoint))
        member.advance(Advance(values))
        store.advance(values)
        member.write(WritePart((1, 1), part_of(store.view((1, 1)), 0, 1)))
        member.abandon()
        member.write(WritePart((1, 2), part_of(store.view((1, 1)), 1, 2)))

    told_when(tmp_path, begin, 5)
    assert [(state.version, state.partition, state.partitions) for state in seen] == [
        (0, 0, 1),
        (0, 0, 1),
        (1, 0, 1),
        (1, 1, 2),
    ]
    assert seen[0] is seen[1]


def test_parts_of_its_own_come_one_in_each_turn_of_the_loop(tmp_path: Path) -> None:
    about = {"generation": (1, 1), "version": 0, "rank": 0, "headers": ()}
    parts = [Reduce(bucket=bucket, **about) for bucket in range(3)]  # type: ignore[arg-type]
    turns: list[str] = []

    def begin(member: Membership) -> None:
        def turn() -> None:
            turns.append("others")
            if turns.count("others") < 3:
                asyncio.get_running_loop().call_soon(turn)

        feed = member._feed

        def feed_and_note(event: object) -> None:
            turns.append("own")
            feed(event)  # type: ignore[arg-type]

        member._feed = feed_and_note
        for part in parts:
            member.stage(StageOwn(part))
        turn()

    assert told_when(tmp_path, begin, 3) == [Request(OWN, part) for part in parts]
    assert turns == ["others", "own", "others", "own", "others", "own"]


def test_what_it_owes_itself_of_a_step_that_is_dropped_is_forgotten(tmp_path: Path) -> None:
    part = Reduce(generation=(1, 1), version=0, rank=0, bucket=0, headers=())

    def begin(member: Membership) -> None:
        member.stage(StageOwn(part))
        member.abandon()
        member.digest(DigestState(3, initial_store(SCHEDULE).view((1, 1))))

    [found] = told_when(tmp_path, begin, 1)
    assert isinstance(found, Digested)


@pytest.mark.parametrize(("master", "is_warned"), [("node1:50001", True), ("localhost:50001", False)])
def test_a_member_that_other_machines_cannot_reach_says_so(
    master: str, is_warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told_of(tmp_path, is_last=True, master_addr=master)
    assert ("start it with --host=HOST" in caplog.text) is is_warned


def test_a_state_to_go_on_from_is_not_kept_for_a_full_disk(
    tmp_path: Path, failing: Callable[..., list[int]]
) -> None:
    """The next one is due soon: those that wait would take up more and more memory."""
    failing(errno.ENOSPC)
    [written] = told_of(tmp_path, is_last=False)
    assert isinstance(written, PartWritten)
    assert written.error == "No space left on device"
