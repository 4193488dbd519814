"""From a cut to files: the one way by which models come out, from a command or from a task of a job.

Importing this module is cheap: TensorFlow is imported once it is known that the place can be written to.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edlz.services.configuration.export_flags import FORMATS, Format, UnknownIds, is_keras_file
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, DataError
from edlz.services.export.about import About, read_about, write_about
from edlz.services.export.publishing import find_version, publish_file, publish_folder, staging
from edlz.services.protocol.plan import Plan
from edlz.services.storage.whole_cut import WholeCut
from edlz.services.worker.engine.tensorflow.environment import prepare_environment

__all__ = ["FORMATS", "Export", "Exported", "Format", "export_model", "load_model"]

_SCRATCH = "scratch"


@dataclass(frozen=True, kw_only=True)
class Export:
    """What is asked for.

    Attributes
    ----------
    output : Path
        A folder, in which the export gets the next number; or a file `….keras`.
    formats : sequence of Format
    unknown_ids : UnknownIds or None
        None: "initial", as far as the format can have it.
    about : mapping
        For people, beside the export: which job, which version.
    identity : str
        What makes it the same export as another try: of all tries together one gets a number.  Nothing: there is
        no other try.
    on_progress : callable
        Called again and again while tables are copied.
    """

    output: Path
    formats: tuple[Format, ...] = ("saved_model",)
    unknown_ids: UnknownIds | None = None
    about: Mapping[str, object] = field(default_factory=dict)
    identity: str = ""
    on_progress: Callable[[], None] = lambda: None

    @property
    def is_file(self) -> bool:
        return is_keras_file(str(self.output))


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What came of it.

    Attributes
    ----------
    place : Path
        The numbered folder, or the file.
    tables : tuple of (str, int, int)
        Of each: path, rows, values of a row.
    signatures : tuple of str
        Of the SavedModel.
    needed_classes : tuple of str
        Classes without whose code the Keras file cannot be loaded.
    size_bytes : int
    """

    place: Path
    tables: tuple[tuple[str, int, int], ...]
    signatures: tuple[str, ...]
    needed_classes: tuple[str, ...]
    size_bytes: int


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
    prepare_environment(config)
    from edlz.services.export.memory_tables import keras_model

    return keras_model(config, plan, cut, unknown_ids)


def _export(
    config: JobConfig, plan: Plan, cut: WholeCut, export: Export, staged: Path, root: Path
) -> Exported:
    scratch, unknown_ids = staged / _SCRATCH, export.unknown_ids or "initial"
    scratch.mkdir()
    prepare_environment(config)
    from edlz.services.export.loaded_model import LoadedModel

    model = LoadedModel(config, plan, cut, export.on_progress)
    signatures: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    if "keras" in export.formats:
        from edlz.services.export.keras_file import own_classes, refuse_unfit

        refuse_unfit(model, export.unknown_ids)
        needed = tuple(own_classes(model))
    if "saved_model" in export.formats:
        from edlz.services.export.saved_model import write_saved_model

        signatures = write_saved_model(model, staged, scratch, unknown_ids)
    if "safetensors" in export.formats:
        from edlz.services.export.safetensors_files import write_safetensors

        folder = staged / "safetensors"
        folder.mkdir()
        write_safetensors(model, folder, scratch)
    keras_file = staged / (export.output.name if export.is_file else "model.keras")
    if "keras" in export.formats:  # changes the model's layers
        from edlz.services.export.keras_file import write_keras_file

        write_keras_file(model, keras_file, scratch, export.unknown_ids)
    scratch.rmdir()
    tables = tuple((content.path, content.row_count, content.dim) for content in model.tables)
    if export.is_file:
        size = keras_file.stat().st_size
        publish_file(keras_file, export.output)
        place = export.output
    else:
        about = About.of(
            cut, unknown_ids, tables, export=export.identity, signatures=signatures, needed_classes=needed
        )
        write_about(staged, about, export.about)
        size = _size_of(staged)
        place = publish_folder(staged, root, lambda other: _is_same(other, export))
    return Exported(place=place, tables=tables, signatures=signatures, needed_classes=needed, size_bytes=size)


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
