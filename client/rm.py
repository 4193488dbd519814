"""`edlz rm`: a job and its files are forgotten."""

from typing import Annotated

import typer

from edlz.client.completion import complete_job
from edlz.client.job_index import find_job

__all__ = ["rm"]


def rm(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="name of a job, or its folder", autocompletion=complete_job)
    ],
) -> None:
    """Remove a job that does not run: its folder, with snapshots, logs and the checkpoints in it."""
    from edlz.client.job_removal import remove_job
    from edlz.client.render_checkpoint import size

    chosen = find_job(job)
    checkpoints = chosen.checkpoint_directory()
    size_bytes = remove_job(chosen)
    print(f"{chosen.name} is removed: {size(size_bytes)} in {chosen.path}")
    if checkpoints.is_dir():
        print(f"its checkpoints stay in {checkpoints}")
    print("next: edlz ls")
