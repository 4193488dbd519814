"""`edlz scale`: another number of workers for a job that runs."""

from typing import Annotated

import typer

from edlz.client.flag_values import whole_number
from edlz.client.status import JobArgument
from edlz.client.terminal import print_lines
from edlz.services.errors import ConfigError, PeerUnavailable

__all__ = ["scale"]

ANSWER_S = 5.0  # a master that restarts takes about a second


def scale(
    job: JobArgument = None,
    workers: Annotated[str, typer.Option(metavar="N", help="workers that should run from now on")] = "",
) -> None:
    """Ask for another number of workers."""
    from edlz.client.job_lock import chosen_job
    from edlz.client.job_sight import look_at, refuse_idle
    from edlz.client.master_line import ask_master
    from edlz.client.render_jobs import scaled_lines
    from edlz.services.messages import Scaled, ScaleRequest

    if not workers:
        raise ConfigError("--workers is missing", "e.g. --workers=4")
    number = whole_number("workers", workers)
    chosen = chosen_job(job)
    (sight,) = look_at([chosen])
    refuse_idle(sight)
    assert sight.holder is not None
    answer = ask_master(sight.holder, ScaleRequest(workers=number), ANSWER_S)
    if not isinstance(answer, Scaled):
        raise PeerUnavailable(
            f'the master of job "{chosen.word}" did not answer within {ANSWER_S:.0f}s: it starts, or restarts',
            f"in a few seconds: edlz scale {chosen.word} --workers={number}",
        )
    print_lines(scaled_lines(chosen.word, answer))
