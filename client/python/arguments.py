"""From keyword arguments to flags: their names, types, defaults and help are those of the command line."""

import inspect
import os
import textwrap
from collections.abc import Mapping
from typing import Any

from edlz.services.configuration.flags import GROUPS, Flag, Reader
from edlz.services.configuration.job_config import flags
from edlz.services.errors import ConfigError

__all__ = ["LEFT_OUT", "arguments_of", "doc_of", "kind_of", "parameters", "signature_of"]

LEFT_OUT = ("check", "dry_run", "follow", "progress")  # what a terminal shows
_KINDS: dict[str, type] = {"text": str, "whole number": int, "number": float, "yes or no": bool}
_IN_CELL = "put %%writefile my_model.py on top of the cell, and give model_file='my_model.py'"


def parameters(command: Reader) -> list[Flag]:
    """Return the flags that a command takes from Python, in the order of its help."""
    known = (about for about in flags() if command in about.readers)
    return [about for about in known if about.name not in (*LEFT_OUT, "config") and not about.hidden]


def kind_of(about: Flag) -> type:
    """Return the Python type of a flag's value."""
    return _KINDS[about.kind]


def signature_of(command: Reader, result: Any) -> inspect.Signature:
    """Return the signature of the function that runs a command."""
    found = [
        inspect.Parameter(
            about.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=about.default_for(command),
            annotation=kind_of(about) if about.default_for(command) is not None else kind_of(about) | None,
        )
        for about in parameters(command)
    ]
    return inspect.Signature(found, return_annotation=result)


def doc_of(command: Reader, summary: str) -> str:
    """Return the documentation of that function: its flags by subject, with their help."""
    lines = [summary, ""]
    for group, title in GROUPS.items():
        members = [about for about in parameters(command) if about.group == group]
        if members:
            lines += [title, "-" * len(title)]
        for about in members:
            text = f"{about.name} : {kind_of(about).__name__}{_default(about, command)}"
            lines += [text, textwrap.indent(about.help_for(command), "    ")]
        lines += [""] if members else []
    return "\n".join(lines).rstrip() + "\n"


def _default(about: Flag, command: Reader) -> str:
    default = about.default_for(command)
    text = about.default_text or ("" if default in ("", None) else repr(default))
    return f", default {text}" if text else ""


def arguments_of(command: Reader, given: Mapping[str, Any]) -> list[str]:
    """Return the arguments of the command line that say the same; None stands for what is not given.

    Raises
    ------
    ConfigError
        If a value cannot stand on a command line, or the flag shows something on a terminal only.
    """
    found = []
    for name, value in given.items():
        if name in LEFT_OUT:
            raise ConfigError(f"{name}= shows something on a terminal", f"there: edlz {command} --{name} …")
        if value is not None:
            found.append(f"--{name}={_text(name, value)}")
    return found


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if isinstance(value, int | float):
        return repr(value)
    if name in ("model_def", "model_file"):
        kind = type(value).__name__
        raise ConfigError(f"{name} is a {kind}: workers import a model by its name, from a file", _IN_CELL)
    raise ConfigError(f"{name}={value!r} is a {type(value).__name__}; text or a number is due")
