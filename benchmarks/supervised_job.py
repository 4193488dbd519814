"""A job under `edlz train`, watched through its master and disturbed by signals."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from benchmarks.processes import quiet_environment, services_of
from edlz.client.local.job_lock import lock_holder
from edlz.services.errors import PeerUnavailable
from edlz.services.protocol.job_status import JobStatus, StatusRequest
from edlz.services.transport.rpc import RpcClient

__all__ = ["Sample", "SupervisedJob"]

POLL_S, ANSWER_S, END_S = 0.02, 0.5, 300.0
_LOSS = re.compile(r"^\[([\d: ,-]+)\].*Loss = ", re.MULTILINE)


@dataclass(frozen=True)
class Sample:
    """What the master said at a time, in seconds since the epoch."""

    at_s: float
    status: JobStatus


@dataclass
class SupervisedJob:
    """One job.

    Parameters
    ----------
    home : Path
        Made for it: its EDLZ_HOME.
    flags : sequence of str
        Of `edlz train`.

    Attributes
    ----------
    samples : list of Sample
        Everything the master has said, as it was watched.
    """

    home: Path
    flags: Sequence[str]
    samples: list[Sample] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _line: RpcClient | None = None

    async def __aenter__(self) -> "SupervisedJob":
        self._line = RpcClient(self._start(), role="viewer", identity="benchmark")
        return self

    def _start(self) -> str:
        """Start the job and return its master's address."""
        self.home.mkdir()
        command = [sys.executable, "-m", "edlz.client", "train", "--job_name=job", *self.flags]
        with (self.home / "out").open("wb") as out:
            environment = quiet_environment(EDLZ_HOME=str(self.home))
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        while self._process.poll() is None:
            holder = lock_holder(self.home / "jobs" / "job")
            endpoint = holder.endpoint("master") if holder is not None else None
            if endpoint is not None:
                return endpoint
            time.sleep(POLL_S)
        raise RuntimeError(f"the job has not begun\n{self.output}")

    async def __aexit__(self, *_: object) -> None:
        assert self._line is not None
        assert self._process is not None
        self._line.close()
        self._process.kill()  # its children die with it
        self._process.wait()

    @property
    def status(self) -> JobStatus:
        return self.samples[-1].status

    @property
    def output(self) -> str:
        return (self.home / "out").read_text()

    def pid(self, name: str) -> int:
        """Return the process id of a service that runs."""
        assert self._process is not None
        pid = services_of(self._process.pid).get(name)
        if pid is None:
            raise RuntimeError(f"{name} does not run\n{self.output[-3000:]}")
        return pid

    def kill(self, name: str) -> float:
        """SIGKILL a service; return when, in seconds since the epoch."""
        pid = self.pid(name)
        at_s = time.time()
        os.kill(pid, signal.SIGKILL)
        return at_s

    async def watch(self, until: Callable[[Sample], bool], what: str) -> Sample:
        """Watch the job until a sample is so; return it.

        Raises
        ------
        RuntimeError
            If the job ends or does not get there.
        """
        assert self._line is not None
        assert self._process is not None
        end_s = time.monotonic() + END_S
        while time.monotonic() < end_s and self._process.poll() is None:
            try:
                status = await self._line.request(StatusRequest(), ANSWER_S)
            except PeerUnavailable:
                continue
            assert isinstance(status, JobStatus)
            self.samples.append(Sample(time.time(), status))
            if until(self.samples[-1]):
                return self.samples[-1]
            await asyncio.sleep(POLL_S)
        raise RuntimeError(f"no {what} within {END_S:.0f} s\n{self.output[-3000:]}")

    async def watch_for(self, seconds: float) -> None:
        end_s = time.time() + seconds
        await self.watch(lambda sample: sample.at_s >= end_s, "end of the time")

    async def watch_event(self, text: str) -> Sample:
        """Watch the job until an event has this text in it."""
        return await self.watch(
            lambda sample: any(text in event.text for event in sample.status.events), repr(text)
        )

    def log(self, name: str) -> str:
        path = self.home / "jobs" / "job" / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def steps(self, name: str) -> list[float]:
        """Return when a worker made steps, in seconds since the epoch; the job logs each one's loss."""
        return [
            datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f").timestamp()
            for when in _LOSS.findall(self.log(name))
        ]
