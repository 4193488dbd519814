"""`edlz rm`: a job and its files are forgotten."""

from typing import Annotated

import typer

from edlz.client.completion import complete_job
from edlz.client.jobs import NamespaceFlag, named_job

__all__ = ["rm"]


def rm(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="name of a job, or its folder", autocompletion=complete_job)
    ],
    is_forced: Annotated[bool, typer.Option("--force", help="kill it first, if it runs")] = False,
    namespace: NamespaceFlag = "",
) -> None:
    """Remove a job that does not run: its folder, with snapshots, logs and the checkpoints in it; or its pods."""
    found = named_job(job, namespace)
    if is_forced:
        for line in found.end_now():
            print(line)
    for line in found.remove():
        print(line)
    print("next: edlz ls")
