"""What is asked of an export, and what came of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edlz.services.configuration.export_flags import Format, UnknownIds, is_keras_file

__all__ = ["Export", "Exported", "Written"]


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
        Called again and again while tables are copied, with how many rows came since.
    """

    output: Path
    formats: tuple[Format, ...] = ("saved_model",)
    unknown_ids: UnknownIds | None = None
    about: Mapping[str, object] = field(default_factory=dict)
    identity: str = ""
    on_progress: Callable[[int], None] = lambda _: None

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


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files of a model before they appear.

    Attributes
    ----------
    keras_file : Path
        Where it is, if there is one.
    tables, signatures, needed_classes
        As of Exported.
    """

    keras_file: Path
    tables: tuple[tuple[str, int, int], ...]
    signatures: tuple[str, ...]
    needed_classes: tuple[str, ...]
