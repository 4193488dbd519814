"""The `edlz` command: from the words typed to a command, and from what went wrong to an exit code.

Help is answered before anything heavy is imported: no TensorFlow, NumPy, ZeroMQ or Typer.
"""

import errno
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from edlz.client.help.pages import COMMANDS, asked_help, unknown_command
from edlz.client.screen.interruption import Interrupted, ended_by_signals
from edlz.client.screen.terminal import LeftTheView
from edlz.services.configuration.flags import READERS
from edlz.services.configuration.job_config import edlz_home
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_error, print_problems
from edlz.services.errors import EdlzError
from edlz.services.process.outputs import OutputGone, guarded_outputs, output_error
from edlz.services.redaction import HIDDEN, without_secrets
from edlz.services.storage.durable import replace_file
from edlz.services.valid_text import valid_text

__all__ = ["main", "version_text"]

USAGE, OUR_BUG, INTERRUPTED = 2, 70, 130
_WITH_FLAGS = {"ignore_unknown_options": True, "allow_extra_args": True}  # read by the command itself
_GROUPS = ("zoo", "checkpoint", "data")  # of commands
# Where each command is; it is imported once it is chosen: some import NumPy or ZeroMQ, and most need not wait for that.
_MODULES = {
    "train": "train",
    "evaluate": "train",
    "predict": "train",
    "analyze": "train",
    "resume": "resume",
    "ls": "ls",
    "status": "status",
    "top": "status",
    "logs": "logs",
    "open": "open_page",
    "wait": "wait",
    "stop": "stop",
    "scale": "scale",
    "rm": "rm",
    "doctor": "doctor",
    "export": "export",
    "keys": "keys",
    "data": "data",
    "zoo": "zoo",
    "checkpoint": "checkpoint",
}
_COMPLETION_FLAGS = ("--install-completion", "--show-completion")
_BAD_NUMBERS = {
    r"Input should be a valid integer": '="{}" is not a whole number',
    r"Input should be a valid number": '="{}" is not a number',
    r"Input should be greater than or equal to (\S+)": r"={} is below \1",
    r"Input should be less than or equal to (\S+)": r"={} is above \1",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `edlz` with these arguments; return the exit code, having printed what went wrong."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    with guarded_outputs():
        code = _answer(arguments)
        lost = output_error()
        if lost is None or code not in (0, lost.status):  # its own error says more
            return code
        if not lost.is_reader_gone:
            print_error(lost)
        return lost.status


def _answer(arguments: list[str]) -> int:
    """Run a command; print what went wrong, but a loss of the output, and return the exit code."""
    try:
        with ended_by_signals():
            return _run(arguments)
    except OutputGone as e:
        return e.status
    except EdlzError as e:
        if os.environ.get("EDLZ_DEBUG"):
            traceback.print_exc()
        print_error(e)
        return e.exit_code
    except (KeyboardInterrupt, LeftTheView):
        return INTERRUPTED
    except Interrupted as e:
        print(e, file=sys.stderr)
        return e.exit_code
    except Exception as e:
        problem = _of_a_path(e) if isinstance(e, OSError) and e.filename else None
        if problem is None:
            return _report_bug(e, arguments)
        print_problems([problem])
        return USAGE


def _of_a_path(error: OSError) -> Problem | None:
    """Return what is wrong with a path in the command, if the system says that of it."""
    name = valid_text(os.fsdecode(error.filename))
    if error.errno == errno.ENAMETOOLONG:
        return Problem(f"no file can have so long a name: {name!r}", "see the paths in the command")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Problem(
            f"{name}: {error.strerror}",
            "the user that runs edlz has no right to it, or to its folder: ls -ld",
        )
    return None


def version_text() -> str:
    """Return the versions that a bug report needs."""
    from importlib.metadata import PackageNotFoundError, version

    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    python = ".".join(str(part) for part in sys.version_info[:3])
    return f"edlz {of('edlz')} (Python {python}, TensorFlow {of('tensorflow')}, Keras {of('keras')})"


def _run(arguments: list[str]) -> int:
    completing = "_EDLZ_COMPLETE" in os.environ
    page = None if completing else asked_help(arguments)
    if page is not None:
        print(page, end="")
        return 0
    if arguments[:1] == ["--version"]:
        print(version_text())
        return 0
    is_about_completion = bool(arguments[:1] and arguments[0].startswith(_COMPLETION_FLAGS))
    if not completing and not is_about_completion:
        problem = unknown_command(arguments)
        if problem is not None:
            raise InvalidConfigError([problem])
        code = _without_typer(arguments[0], arguments[1:])
        if code is not None:
            return code
    return _dispatch(arguments)


def _without_typer(command: str, arguments: list[str]) -> int | None:
    """Run a command that reads its arguments itself; None if Typer should, which takes longer than some commands."""
    reader = next((reader for reader in READERS if reader == command), None)
    if reader is not None:
        code: int = _loaded("train", "run_job")(reader, arguments)
        return code
    if command == "ls":
        asked = _loaded("job_list", "asked_list")(arguments)
        if asked is not None:
            show = _loaded("job_list", "print_jobs")
            show(asked.output, is_all=asked.is_all, namespace=asked.namespace)
            return 0
    return None


def _dispatch(arguments: list[str]) -> int:
    """Let Typer find the command and call it."""
    app = _build(_word_to_complete() if "_EDLZ_COMPLETE" in os.environ else "".join(arguments[:1]))
    try:
        result = app(arguments, prog_name="edlz", standalone_mode=False)
    except Exception as e:
        message: Callable[[], str] | None = getattr(e, "format_message", None)
        if message is None:
            raise
        words = arguments[:2] if " ".join(arguments[:2]) in COMMANDS else arguments[:1]
        command = " ".join(["edlz", *words])
        text = _reworded(message().rstrip("."), command, arguments)
        print_problems([Problem(text, f"{command} --help")])
        return USAGE
    return result if isinstance(result, int) else 0


def _word_to_complete() -> str:
    """Return the first word of the line that a shell asks completions for."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return "".join(line.split()[1:2])


def _reworded(text: str, command: str, arguments: Sequence[str]) -> str:
    """Return what Typer says of a mistake in words that need no knowledge of it."""
    extra = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", text)
    if extra:
        return f'{command} takes no "{extra[1]}"'
    value = re.fullmatch(r"Invalid value for '--([a-z_-]+)': (.*)", text)
    for pattern, told in _BAD_NUMBERS.items():
        found = re.match(pattern, value[2]) if value else None
        if value and found:
            name = value[1].replace("-", "_")
            return f"--{name}{found.expand(told).format(_given(name, arguments))}"
    return text[:1].lower() + text[1:]


def _given(name: str, arguments: Sequence[str]) -> str:
    """Return the value of a flag as it stands in the command line."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        if flag.lstrip("-").replace("-", "_") == name:
            return value if equals else following
    return ""


def _build(command: str) -> Callable[..., object]:
    """Return the Typer application: with this command alone, or with all of them if it names none."""
    import typer

    app = typer.Typer(
        help="Train Keras models on machines that come and go.",
        pretty_exceptions_enable=False,
        context_settings={"token_normalize_func": lambda token: token.replace("-", "_")},
    )
    app.callback()(lambda: None)  # or else a command that is alone would not be named
    for name in [command] if command in _MODULES else _MODULES:
        _add(app, name)
    return app


def _add(app: Any, name: str) -> None:
    """Import a command's module, and give the command to the Typer application."""
    function = _loaded(_MODULES[name], name)
    if name in READERS:
        options = import_module("edlz.client.arguments.flag_options")
        app.command(name, cls=options.FlagCommand)(options.with_flags_of(name, function))
    elif name in _GROUPS:
        app.add_typer(function, name=name)
    else:
        app.command(name, context_settings=_WITH_FLAGS if name == "resume" else None)(function)


def _loaded(module: str, name: str) -> Any:
    """Return what a command's module holds under a name; only now is it imported."""
    return getattr(import_module(f"edlz.client.commands.{module}"), name)


def _report_bug(error: Exception, arguments: Sequence[str]) -> int:
    """Print a traceback, and keep it with what a bug report needs."""
    text = "".join(traceback.format_exception(error))
    sys.stderr.write(text)
    stamp = time.strftime("%Y-%m-%dT%H-%M-%S")
    path = edlz_home() / "reports" / f"{stamp}-{os.getpid()}.txt"
    help_line = f"please report this, with {path}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        told = without_secrets(f"{' '.join(_without_environment(arguments))}\n\n{text}")
        replace_file(path, f"{version_text()}\nedlz {told}")
    except OSError as e:
        help_line = f"please report this (the report could not be written to {path}: {e.strerror})"
    print_problems([Problem(f"edlz itself failed: {type(error).__name__}: {error}", help_line)])
    return OUR_BUG


def _without_environment(arguments: Sequence[str]) -> list[str]:
    """Return a command's words without the values of `--envs`: nobody knows what these are."""
    shown = [f"--envs={HIDDEN}" if word.startswith("--envs=") else word for word in arguments]
    return [HIDDEN if before == "--envs" else word for before, word in zip(["", *shown], shown, strict=False)]
