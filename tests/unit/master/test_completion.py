"""What is left to do when every task is done: in which order, and what puts it off."""

import itertools
from typing import Any

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.completion import Completion
from edlz.services.master.core.exports import Exports
from edlz.services.master.core.predictions import Predictions
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.tasks.evaluation_rounds import EvaluationRounds
from edlz.services.master.core.vocabulary.instructions import Announce, Journal, TakeDigest, WriteManifest
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.core.vocabulary.verdict import Verdict
from edlz.services.protocol.messages import CheckpointPart, Identity, PartInfo
from edlz.services.protocol.plan import Shard
from tests import builders
from tests.statuses import partition_status


class Bench:
    """A job whose partitions have sealed version 7."""

    def __init__(self, *, has_data: bool = False, saves: bool = False) -> None:
        shard = Shard(name="data", first=0, count=1)
        self.plan = builders.plan(
            mode="async", shards=(shard,), evaluation_shards=(shard,) if has_data else ()
        )
        numbers = itertools.count(1)
        self.partitions = Partitions(2, lambda: (1, next(numbers)))
        self.evaluation = EvaluationRounds(self.plan, 0)
        self.checkpoints = Checkpoints(is_sync=False, steps=0, first_number=1)
        job = builders.job(self.plan, name="job", run="1", partitions=2)
        self.predictions = Predictions(self.plan, JournalState(), self.evaluation, has_files=False)
        self.exports = Exports(job, JobSettings.of({}), JournalState())
        self.verdict = Verdict(JournalState())
        about = (self.evaluation, self.checkpoints, self.exports, self.predictions, self.verdict)
        self.completion = Completion(self.partitions, *about, saves=saves)
        for index in range(2):
            self.begin_life(index, (1, index))

    def begin_life(self, index: int, incarnation: Identity) -> None:
        self.partitions.take(partition_status(index, incarnation=incarnation, version=7, is_sealed=True))
        self.completion.on_new_life()

    def digest(self, digest: str | None = "sha") -> list[Any]:
        return self.completion.on_digest(self.partitions.incarnations, digest)


def test_the_digest_is_asked_for_once_and_completes_the_job() -> None:
    bench = Bench()
    assert bench.digest() == [], "nobody has asked for it"
    assert bench.completion.advance() == [TakeDigest(bench.partitions.addresses)]
    assert bench.completion.advance() == []
    assert not bench.verdict.is_complete
    journal, announced = bench.digest()
    assert journal == Journal({"is_complete": True, "digest": "sha", "sealed": ((1, 0), (1, 1))})
    assert announced == Announce("job", "job complete at v7.")
    assert (bench.verdict.is_complete, bench.verdict.digest) == (True, "sha")


def test_the_last_evaluation_and_checkpoint_come_before_the_digest() -> None:
    bench = Bench(has_data=True, saves=True)
    assert bench.completion.advance() == []
    assert not bench.evaluation.is_idle
    assert not bench.checkpoints.is_idle
    bench.checkpoints.withdraw()
    assert bench.completion.advance() == [], "the evaluation is not there"
    bench.evaluation.skip(0)
    assert bench.completion.advance() == [TakeDigest(bench.partitions.addresses)]


def test_a_digest_of_lives_that_are_over_does_not_count() -> None:
    bench = Bench()
    bench.completion.advance()
    bench.begin_life(1, (1, 5))
    assert bench.digest() == []
    assert bench.completion.advance() == [TakeDigest(bench.partitions.addresses)]
    assert len(bench.digest()) == 2


def test_a_digest_that_could_not_be_taken_is_asked_for_again() -> None:
    bench = Bench()
    bench.completion.advance()
    assert bench.digest(None) == []
    assert len(bench.completion.advance()) == 1


def test_a_digest_that_comes_while_training_goes_on_again_does_not_count() -> None:
    bench = Bench()
    bench.completion.advance()
    bench.completion.put_off()
    assert bench.digest() == []
    assert not bench.verdict.is_complete


def test_a_checkpoint_whose_parts_cannot_be_found_is_not_waited_for_again() -> None:
    """Nobody sees the partitions' folder: the last version's own checkpoint has failed before all was done."""
    bench = Bench()
    checkpoints = Checkpoints(is_sync=True, steps=7, first_number=1)
    about = (bench.evaluation, checkpoints, bench.exports, bench.predictions, bench.verdict)
    completion = Completion(bench.partitions, *about, saves=True)
    for index in range(2):
        info = PartInfo(partition=index, partitions=2, bytes=1, body_checksum="b", head_checksum="h")
        part = CheckpointPart(number=7, version=7, info=info)
        bench.partitions.take(
            partition_status(index, incarnation=(1, index), seq=2, version=7, is_sealed=True, parts=(part,))
        )
    (order,) = checkpoints.advance(bench.partitions.entries, 7)
    assert isinstance(order, WriteManifest)
    checkpoints.on_manifest(7, is_written=False)
    assert completion.advance() == [TakeDigest(bench.partitions.addresses)]
