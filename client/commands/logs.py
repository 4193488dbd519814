"""`edlz logs`: what the services of a job have written, and what they go on to write."""

import sys
import time
from typing import Annotated

import typer

from edlz.client.arguments.flag_values import seconds_of, whole_number
from edlz.client.arguments.jobs import JobArgument, NamespaceFlag, chosen_job
from edlz.client.screen.log_choice import LogChoice, LogOutput
from edlz.client.screen.log_lines import Selection
from edlz.client.screen.terminal import left_the_view

__all__ = ["logs"]


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
    namespace: NamespaceFlag = "",
) -> None:
    """Print the log files of a job, in the order of time."""
    sources = [f"worker-{whole_number('worker', worker)}"] if worker else []
    sources += [f"ps-{whole_number('ps', ps)}"] if ps else []
    sources += ["master"] if is_master else []
    last = whole_number("tail", tail) if tail else None
    begin = time.time() - seconds_of("since", since) if since else 0.0
    selection = Selection(begin, grep, whole_number("task", task) if task else None)
    choice = LogChoice(sources, selection, last, is_following)
    chosen = chosen_job(job, namespace)
    try:
        chosen.print_logs(choice, LogOutput(is_single=len(sources) == 1))
    except KeyboardInterrupt:
        if not is_following:
            raise
        raise left_the_view(chosen.word, f"edlz logs -f {chosen.word}") from None
    if is_following:
        print(
            f"{chosen.word} {chosen.view().status.state.lower()}: edlz status {chosen.word}", file=sys.stderr
        )
