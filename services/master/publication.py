"""Publishes a job's predictions, or its statistics, as its master's core asks for it."""

from collections.abc import Sequence
from pathlib import Path

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.master.core.vocabulary.instructions import PublishPredictions
from edlz.services.master.journal.full_disk import FullDisk
from edlz.services.predictions.kinds import PREDICTIONS, STATISTICS
from edlz.services.predictions.output import Part, PredictionManifest, part_name, publish, publish_made
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.messages import Job
from edlz.services.protocol.plan import Plan
from edlz.services.statistics.figures import encode, merged
from edlz.services.statistics.parts import EXTENSION

__all__ = ["publish_predictions"]


def publish_predictions(
    config: JobConfig, job: Job, order: PublishPredictions
) -> tuple[tuple[int, ...], FailureView | None]:
    """Write the manifest, or `statistics.json`, waiting for room where the disk is full.

    Returns
    -------
    missing : tuple of int
        Tasks whose files are not there; that file is not, either.
    failure : FailureView or None
        Why there can be none.
    """
    kind = STATISTICS if job.plan.analyzes else PREDICTIONS
    folder = Path(getattr(config, kind.flag))
    write = _statistics if job.plan.analyzes else _predictions
    disk = FullDisk(folder / kind.whole)
    try:
        return disk.wait_for(lambda: write(config, job, order)), None
    except EdlzError as error:
        return (), FailureView(text=error.message, help=error.help, exit_code=error.exit_code)
    except OSError as error:
        text = f'{kind.flag} "{folder}" cannot be written: {error.strerror or error}'
        return (), FailureView(text=text, help=f"mend that, then: edlz resume {job.name}")


def _predictions(config: JobConfig, job: Job, order: PublishPredictions) -> tuple[int, ...]:
    return publish(Path(config.prediction_output), _manifest(config, job, order), job.run)


def _statistics(config: JobConfig, job: Job, order: PublishPredictions) -> tuple[int, ...]:
    def make(paths: Sequence[Path]) -> bytes:
        return encode(merged(paths, config.vocabulary_size, len(order.skipped)))

    count = len(job.plan.evaluation_ranges)
    parts = [(entry.task, part_name(entry.task, count, EXTENSION), entry.bytes) for entry in order.tasks]
    return publish_made(Path(config.statistics_output), job.run, STATISTICS, parts, make)


def _manifest(config: JobConfig, job: Job, order: PublishPredictions) -> PredictionManifest:
    plan: Plan = job.plan
    count, parts = len(plan.evaluation_ranges), []
    for entry in order.tasks:
        records = plan.evaluation_ranges[entry.task]
        parts.append(
            Part(
                file=part_name(entry.task, count, config.prediction_format),
                task=entry.task,
                shard=records.name,
                first=records.first,
                records=entry.records,
                bytes=entry.bytes,
                checksum=entry.checksum,
            )
        )
    return PredictionManifest(
        job=job.name,
        checkpoint=job.begins_from,
        version=order.version,
        format=config.prediction_format,
        records=sum(part.records for part in parts),
        tasks=count,
        parts=tuple(parts),
        skipped=order.skipped,
    )
