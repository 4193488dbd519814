"""The export of a job's finished model, by one of its workers at the job's end.

The model is read from what the partitions have sealed, if their folders are to be seen from here, or from a
checkpoint that was made of the same state: on a cluster the volumes decide.
"""

from collections.abc import Callable
from pathlib import Path
from typing import cast

from edlz.services.configuration.export_flags import Format, UnknownIds
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import DataError
from edlz.services.export.exporter import Export, export_model
from edlz.services.protocol.messages import ExportLease, ExportReport, Job
from edlz.services.storage.checkpoint_records import part_head, read_manifest, version_folder
from edlz.services.storage.sealed import are_full, sealed_parts
from edlz.services.storage.whole_cut import WholeCut

__all__ = ["export_finished"]


def export_finished(
    config: JobConfig, job: Job, lease: ExportLease, on_progress: Callable[[], None] = lambda: None
) -> ExportReport:
    """Export the finished model; if another try has done so, return what that came to.

    Parameters
    ----------
    config : JobConfig
        That the model is built with.
    on_progress : callable, optional
        Called again and again while tables are copied.

    Raises
    ------
    DataError
        If the finished state cannot be seen from here, for now or for good; else as `export_model`.
    ConfigError, ModelError
        As `export_model`.
    """
    wish = lease.wish
    export = Export(
        output=Path(wish.output),
        formats=cast(tuple[Format, ...], wish.formats),
        unknown_ids=cast(UnknownIds, wish.unknown_ids) if wish.unknown_ids else None,
        about={"job": job.name, "run": job.run, "digest": lease.digest},
        identity="-".join((job.run, lease.digest, *wish.formats, wish.unknown_ids)),
        on_progress=lambda _: on_progress(),
    )
    with _finished_cut(job, lease) as cut:
        done = export_model(config, job.plan, cut, export)
    return ExportReport(
        digest=lease.digest,
        wish=wish,
        place=str(done.place),
        size_bytes=done.size_bytes,
        tables=done.tables,
        signatures=done.signatures,
        needed_classes=done.needed_classes,
    )


def _finished_cut(job: Job, lease: ExportLease) -> WholeCut:
    config, checkpoint = JobConfig.from_record(job.config), lease.checkpoint
    try:
        if lease.result >= 0:
            return WholeCut.of_checkpoint(version_folder(config.checkpoint_directory, lease.result))
        if heads := sealed_parts(config.job_directory, job, lease.task_count):
            return WholeCut(heads)
        folder = version_folder(config.checkpoint_directory, checkpoint)
        if checkpoint >= 0 and folder.is_dir():
            manifest = read_manifest(folder)
            heads = tuple(part_head(folder, i, manifest.partitions) for i in range(manifest.partitions))
            if are_full(heads, job.plan, lease.task_count):
                return WholeCut.of_checkpoint(folder)
    except OSError as e:
        raise DataError(f"{e.filename or config.job_directory} cannot be read: {e.strerror or e}") from e
    raise DataError(
        f"a worker sees neither the parameter servers' files in {config.job_directory} nor a checkpoint of the"
        f" finished model in {config.checkpoint_directory}",
        "let one of the two lie where all of the job's processes see it: --job_dir=DIR, or --checkpoint_dir=DIR with"
        " --checkpoint_steps=N",
    )
