"""How a job fares, as far as can be seen from outside: from its lock, its master and what that has left behind.

Live jobs are asked through their masters, all at once, within a second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edlz.client.job_files.job_index import JOURNAL, REPORT, SETTINGS, LocalJob
from edlz.client.job_files.settings_text import asked_workers_in, status_from
from edlz.client.local.job_lock import LockHolder, lock_holder, master_by_hand
from edlz.client.local.live_status import live_status
from edlz.client.local.verdict import written_status
from edlz.client.screen.job_view import not_running
from edlz.services.errors import ConfigError
from edlz.services.master.journal.journal_facts import beginning, has_plan
from edlz.services.protocol.job_status import FINAL_STATES, FailureView, JobStatus
from edlz.services.supervision.post_mortem import last_words

__all__ = ["LocalJobView", "look_at", "refuse_idle"]

_TAIL_BYTES = 16384

_Runner = tuple[LocalJob, LockHolder | None, str | None]  # a job, its supervisor, its master by hand


@dataclass(frozen=True, slots=True)
class LocalJobView:
    """What is known of a job now.

    Attributes
    ----------
    job : LocalJob
        Its name and folder.
    holder : LockHolder, optional
        The supervisor that runs it; None if none does.
    status : JobStatus
        What its master says or has said last; figures are zero where it never spoke.
    asked_workers : int
        --num_workers, as far as the folder tells.
    note : str
        What the state does not say: `interrupted`, `the master restarts`.
    has_figures : bool
        Whether the status is a master's word.
    by_hand : str, optional
        Pid of a master that was started by hand.
    """

    job: LocalJob
    holder: LockHolder | None
    status: JobStatus
    asked_workers: int
    note: str = ""
    has_figures: bool = True
    by_hand: str | None = None

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def word(self) -> str:
        return self.job.word

    @property
    def where(self) -> str:
        return "local"

    @property
    def place(self) -> str:
        return str(self.job.path)

    @property
    def logs(self) -> str:
        return str(self.job.logs)

    @property
    def report(self) -> str:
        return f"edlz open {self.word}" if not self.is_live and (self.job.path / REPORT).is_file() else ""

    @property
    def lacks_report(self) -> bool:
        """Whether it has ended, and its master has not left the report that it should have."""
        return not self.is_live and self.note != "never began" and not (self.job.path / REPORT).is_file()

    @property
    def trouble(self) -> str:
        return ""  # a process here starts at once, or not at all

    @property
    def is_live(self) -> bool:
        return self.is_led or self.by_hand is not None

    @property
    def is_led(self) -> bool:
        return self.holder is not None

    @property
    def is_earlier(self) -> bool:
        return self.job.is_earlier

    @property
    def can_resume(self) -> bool:
        return not self.is_earlier

    @property
    def has_checkpoints(self) -> bool:
        return any(self.job.checkpoint_directory().glob("version-*"))

    def facts(self) -> Mapping[str, Any]:
        """Return the job's folder and process."""
        return {"folder": self.place, "pid": self.pid}

    @property
    def pid(self) -> int | None:
        """The process that leads the job: its supervisor, or a master by hand."""
        if self.holder is not None:
            return self.holder.pid
        return int(self.by_hand) if self.by_hand and self.by_hand.isdecimal() else None


def look_at(jobs: Sequence[LocalJob], *, is_brief: bool = False) -> list[LocalJobView]:
    """Return how the jobs fare, in their order; it takes no longer than a master has to answer.

    Parameters
    ----------
    is_brief : bool
        Without events, as their supervisors have heard it within the last seconds, if they say so.
    """
    holders = [lock_holder(job.path) for job in jobs]
    masters = [
        None if holder else master_by_hand(job.path) for job, holder in zip(jobs, holders, strict=True)
    ]
    runners = list(zip(jobs, holders, masters, strict=True))
    answers = _answers(runners, is_brief=is_brief)
    return [_view(*runner, answer) for runner, answer in zip(runners, answers, strict=True)]


def refuse_idle(view: LocalJobView) -> None:
    """Raise ConfigError unless a job runs under a supervisor."""
    if view.holder is not None:
        return
    if view.by_hand is not None:
        raise ConfigError(
            f'job "{view.job.word}" was started by hand', "start and stop its processes in their terminals"
        )
    raise not_running(view)


def _answers(runners: Sequence[_Runner], *, is_brief: bool) -> list[JobStatus | None]:
    """Return what masters say; where none has to be asked, what it takes to ask one is not even imported."""
    known = [
        live_status(holder.sockets) if is_brief and holder and holder.sockets else None
        for _, holder, _ in runners
    ]
    if not any(
        found is None and (holder or by_hand)
        for found, (_, holder, by_hand) in zip(known, runners, strict=True)
    ):
        return known
    # Not above: NumPy and ZeroMQ take 0.2 s to import, and many lists ask no master.
    from edlz.client.local import master_line

    addresses = [
        master_line.address_of_runner(*runner) if found is None else None
        for found, runner in zip(known, runners, strict=True)
    ]
    return [found or answer for found, answer in zip(known, master_line.ask_all(addresses), strict=True)]


def _view(
    job: LocalJob, holder: LockHolder | None, by_hand: str | None, answer: JobStatus | None
) -> LocalJobView:
    settings = job.settings()
    asked = asked_workers_in(settings)
    if answer is not None and answer.name in (job.name, settings.get("job_name")):
        return LocalJobView(job, holder, answer, asked, by_hand=by_hand)
    written = None if by_hand else written_status(job.path)  # by hand: of another run
    if written is not None and written.state in FINAL_STATES:
        return LocalJobView(job, holder, written, asked)
    has_figures = written is not None
    last = written or _status_of_folder(job, settings)
    has_journal = has_figures or has_plan(job.path / JOURNAL)
    if holder is not None or by_hand is not None:
        state, note = "Starting", "the master restarts" if has_journal else "the master starts"
        if by_hand is not None:
            note = "the master, run by hand, does not answer at its journal's address"
    elif has_journal:
        state, note = "Stopped", "interrupted"
    else:
        state, note = "Failed", "never began"
        said = last_words(_tail(job.logs / "master.log"))
        failure = FailureView(text=said.error or "it ended before it began", help=said.help)
        last = msgspec.structs.replace(last, failure=failure)
    seen = msgspec.structs.replace(last, state=state, workers=(), partitions=(), eta_s=None)
    return LocalJobView(job, holder, seen, asked, note, has_figures, by_hand)


def _status_of_folder(job: LocalJob, settings: Mapping[str, Any]) -> JobStatus:
    """Return a status that says no more than the folder does."""
    began = beginning(job.path / JOURNAL) or _changed_at(job.path / SETTINGS) or _changed_at(job.path)
    return status_from(job.name, settings, began)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()
    except OSError:
        return []
