"""`edlz logs`: what the services of a job have written, and what they go on to write."""

import os
import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import Annotated

import typer

from edlz.client.flag_values import seconds_of, whole_number
from edlz.client.job_index import LocalJob
from edlz.client.log_files import LogFiles
from edlz.client.log_lines import LogLine, Selection, shown
from edlz.client.status import JobArgument, left_the_view
from edlz.client.terminal import glyphs_for, has_colour
from edlz.services.errors import EdlzError

__all__ = ["NoSuchService", "logs"]

POLL_S = 0.2


class NoSuchService(EdlzError):
    """The job has no log of that worker or parameter server."""

    code = "no-such-service"
    exit_code = 4


def logs(
    job: JobArgument = None,
    is_following: Annotated[bool, typer.Option("-f", "--follow", help="until the job ends")] = False,
    worker: Annotated[str, typer.Option(metavar="N", help="of this worker")] = "",
    ps: Annotated[str, typer.Option(metavar="N", help="of this parameter server")] = "",
    is_master: Annotated[bool, typer.Option("--master", help="of the master")] = False,
    tail: Annotated[str, typer.Option(metavar="N", help="the last N lines")] = "",
    since: Annotated[str, typer.Option(metavar="TIME", help="not older than 45s, 10m, 2h")] = "",
    grep: Annotated[str, typer.Option(metavar="TEXT", help="lines that hold it")] = "",
    task: Annotated[str, typer.Option(metavar="N", help="lines that speak of this task")] = "",
) -> None:
    """Print the log files of a job, in the order of time."""
    from edlz.client.job_lock import chosen_job, lock_holder

    sources = [f"worker-{whole_number('worker', worker)}"] if worker else []
    sources += [f"ps-{whole_number('ps', ps)}"] if ps else []
    sources += ["master"] if is_master else []
    last = whole_number("tail", tail) if tail else None
    begin = time.time() - seconds_of("since", since) if since else 0.0
    selection = Selection(begin, grep, whole_number("task", task) if task else None)
    chosen = chosen_job(job)
    files = LogFiles(chosen.logs, lambda name: not sources or name in sources, selection)
    is_live = is_following and lock_holder(chosen.path) is not None
    if not is_live:
        _refuse_missing(chosen, sources, files.names())
    output = _Output(is_single=len(sources) == 1)
    history = files.history(is_last=not is_live)
    try:
        output.write(history if last is None else deque(history, maxlen=last))
        if is_live:
            _follow(chosen, files, output)
    except KeyboardInterrupt:
        if not is_live:
            raise
        raise left_the_view(chosen.word, f"edlz logs -f {chosen.word}") from None
    finally:
        files.close()
    if is_following:
        _say_how_it_ended(chosen)


class _Output:
    """Lines on standard output, under their sources' names where there may be several."""

    def __init__(self, *, is_single: bool) -> None:
        self._is_single = is_single
        self._sources: list[str] = []
        self._is_coloured, self._glyphs = has_colour(sys.stdout, os.environ), glyphs_for(sys.stdout)

    def write(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            text = line.text
            if not self._is_single:
                text = shown(line, self._sources, self._glyphs, is_coloured=self._is_coloured)
            sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _follow(job: LocalJob, files: LogFiles, output: _Output) -> None:
    from edlz.client.job_lock import lock_holder

    while lock_holder(job.path) is not None:
        output.write(files.news())
        time.sleep(POLL_S)
    output.write(files.news(is_last=True))


def _refuse_missing(job: LocalJob, sources: list[str], names: list[str]) -> None:
    missing = [source for source in sources if source not in names]
    if missing or not names:
        there = f"there are: {', '.join(names)}" if names else f"edlz status {job.word}"
        raise NoSuchService(
            f'job "{job.word}" has no log of {missing[0] if missing else "any service"}', there
        )


def _say_how_it_ended(job: LocalJob) -> None:
    """On standard error, since standard output is for the lines."""
    from edlz.client.job_sight import look_at

    (sight,) = look_at([job])
    print(f"{job.word} {sight.status.state.lower()}: edlz status {job.word}", file=sys.stderr)
