"""A supervisor of small processes, with a screen that remembers and a master that a test plays."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from edlz.client.local import supervisor
from edlz.client.local.job_directory import JobDirectory
from edlz.client.local.share.share_file import LocalSlots
from edlz.client.local.supervisor import Supervisor
from edlz.client.screen.spans import Line
from edlz.services.protocol.job_status import EventView, JobStatus
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import ProcessExit, SupervisorOrders, SupervisorStatus
from tests.small_processes import LIMIT_S

__all__ = ["Master", "Screen", "leaves_when", "run"]


class Screen:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.on_line: Callable[[str, str], object] = lambda source, text: None

    def open(self) -> None: ...

    def log_line(self, source: str, text: str) -> None:
        self.lines.append((source, text))
        self.on_line(source, text)

    def say(self, text: str) -> None:
        self.said.append(text)

    def wait(self, text: str) -> None:
        self.said.append(text)

    def update(self, status: JobStatus) -> None: ...

    def log_stream(self) -> object:
        return sys.stderr

    def close(self, ending: Sequence[Line], *, is_error: bool) -> None: ...


class Master:
    """Plays the master: `decide` turns a status into what should run."""

    def __init__(self, decide: Callable[[SupervisorStatus], Sequence[str]]) -> None:
        self.decide = decide
        self.statuses: list[SupervisorStatus] = []
        self.state = "Training"
        self.events: list[EventView] = []
        self.stop = False
        self.hung: tuple[str, ...] = ()
        self.waiting = 0

    @property
    def exits(self) -> list[ProcessExit]:
        by_seq = {status.seq: status for status in self.statuses}
        return [gone for status in by_seq.values() for gone in status.exits]

    async def request(self, body: Message, deadline_s: float) -> Message:
        await asyncio.sleep(0)
        if isinstance(body, SupervisorStatus):
            self.statuses.append(body)
            desired = tuple(self.decide(body))
            return SupervisorOrders(
                term=1, desired=desired, stop=self.stop, hung=self.hung, waiting=self.waiting
            )
        events, self.events = tuple(self.events), []
        return JobStatus(
            name="job",
            state=self.state,  # type: ignore[arg-type]
            mode="sync",
            slots=1,
            started_at=0.0,
            now=1.0,
            events=events,
        )


def run(
    folder: JobDirectory,
    screen: Screen,
    link: object,
    programs: dict[str, str],
    *,
    restarts_master: bool = True,
    slots: LocalSlots | None = None,
) -> supervisor.Evidence:
    async def main() -> supervisor.Evidence:
        found = Supervisor(
            "job",
            folder,
            screen,  # type: ignore[arg-type]
            link,  # type: ignore[arg-type]
            lambda name: [sys.executable, "-c", programs[name]],
            restarts_master=restarts_master,
            slots=slots,
        )
        async with asyncio.timeout(LIMIT_S):
            await found.run()
        return found.evidence

    return asyncio.run(main())


def leaves_when(path: Path) -> str:
    return f"import pathlib, time\nwhile not pathlib.Path({str(path)!r}).exists(): time.sleep(0.01)"
