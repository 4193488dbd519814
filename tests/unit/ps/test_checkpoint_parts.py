"""Parts of checkpoints: what a slow or full disk hides, and what it must not."""

from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.vocabulary.instructions import Announce, DropParts, WriteManifest
from edlz.services.master.core.vocabulary.records import PartitionEntry
from edlz.services.protocol.messages import CheckpointPart, PartInfo
from edlz.services.ps.core.checkpoint_parts import CheckpointParts
from tests.statuses import partition_status

LIFE = (1, 1)


def info_of(partition: int, partitions: int = 2) -> PartInfo:
    return PartInfo(partition=partition, partitions=partitions, bytes=1, body_checksum="", head_checksum="")


def entry(partition: int, *parts: CheckpointPart) -> PartitionEntry:
    return PartitionEntry(partition_status(partition, era=LIFE, version=300, parts=parts))


def part(number: int, partition: int, error: str = "", attempt: int = 1) -> CheckpointPart:
    info = None if error else info_of(partition)
    return CheckpointPart(number=number, version=number, info=info, error=error, attempt=attempt)


def make_checkpoints() -> Checkpoints:
    return Checkpoints(is_sync=True, steps=100, first_number=1)


def test_a_part_that_fails_hides_no_earlier_one() -> None:
    parts = CheckpointParts()
    parts.begin(LIFE, 100)
    parts.begin(LIFE, 200)
    assert parts.is_full
    assert parts.report(300, 300, None, "no room")
    parts.end(LIFE, 100)
    assert parts.report(100, 100, info_of(0))
    assert parts.report(200, 200, info_of(0))
    assert [p.number for p in parts.reported if p.info] == [100, 200]
    assert parts.is_new(LIFE, 300), "a part that failed may be tried again"
    parts.forget(200)
    assert [p.number for p in parts.reported] == [300]


def test_durable_numbers_only_rise() -> None:
    parts = CheckpointParts()
    assert parts.report(200, 200, info_of(0))
    assert not parts.report(100, 100, info_of(0))
    assert not parts.is_new(LIFE, 100)


def test_a_failed_version_hides_no_complete_one() -> None:
    checkpoints = make_checkpoints()
    entries = {0: entry(0, part(200, 0), part(300, 0, "no room")), 1: entry(1)}
    announced, dropped = checkpoints.advance(entries, 300)
    assert isinstance(announced, Announce)
    assert "checkpoint v300 fails on ps-0: no room" in announced.text
    assert dropped == DropParts(300)
    entries[1] = entry(1, part(200, 1))
    (manifest,) = checkpoints.advance(entries, 300)
    assert isinstance(manifest, WriteManifest)
    assert manifest.version == 200


def test_a_last_checkpoint_is_tried_again_where_one_failed_before() -> None:
    checkpoints = make_checkpoints()
    entries = {0: entry(0, part(300, 0, "no room")), 1: entry(1, part(300, 1))}
    checkpoints.advance(entries, 300)
    checkpoints.ask(300)
    assert checkpoints.orders(1, is_sealed=True) is not None
    assert checkpoints.advance(entries, 300) == [], "the same failure is no news"
    assert not checkpoints.is_idle
    entries[0] = entry(0, part(300, 0, "no room", attempt=2))
    checkpoints.advance(entries, 300)
    assert checkpoints.is_idle, "nobody waits for what failed again"


def test_nobody_is_asked_for_a_part_again_while_the_manifest_is_being_written() -> None:
    """The manifest might be made of the first, and then be removed as that of a part that is replaced."""
    checkpoints = make_checkpoints()
    checkpoints.ask(300)
    assert checkpoints.orders(0, is_sealed=True) is not None
    entries = {0: entry(0, part(300, 0)), 1: entry(1, part(300, 1))}
    (manifest,) = checkpoints.advance(entries, 300)
    assert isinstance(manifest, WriteManifest)
    for index in range(2):
        assert checkpoints.orders(index, is_sealed=True) is None
        assert checkpoints.orders(index, is_sealed=False, stands_at=300) is None
    assert not checkpoints.is_answered
    checkpoints.on_manifest(300, is_written=True)
    assert checkpoints.is_answered


def test_a_part_is_asked_for_while_the_manifest_of_an_older_version_is_being_written() -> None:
    checkpoints = make_checkpoints()
    entries = {0: entry(0, part(200, 0)), 1: entry(1, part(200, 1))}
    checkpoints.advance(entries, 200)
    checkpoints.ask(300)
    assert checkpoints.orders(0, is_sealed=True) is not None
    checkpoints.on_manifest(200, is_written=True)
    assert checkpoints.orders(0, is_sealed=True) is not None
