"""Mistakes in what the user gave, collected and shown together.

Owns how an error looks on a terminal: an `error:` line and a `help:` line, with no traceback.  It does
not find mistakes.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

from edlz.services.errors import ConfigError, EdlzError

__all__ = ["EDLZ_COMMAND", "ITS_WORDS", "InvalidConfigError", "Problem", "print_error", "print_problems"]

EDLZ_COMMAND = "edlz (?:analyze|checkpoint|data|doctor|evaluate|export|keys|logs|ls|open|predict|resume|rm|scale|status|stop|top|train|wait|zoo)"
_COMMAND = f"{EDLZ_COMMAND}|(?:docker|kubectl|pip|python)"
ITS_WORDS = r"(?: (?!\()\S*[^\s;,])*[;,]?"  # of a command: up to the next part of the sentence, or what is in brackets
_WORD = re.compile(rf"\b(?:{_COMMAND}){ITS_WORDS}(?!\S)|\S+")  # a command is one


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: what is wrong, with the value as given, and what to do about it."""

    message: str
    help: str = ""


class InvalidConfigError(ConfigError):
    """Several mistakes, found before anything ran."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        more = len(self.problems) - 1
        super().__init__(first.message + (f" (and {more} more)" if more else ""), first.help)


def print_problems(problems: Iterable[Problem], word: str = "error", stream: TextIO | None = None) -> None:
    """Print each problem as `error: …` (or `warning: …`) with its `help:` line.

    On a terminal a line that is too long goes on below itself; a command in a help line is not broken, as it is to be
    copied.

    Parameters
    ----------
    word : str, the word before the message: error or warning
    stream : TextIO, optional
        Where to; standard error when not given.
    """
    out = sys.stderr if stream is None else stream
    width = shutil.get_terminal_size().columns if out.isatty() else None
    for problem in problems:
        print(_wrapped(f"{word}: {problem.message}", width, len(word) + 2), file=out)
        if problem.help:
            print(_wrapped_help(problem.help, width), file=out)
    out.flush()


def _wrapped(text: str, width: int | None, indent: int) -> str:
    """Return a text in lines that fit; a word is not broken: paths and values are to be copied."""
    if width is None:
        return text
    lines = (
        textwrap.wrap(
            line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        )
        for line in text.splitlines()
    )
    return "\n".join("\n".join(each) for each in lines)


def _wrapped_help(text: str, width: int | None) -> str:
    """Return a help line in lines that fit, as far as that breaks no command."""
    lines = ["help:"]
    for word in _WORD.findall(text):
        if (
            width is not None
            and len(f"{lines[-1]} {word}") > width
            and lines[-1].strip() not in ("", "help:")
        ):
            lines.append(" " * len("help:"))
        lines[-1] += f" {word}"
    return "\n".join(lines)


def print_error(error: EdlzError, stream: TextIO | None = None) -> None:
    """Print an error that edlz raised on purpose, all of its problems if it has several."""
    if isinstance(error, InvalidConfigError):
        print_problems(error.problems, stream=stream)
    else:
        print_problems([Problem(error.message, error.help)], stream=stream)
