"""A job of this machine, and what can be done with it: by its folder, its lock, its master and a signal."""

import os
import signal
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from edlz.client.jobs.job_index import SETTINGS, LocalJob
from edlz.client.local.job_lock import lock_holder, master_by_hand
from edlz.client.local.log_files import LogFiles
from edlz.client.screen.first_sign import first_sign
from edlz.client.screen.log_choice import LogChoice, LogOutput, refuse_missing
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, PeerUnavailable

if TYPE_CHECKING:
    from edlz.client.jobs.preflight import Preflight
    from edlz.client.local.job_view import JobSight
    from edlz.client.screen.screens import Screen
    from edlz.services.protocol.messages import Scaled

__all__ = ["JobHere"]

# Not SIGINT, which a job in the background of a script does not hear; the supervisor takes both alike.
STOP_SIGNAL = signal.SIGTERM
AGAIN_S = 0.5  # signals of one number that come at once are one signal
NOW_S = 5.0  # for a supervisor to end its processes itself
START_S = 2.0  # a job's first moment, in which nobody can be told yet
ANSWER_S = 5.0  # a master that restarts takes about a second
POLL_S = 0.25
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

    def sight(self) -> "JobSight":
        """Return how it fares."""
        from edlz.client.local.job_view import look_at

        return look_at([self._job])[0]

    def asked_workers(self) -> int:
        """Return --num_workers, as its folder has it."""
        return int(self._job.settings().get("num_workers") or 0)

    def watch(self, screen: "Screen") -> None:
        """Pass what its master says on to a screen, as long as somebody runs it."""
        import asyncio

        asyncio.run(_follow(self._job, screen))

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
        from edlz.client.local.job_view import refuse_idle
        from edlz.client.local.master_line import ask_master
        from edlz.services.protocol.messages import Scaled, ScaleRequest

        sight = self.sight()
        refuse_idle(sight)
        assert sight.holder is not None
        answer = ask_master(sight.holder, ScaleRequest(workers=workers), ANSWER_S)
        if not isinstance(answer, Scaled):
            raise PeerUnavailable(
                f'the master of job "{self.word}" did not answer within {ANSWER_S:.0f}s: it starts, or restarts',
                f"in a few seconds: edlz scale {self.word} --workers={workers}",
            )
        return answer

    def refuse_idle(self, *, is_now: bool = False) -> None:
        """Raise ConfigError unless it runs under a supervisor; `is_now`: or has left processes over."""
        from edlz.client.local.job_kill import processes_left
        from edlz.client.local.job_view import refuse_idle

        if not (is_now and processes_left(self._job.path)):
            refuse_idle(self.sight())

    def begin_stop(self) -> list[str]:
        """Do what Ctrl-C does."""
        self._signal(is_first=True)
        return []

    def end_now(self) -> list[str]:
        """End it, whatever state its processes are in; return when none is left."""
        from edlz.client.local.job_directory import hold_idle_job
        from edlz.client.local.job_kill import kill_job, processes_left

        if self._is_run():
            self._signal(is_first=True)
            time.sleep(AGAIN_S)
            self._signal(is_first=False)
            self._await_end(NOW_S)
        if self._is_run() or processes_left(self._job.path):
            kill_job(self._job.path, self.word)
            with suppress(OSError), hold_idle_job(self._job.path, self.name):
                pass  # takes away what the run had no time for
        return []

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
        from edlz.client.jobs.resumption import nothing_left, resumed_settings

        if word := nothing_left(self.name, self.sight().status):
            print(word)
            return 0
        kept = self._job.path / SETTINGS
        if not kept.is_file():
            by_hand = "a job that was started by hand goes on when its master is started again"
            raise ConfigError(f"{self._job.path} holds no {SETTINGS} to go on with", by_hand)
        config = resumed_settings(kept, argv, [f"--job_dir={self._job.path}"], _checked)
        from edlz.client.local.run import run_local

        return run_local(config, is_resumed=True)

    def remove(self) -> list[str]:
        """Remove its folder; return what there is to say."""
        from edlz.client.local.job_removal import remove_job
        from edlz.client.screen.wording import size

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


def _checked(config: JobConfig) -> "Preflight":
    """Check model and data, having said so: what does it takes seconds to import on a busy machine."""
    with first_sign(config, "checking model and data"):
        from edlz.client.jobs.preflight import check_job
        from edlz.client.local import run  # noqa: F401  needed next, while there is a sign of life

        return check_job(config)


async def _follow(job: LocalJob, screen: "Screen") -> None:
    import asyncio

    import msgspec

    from edlz.client.local.master_line import ANSWER_S, address_of, ask
    from edlz.services.protocol.job_status import JobStatus, StatusRequest

    seen: int | None = None
    is_silent = False
    while (holder := lock_holder(job.path)) is not None:
        answer = await ask(address_of(holder), StatusRequest(since=seen or 0), ANSWER_S)
        if isinstance(answer, JobStatus):
            newest = max((event.seq for event in answer.events), default=seen or 0)
            screen.update(answer if seen is not None else msgspec.structs.replace(answer, events=()))
            seen, is_silent = newest, False
        elif not is_silent:
            screen.say("no answer from the master: it starts, or restarts")
            is_silent = True
        await asyncio.sleep(POLL_S)
