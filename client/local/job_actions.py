"""What is done with a job of this machine that takes its master, its processes or a new supervisor."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from edlz.client.job_files.job_index import JOURNAL, REPORT, SETTINGS, LocalJob
from edlz.client.job_files.preflight import Preflight, check_job
from edlz.client.job_files.resumption import nothing_left, resumed_settings
from edlz.client.local import master_line
from edlz.client.local.job_kill import kill_job, processes_left
from edlz.client.local.job_lock import LockHolder, lock_holder, master_by_hand
from edlz.client.local.run import run_local
from edlz.client.screen.first_sign import first_sign
from edlz.client.screen.terminal import print_sentence
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, PeerUnavailable
from edlz.services.master.page import left_report
from edlz.services.protocol.job_status import FINAL_STATES, JobStatus, StatusRequest
from edlz.services.protocol.messages import Scaled, ScaleRequest

if TYPE_CHECKING:
    from edlz.client.screen.screens import Screen

__all__ = ["follow_job", "kill_job", "leave_report", "processes_left", "resume_job", "scale_job"]

ANSWER_S = 5.0  # a master that restarts takes about a second
POLL_S = 0.25
SILENT_S = 3.0  # until that is spoken of


def follow_job(job: LocalJob, screen: "Screen") -> None:
    """Pass what the master of a job says on to a screen, as long as somebody runs it."""
    asyncio.run(_follow(job, screen))


def scale_job(holder: LockHolder, word: str, workers: int) -> Scaled:
    """Ask the master of a job for another number of workers.

    Raises
    ------
    PeerUnavailable
        If the master does not answer.
    """
    answer = master_line.ask_master(holder, ScaleRequest(workers=workers), ANSWER_S)
    if not isinstance(answer, Scaled):
        raise PeerUnavailable(
            f'the master of job "{word}" did not answer within {ANSWER_S:.0f}s: it starts, or restarts',
            f"in a few seconds: edlz scale {word} --workers={workers}",
        )
    return answer


def leave_report(job: LocalJob, last: JobStatus | None) -> str:
    """Write the report of a job that nobody runs and whose master has left none; return why there can be none.

    Parameters
    ----------
    last : JobStatus, optional
        What its master has said last.
    """
    problem = left_report.leave_report(job.path, job.path / JOURNAL, last)
    if (
        lock_holder(job.path) is not None or master_by_hand(job.path) is not None
    ):  # it goes on, since just now
        (job.path / REPORT).unlink(missing_ok=True)
    return problem


def resume_job(job: LocalJob, status: JobStatus, argv: Sequence[str]) -> int:
    """Go on with a job where it was; return the exit code of the command.

    Raises
    ------
    ConfigError
        If it was started by hand, or cannot go on under these settings.
    """
    if word := nothing_left(job.name, status, argv):
        print_sentence(word)
        return 0
    kept = job.path / SETTINGS
    if not kept.is_file():
        by_hand = "a job that was started by hand goes on when its master is started again"
        raise ConfigError(f"{job.path} holds no {SETTINGS} to go on with", by_hand)
    config = resumed_settings(kept, argv, [f"--job_dir={job.path}"], _checked)
    return run_local(config, is_resumed=True)


def _checked(config: JobConfig) -> Preflight:
    """Check model and data, having said so: that takes seconds on a busy machine."""
    with first_sign(config, "checking model and data"):
        return check_job(config, begins=False)


async def _follow(job: LocalJob, screen: "Screen") -> None:
    seen: int | None = None
    loop = asyncio.get_running_loop()
    heard_s, is_due = loop.time(), True  # to be told of silence; not at a job's end, when its master is gone
    while (holder := lock_holder(job.path)) is not None:
        address = master_line.address_of(holder)
        answer = await master_line.ask(address, StatusRequest(since=seen or 0), master_line.ANSWER_S)
        if isinstance(answer, JobStatus):
            newest = max((event.seq for event in answer.events), default=seen or 0)
            screen.update(answer if seen is not None else msgspec.structs.replace(answer, events=()))
            seen, heard_s, is_due = newest, loop.time(), answer.state not in FINAL_STATES
        elif is_due and loop.time() - heard_s >= SILENT_S:
            screen.say("no answer from the master: it starts, or restarts")
            is_due = False
        await asyncio.sleep(POLL_S)
