"""A real job of processes on this machine that can be killed, stopped and cut off while it runs.

It is its own supervisor: what it has killed it starts again, a worker under a new id, master and parameter
servers as they were.  Every process listens on a Unix socket and is reached through a line of `Network`.
"""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.chaos_disk import SmallDisk
from benchmarks.chaos_network import Network
from benchmarks.chaos_schedule import ALL, Fault
from benchmarks.processes import is_complete, quiet_environment
from edlz.services.errors import EdlzError
from edlz.services.master.journal.journal import planned_job
from edlz.services.protocol.messages import Exchanged, NewestPull
from edlz.services.transport.rpc import RpcClient

__all__ = ["ChaosJob", "Missed"]

ROOT = Path(__file__).parents[1]
POLL_S = 0.02
PROBE_S = 0.5
STANDSTILL_S = 300.0  # for a job that gets no further; one on a busy machine may take longer as a whole
FAREWELL_S = 15.0  # after the master's end
STOP_S = 20.0
GRACE_S = 25.0  # after SIGTERM; a parameter server takes up to 20 s to save what it has
AFTER_FULL_S = 10.0  # so long may a process still end over a disk that was full
SLOW_S = 0.05  # each piece to and from a master that is about to be killed: it must not be gone first
NEWER_THAN_ANY = 2**62
_NEAR_THE_END = 0.9


class Missed(Exception):
    """Something did not happen that should have: a fault, or an end."""


class ChaosJob:
    """One run; an asynchronous context manager that leaves no process behind.

    Parameters
    ----------
    folder : Path
        For the processes' logs, and the job in its folder `job`; it is there.
    flags : sequence of str
        The master's.
    partitions : int
        Parameter servers; 0 for an all-reduce job.
    """

    def __init__(self, folder: Path, flags: tuple[str, ...], *, workers: int, partitions: int) -> None:
        self.folder, self._flags = folder, flags
        self.workers, self.partitions = workers, partitions
        self.job_folder = folder / "job"
        self.job_folder.mkdir()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: dict[str, subprocess.Popen[bytes]] = {}  # of the processes' output
        self._former_readers: list[subprocess.Popen[bytes]] = []  # of those that were started again
        self._stack = contextlib.ExitStack()
        self._disk: SmallDisk | None = None
        self._is_full = False
        self.killed: set[str] = set()
        self.told: set[str] = set()  # to end, since the job was over and they had not heard of it
        self._met: set[str] = set()  # processes of which not everybody need hear the end by itself
        self._hit: set[str] = set()  # one fault at a time for each process
        self._network = Network()
        self._sockets = Path(tempfile.mkdtemp(prefix="edlz-"))  # paths of Unix sockets must be short
        self._endpoints: dict[str, str] = {}
        self._probes: list[RpcClient] = []
        self._run = ""
        self._versions: dict[str, int] = {}
        self._furthest = 0  # of all versions that it has ever had
        self._limit = asyncio.timeout(STANDSTILL_S)
        self._successors: dict[str, str] = {}  # of workers
        self._next_worker = workers

    async def __aenter__(self) -> "ChaosJob":
        servers = ["master", *(f"ps-{index}" for index in range(self.partitions))]
        for name in servers:
            await self._add_line(name)
        self._probes = [
            RpcClient(f"ipc://{self._sockets}/ps-{index}", role="viewer", identity="0", linger_s=0.1)
            for index in range(self.partitions)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for probe in self._probes:
            probe.close()
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        for reader in (*self._former_readers, *self._readers.values()):
            reader.wait()
        await self._network.close()
        self._stack.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    # -- processes

    async def _add_line(self, name: str) -> None:
        self._endpoints[name] = await self._network.add_line(name, f"{self._sockets}/{name}")

    async def _start_all(self) -> None:
        for name in ("master", *(f"ps-{index}" for index in range(self.partitions))):
            await self._start(name)
        for number in range(self.workers):
            await self._start(f"worker-{number}")

    async def _start(self, name: str) -> None:
        if name.startswith("worker") and not self.partitions:
            await self._add_line(name)
        self._spawn(name)

    def _spawn(self, name: str) -> None:
        role, _, number = name.partition("-")
        job, master = f"--job_dir={self.job_folder}", f"--master_addr={self._endpoints['master']}"
        listen = f"--endpoint=ipc://{self._sockets}/{name}"
        if role == "master":
            servers = f"--num_ps_pods={self.partitions}"
            command = ["edlz.services.master", "--job_name=chaos", job, listen, servers, *self._flags]
        elif role == "ps":
            behind = ["benchmarks.chaos_ps", self._endpoints[name]]
            command = [*behind, f"--ps_id={number}", job, listen, master, "--log_level=DEBUG"]
        elif self.partitions:
            command = ["edlz.services.worker", f"--worker_id={number}", master]
        else:
            behind = ["benchmarks.chaos_worker", self._endpoints[name], f"{self._sockets}/{name}.version"]
            command = [*behind, f"--worker_id={number}", listen, master]
        with (self.folder / f"{name}.log").open("ab") as log:
            reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        assert reader.stdin is not None
        with reader.stdin as output:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdout=output,
                stderr=output,
                env=quiet_environment(),
                cwd=ROOT,
            )
        if name in self._readers:
            self._former_readers.append(self._readers[name])
        self._readers[name] = reader

    def _is_running(self, name: str) -> bool:
        process = self.processes.get(name)
        return process is not None and process.poll() is None

    def _check(self) -> None:
        """Raise if a process ended that should not have."""
        for name, process in self.processes.items():
            code = process.poll()
            if code and not self._is_full and name not in self.killed and name not in self.told:
                raise Missed(f"{name} ended with {code}")

    # -- the run

    async def run(self, faults: tuple[Fault, ...]) -> None:
        """Let the job run to its end, with these faults on the way.

        Raises
        ------
        Missed
            If a fault did not happen, the job does not end, or a process ends otherwise than it should.
        """
        needs_disk = any(fault.kind == "full" for fault in faults)
        self._disk = self._stack.enter_context(SmallDisk(self.job_folder)) if needs_disk else None
        for fault in faults:  # from the start: between the last version and the digest lie milliseconds
            if fault.kind == "digest":
                self._hold_digest(fault.target)
        await self._start_all()
        try:
            async with self._limit, asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch(), name="watch")
                await self._inflict_all(faults)
                await self._until(lambda: not self._is_running("master"), "the end of the master")
                self._note_progress()
                watch.cancel()
                await self._end()
            self._check_lines()
        except TimeoutError:
            raise Missed(f"the job gets no further than v{self._furthest} in {STANDSTILL_S:.0f} s") from None
        except BaseExceptionGroup as errors:
            raise _first(errors) from errors

    def _note_progress(self) -> None:
        """The job has got further, or something has happened to it: the limit begins anew."""
        self._limit.reschedule(asyncio.get_running_loop().time() + STANDSTILL_S)

    def _note_version(self, name: str, version: int) -> None:
        """A process has this version; the job may have had it before, and have gone back."""
        self._versions[name] = version
        if version > self._furthest:
            self._furthest = version
            self._note_progress()

    async def _watch(self) -> None:
        """Find out how far the job is, and not through the lines, from whoever knows."""
        if not self.partitions:
            await self._watch_members()

        async def ask(index: int) -> None:
            while True:
                with contextlib.suppress(EdlzError):
                    question = NewestPull(have_version=NEWER_THAN_ANY, run=self._run_now())
                    answer = await self._probes[index].request(question, PROBE_S)
                    if isinstance(answer, Exchanged):
                        self._note_version(f"ps-{index}", answer.version)
                await asyncio.sleep(POLL_S)

        async with asyncio.TaskGroup() as group:
            for index in range(self.partitions):
                group.create_task(ask(index), name=f"watch ps-{index}")

    async def _watch_members(self) -> None:
        """Read what members write after each step; replace those that the master has told to leave."""
        while True:
            for name, process in list(self.processes.items()):
                if not name.startswith("worker"):
                    continue
                file = self._sockets / f"{name}.version"
                version = int.from_bytes(file.read_bytes(), "little") if file.exists() else 0
                self._note_version(name, version)
                if process.poll() == 0 and name not in self._successors and not self._is_complete():
                    await self._start_again(name, 0.0)
            await asyncio.sleep(POLL_S)

    def _run_now(self) -> str:
        """Return the job's run, without which no partition answers; nothing before it is planned."""
        if not self._run:
            job = planned_job(self.job_folder / "journal.sqlite")
            self._run = job.run if job is not None else ""
        return self._run

    async def _inflict_all(self, faults: tuple[Fault, ...]) -> None:
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await self._until(lambda fault=fault: self._is_due(fault), f"the moment for {fault}")  # type: ignore[misc]
                targets = self._targets(fault)
                self._hit.update(targets)
                group.create_task(self._inflict(fault, targets), name=str(fault))

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            self._check()
            process = self.processes["master"]
            if process.poll() == 0 and not condition():
                raise Missed(f"the job ended before {what}")
            await asyncio.sleep(POLL_S)

    def _is_due(self, fault: Fault) -> bool:
        """Whether the job has got so far, and the process is there and in touch with others."""
        at_version = _NEAR_THE_END * fault.at_version if fault.is_late else fault.at_version
        has_passed = max(self._versions.values(), default=0) >= at_version
        if fault.kind == "full":
            return has_passed
        targets = self._targets(fault)
        are_there = targets and all(
            self._is_running(name) and self._network.connections_of(name) > 0 and name not in self._hit
            for name in targets
        )
        if fault.kind == "link":
            are_there = are_there and self._network.are_linked(*targets)
        return has_passed and bool(are_there)

    def _targets(self, fault: Fault) -> tuple[str, ...]:
        """Return the processes that a fault is for, or those that have come in their place."""
        if fault.target == ALL:
            return tuple(
                name for name in self.processes if name.startswith("worker") and self._is_running(name)
            )
        names = []
        for name in (fault.target, fault.other):
            while name in self._successors:
                name = self._successors[name]
            names += [name] if name else []
        return tuple(names)

    async def _inflict(self, fault: Fault, targets: tuple[str, ...]) -> None:
        self._note_progress()
        name = targets[0]
        match fault.kind:
            case "kill":
                await asyncio.gather(*map(self._kill, targets))
                for each in targets:
                    await self._start_again(each, fault.seconds if each == name else 0.0)
            case "again":
                await self._kill(name)
                await self._start_again(name, fault.seconds)
                successor = self._successors[name]
                is_there = lambda: self._network.connections_of(successor) > 0  # noqa: E731
                await self._until(is_there, f"{successor}, which is to be killed too")
                await self._kill(successor)
                await self._start_again(successor, fault.seconds)
            case "end":
                await self._ask_to_end(name)
                await self._start_again(name, fault.seconds)
            case "stall":
                await self._stall(name, fault.seconds)
            case "cut":
                if not await self._network.cut(name, fault.seconds):
                    raise Missed(f"{fault}: there was nothing to cut")
            case "link":
                one, other = targets
                await self._network.cut_link(one, other, fault.seconds)
            case "delay":
                await self._network.delay(name, fault.delay_s, fault.seconds)
            case "mute":
                self._readers[name].kill()
                await asyncio.to_thread(self._readers[name].wait)
            case "full":
                await self._fill(fault.seconds)
            case "digest":
                name = await self._kill_during_digest(fault.target)
                await self._start_again(name, fault.seconds)
            case "complete":
                with self._network.slowed(name, SLOW_S):
                    await self._until(self._is_complete, str(fault))
                    await self._kill(name)
                # Nobody else need have heard of it.
                self._met.update(process for process in self.processes if process.startswith("worker"))
                await self._start_again(name, fault.seconds)
        self._hit.difference_update(targets)
        self._note_progress()

    async def _kill(self, name: str) -> None:
        process = self.processes[name]
        self.killed.add(name)
        process.kill()
        await asyncio.to_thread(process.wait)
        if process.returncode != -signal.SIGKILL:
            raise Missed(f"{name} ended with {process.returncode} before it could be killed")

    async def _start_again(self, name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if name.startswith("worker"):
            successor, self._next_worker = f"worker-{self._next_worker}", self._next_worker + 1
            self._successors[name] = name = successor
            self._met.add(name)
        self.killed.discard(name)  # its successor has to end by itself
        await self._start(name)

    async def _ask_to_end(self, name: str) -> None:
        process = self.processes[name]
        if process.poll() is not None:
            raise Missed(f"{name} ended before it could be asked to")
        self.killed.add(name)
        process.terminate()
        until = time.monotonic() + GRACE_S
        while process.poll() is None:
            if time.monotonic() > until:
                raise Missed(f"{name} does not end within {GRACE_S:.0f} s of SIGTERM")
            await asyncio.sleep(POLL_S)

    async def _kill_during_digest(self, name: str) -> str:
        """Kill a parameter server, or of ALL whoever is asked; return which it was."""
        is_asked, may_pass = self._hold_digest(name)
        try:
            await self._until(is_asked.is_set, f"the digest of {name}")
            name = self._network.held
            await self._kill(name)
        finally:
            may_pass.set()
        return name

    def _hold_digest(self, name: str) -> tuple[asyncio.Event, asyncio.Event]:
        if name == ALL:
            return self._network.hold("digest-0", "")
        return self._network.hold(name.replace("ps", "digest"), name)

    async def _fill(self, seconds: float) -> None:
        """Fill the disk for a while; whoever ends over that is started again, as by a supervisor."""
        assert self._disk is not None
        self._is_full = True
        empty_at = time.monotonic() + seconds
        while time.monotonic() < empty_at:
            self._disk.fill()
            await asyncio.sleep(POLL_S)
        self._disk.empty()
        until = time.monotonic() + AFTER_FULL_S
        while time.monotonic() < until and not self._is_complete():
            for name, process in list(self.processes.items()):
                if process.poll() and name not in self.killed | self.told | self._hit:
                    await self._start_again(name, 0.0)
                    if name.startswith("worker"):
                        self.killed.add(name)
            await asyncio.sleep(POLL_S)
        self._is_full = False

    def _is_complete(self) -> bool:
        return is_complete(self.job_folder)

    async def _stall(self, name: str, seconds: float) -> None:
        process = self.processes[name]
        if process.poll() is not None:
            raise Missed(f"{name} ended before it could be stopped")
        self._met.add(name)
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
            if process.poll() is not None or _state(process.pid) != "T":
                raise Missed(f"{name} was not stopped, or did not stay so")
        finally:
            process.send_signal(signal.SIGCONT)

    async def _end(self) -> None:
        """After the master's end: all others end by themselves, but for workers that it could not tell."""
        end = time.monotonic() + FAREWELL_S
        while any(process.poll() is None for process in self.processes.values()):
            self._check()
            if time.monotonic() > end:
                self._tell()
                end += STOP_S
            await asyncio.sleep(POLL_S)
        self._check()

    def _check_lines(self) -> None:
        """Raise if a server was reached past its line: then faults of its connections were none."""
        names = self._endpoints.keys()
        past = {name for name in names if not name.startswith("worker")} - self._network.reached
        if not self.partitions and not any(name.startswith("worker") for name in self._network.reached):
            past.add("the members")
        if past:
            raise Missed(f"nobody used the line of {', '.join(sorted(past))}")

    def _tell(self) -> None:
        """Do as a supervisor does when the job is over."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                continue
            if name in self.told or not name.startswith("worker") or name not in self._met:
                raise Missed(f"{name} does not end")
            self.told.add(name)
            process.terminate()


def _state(pid: int) -> str:
    """Return the letter of a process' state (Linux: T is stopped)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _first(raised: BaseException) -> BaseException:
    while isinstance(raised, BaseExceptionGroup):
        raised = raised.exceptions[0]
    return raised
