"""`edlz stop`: what Ctrl-C does, from another terminal."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from edlz.client.job_index import LocalJob, list_jobs
from edlz.client.status import JobArgument, left_the_view, print_status
from edlz.client.terminal import print_lines
from edlz.client.wait import wait_for_end
from edlz.services.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["stop"]

# Not SIGINT, which a job in the background of a script does not hear; the supervisor takes both alike.
STOP_SIGNAL = signal.SIGTERM
AGAIN_S = 0.5  # signals of one number that come at once are one signal
START_S = 2.0  # a job's first moment, in which nobody can be told yet


def stop(
    job: JobArgument = None,
    is_now: Annotated[bool, typer.Option("--now", help="kill at once; the last snapshot remains")] = False,
    is_all: Annotated[bool, typer.Option("--all", help="every job that runs here; asks first")] = False,
) -> None:
    """Save a job and stop it; return when it has ended."""
    from edlz.client.job_lock import chosen_job
    from edlz.client.job_sight import look_at, refuse_idle

    if is_all:
        if job is not None:
            raise ConfigError(f'--all stops every job: "{job}" is one too many', f"edlz stop {job}")
        chosen = _all_that_run()
    else:
        chosen = [chosen_job(job)]
        refuse_idle(look_at(chosen)[0])
    try:
        for one in chosen:
            _signal(one, is_first=True)
        names = ", ".join(one.word for one in chosen)
        print(f"{'killing' if is_now else 'stopping'} {names} …", file=sys.stderr)
        if is_now:
            time.sleep(AGAIN_S)
            for one in chosen:
                _signal(one, is_first=False)
        for one in chosen:
            wait_for_end(one.path)
            _print_end(one)
    except KeyboardInterrupt:
        raise left_the_view(names, f"edlz wait {chosen[0].word}") from None


def _all_that_run() -> list[LocalJob]:
    """Return the jobs that run, if whoever is asked agrees."""
    from edlz.client.job_lock import lock_holder

    running = [job for job in list_jobs() if lock_holder(job.path)]
    if not running:
        print("no job runs here\nnext: edlz ls")
        raise typer.Exit(0)
    if not _is_agreed(running):
        print("nothing was stopped", file=sys.stderr)
        raise typer.Exit(1)
    return running


def _is_agreed(running: Sequence[LocalJob]) -> bool:
    print(f"stop {', '.join(job.word for job in running)}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _signal(job: LocalJob, *, is_first: bool) -> None:
    """Send the signal to whoever runs the job; nothing if it has ended meanwhile."""
    pid = _supervisor(job.path, START_S if is_first else 0.0)
    if pid is None:
        return
    try:
        with suppress(ProcessLookupError):
            os.kill(pid, STOP_SIGNAL)
    except PermissionError as e:
        raise ConfigError(f'job "{job.word}" is run by somebody else (pid {pid})', "ask them") from e


def _supervisor(path: "Path", patience_s: float) -> int | None:
    """Return the process that runs the job of a folder, waiting until it has said which one it is."""
    from edlz.client.job_lock import lock_holder

    end = time.monotonic() + patience_s
    while (holder := lock_holder(path)) is not None:
        if holder.pid is not None:
            return holder.pid
        if time.monotonic() >= end:
            return None
        time.sleep(0.01)
    return None


def _print_end(job: LocalJob) -> None:
    from edlz.client.job_sight import look_at
    from edlz.client.render_end import Ending, stopped_block

    (sight,) = look_at([job])
    if sight.status.state == "Stopped" and not sight.note:
        print_lines(stopped_block(sight.status, job.word, Ending(0.0, job.logs)))
    else:
        print_status(sight)
