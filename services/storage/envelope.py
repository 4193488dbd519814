"""Small JSON files that know whether they are whole: `{"format":…,"checksum":…,"content":…}`."""

from pathlib import Path
from typing import TypeVar

import msgspec

from edlz.services import strict_json
from edlz.services.process.descriptors import spared
from edlz.services.storage.blocks import DamagedFile, ForeignFormat, checksum

__all__ = ["encode", "read"]

_T = TypeVar("_T")


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    checksum: str
    content: msgspec.Raw


class _Format(msgspec.Struct, frozen=True):
    format: int


def encode(file_format: int, content: msgspec.Struct) -> bytes:
    """Return the file's bytes; `file_format` rises when an older reader could not read it."""
    raw = strict_json.encode(content)
    return msgspec.json.encode(_Envelope(file_format, checksum(raw), msgspec.Raw(raw)))


@spared
def read(path: Path, file_format: int, kind: type[_T]) -> tuple[_T, bytes]:
    """Return the content of a file, and its bytes.

    Raises
    ------
    DamagedFile
        If the file is missing, not whole, or of another format.
    OSError
        If it cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as e:
        raise DamagedFile(path, "missing") from e
    try:
        found = strict_json.parse(data, _Format).format
        if found != file_format:
            raise ForeignFormat(path, found, file_format)
        envelope = strict_json.parse(data, _Envelope)
        if checksum(bytes(envelope.content)) != envelope.checksum:
            raise DamagedFile(path, "checksum")
        return strict_json.decode(envelope.content, kind), data
    except msgspec.DecodeError as e:
        raise DamagedFile(path, f"not readable: {e}") from e
