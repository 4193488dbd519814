"""What the user's own code raised: the errors that carry it, the frame it was in, the line that says it.

An error in the user's code passes through TensorFlow, Keras and AutoGraph before it gets here; of the
frame that matters often only the text is left.  So frames are looked for in the text.
"""

import inspect
import linecache
import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edlz.services.error_text import is_library, main_line
from edlz.services.errors import EdlzError, ModelError
from edlz.services.protocol.messages import FailedTask, Failure
from edlz.services.valid_text import valid_text
from edlz.services.worker.engine.user_code.advice import advice_for
from edlz.services.worker.engine.user_code.missing_module import missing_module_help

__all__ = [
    "Blame",
    "TaskError",
    "UserCode",
    "UserCodeError",
    "brief",
    "definition",
    "describe",
    "exit_error",
    "failure_of",
    "message_of",
    "shown_place",
    "telling_exits",
    "told",
    "without_exit",
]

_MAX_TRACEBACK = 20_000  # characters; TensorFlow's messages can be endless

_PLACE = re.compile(r"(?P<path>.+):(?P<line>\d+)(?: in .*)?$")
_DEFINES = re.compile(r"\s*(async )?(def|class) ")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)(?:, in (\S+))?')
_TRANSLATED = re.compile(r"/__autograph_generated_file\w+\.py\", line \d+, in tf__(\w+)")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt): ")


class UserCodeError(ModelError):
    """The user's code raised, and would again on any records.

    Attributes
    ----------
    text : str
        The message without the place.
    where : str
        `file:line in function` of the innermost frame of the user's own, or nothing.
    error : str
        Type and message of what was raised, if `text` does not have them.
    traceback : str
    """

    def __init__(
        self,
        text: str,
        help: str = "",  # noqa: A002
        *,
        where: str = "",
        error: str = "",
        traceback: str = "",
    ) -> None:
        is_placed = text.startswith(where.partition(" in ")[0])  # as `file:line: …`
        place = f" ({where})" if where and not is_placed else ""
        cause = f": {error}" if error else ""
        super().__init__(f"{text}{cause}{place}", help)
        self.text, self.where, self.error = text, where, error
        self.traceback = traceback

    @property
    def source(self) -> str:
        """The line at `where`, if it can be read."""
        found = _PLACE.match(self.where)
        return (
            "" if found is None else valid_text(linecache.getline(found["path"], int(found["line"])).rstrip())
        )


@dataclass(frozen=True, slots=True)
class Blame:
    """Which record makes the user's code raise.

    Attributes
    ----------
    record : str
        `record 17 of data/part-0`, or nothing if no single one is to blame.
    error : Exception or None
        What that record alone raised, in Python where that is possible.
    """

    record: str = ""
    error: Exception | None = None


class TaskError(EdlzError):
    """One task's records cannot be used: they cannot be read, or the user's code raised on them.

    Attributes
    ----------
    task, index : int
        The minibatch at which that was found.
    error : str
        Type and message of what was raised.
    where : str
        `file:line in function` of the innermost frame of the user's own, or nothing.
    traceback : str
    help : str
        What to do, as far as that is known.
    """

    code = "task"

    def __init__(
        self,
        task: int,
        index: int,
        error: str,
        help: str = "",  # noqa: A002
        *,
        where: str = "",
        traceback: str = "",
    ) -> None:
        super().__init__(f"task {task}, minibatch {index}: {error}", help or advice_for(error))
        self.task, self.index = task, index
        self.error, self.where, self.traceback = error, where, traceback

    def as_mistake(self, what: str, where: str = "") -> UserCodeError:
        """Return the error that says so of any records: `what: …`, in the line `where` if none is known better."""
        return UserCodeError(
            f"{what}: {self.error}", self.help, where=self.where or where, traceback=self.traceback
        )

    def record(
        self,
        kind: Literal["training", "evaluation"],
        *,
        round: int = 0,  # noqa: A002
        attempt: int = 0,
    ) -> FailedTask:
        """Return what the master is told."""
        return FailedTask(
            kind=kind,
            task=self.task,
            index=self.index,
            error=self.error,
            where=self.where,
            traceback=self.traceback,
            round=round,
            attempt=attempt,
            help=self.help,
        )


class UserCode:
    """The folder that the user's code lies in, and how errors from there are told.

    Parameters
    ----------
    folder : Path
        Frames in files below it, other than installed packages, are the user's own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    @contextmanager
    def running(
        self, what: str, fallback: Callable[..., Any] | None = None, advice: str = ""
    ) -> Iterator[None]:
        """Turn whatever is raised inside into a UserCodeError `what raised …`.

        Parameters
        ----------
        what : str
            What runs, as the message begins: `loss()`.
        fallback : callable, optional
            Whose definition is named if no frame of the user's own is found.
        advice : str
            What to do about an error that there is no better advice on.
        """
        try:
            yield
        except (EdlzError, MemoryError):  # this machine's, not the code's
            raise
        except ModuleNotFoundError as e:
            if e.name is None:
                raise self.error(e, f"{what} raised {told(e)}", "", fallback) from e
            raise self._missing(e, e.name, what) from e
        except Exception as e:
            message = f"{what} raised {told(e)}"
            raise self.error(e, message, advice_for(message_of(e)) or advice, fallback) from e

    @contextmanager
    def blaming(self, function: Any) -> Iterator[None]:
        """Let a ModelError that is raised inside, and names no line, name that of the function's definition."""
        try:
            yield
        except UserCodeError:
            raise
        except ModelError as e:
            raise UserCodeError(e.message, e.help, where=self.place(function)) from e

    def place(self, function: Any) -> str:
        """Return where a function or a class of the user's is defined, or nothing."""
        where = definition(function)
        return where if where and self.is_users(where.rpartition(":")[0]) else ""

    def place_of_name(self, path: str, name: str) -> str:
        """Return where a module of the user's gives a value to a name, or nothing."""
        given = re.compile(rf"{re.escape(name)}\s*(:[^=]+)?=[^=]")
        lines = [at for at, text in _lines_from(path, 1) if given.match(text)]
        return f"{_short(path)}:{lines[-1]}" if lines else ""

    def error(
        self,
        cause: Exception,
        text: str,
        help: str,  # noqa: A002
        fallback: Callable[..., Any] | None = None,
        *,
        place: str = "",
        shows_cause: bool = False,
    ) -> UserCodeError:
        """Return the error with this text, its frame and traceback taken from `cause`, and its message if asked.

        `place`: where it is if neither a frame nor the definition of `fallback` is found.
        """
        return UserCodeError(
            text,
            help,
            where=self.where(cause, fallback) or place,
            error=told(cause) if shows_cause else "",
            traceback=self.text(cause),
        )

    def _missing(self, cause: ModuleNotFoundError, name: str, what: str) -> UserCodeError:
        """Return the error of a module that the user's code imports and that is not there."""
        where = self.where(cause)
        message = f'{where.partition(" in ")[0] or what}: no module named "{name}"'
        advice = missing_module_help(name, self.folder)
        return UserCodeError(message, advice, where=where, traceback=self.text(cause))

    def task_error(
        self,
        task: int,
        index: int,
        cause: Exception,
        fallback: Callable[..., Any] | None = None,
        blamed: Blame = Blame(),
    ) -> TaskError:
        """Return the error of one task's records; `blamed` names the one that is to blame, and its line."""
        if isinstance(cause, EdlzError):
            return TaskError(task, index, cause.message, cause.help)
        record = f" ({blamed.record})" if blamed.record else ""
        shown = blamed.error if blamed.error and self.where(blamed.error) else cause
        return TaskError(
            task,
            index,
            f"{told(cause)}{record}",
            where=self.where(shown, fallback),
            traceback=self.text(shown),
        )

    def where(self, cause: BaseException, fallback: Callable[..., Any] | None = None) -> str:
        """Return `file:line in function` of the innermost frame in the user's folder, or nothing."""
        return _innermost(_full_text(cause), self.is_users) or (definition(fallback) if fallback else "")

    def text(self, cause: BaseException) -> str:
        """Return the traceback, the end of it if it is very long."""
        text = _full_text(cause)
        return text if len(text) <= _MAX_TRACEBACK else "...\n" + text[-_MAX_TRACEBACK:]

    def is_users(self, path: str) -> bool:
        """Whether a file is the user's own."""
        return Path(path).resolve().is_relative_to(self.folder) and not is_library(path, self.folder)


def brief(cause: BaseException) -> str:
    """Return the one line of an error's message that says what is wrong."""
    line = main_line(message_of(cause))
    return line.removeprefix(f"{type(cause).__name__}: ") or "no message"


def message_of(cause: BaseException) -> str:
    """Return an error's own text, as valid Unicode."""
    try:
        return valid_text(str(cause.args[0]) if isinstance(cause, KeyError) and cause.args else str(cause))
    except Exception as e:  # the text of the user's own error is their code, too
        return f"(its text raises {type(e).__name__})"


def told(cause: BaseException) -> str:
    """Return an error as `ValueError: what is wrong`.

    What Python code raises that TensorFlow has called comes from there as an error of TensorFlow's, whose text begins
    with the first one.
    """
    text = brief(cause)
    is_of_python = type(cause).__module__.startswith("tensorflow.") and _RAISED.match(text)
    return text if is_of_python else f"{type(cause).__name__}: {text}"


def shown_place(path: str, line: int, function: str) -> str:
    """Return `file:line in function`."""
    return f"{_short(path)}:{line} in {function}"


@contextmanager
def telling_exits() -> Iterator[None]:
    """Turn an exit that the user's code asks for inside into an error of that code.

    Raises
    ------
    UserCodeError
        In place of SystemExit.
    """
    try:
        yield
    except SystemExit as e:
        raise exit_error(e) from e


def without_exit(error: BaseException) -> BaseException:
    """Return an error as it is told: an exit, which only the user's code asks for, becomes an error of that code."""
    return exit_error(error) if isinstance(error, SystemExit) else error


def exit_error(cause: SystemExit) -> UserCodeError:
    """Return the error that stands for an exit which the user's code has asked for."""
    text = _full_text(cause)
    where = _innermost(text, lambda path: not is_library(path))
    code = (
        ""
        if cause.code is None
        else repr(valid_text(cause.code) if isinstance(cause.code, str) else cause.code)
    )
    by_parser = ", by argparse" if "/argparse.py" in text else ""
    translated = [] if where else _TRANSLATED.findall(text)  # AutoGraph notes no lines of an exit
    place = f" in {translated[-1]}()" if translated else ""
    is_import = not translated and (not where or where.endswith(" in <module>"))
    return UserCodeError(
        f"the model's code called sys.exit({code}){by_parser}{place}",
        "a worker imports the model's file: leave that to `if __name__ == '__main__':`"
        if is_import
        else "raise an error there that says what is wrong",
        where=where,
        traceback=text,
    )


def describe(function: object) -> str:
    """Return what a function is called in messages."""
    return str(getattr(function, "__name__", type(function).__name__))


def failure_of(error: Exception, *, is_mistake: bool = False) -> Failure:
    """Return what the master is told of an error that no other attempt can mend."""
    if not isinstance(error, EdlzError):
        lines = "".join(traceback.format_exception(error))
        return Failure(code="local-protocol", message=f"{type(error).__name__}: {error}", traceback=lines)
    if not isinstance(error, UserCodeError):
        return Failure(code=error.code, message=error.message, help=error.help, is_mistake=is_mistake)
    return Failure(
        code=error.code,
        message=error.text,
        help=error.help,
        traceback=error.traceback,
        where=error.where,
        source=error.source,
        error=error.error,
        is_mistake=is_mistake,
    )


def definition(function: Any) -> str:
    """Return `file:line in name` of where a function or a class is defined, or nothing."""
    if isinstance(function, type):
        function = vars(function).get("__init__")
    function = inspect.unwrap(function) if callable(function) else function
    code = getattr(function, "__code__", None)
    if code is None or is_library(code.co_filename):
        return ""
    line = code.co_firstlineno
    if linecache.getline(code.co_filename, line).lstrip().startswith("@"):  # its decorators count
        line = next((at for at, text in _lines_from(code.co_filename, line) if _DEFINES.match(text)), line)
    return f"{_short(code.co_filename)}:{line} in {code.co_name}"


def _full_text(cause: BaseException) -> str:
    text = "".join(traceback.format_exception(cause))
    metadata = getattr(cause, "ag_error_metadata", None)
    # AutoGraph runs a translation of the user's code; only its notes have the frames of the original.
    return valid_text(text if metadata is None else f"{text}\n{metadata.get_message()}\n")


def _innermost(text: str, is_users: Callable[[str], bool]) -> str:
    """Return `file:line in function` of a traceback's last frame in a file of the user's own, or nothing."""
    found = ""
    for path, line, function in _FRAME.findall(text):
        if is_users(path):
            found = f"{_short(path)}:{line}" + (f" in {function}" if function else "")
    return found


def _lines_from(path: str, first: int) -> Iterator[tuple[int, str]]:
    return ((at, text) for at, text in enumerate(linecache.getlines(path), 1) if at >= first)


def _short(path: str) -> str:
    """A path below the working directory is shown from there."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
