"""Services as processes of this machine: starting, watching, logging and ending them.

Each is in a process group of its own (so Ctrl-C in the terminal reaches the supervisor alone) and dies with
the supervisor (`child`).  What it prints goes to its log file, and line by line to whoever wants it.

Whatever goes wrong in here, a service is watched to its end and what it prints is read: an error is kept for the
supervisor, which ends the job for it.  A group of tasks that one of them breaks would leave the others' processes
unwatched, and whoever waits for their ends waiting.
"""

import asyncio
import itertools
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edlz.client.local.launching import child
from edlz.client.local.launching.log_file import LogFile, LogTrouble
from edlz.client.local.launching.processes import OutOfMemory
from edlz.services.configuration.job_config import edlz_home, flags_by_spelling
from edlz.services.errors import LaunchError
from edlz.services.process.runtime import END_SIGNAL
from edlz.services.protocol.messages import ProcessExit
from edlz.services.supervision.post_mortem import last_words

__all__ = ["SCRATCH_VARIABLE", "ProcessLauncher", "describe_exit", "service_environment"]

logger = logging.getLogger(__name__)

SCRATCH_VARIABLE = "TMPDIR"  # also what a run's processes are found by
_CHUNK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 20  # bytes; a longer one is passed on in pieces
_TAIL_LINES = 200
_KILL_S = 20.0  # what is killed is waited for so long
_LAST_OWN_CODE = 128  # those above are a signal's, which no last words explain
_DRAIN_S = 1.0  # what a process left in its pipe is read for so long, should a child of its own hold it open


@dataclass(slots=True)
class _Service:
    """A process and what is known of it.

    Attributes
    ----------
    launch : int
        The number of its start, of all that were made.
    is_stopped : bool
        Its end was asked for, so it is no exit to report.
    tail : deque[str]
        Its last lines.
    watching : asyncio.Task[None], optional
        The task that watches it.
    """

    process: asyncio.subprocess.Process
    launch: int
    is_stopped: bool = False
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    watching: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Start:
    """A process that is being started.

    Attributes
    ----------
    work : asyncio.Task[None], optional
        The task that does it.
    end : tuple, optional
        How it is to be ended as soon as it runs: the seconds until that is done by force, and the signal.
    """

    work: asyncio.Task[None] | None = None
    end: tuple[float, signal.Signals] | None = None


class ProcessLauncher:
    """Launches services as processes.

    Parameters
    ----------
    tasks : asyncio.TaskGroup
        Where the tasks that watch the processes live.
    command_of : callable
        A service's name to its program and arguments.
    logs : Path
        The folder of the log files; it exists.
    scratch : Path
        The folder of temporary files; whoever owns it removes it, since a killed process does not.
    on_line : callable
        Called with name and text of each line that a service prints.
    say : callable
        Called with what whoever watches the job should know of its log files.

    Attributes
    ----------
    exited : set whenever a service ends by itself, or an error is kept
    error : Exception, optional
        The first thing that went wrong in here: nothing is to be started any more.
    """

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        command_of: Callable[[str], Sequence[str]],
        logs: Path,
        scratch: Path,
        on_line: Callable[[str, str], None],
        say: Callable[[str], None] = logger.warning,
    ) -> None:
        self._tasks, self._command_of, self._logs, self._on_line = tasks, command_of, logs, on_line
        self._log_trouble = LogTrouble(say)
        self._environment = service_environment(os.environ, scratch)
        self._services: dict[str, _Service] = {}  # what runs
        self._starting: dict[str, _Start] = {}  # what was begun to be started, and does not run yet
        self._tails: dict[str, deque[str]] = {}  # of what runs and what has ended
        self._exits: list[ProcessExit] = []
        # Rising also from one supervisor to the next.
        self._launches = itertools.count(time.time_ns() // 1_000)
        self._out_of_memory = OutOfMemory()
        self.exited = asyncio.Event()
        self.error: Exception | None = None

    def running(self) -> tuple[str, ...]:
        """Return the names of what runs, or is being started."""
        return (*self._services, *self._starting)

    def take_exits(self) -> tuple[ProcessExit, ...]:
        """Return what has ended by itself since the call before."""
        exits, self._exits = tuple(self._exits), []
        self.exited.clear()
        return exits

    def pid(self, name: str) -> int | None:
        """Return the process id of a service that runs."""
        return self._services[name].process.pid if name in self._services else None

    def tail(self, name: str) -> list[str]:
        """Return the last lines that a service printed, also after its end."""
        return list(self._tails.get(name, ()))

    def begin_launch(self, name: str) -> None:
        """Start a service as `launch` does, without waiting for it; an error is kept."""
        if name not in self._services and name not in self._starting:
            start = self._starting[name] = _Start()
            start.work = self._tasks.create_task(
                self._keeping_error(self._launch(name, start)), name=f"start {name}"
            )

    async def _launch(self, name: str, start: _Start) -> None:
        try:
            await self.launch(name)
        finally:
            del self._starting[name]
        if start.end is not None:  # it was not wanted any more before it ran
            grace_s, number = start.end
            self.begin_stop(name, grace_s, number)

    async def launch(self, name: str) -> None:
        """Start a service.

        Raises
        ------
        LaunchError
            If the system does not start it.
        """
        command = self._command_of(name)
        log = LogFile(self._logs / f"{name}.log", self._log_trouble)
        wrapper = (sys.executable, "-I", "-S", child.__file__, str(os.getpid()))
        try:
            process = await asyncio.create_subprocess_exec(
                *wrapper,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
                process_group=0,
            )
        except OSError as e:
            log.close()
            raise LaunchError(
                f"{name} cannot be started: {e.strerror}", "is the machine out of processes?"
            ) from e
        service = _Service(process, next(self._launches))
        self._services[name] = service
        self._tails[name] = service.tail
        watching = self._keeping_error(self._watch(name, service, log))
        service.watching = self._tasks.create_task(watching, name=f"watch {name}")

    def begin_stop(self, name: str, grace_s: float, number: signal.Signals = END_SIGNAL) -> None:
        """End a service as `stop` does, without waiting for it; once is enough."""
        if name in self._starting:
            self._starting[name].end = (grace_s, number)
        service = self._services.get(name)
        if service is not None and not service.is_stopped:
            service.is_stopped = True
            stopping = self._keeping_error(self.stop(name, grace_s, number))
            self._tasks.create_task(stopping, name=f"stop {name}")

    async def stop(self, name: str, grace_s: float, number: signal.Signals = END_SIGNAL) -> None:
        """End a service, by force after `grace_s` seconds; return when it is gone.

        One that the system holds (it waits for a disk that does not answer) cannot be ended by anybody: it is
        given up, which is kept as an error.
        """
        service = self._services.get(name)
        if service is None:
            return
        service.is_stopped = True
        # Not by `send_signal`: of a process that has just ended it takes the exit code from whoever waits for that.
        if service.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(service.process.pid, number)
        try:
            async with asyncio.timeout(grace_s):
                await service.gone.wait()
        except TimeoutError:
            self.kill([name])
            await self._await_kill(name, service)

    async def _await_kill(self, name: str, service: _Service) -> None:
        try:
            async with asyncio.timeout(_KILL_S):
                await service.gone.wait()
        except TimeoutError:
            pid = service.process.pid
            self._keep(LaunchError(f"{name} (pid {pid}) was killed, but the system does not let it end"))
            assert service.watching is not None
            service.watching.cancel()
            await asyncio.wait([service.watching])

    async def stop_all(self, grace_s: float) -> None:
        """End everything at once; return when all of it is gone."""
        if starts := [start.work for start in self._starting.values() if start.work is not None]:
            await asyncio.wait(starts)
        async with asyncio.TaskGroup() as stopping:
            for name in self.running():
                stopping.create_task(self.stop(name, grace_s), name=f"stop {name}")

    def kill(self, names: Iterable[str]) -> None:
        """End services at once, with whatever they started."""
        for name in names:
            if name in self._starting:
                self._starting[name].end = (0.0, signal.SIGKILL)
            service = self._services.get(name)
            if service is not None:
                service.is_stopped = True
                with suppress(ProcessLookupError):
                    os.killpg(service.process.pid, signal.SIGKILL)

    async def _keeping_error(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:
            self._keep(error)

    def _keep(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            self.exited.set()

    async def _watch(self, name: str, service: _Service, log: LogFile) -> None:
        """Read what a service prints, until it has ended; then note how."""
        began = time.monotonic()
        pumping = self._keeping_error(self._pump(name, service, log))
        pump = self._tasks.create_task(pumping, name=f"pump {name}")
        try:
            code = await service.process.wait()
            await asyncio.wait([pump], timeout=_DRAIN_S)
            pump.cancel()
            how = self._how(name, code, service)
            log.write(f"--- ended after {time.monotonic() - began:.1f}s: {how.reason}\n".encode())
            if not service.is_stopped:
                self._exits.append(how)
                self.exited.set()
        finally:
            log.close()
            del self._services[name]
            service.gone.set()

    def _how(self, name: str, code: int, service: _Service) -> ProcessExit:
        how = msgspec.structs.replace(describe_exit(name, code, service.tail), launch=service.launch)
        if how.signal == signal.SIGKILL and self._out_of_memory.has_killed():
            reason = f"{how.reason}: the system was out of memory"
            return msgspec.structs.replace(how, reason=reason, cause="out of memory")
        return how

    async def _pump(self, name: str, service: _Service, log: LogFile) -> None:
        stream = service.process.stdout
        assert stream is not None
        waiting = b""
        while chunk := await stream.read(_CHUNK_BYTES):
            *lines, waiting = (waiting + chunk).split(b"\n")
            if len(waiting) > _LONGEST_LINE:
                lines, waiting = [*lines, waiting], b""
            self._pass_on(name, service, log, lines)
        self._pass_on(name, service, log, [waiting] if waiting else [])

    def _pass_on(self, name: str, service: _Service, log: LogFile, lines: Sequence[bytes]) -> None:
        """Never fails: a service whose output nobody reads stands still."""
        texts = [line.decode(errors="replace").rstrip("\r") for line in lines]
        service.tail.extend(texts)
        try:
            if lines:
                log.write(b"\n".join(lines) + b"\n")
            for text in texts:
                self._on_line(name, text)
        except Exception as error:
            self._keep(error)


def describe_exit(name: str, code: int, tail: Sequence[str] = ()) -> ProcessExit:
    """Return how a process ended, from its return code as Python gives it (negative: a signal) and its last lines."""
    if code >= 0:
        said = last_words(tail).error if 0 < code <= _LAST_OWN_CODE else ""
        return ProcessExit(name=name, code=code, reason=f"exit code {code}{': ' if said else ''}{said}")
    number = -code
    try:
        word = f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        word = f"signal {number}"
    return ProcessExit(name=name, code=None, signal=number, reason=f"killed by {word}")


def service_environment(environ: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return the environment of a service.

    Our flags are not in it: the service gets them as arguments.  TensorFlow is quiet, and what it leaves in
    the folder of temporary files (code that it generates) goes to `scratch`.  Who wants no compiled modules
    beside the sources gets them in EDLZ_HOME: compiling TensorFlow anew is more than half of a worker's start.
    """
    ours = {f"EDLZ_{spelling.upper()}" for spelling in flags_by_spelling()}
    environment = {name: value for name, value in environ.items() if name not in ours}
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    environment[SCRATCH_VARIABLE] = str(scratch)
    if environment.pop("PYTHONDONTWRITEBYTECODE", "") and "PYTHONPYCACHEPREFIX" not in environment:
        environment["PYTHONPYCACHEPREFIX"] = str(edlz_home() / "pycache")
    return environment
