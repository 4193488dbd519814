"""The list of jobs, as `edlz ls` prints it; it answers before Typer, NumPy or ZeroMQ would be imported."""

import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from edlz.client.arguments.all_jobs import look_at_all
from edlz.client.arguments.flag_values import output_format
from edlz.client.screen.jobs import jobs_object, jobs_table
from edlz.client.screen.json_objects import object_text
from edlz.client.screen.terminal import glyphs_for, print_lines, width_for

__all__ = ["FORMATS", "Asked", "asked_list", "print_jobs"]

FORMATS = ("table", "wide", "json", "yaml")
_OUTPUT, _NAMESPACE = ("-o", "--output"), ("-n", "--namespace")


class Asked(NamedTuple):
    """What `print_jobs` takes."""

    output: str = "table"
    namespace: str = ""
    is_all: bool = False


def asked_list(arguments: Sequence[str]) -> Asked | None:
    """Return what these arguments ask for; None if anything about them is not plain, and has to be parsed."""
    found = Asked()
    words = iter(arguments)
    for word in words:
        name, is_joined, value = word.partition("=")
        if word == "--all":
            found = found._replace(is_all=True)
            continue
        if name not in (*_OUTPUT, *_NAMESPACE) or (is_joined and not name.startswith("--")):
            return None
        given = value if is_joined else next(words, "-")
        if given.startswith("-"):
            return None
        found = found._replace(output=given) if name in _OUTPUT else found._replace(namespace=given)
    return found


def print_jobs(output: str = "table", *, is_all: bool = False, namespace: str = "") -> None:
    """Print the jobs of this machine and those submitted from it, newest first; or those of a namespace.

    Raises
    ------
    ConfigError
        If there is no such format.
    EdlzError
        If a namespace is given, and its cluster does not answer.
    """
    output_format(output, FORMATS)
    views = look_at_all(namespace, is_all=is_all, is_brief=output in ("table", "wide"))
    if output in ("json", "yaml"):
        print(object_text(jobs_object(views), output))
        return
    width = None if output == "wide" else width_for(sys.stdout)
    is_wide, glyphs = output == "wide", glyphs_for(sys.stdout)
    print_lines(jobs_table(views, time.time(), width=width, is_wide=is_wide, glyphs=glyphs))
