"""How a job ended, put together from what the master said last and how the processes ended."""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edlz.client.job_files.job_index import JOURNAL, REPORT
from edlz.client.screen.spans import Glyphs, Line, Span
from edlz.client.screen.verdict_text import Ending, failure_block, stopped_block, success_block
from edlz.services.master.journal.journal_facts import final_status
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import FailureView, JobStatus
from edlz.services.storage.durable import replace_file
from edlz.services.supervision.post_mortem import last_words

if TYPE_CHECKING:
    from edlz.services.protocol.messages import ProcessExit

__all__ = ["Evidence", "conclude", "written_status"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Evidence:
    """What the supervisor saw.

    Attributes
    ----------
    job_name : str
        Of the job.
    logs : Path
        The folder of the log files.
    status : JobStatus, optional
        The master's last word.
    signal : int, optional
        The signal that stopped the supervisor.
    master : ProcessExit, optional
        How the master ended, if it did by itself.
    first_crash : ProcessExit, optional
        The first process that ended by itself with an error.
    tails : dict
        The last lines of these processes, and of the one whose end the job failed by, by name.
    took_s : float
        Seconds from start to end.
    """

    job_name: str
    logs: Path
    status: JobStatus | None = None
    signal: int | None = None
    master: "ProcessExit | None" = None
    first_crash: "ProcessExit | None" = None
    tails: dict[str, list[str]] = field(default_factory=dict)
    took_s: float = 0.0


def conclude(evidence: Evidence, glyphs: Glyphs, *, is_full: bool) -> tuple[Sequence[Line], bool, int]:
    """Return what to show at the end, whether it is an error, and the exit code."""
    status = evidence.status
    report = f"edlz open {evidence.job_name}" if (evidence.logs.parent / REPORT).is_file() else ""
    ending = Ending(evidence.took_s, evidence.logs, is_full, report=report)
    if evidence.signal is not None and (status is None or status.state not in ("Succeeded", "Failed")):
        return stopped_block(status, evidence.job_name, ending), True, 128 + evidence.signal
    code = _exit_code(evidence.master, status)
    if status is not None and status.state == "Succeeded" and code == 0:
        return success_block(status, ending, glyphs), False, 0
    failure = _with_reason(evidence, status.failure if status is not None else None)
    lines: list[Line] = list(failure_block(failure, evidence.job_name, ending, status))
    if failure.traceback:
        path = evidence.logs / "failure.txt"
        try:
            replace_file(path, failure.traceback.rstrip() + "\n")
        except OSError as e:  # it is in the log of the one that failed, too
            logger.warning("%s could not be written: %s", path, e.strerror)
        if os.environ.get("EDLZ_DEBUG"):
            lines[:0] = [[Span(line)] for line in failure.traceback.splitlines()]
    return lines, True, code or 1


def written_status(folder: Path) -> JobStatus | None:
    """Return the status that the master wrote down when it left; None if it was killed before.

    One that was killed when the job was complete has said so in the journal.
    """
    written = None
    try:
        written = named_status.decode((folder / "status.json").read_bytes())
    except FileNotFoundError:
        pass
    except (OSError, msgspec.MsgspecError) as e:
        print(f"warning: {folder / 'status.json'} cannot be read: {e}", file=sys.stderr)
    if written is not None and written.state == "Succeeded":
        return written
    return final_status(folder / JOURNAL) or written


def _exit_code(master: "ProcessExit | None", status: JobStatus | None) -> int:
    """Return the master's exit code, or what its last word stands for if it has none."""
    if master is not None and master.code is not None:
        return master.code
    if status is not None and status.state == "Succeeded":
        return 0  # the journal said so before the master did, however that ended
    if master is not None or status is None:
        return 1
    if status.failure is not None:
        return status.failure.exit_code
    return 1


def _with_reason(evidence: Evidence, failure: FailureView | None) -> FailureView:
    """Return the failure, with what the process had to say whose end it was; once, if the text says it already."""
    if failure is not None:
        tail = evidence.tails.get(failure.process, [])
        return _with_last_words(failure, tail, evidence.logs / f"{failure.process}.log") if tail else failure
    gone = evidence.first_crash or evidence.master
    if gone is None:
        return FailureView(text="the master did not say how it ended")
    tail = evidence.tails.get(gone.name, [])
    said = last_words(tail)
    if said.help and gone.name == "master":  # its own words, as good as ours
        return FailureView(text=said.error, help=said.help)
    failure = FailureView(text=f"{gone.name} ended: {gone.reason}")
    return _with_last_words(failure, tail, evidence.logs / f"{gone.name}.log")


def _with_last_words(failure: FailureView, tail: Sequence[str], log: Path) -> FailureView:
    said = last_words(tail)
    silent = "it left no reason" + (", as os._exit() leaves none" if "exit code" in failure.text else "")
    return msgspec.structs.replace(
        failure,
        where=said.where,
        error="" if said.error in failure.text else said.error,
        help=said.help or (f"the whole story: {log}" if said.error else f"{silent}; its log: {log}"),
        traceback="\n".join(tail),
    )
