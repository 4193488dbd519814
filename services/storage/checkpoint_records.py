"""What is said of a checkpoint: its manifest, and the names of its files.

<checkpoint_dir>/version-<V>/part-<i>-of-<N>.safetensors     tensors of partition i
<checkpoint_dir>/version-<V>/part-<i>-of-<N>.json            the rest of its state, and checksums
<checkpoint_dir>/version-<V>/manifest.json                   written last; makes the version valid
"""

import re
from pathlib import Path
from typing import Protocol

import msgspec

from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import NO_IDENTITY, Ends, Identity
from edlz.services.storage import envelope
from edlz.services.storage.blocks import DamagedFile, checksum
from edlz.services.storage.state_head import StateHead, body_of, read_head

__all__ = [
    "MANIFEST",
    "PART_HEAD",
    "Manifest",
    "Part",
    "check_part",
    "is_checkpoint_file",
    "is_listed",
    "manifest_data",
    "part_head",
    "partitions_of",
    "read_manifest",
    "version_folder",
    "version_of",
]

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
PART_HEAD = re.compile(r"part-([0-9]+)-of-([0-9]+)\.json")

_VERSION = re.compile(r"version-(0|[1-9][0-9]*)")
_PART = r"part-[0-9]+-of-([0-9]+)\.(?:safetensors|json)"
_FILE = re.compile(rf"{_PART}|manifest\.json|\.(?:{_PART}|manifest\.json)\.[0-9A-Za-z_-]+\.tmp")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One partition's two files, as a manifest lists them; `size_bytes` is of both.

    `era` and `version` are the partition's own at the cut; an edlz that did not list them left them out.
    """

    size_bytes: int
    body_checksum: str
    head_checksum: str
    table_rows: tuple[int, ...]
    era: Identity = NO_IDENTITY
    version: int = -1


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a version valid: exactly these parts (that of partition i at place i), of one cut.

    `number` rises from one checkpoint of a run to the next, `run_number` from one run in the folder to the
    next: clocks are set back, and differ from node to node.  `ends` are the tasks that had been ended before
    their records were (None: not said).  `epoch`, `minibatches` (applied in the job so far) and `created_at`
    are for people.  `settings` build the model again: flags, as `JobConfig.model_settings` gives them; a manifest
    of an older edlz has none.
    """

    job: str
    run: str
    plan_hash: str
    mode: str
    version: int
    number: int
    epoch: int
    minibatches: int
    created_at: float
    ledger: LedgerRecord
    parts: tuple[Part, ...]
    run_number: int = 0  # 0: of an edlz that did not number runs
    ends: Ends | None = None
    settings: dict[str, str | int | float | bool | None] = {}

    @property
    def partitions(self) -> int:
        return len(self.parts)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


def version_folder(checkpoint_dir: Path, version: int) -> Path:
    """Return the folder of a version."""
    return checkpoint_dir / f"version-{version}"


def version_of(folder: Path) -> int | None:
    """Return the version that a folder's name says, None if it is not one of ours."""
    found = _VERSION.fullmatch(folder.name)
    return int(found[1]) if found else None


def part_head(folder: Path, partition: int, partitions: int) -> Path:
    """Return the place of a part's head; its tensors lie beside it."""
    return folder / f"part-{partition}-of-{partitions}.json"


def is_checkpoint_file(name: str) -> bool:
    """Whether a file of this name in a version's folder is ours, finished or temporary."""
    return _FILE.fullmatch(name) is not None


def partitions_of(name: str) -> int | None:
    """Return how many parts there are, as the name of one's file says, finished or temporary; None of any other name."""
    found = _FILE.fullmatch(name)
    count = None if found is None else found[1] or found[2]
    return None if count is None else int(count)


def manifest_data(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest's file."""
    return envelope.encode(MANIFEST_FORMAT, manifest)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a version.

    Raises
    ------
    DamagedFile
        If it is missing, not whole, of another format, of another version, or lists no parts.
    OSError
        If it cannot be read.
    """
    path = folder / MANIFEST
    manifest, _ = envelope.read(path, MANIFEST_FORMAT, Manifest)
    if manifest.version != version_of(folder):
        raise DamagedFile(path, f"it is of version {manifest.version}")
    if not manifest.parts:
        raise DamagedFile(path, "it lists no parts")
    return manifest


class Listed(Protocol):
    """What identifies a part's files."""

    @property
    def body_checksum(self) -> str: ...

    @property
    def head_checksum(self) -> str: ...


def is_listed(part: Listed, head: StateHead, data: bytes) -> bool:
    """Whether a head, and the bytes it was read from, are those that a manifest or a report lists."""
    return (checksum(data), head.body.digest) == (part.head_checksum, part.body_checksum)


def check_part(head: Path, part: Listed) -> StateHead:
    """Check a part as well as can be done without reading its tensors; return its head.

    Raises
    ------
    DamagedFile
        If a file is missing, the head is not the one that is listed, or the tensors' file has not the
        length that the head says.
    OSError
        If a file cannot be read.
    """
    about, data = read_head(head)
    if not is_listed(part, about, data):
        raise DamagedFile(head, "checksum: not the file that the manifest lists")
    body = body_of(head)
    try:
        size = body.stat().st_size
    except FileNotFoundError:
        raise DamagedFile(body, "missing") from None
    if size != about.body.file_bytes:
        raise DamagedFile(body, "size")
    return about
