"""Asking a place for what it has, by fsspec; and its refusals in our words.

fsspec and what it needs for a kind of place are extras, imported where they are needed.  Credentials come from where each place's
own tools have them; nothing of them passes through here.
"""

import importlib.util
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from edlz.services.configuration.data_addresses import scheme_of, where_credentials_are
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.errors import ConfigError, DataError, EdlzError

__all__ = ["Store", "Stored", "look_elsewhere", "looking_once"]

_TRIES, _FIRST_PAUSE_S = 4, 0.25
_CONTENT_MARKS = ("ETag", "etag", "md5Hash", "content_md5", "md5", "checksum", "ContentMD5", "generation")
_TIME_MARKS = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")
_FORBIDDEN, _MISSING, _TOO_MANY = (401, 403), (404, 410), 429
_NO_CREDENTIALS = re.compile(
    r"credential|AccessDenied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|Anonymous", re.I
)
_HERE = ("file", "local")  # addresses of this machine's own files
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "az": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file where it lies.

    Attributes
    ----------
    mark : str
        What is another one for another content, as the place has it: an ETag, or else a time; perhaps nothing.
    """

    name: str
    size_bytes: int
    mark: str


class Store:
    """A place that an address is of.

    Raises
    ------
    ConfigError
        If fsspec, or what it needs for this kind of place, is not installed; or there is no such kind.
    """

    def __init__(self, name: str) -> None:
        if importlib.util.find_spec("fsspec") is None:
            raise ConfigError(f"{name} needs fsspec, which is not installed", _install(scheme_of(name)))
        from fsspec import core

        try:
            # Another's listing of a minute ago says nothing about a file as it is now.
            self._files, _ = core.url_to_fs(name, use_listings_cache=False)
        except ImportError as error:
            scheme = scheme_of(name)
            raise ConfigError(
                f"{name}: {scheme}:// needs a package that is not installed ({error})", _install(scheme)
            ) from error
        except ValueError as error:
            raise _unknown(name) from error
        except Exception as error:  # each place has classes of its own
            raise _refusal(name, error) from error

    def look(self, name: str) -> Stored:
        """Return what a file is like.

        Raises
        ------
        DataError
            If it is not there, or the place does not say.
        """
        about = self._ask(name, lambda: self._files.info(self._path(name)))
        size = about.get("size")
        if not isinstance(size, int):
            raise DataError(
                f"{name}: the server does not say how large it is", "copy it, and train on the copy"
            )
        marks = (about.get(key) for key in (*_CONTENT_MARKS, *_TIME_MARKS))
        mark = next((str(value).strip('"') for value in marks if value), "")
        return Stored(name, size, mark)

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` to before `end`, and whatever else the server sends.

        Raises
        ------
        DataError
            If it cannot be read.
        """
        found: bytes = self._ask(name, lambda: self._files.cat_file(self._path(name), start=start, end=end))
        return found

    def kind(self, name: str) -> str:
        """Return what there is of this name: file, directory, or nothing."""
        try:
            found: str = self._ask(name, lambda: self._files.info(self._path(name)))["type"]
        except DataError as error:
            cause = error.__cause__
            if isinstance(cause, Exception) and _is_nothing(cause):
                return ""
            raise
        return found

    def entries(self, name: str) -> list[tuple[str, bool]]:
        """Return what lies in a folder, sorted: address, and whether it is a folder itself."""
        path = self._path(name).rstrip("/")
        found = self._ask(name, lambda: self._files.ls(path, detail=True))
        pairs = [(str(one["name"]).rstrip("/"), one["type"] == "directory") for one in found]
        return sorted(
            (self._address(one), is_folder) for one, is_folder in pairs if one.strip("/") != path.strip("/")
        )

    def fitting(self, pattern: str) -> list[str]:
        """Return the files that fit a pattern, sorted."""
        found = self._ask(pattern, lambda: self._files.glob(self._path(pattern), detail=True))
        return sorted(self._address(path) for path, about in found.items() if about["type"] != "directory")

    def _path(self, name: str) -> str:
        path: str = self._files._strip_protocol(name)
        return path

    def _address(self, path: str) -> str:
        address: str = self._files.unstrip_protocol(path)
        return address

    def _ask(self, name: str, question: Callable[[], _T]) -> _T:
        """Return the answer; what may pass by itself is asked again."""
        for attempt in range(_TRIES):
            try:
                return question()
            except EdlzError:
                raise
            except Exception as error:  # each place has classes of its own
                if attempt == _TRIES - 1 or not _may_pass(error):
                    raise _refusal(name, error) from error
            time.sleep(_FIRST_PAUSE_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")


_looked_at: ContextVar[dict[str, Stored] | None] = ContextVar("looked_at", default=None)


@contextmanager
def looking_once() -> Iterator[None]:
    """Have each file looked at once within the block: a place asked again and again would take long to list.

    One that is replaced meanwhile is found by whoever opens it as it was planned.
    """
    token = _looked_at.set({})
    try:
        yield
    finally:
        _looked_at.reset(token)


def look_elsewhere(name: str) -> Stored:
    """Return what a file elsewhere is like now."""
    known = _looked_at.get()
    if known is None:
        return Store(name).look(name)
    if name not in known:
        known[name] = Store(name).look(name)
    return known[name]


def _status(error: BaseException) -> int:
    """Return the HTTP status that an error, or its cause, came with; 0: none."""
    at: BaseException | None = error
    while at is not None:
        status = getattr(at, "status", None) or getattr(at, "code", None)
        if isinstance(status, int):
            return 0 if status in _MISSING else status
        at = at.__cause__
    return 0


def _is_nothing(error: Exception) -> bool:
    """Whether an error says that nothing is there."""
    return isinstance(_meant(error), FileNotFoundError) and not _status(error)


def _may_pass(error: Exception) -> bool:
    status = _status(error)
    if status:
        return status >= 500 or status == _TOO_MANY
    return isinstance(_meant(error), ConnectionError | TimeoutError)


def _meant(error: Exception) -> Exception:
    """Return what is meant by an error: some say that nothing is there if they cannot get there."""
    while isinstance(error, FileNotFoundError) and isinstance(error.__cause__, OSError | TimeoutError):
        error = error.__cause__
    return error


def _refusal(name: str, error: Exception) -> DataError:
    """Return what a place has answered, in our words: theirs may hold anything."""
    status, error = _status(error), _meant(error)
    text = str(error)
    if isinstance(error, PermissionError) and scheme_of(name) in _HERE:
        path = name.partition("://")[2]
        return DataError(
            f"{name} cannot be read: {error.strerror or 'Permission denied'}",
            f"whoever runs edlz needs the right to read it, workers too: chmod a+rX {path}",
        )
    if status in _FORBIDDEN or isinstance(error, PermissionError) or _is_about_credentials(error, text):
        return DataError(
            f"{name} cannot be read: "
            f"{'permission is denied' if _is_known(error) else 'no credentials are found'}{_answered(status)}",
            f"every process needs credentials for it in its environment, the workers too: {where_credentials_are(name)}",
        )
    if _is_nothing(error):
        return DataError(
            f"{name} does not exist", "list the folder with that store's own tools, or correct the address"
        )
    if status:
        return DataError(f"{name} cannot be read: the server answers {status}", "try again later")
    if isinstance(error, OSError) or "Connect" in type(error).__name__:
        return DataError(
            f"{name} cannot be reached: {type(error).__name__}",
            "see whether this machine, and those of the workers, have a way there (address, proxy, endpoint)",
        )
    return DataError(f"{name} cannot be read: {type(error).__name__}")


def _answered(status: int) -> str:
    return f" (the server answers {status})" if status else ""


def _is_known(error: Exception) -> bool:
    """Whether the place knows who asks."""
    return "NoCredentials" not in type(error).__name__


def _is_about_credentials(error: Exception, text: str) -> bool:
    return not isinstance(error, FileNotFoundError) and bool(
        _NO_CREDENTIALS.search(f"{type(error).__name__} {text}")
    )


def _install(scheme: str) -> str:
    package = _PACKAGES.get(scheme, "")
    return " ".join(["pip install 'edlz[data]'", *([package] if package else [])])


def _unknown(name: str) -> ConfigError:
    from fsspec.registry import available_protocols

    known = sorted(available_protocols())
    near = did_you_mean(nearest(scheme_of(name), known))
    return ConfigError(
        f"{name}: {scheme_of(name)}:// is no kind of place that is known", near or "e.g. s3, gs, hdfs, https"
    )
