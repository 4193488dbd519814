"""What lies beside an export and says what it was made of: for people, and for who tries the same export again."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from edlz.services import strict_json
from edlz.services.storage.whole_cut import WholeCut

__all__ = ["ABOUT", "About", "TableRows", "read_about", "write_about"]

ABOUT = "assets.extra/edlz.json"  # in a numbered folder
_MOST_BYTES = 1 << 20


class TableRows(msgspec.Struct, frozen=True):
    """An embedding table of an export."""

    path: str
    rows: int
    dim: int


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What an export was made of.

    Attributes
    ----------
    export : str
        What makes it the same export as another try; nothing if there was no other one.
    """

    version: int
    plan_hash: str
    minibatches: int
    unknown_ids: str
    tables: tuple[TableRows, ...]
    export: str = ""
    signatures: tuple[str, ...] = ()
    needed_classes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        cut: WholeCut,
        unknown_ids: str,
        tables: tuple[tuple[str, int, int], ...],
        *,
        export: str,
        signatures: tuple[str, ...],
        needed_classes: tuple[str, ...],
    ) -> "About":
        """Return what is to be said of an export of this cut."""
        return cls(
            version=cut.version,
            plan_hash=cut.head.plan_hash,
            minibatches=cut.head.ledger.minibatches,
            unknown_ids=unknown_ids,
            tables=tuple(TableRows(*table) for table in tables),
            export=export,
            signatures=signatures,
            needed_classes=needed_classes,
        )


def write_about(folder: Path, about: About, more: Mapping[str, object]) -> None:
    """Write it into a folder that is not published yet; `more` stands before it."""
    place = folder / ABOUT
    place.parent.mkdir()
    content = {**more, **msgspec.to_builtins(about)}
    place.write_bytes(msgspec.json.format(msgspec.json.encode(content)))


def read_about(folder: Path) -> About | None:
    """Return what a numbered folder says of itself; None if it is no export of edlz."""
    try:
        with (folder / ABOUT).open("rb") as file:
            return strict_json.parse(file.read(_MOST_BYTES), About)
    except (OSError, msgspec.DecodeError):
        return None
