"""Asking whoever typed a command that does something to many jobs."""

import sys
from collections.abc import Sequence

from edlz.client.arguments.jobs import Job

__all__ = ["is_agreed"]


def is_agreed(verb: str, jobs: Sequence[Job]) -> bool:
    """Return whether the answer to `VERB JOB, JOB? [y/N]` is yes."""
    print(f"{verb} {', '.join(job.word for job in jobs)}? [y/N] ", end="", file=sys.stderr, flush=True)
    return (sys.stdin.readline() if sys.stdin else "").strip().lower() in ("y", "yes")
