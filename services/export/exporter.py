"""From a cut to files: the one way by which models come out, from a command or from a task of a job.

Importing this module is cheap: TensorFlow is imported once it is known that the place can be written to.
"""

import os
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

from edlz.services.configuration.export_flags import FORMATS, Format, UnknownIds
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, DataError
from edlz.services.export.about import About, read_about, write_about
from edlz.services.export.order import Export, Exported, Written
from edlz.services.export.publishing import find_version, publish_file, publish_folder, staging
from edlz.services.protocol.plan import Plan
from edlz.services.storage.whole_cut import WholeCut
from edlz.services.worker.engine.tensorflow.environment import importing_tensorflow

__all__ = ["FORMATS", "Export", "Exported", "Format", "export_model", "load_model"]


def export_model(config: JobConfig, plan: Plan, cut: WholeCut, export: Export) -> Exported:
    """Build the job's model, give it the values of a cut, and write it.

    Parameters
    ----------
    config, plan : JobConfig, Plan
        Of the job; the first records of the plan's data are read, to see what the feed yields.
    cut : WholeCut
        Open; read block by block.

    Raises
    ------
    ConfigError
        If the output cannot be written to, or the format cannot have this model.
    ModelError
        If the model cannot be built, traced or saved.
    DataError
        If the cut is damaged or of another model, or the disk is full; nothing new has appeared then.
    """
    root = export.output.parent if export.is_file else export.output
    try:
        with ExitStack() as stack:
            try:
                staged = stack.enter_context(staging(root))
                if (before := _earlier(export, root)) is not None:
                    return before
            except OSError as e:
                raise ConfigError(
                    f"{export.output} cannot be written: {e.strerror or e}", "name another place to export to"
                ) from e
            return _export(config, plan, cut, export, staged, root)
    except OSError as e:
        raise _failure(export, root, e) from e


def load_model(config: JobConfig, plan: Plan, cut: WholeCut, unknown_ids: UnknownIds = "initial") -> Any:
    """Return the job's Keras model with the values of a cut, its tables in memory.

    Raises
    ------
    ModelError, DataError
        As `export_model`.
    """
    return _tensorflow_side(config).keras_model(config, plan, cut, unknown_ids)


def _tensorflow_side(config: JobConfig) -> ModuleType:
    with importing_tensorflow(config):
        # Not above: it imports TensorFlow, for which the environment has to be prepared, and which takes seconds.
        from edlz.services.export import written_model

    return written_model


def _export(
    config: JobConfig, plan: Plan, cut: WholeCut, export: Export, staged: Path, root: Path
) -> Exported:
    side = _tensorflow_side(config)
    written: Written = side.write_model(config, plan, cut, export, staged)
    signatures, needed = written.signatures, written.needed_classes
    if export.is_file:
        size = written.keras_file.stat().st_size
        publish_file(written.keras_file, export.output)
        place = export.output
    else:
        about = About.of(
            cut,
            export.unknown_ids or "initial",
            written.tables,
            export=export.identity,
            signatures=signatures,
            needed_classes=needed,
        )
        write_about(staged, about, export.about)
        size = _size_of(staged)
        place = publish_folder(staged, root, lambda other: _is_same(other, export))
    return Exported(
        place=place, tables=written.tables, signatures=signatures, needed_classes=needed, size_bytes=size
    )


def _earlier(export: Export, root: Path) -> Exported | None:
    """Return what another try of this export has come to, if it has."""
    if not export.identity or export.is_file:
        return None
    place = find_version(root, lambda other: _is_same(other, export))
    about = None if place is None else read_about(place)
    if place is None or about is None:
        return None
    return Exported(
        place=place,
        tables=tuple((table.path, table.rows, table.dim) for table in about.tables),
        signatures=about.signatures,
        needed_classes=about.needed_classes,
        size_bytes=_size_of(place),
    )


def _is_same(folder: Path, export: Export) -> bool:
    about = read_about(folder) if export.identity else None
    return about is not None and about.export == export.identity


def _size_of(folder: Path) -> int:
    return sum(Path(parent, name).stat().st_size for parent, _, names in os.walk(folder) for name in names)


def _failure(export: Export, root: Path, error: OSError) -> DataError:
    """Return the error that a file could not be read or written."""
    reason, place = error.strerror or str(error), str(error.filename or "")
    if place and not Path(place).absolute().is_relative_to(root.absolute()):
        return DataError(f"{place}: {reason}")
    return DataError(
        f"{export.output} cannot be written: {reason}",
        "make room there, or name another place; nothing that was there before has changed",
    )
