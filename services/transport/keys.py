"""The keys of a job: with them its services know each other, and nobody else understands them.

A role of the job (master, ps, worker, client) has one CURVE key pair.  A folder of keys holds the secret key of
each role in a file of its own, `<role>.key`, and all public keys in `public.json`: a machine needs that one
and the secrets of the roles that run there.  What the keys do is `services/transport/security.py`'s affair.
"""

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import zmq
from zmq.utils import z85

from edlz.services import strict_json
from edlz.services.errors import ConfigError
from edlz.services.storage.durable import fsync_path, write_all

__all__ = [
    "PUBLIC_FILE",
    "ROLES",
    "JobKeys",
    "KeyPair",
    "RoleKeys",
    "job_keys_in",
    "load_job_keys",
    "load_keys",
    "make_job_keys",
    "secret_file",
    "write_keys",
]

ROLES: Final = ("master", "ps", "worker", "client")  # client: who looks at a job, or leads it from outside
PUBLIC_FILE: Final = "public.json"
MOST_BYTES: Final = 1 << 16  # of a file of keys: far more than it has

_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


@dataclass(frozen=True)
class KeyPair:
    """A CURVE key pair in Z85 (ZeroMQ RFC 32), as ZeroMQ's options take it."""

    public: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True)
class RoleKeys:
    """What a process of one role holds: its own pair, and the public keys of all roles."""

    role: str
    own: KeyPair
    public: Mapping[str, bytes]  # role: Z85
    source: str = field(default="", compare=False)  # the folder that they were read from

    @property
    def told(self) -> str:
        """Whose they are, and where from, as messages say it."""
        return f"{self.role}, of {self.source}" if self.source else self.role


@dataclass(frozen=True)
class JobKeys:
    """The key pairs of all roles of a job."""

    pairs: Mapping[str, KeyPair]

    def of(self, role: str) -> RoleKeys:
        """Return what a process of this role holds."""
        return RoleKeys(role, self.pairs[role], {name: pair.public for name, pair in self.pairs.items()})

    def files(self) -> dict[str, bytes]:
        """Return the files of a folder of keys: name and content, the public one first."""
        public = {role: pair.public.decode() for role, pair in self.pairs.items()}
        content = {PUBLIC_FILE: msgspec.json.format(msgspec.json.encode(_PublicFile(keys=public))) + b"\n"}
        return content | {secret_file(role): pair.secret + b"\n" for role, pair in self.pairs.items()}


class _PublicFile(msgspec.Struct, kw_only=True):
    keys: dict[str, str]


def secret_file(role: str) -> str:
    """Return the name of the file with a role's secret key."""
    return f"{role}.key"


def make_job_keys() -> JobKeys:
    """Make new keys for a job.

    Raises
    ------
    ConfigError
        If this ZeroMQ cannot encrypt.
    """
    _check_curve()
    return JobKeys({role: KeyPair(*zmq.curve_keypair()) for role in ROLES})


def write_keys(folder: Path, keys: JobKeys) -> None:
    """Write a job's keys: a folder that only this user may enter, there in one step, or not at all.

    Raises
    ------
    ConfigError
        If the folder has files already, or cannot be written.
    """
    folder = folder.absolute()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))  # mode 0700
        try:
            for name, content in keys.files().items():
                _write_file(unfinished / name, content)
            fsync_path(unfinished)
            os.rename(unfinished, folder)  # takes the place of an empty folder, of no other
        except BaseException:
            for name in keys.files():
                with contextlib.suppress(FileNotFoundError):
                    (unfinished / name).unlink()
            unfinished.rmdir()
            raise
        fsync_path(folder.parent)
    except OSError as error:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            message = f"{folder} is there already: keys are never written over"
            raise ConfigError(message, "choose a folder that does not exist") from error
        message = f"cannot write keys to {folder}: {error.strerror or error}"
        raise ConfigError(message, "choose another folder") from error


def load_keys(folder: Path, role: str) -> RoleKeys:
    """Read what a process of a role holds.

    Raises
    ------
    ConfigError
        If a file is missing, not readable, damaged, open to everybody, or of another job than the others.
    """
    _check_curve()
    public = _read_public(folder)
    return RoleKeys(role, _read_pair(folder, role, public), public, source=str(folder))


def load_job_keys(folder: Path) -> JobKeys:
    """Read the keys of all roles, as `write_keys` wrote them.

    Raises
    ------
    ConfigError
        See `load_keys`.
    """
    _check_curve()
    public = _read_public(folder)
    return JobKeys({role: _read_pair(folder, role, public) for role in ROLES})


def job_keys_in(folder: Path) -> JobKeys:
    """Read the keys of all roles; make them first if the folder does not exist.

    Raises
    ------
    ConfigError
        See `load_keys` and `write_keys`.
    """
    if not folder.exists():
        write_keys(folder, make_job_keys())
    return load_job_keys(folder)


def _check_curve() -> None:
    if not zmq.has("curve"):
        raise ConfigError(
            f"the ZeroMQ {zmq.zmq_version()} of this Python was built without encryption (CURVE)",
            "pip install --force-reinstall --only-binary=:all: pyzmq",
        )


def _read_public(folder: Path) -> dict[str, bytes]:
    path = folder / PUBLIC_FILE
    content = _read_file(path, stat.S_IWOTH)
    try:
        keys = strict_json.decode(content, _PublicFile).keys
    except msgspec.DecodeError as error:
        raise _damaged(path, f"it is no list of keys ({error})") from error
    lacking = [role for role in ROLES if role not in keys]
    if lacking:
        raise _damaged(path, f"it lacks {', '.join(lacking)}")
    return {role: _checked_key(path, key) for role, key in keys.items()}


def _read_pair(folder: Path, role: str, public: Mapping[str, bytes]) -> KeyPair:
    path = folder / secret_file(role)
    secret = _checked_key(path, _read_file(path, stat.S_IRWXO).decode("ascii", "replace").strip())
    if zmq.curve_public(secret) != public[role]:
        raise ConfigError(
            f"{path} and {folder / PUBLIC_FILE} are not of the same job, or one of them is damaged",
            "copy both from the folder that edlz keys made for this job",
        )
    return KeyPair(public[role], secret)


def _read_file(path: Path, forbidden_mode: int) -> bytes:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(MOST_BYTES)
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no {path}", "edlz keys DIR makes a job's keys: copy them to each of its machines"
        ) from error
    except OSError as error:
        message = f"cannot read {path}: {error.strerror or error}"
        raise ConfigError(message, "see that it is a file, and that this user may read it") from error
    if mode & forbidden_mode:
        what = "read" if mode & stat.S_IROTH else "change"
        raise ConfigError(
            f"everybody may {what} {path} (mode {mode:04o})",
            f"chmod o= {path}; if somebody may have done so, make new keys for the job: edlz keys DIR",
        )
    return content


def _checked_key(path: Path, text: str) -> bytes:
    with contextlib.suppress(Exception):  # zmq's decoder raises a different error for each kind of damage
        if _Z85.fullmatch(text) and len(z85.decode(text.encode())) == 32:
            return text.encode()
    raise _damaged(path, f"it holds no key of 40 characters, but {len(text)}" if len(text) != 40 else "")


def _damaged(path: Path, how: str) -> ConfigError:
    return ConfigError(
        f"{path} is damaged" + (f": {how}" if how else ""),
        "copy it again from the folder that edlz keys made for this job",
    )


def _write_file(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, memoryview(content), path)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
