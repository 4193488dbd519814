"""`edlz ls`: the jobs of this machine, and those on a cluster."""

from typing import Annotated

import typer

from edlz.client.arguments.jobs import NamespaceFlag
from edlz.client.commands.job_list import FORMATS, print_jobs

__all__ = ["OutputFlag", "ls"]

OutputFlag = Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help=" | ".join(FORMATS))]


def ls(
    output: OutputFlag = "table",
    is_all: Annotated[bool, typer.Option("--all", help="with earlier runs of each name")] = False,
    namespace: NamespaceFlag = "",
) -> None:
    """List the jobs of this machine and those submitted from it, newest first; or those of a namespace."""
    print_jobs(output, is_all=is_all, namespace=namespace)
