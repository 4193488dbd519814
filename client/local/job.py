"""A job of this machine, and what can be done with it: by its folder, its lock, its master and a signal."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING

from edlz.client.job_files.job_index import REPORT, LocalJob
from edlz.client.local.job_directory import hold_idle_job
from edlz.client.local.job_lock import lock_holder, master_by_hand
from edlz.client.local.job_removal import remove_job
from edlz.client.local.job_view import look_at, refuse_idle
from edlz.client.local.log_files import LogFiles
from edlz.client.screen.log_choice import LogChoice, LogOutput, refuse_missing
from edlz.client.screen.wording import size
from edlz.services.errors import ConfigError

if TYPE_CHECKING:
    from edlz.client.local.job_view import LocalJobView
    from edlz.client.screen.screens import Screen
    from edlz.services.protocol.job_status import JobStatus
    from edlz.services.protocol.messages import Scaled

__all__ = ["JobHere"]

# Not SIGINT, which a job in the background of a script does not hear; the supervisor takes both alike.
STOP_SIGNAL = signal.SIGTERM
AGAIN_S = 0.5  # signals of one number that come at once are one signal
NOW_S = 5.0  # for a supervisor to end its processes itself
START_S = 2.0  # a job's first moment, in which nobody can be told yet
LOG_POLL_S, END_POLL_S = 0.2, 0.1


class JobHere:
    """A job of this machine."""

    def __init__(self, job: LocalJob) -> None:
        self._job = job

    @property
    def name(self) -> str:
        return self._job.name

    @property
    def word(self) -> str:
        return self._job.word

    @property
    def where(self) -> str:
        return "local"

    def view(self) -> "LocalJobView":
        """Return how it fares; a job whose master was killed for good has its report from then on."""
        view = look_at([self._job])[0]
        if view.lacks_report:
            _actions().leave_report(self._job, _last_word(view))
        return view

    def asked_workers(self) -> int:
        """Return --num_workers, as its folder has it."""
        return int(self._job.settings().get("num_workers") or 0)

    def watch(self, screen: "Screen") -> None:
        """Pass what its master says on to a screen, as long as somebody runs it."""
        _actions().follow_job(self._job, screen)

    def print_logs(self, choice: LogChoice, output: LogOutput) -> None:
        """Print lines of its log files, until its end if they are followed."""
        files = LogFiles(self._job.logs, choice.takes, choice.selection)
        is_live = choice.is_following and self._is_run()
        if not is_live:
            refuse_missing(self.word, choice.sources, files.names())
        history = files.history(is_last=not is_live)
        try:
            output.write(history if choice.tail is None else deque(history, maxlen=choice.tail))
            while is_live and self._is_run():
                output.write(files.news())
                time.sleep(LOG_POLL_S)
            if is_live:
                output.write(files.news(is_last=True))
        finally:
            files.close()

    def scale(self, workers: int) -> "Scaled":
        """Ask its master for another number of workers.

        Raises
        ------
        ConfigError
            If it does not run.
        PeerUnavailable
            If the master does not answer.
        """
        view = self.view()
        refuse_idle(view)
        assert view.holder is not None
        answer: Scaled = _actions().scale_job(view.holder, self.word, workers)
        return answer

    def refuse_idle(self, *, is_now: bool = False) -> None:
        """Raise ConfigError unless it runs under a supervisor; `is_now`: or has left processes over."""
        if not (is_now and _actions().processes_left(self._job.path)):
            refuse_idle(self.view())

    def begin_stop(self) -> list[str]:
        """Do what Ctrl-C does."""
        self._signal(is_first=True)
        return []

    def end_now(self) -> list[str]:
        """End it, whatever state its processes are in; return when none is left."""
        if self._is_run():
            self._signal(is_first=True)
            time.sleep(AGAIN_S)
            self._signal(is_first=False)
            self._await_end(NOW_S)
        if self._is_run() or _actions().processes_left(self._job.path):
            _actions().kill_job(self._job.path, self.word)
            with suppress(OSError), hold_idle_job(self._job.path, self.name):
                pass  # takes away what the run had no time for
        return []

    def open_page(self, show: Callable[[str], None]) -> None:
        """Show where its status page is, or the report that it has left.

        Raises
        ------
        ConfigError
            If there is neither.
        """
        view, report = self.view(), self._job.path / REPORT
        if view.is_live and view.status.page:
            show(view.status.page)
        elif not view.is_live and report.is_file():
            show(report.as_uri())
        elif view.is_live:
            raise ConfigError(
                f'job "{self.word}" has no status page now: {view.note or "--status_port=none"}',
                f"edlz status {self.word}",
            )
        else:
            why = _actions().leave_report(self._job, _last_word(view))
            text = f'job "{self.word}" has left no {REPORT}{f": {why}" if why else ""}'
            raise ConfigError(text, f"edlz status {self.word}")

    def wait(self, limit_s: float | None = None) -> bool:
        """Return whether it has ended, when it has, or `limit_s` seconds are over."""
        return self._await_end(limit_s, with_by_hand=True)

    def _await_end(self, limit_s: float | None, *, with_by_hand: bool = False) -> bool:
        end = None if limit_s is None else time.monotonic() + limit_s
        while self._is_run() or (with_by_hand and master_by_hand(self._job.path) is not None):
            if end is not None and time.monotonic() >= end:
                return False
            time.sleep(END_POLL_S)
        return True

    def resume(self, argv: Sequence[str]) -> int:
        """Go on with it where it was; return the exit code of the command."""
        code: int = _actions().resume_job(self._job, look_at([self._job])[0].status, argv)
        return code

    def remove(self) -> list[str]:
        """Remove its folder; return what there is to say."""
        checkpoints = self._job.checkpoint_directory()
        size_bytes = remove_job(self._job)
        lines = [f"{self.name} is removed: {size(size_bytes)} in {self._job.path}"]
        if checkpoints.is_dir():
            lines.append(f"its checkpoints stay in {checkpoints}")
        return lines

    def _is_run(self) -> bool:
        return lock_holder(self._job.path) is not None

    def _signal(self, *, is_first: bool) -> None:
        """Send the signal to whoever runs the job; nothing if it has ended meanwhile."""
        pid = self._supervisor(START_S if is_first else 0.0)
        if pid is None:
            return
        try:
            with suppress(ProcessLookupError):
                os.kill(pid, STOP_SIGNAL)
        except PermissionError as e:
            raise ConfigError(f'job "{self.word}" is run by somebody else (pid {pid})', "ask them") from e

    def _supervisor(self, patience_s: float) -> int | None:
        """Return the process that runs the job, waiting until it has said which one it is."""
        end = time.monotonic() + patience_s
        while (holder := lock_holder(self._job.path)) is not None:
            if holder.pid is not None:
                return holder.pid
            if time.monotonic() >= end:
                return None
            time.sleep(0.01)
        return None


def _last_word(view: "LocalJobView") -> "JobStatus | None":
    return None if view.note or not view.has_figures else view.status


def _actions() -> ModuleType:
    # Not above: NumPy, ZeroMQ and the supervisor take 0.2 s to import, of which most commands have no need.
    from edlz.client.local import job_actions

    return job_actions
