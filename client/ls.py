"""`edlz ls`: the jobs of this machine, and those on a cluster."""

import sys
import time
from typing import Annotated

import typer

from edlz.client.flag_values import output_format
from edlz.client.jobs import NamespaceFlag, look_at_all
from edlz.client.screen.terminal import glyphs_for, print_lines, width_for

__all__ = ["FORMATS", "OutputFlag", "ls"]

FORMATS = ("table", "wide", "json", "yaml")

OutputFlag = Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help=" | ".join(FORMATS))]


def ls(
    output: OutputFlag = "table",
    is_all: Annotated[bool, typer.Option("--all", help="with earlier runs of each name")] = False,
    namespace: NamespaceFlag = "",
) -> None:
    """List the jobs of this machine and those submitted from it, newest first; or those of a namespace."""
    from edlz.client.screen.jobs import jobs_object, jobs_table
    from edlz.client.screen.json_objects import object_text

    output_format(output, FORMATS)
    sights = look_at_all(namespace, is_all=is_all)
    if output in ("json", "yaml"):
        print(object_text(jobs_object(sights), output))
        return
    width = None if output == "wide" else width_for(sys.stdout)
    is_wide, glyphs = output == "wide", glyphs_for(sys.stdout)
    print_lines(jobs_table(sights, time.time(), width=width, is_wide=is_wide, glyphs=glyphs))
