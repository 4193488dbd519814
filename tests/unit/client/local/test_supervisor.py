"""The supervisor with real, small processes and a master that is played by the test."""

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from edlz.client.local import supervisor
from edlz.client.local.job_directory import JobDirectory
from edlz.client.local.launching import child
from edlz.client.local.launching.process_launcher import ProcessLauncher, describe_exit, service_environment
from edlz.client.local.run import service_command
from edlz.client.local.share.share_file import LocalSlots
from edlz.client.local.supervisor import STOP_S, Supervisor
from edlz.client.screen.spans import Line
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import LaunchError, PeerUnavailable, RemoteProtocolError
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import EventView, JobStatus
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import ProcessExit, SupervisorOrders, SupervisorStatus
from edlz.services.supervision import backoff, loop

LIMIT_S = 30.0
WAITS = "import signal; print('ready', flush=True); signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGUSR2, signal.SIG_IGN); {WAITS}"
TELLS_PID = "import os, signal; print(os.getpid(), flush=True); signal.pause()"  # prints one line
FAILS = "raise SystemExit(3)"


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


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "POLL_S", 0.01)
    monkeypatch.setattr(supervisor, "STOP_S", 0.3)


@pytest.fixture
def folder(tmp_path: Path) -> JobDirectory:
    job = JobDirectory(tmp_path / "job", tmp_path / "sockets", None)
    job.logs.mkdir(parents=True)
    job.scratch.mkdir(parents=True)
    return job


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


def unnumbered(exit_: ProcessExit | None) -> ProcessExit | None:
    """How a process ended, whichever start of it that was."""
    return exit_ and msgspec.structs.replace(exit_, launch=0)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"


def leaves_when(path: Path) -> str:
    return f"import pathlib, time\nwhile not pathlib.Path({str(path)!r}).exists(): time.sleep(0.01)"


def test_a_job_runs_to_its_end(folder: JobDirectory) -> None:
    """The master's program leaves when both services have spoken and the test lets it."""
    screen = Screen()
    ready: set[str] = set()
    go = folder.path / "go"
    screen.on_line = lambda source, text: ready.add(source)

    def decide(status: SupervisorStatus) -> Sequence[str]:
        if {"worker-0", "ps-0"} <= ready:
            go.touch()
        return ("ps-0", "worker-0")

    programs = {"master": leaves_when(go), "ps-0": WAITS, "worker-0": WAITS}
    evidence = run(folder, screen, Master(decide), programs)
    assert unnumbered(evidence.master) == ProcessExit(name="master", code=0, reason="exit code 0")
    assert evidence.first_crash is None
    assert ("worker-0", "ready") in screen.lines
    assert (folder.sockets / "status.json").is_file(), "what it has heard is left for lists of jobs"
    log = (folder.logs / "worker-0.log").read_text()
    assert log.startswith("ready\n")
    assert "killed by signal 12 (SIGUSR2)" in log
    assert sorted(path.name for path in folder.logs.iterdir()) == ["master.log", "ps-0.log", "worker-0.log"]


def test_a_killed_worker_is_told_to_the_master_and_said_once(folder: JobDirectory) -> None:
    screen = Screen()
    pids: dict[str, int] = {}
    go = folder.path / "go"

    def decide(status: SupervisorStatus) -> Sequence[str]:
        if link.exits:
            go.touch()
        return ("worker-0",) if link.exits else ("worker-0", "worker-1")

    def on_line(source: str, text: str) -> None:
        pids[source] = int(text)
        if len(pids) == 2:
            os.kill(pids["worker-1"], signal.SIGKILL)

    screen.on_line = on_line
    link = Master(decide)
    programs = {"master": leaves_when(go), "worker-0": TELLS_PID, "worker-1": TELLS_PID}
    run(folder, screen, link, programs)
    assert unnumbered(link.exits[0]) == ProcessExit(
        name="worker-1", code=None, signal=9, reason="killed by signal 9 (SIGKILL)"
    )
    assert [gone.name for gone in link.exits].count("worker-1") == 1
    assert screen.said.count("worker-1 lost: killed by signal 9 (SIGKILL).") == 1
    assert all(is_gone(pid) for pid in pids.values())


def test_what_the_master_says_of_a_loss_is_not_said_twice(folder: JobDirectory) -> None:
    screen = Screen()
    go = folder.path / "go"

    def decide(status: SupervisorStatus) -> Sequence[str]:
        if status.exits:
            text = "worker-0 lost: exit code 3. Task 5 goes on elsewhere."
            link.events.append(EventView(seq=1, at=0.0, kind="worker", text=text))
        if link.exits and not link.events:
            go.touch()
        return () if link.exits else ("worker-0",)

    link = Master(decide)
    evidence = run(folder, screen, link, {"master": leaves_when(go), "worker-0": FAILS})
    assert screen.said == []
    assert unnumbered(evidence.first_crash) == ProcessExit(name="worker-0", code=3, reason="exit code 3")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything(number: signal.Signals, folder: JobDirectory) -> None:
    screen = Screen()
    pids: list[int] = []

    def on_line(source: str, text: str) -> None:
        pids.append(int(text))
        if len(pids) == 3:
            os.kill(os.getpid(), number)

    screen.on_line = on_line
    names = ("ps-0", "worker-0")
    evidence = run(folder, screen, Master(lambda status: names), dict.fromkeys(("master", *names), TELLS_PID))
    assert evidence.signal == number
    assert evidence.master is None
    assert screen.said == ["stopping … Ctrl-C again to kill at once."]
    assert len(pids) == 3
    assert all(is_gone(pid) for pid in pids)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_job_runs_as_many_workers_as_have_slots(folder: JobDirectory, tmp_path: Path) -> None:
    """The other job holds both slots, lets one go when this one is seen to wait, and then the other."""
    screen, go = Screen(), folder.path / "go"
    other = LocalSlots(tmp_path / "home", "other", 2, (5,), label="high")
    assert other.room(2, 2) == 2
    own = LocalSlots(tmp_path / "home", "job", 2, say=screen.say)
    seen: list[tuple[int | None, int]] = []

    def decide(status: SupervisorStatus) -> Sequence[str]:
        held = len(status.running)
        seen.append((status.room, held))
        if screen.said and held == 0:
            other.room(1, 1)
        if held == 1:
            other.leave()
        if held == 2:
            go.touch()
        assert status.room is not None
        desired = ("worker-0", "worker-1")[: status.room]
        link.waiting = 2 - len(desired)
        return desired

    link = Master(decide)
    programs = {"master": leaves_when(go), "worker-0": WAITS, "worker-1": WAITS}
    evidence = run(folder, screen, link, programs, slots=own)
    assert unnumbered(evidence.master) == ProcessExit(name="master", code=0, reason="exit code 0")
    assert screen.said == ['waiting for a slot: 2 of 2 are taken by "other" (priority high)']
    assert seen[0] == (0, 0)
    assert [room for room, _ in seen] == sorted(room for room, _ in seen if room is not None)
    assert all(held <= room for room, held in seen if room is not None)
    assert other.room(2, 0) == 2, "slots were not given back"


def test_a_signal_that_was_ignored_stays_so(folder: JobDirectory) -> None:
    """`nohup edlz train &` goes on when the terminal is closed."""
    screen = Screen()

    def on_line(source: str, text: str) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)

    screen.on_line = on_line
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        evidence = run(folder, screen, Master(lambda status: ()), {"master": WAITS})
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert evidence.signal == signal.SIGTERM


def test_a_second_signal_kills_what_does_not_stop(folder: JobDirectory) -> None:
    screen = Screen()
    screen.on_line = lambda source, text: os.kill(os.getpid(), signal.SIGINT)
    screen.say = lambda text: os.kill(os.getpid(), signal.SIGINT)  # type: ignore[method-assign]
    began = time.monotonic()
    evidence = run(folder, screen, Master(lambda status: ()), {"master": STUBBORN})
    assert evidence.signal == signal.SIGINT
    assert time.monotonic() - began < supervisor.GRACE_S


def test_a_terminal_that_goes_away_stops_the_job_once(folder: JobDirectory) -> None:
    """It sends SIGHUP more than once; the job gets its time to save all the same."""
    screen = Screen()
    go = folder.path / "go"

    def on_line(source: str, text: str) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    def decide(status: SupervisorStatus) -> Sequence[str]:
        if status.stop:
            os.kill(os.getpid(), signal.SIGHUP)
            go.touch()
        return ()

    screen.on_line = on_line
    saves = f"print('ready', flush=True)\n{leaves_when(go)}"
    evidence = run(folder, screen, Master(decide), {"master": saves})
    assert evidence.signal == signal.SIGHUP
    assert unnumbered(evidence.master) == ProcessExit(name="master", code=0, reason="exit code 0")


def test_an_error_at_a_line_ends_the_job_with_it(folder: JobDirectory) -> None:
    """And never leaves the supervisor waiting for the ends of processes that nobody watches."""
    screen = Screen()
    pids: list[int] = []

    def on_line(source: str, text: str) -> None:
        pids.append(int(text))
        if len(pids) == 3:
            raise ZeroDivisionError("in a line")

    screen.on_line = on_line
    names = ("ps-0", "worker-0")
    with pytest.raises(ZeroDivisionError, match="in a line"):
        run(folder, screen, Master(lambda status: names), dict.fromkeys(("master", *names), TELLS_PID))
    assert all(is_gone(pid) for pid in pids)


def test_log_files_on_a_full_disk_cost_lines_and_nothing_else(folder: JobDirectory) -> None:
    for name in ("master", "worker-0"):
        (folder.logs / f"{name}.log").symlink_to("/dev/full")
    screen = Screen()
    go = folder.path / "go"
    screen.on_line = lambda source, text: go.touch()
    programs = {"master": leaves_when(go), "worker-0": WAITS}
    evidence = run(folder, screen, Master(lambda status: ("worker-0",)), programs)
    assert unnumbered(evidence.master) == ProcessExit(name="master", code=0, reason="exit code 0")
    assert ("worker-0", "ready") in screen.lines
    why = "No space left on device; log lines are dropped until that is over."
    assert [text for text in screen.said if why in text] == screen.said
    assert len(screen.said) == 1


def test_what_does_not_stop_is_killed_after_a_while(
    folder: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "GRACE_S", 0.1)
    screen = Screen()
    screen.on_line = lambda source, text: os.kill(os.getpid(), signal.SIGTERM)
    evidence = run(folder, screen, Master(lambda status: ()), {"master": STUBBORN})
    assert evidence.signal == signal.SIGTERM
    assert "killed by signal 9 (SIGKILL)" in (folder.logs / "master.log").read_text()


def kills_the_master(times: int) -> tuple[Screen, dict[str, list[int]]]:
    """A screen that kills the master as it begins, so many times, and the processes that it has seen."""
    screen, pids = Screen(), {"master": [], "worker-0": []}

    def on_line(source: str, text: str) -> None:
        pids[source].append(int(text))
        if source == "master" and len(pids["master"]) <= times:
            os.kill(pids["master"][-1], signal.SIGKILL)

    screen.on_line = on_line
    return screen, pids


def test_a_master_that_is_killed_starts_again_and_the_others_stay(
    folder: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_DELAY_S", 0.001)
    screen, pids = kills_the_master(times=2)
    done = folder.path / "done"
    link = Master(lambda status: ("worker-0",))

    def decide(status: SupervisorStatus) -> Sequence[str]:
        if len(pids["master"]) == 3 and pids["worker-0"]:
            link.state = "Succeeded"
            done.touch()
        return ("worker-0",)

    link.decide = decide
    master = f"import os; print(os.getpid(), flush=True)\n{leaves_when(done)}"
    evidence = run(folder, screen, link, {"master": master, "worker-0": TELLS_PID})
    assert evidence.master is not None
    assert evidence.master.code == 0
    assert len(pids["worker-0"]) == 1
    lost = "master lost: killed by signal 9 (SIGKILL). It starts again; the others go on meanwhile."
    assert screen.said == [lost, lost]


def test_a_master_that_never_stays_up_ends_the_job(
    folder: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_DELAY_S", 0.001)

    class Mute(Master):
        async def request(self, body: Message, deadline_s: float) -> Message:
            raise PeerUnavailable("not there yet")

    screen, pids = kills_the_master(times=100)
    evidence = run(folder, screen, Mute(lambda status: ()), {"master": TELLS_PID})
    assert evidence.master is not None
    assert evidence.master.signal == signal.SIGKILL
    assert len(pids["master"]) == supervisor.MOST_UNHEARD_LIVES


def test_masters_that_answer_are_started_again_however_short_their_lives(
    folder: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count by themselves those that achieve nothing."""
    monkeypatch.setattr(backoff, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(backoff, "LONGEST_DELAY_S", 0.001)
    screen, pids = Screen(), []
    done = folder.path / "done"
    screen.on_line = lambda source, text: pids.append(int(text))
    killed: set[int] = set()

    def decide(status: SupervisorStatus) -> Sequence[str]:
        if len(pids) > 2 * supervisor.MOST_UNHEARD_LIVES:
            link.state = "Succeeded"
            done.touch()
        elif pids and pids[-1] not in killed:
            killed.add(pids[-1])
            os.kill(pids[-1], signal.SIGKILL)
        return ()

    link = Master(decide)
    master = f"import os; print(os.getpid(), flush=True)\n{leaves_when(done)}"
    evidence = run(folder, screen, link, {"master": master})
    assert evidence.master is not None
    assert evidence.master.code == 0
    assert len(killed) == 2 * supervisor.MOST_UNHEARD_LIVES


def test_a_master_that_is_not_to_be_restarted_ends_the_job(folder: JobDirectory) -> None:
    screen, pids = kills_the_master(times=100)
    link = Master(lambda status: ("worker-0",))
    programs = {"master": TELLS_PID, "worker-0": TELLS_PID}
    evidence = run(folder, screen, link, programs, restarts_master=False)
    assert evidence.master is not None
    assert len(pids["master"]) == 1


def test_a_master_that_fails_is_not_started_again(folder: JobDirectory) -> None:
    evidence = run(folder, Screen(), Master(lambda status: ()), {"master": FAILS})
    assert evidence.master is not None
    assert evidence.master.code == 3


def test_what_hangs_says_where_before_it_ends(folder: JobDirectory) -> None:
    """Also one that takes no signal to end; nobody waits for it meanwhile."""
    screen = Screen()
    hangs = f"import faulthandler; faulthandler.enable(); {STUBBORN}"
    done = folder.path / "done"
    link = Master(lambda status: ("worker-0",))

    def decide(status: SupervisorStatus) -> Sequence[str]:
        if ("worker-1", "ready") in screen.lines and "worker-0" not in status.running:
            link.state = "Succeeded"
            done.touch()
        if ("worker-0", "ready") in screen.lines:
            link.hung = ("worker-0",)
            return ("worker-1",)
        return ("worker-0",)

    link.decide = decide
    programs = {"master": leaves_when(done), "worker-0": hangs, "worker-1": WAITS}
    run(folder, screen, link, programs)
    log = (folder.logs / "worker-0.log").read_text()
    assert "Fatal Python error: Aborted" in log
    assert "killed by signal 6 (SIGABRT)" in log


def test_the_last_word_is_what_everybody_sees_later(folder: JobDirectory) -> None:
    """The master was asked a moment before it had ended."""
    go, done = folder.path / "go", folder.path / "status.json"
    link = Master(lambda status: ())

    def decide(status: SupervisorStatus) -> Sequence[str]:
        link.state = "Stopped"
        final = JobStatus(
            name="job",
            state="Stopped",
            mode="sync",
            slots=1,
            started_at=0.0,
            now=2.0,
            version=7,
            checkpoint=7,
        )
        done.write_bytes(named_status.encode(final))
        go.touch()
        return ()

    link.decide = decide
    evidence = run(folder, Screen(), link, {"master": leaves_when(go)})
    assert evidence.status is not None
    assert (evidence.status.state, evidence.status.version) == ("Stopped", 7)


def test_a_master_that_does_not_answer_is_asked_again(folder: JobDirectory) -> None:
    class Slow(Master):
        refused = 0

        async def request(self, body: Message, deadline_s: float) -> Message:
            if self.refused < 3:
                self.refused += 1
                raise PeerUnavailable("not there yet")
            return await super().request(body, deadline_s)

    link = Slow(lambda status: ("worker-0",))
    screen = Screen()
    screen.on_line = lambda source, text: source == "worker-0" and os.kill(os.getpid(), signal.SIGTERM)
    evidence = run(folder, screen, link, {"master": WAITS, "worker-0": WAITS})
    assert evidence.signal == signal.SIGTERM
    assert link.statuses[0].seq == 1


def test_an_error_of_the_protocol_ends_the_job_as_itself(folder: JobDirectory) -> None:
    class Foreign(Master):
        async def request(self, body: Message, deadline_s: float) -> Message:
            raise RemoteProtocolError("version 9")

    with pytest.raises(RemoteProtocolError, match="version 9"):
        run(folder, Screen(), Foreign(lambda status: ()), {"master": WAITS})


def test_a_final_state_is_waited_for_no_longer_than_needed(
    folder: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LEAVE_S", 0.05)
    link = Master(lambda status: ())
    link.state = "Succeeded"
    evidence = run(folder, Screen(), link, {"master": WAITS})
    assert evidence.master is None
    assert evidence.status is not None
    assert evidence.status.state == "Succeeded"


# ---------------------------------------------------------------- processes


def test_children_die_with_the_supervisor(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import asyncio, pathlib, sys
        from edlz.client.local.launching.process_launcher import ProcessLauncher

        async def main():
            logs = pathlib.Path({str(tmp_path)!r})
            async with asyncio.TaskGroup() as tasks:
                launcher = ProcessLauncher(
                    tasks, lambda name: [sys.executable, "-c", {STUBBORN!r}], logs, logs,
                    lambda name, text: print(launcher.pid(name), flush=True))
                await launcher.launch("worker-0")
                await asyncio.sleep(60)

        asyncio.run(main())
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + LIMIT_S
        while not is_gone(pid):
            assert time.monotonic() < deadline, "the child outlived its supervisor"
            time.sleep(0.01)


def test_a_child_whose_parent_is_gone_does_not_begin(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    begin = [sys.executable, "-c", f"open({str(mark)!r}, 'w')"]
    wrapper = [sys.executable, "-I", "-S", child.__file__]
    assert subprocess.run([*wrapper, "1", *begin], check=False).returncode == 1
    assert not mark.exists()
    assert subprocess.run([*wrapper, str(os.getpid()), *begin], check=False).returncode == 0
    assert mark.exists()


def test_a_child_leaves_a_hangup_to_its_parent() -> None:
    """A whole session is told that ends: the parent has the job saved, and needs its services for that."""
    program = "import os, signal; os.kill(os.getpid(), signal.SIGHUP)"
    wrapper = [sys.executable, "-I", "-S", child.__file__, str(os.getpid())]
    assert subprocess.run([*wrapper, sys.executable, "-c", program], check=False).returncode == 0


def test_output_is_kept_whole(tmp_path: Path) -> None:
    """Long lines, a last line without an end, and bytes that are no text."""
    program = "import sys; sys.stdout.buffer.write(b'a' * 300_000 + b'\\n\\xff\\nend'); sys.stdout.flush()"
    lines: list[str] = []

    async def main() -> tuple[ProcessExit, ...]:
        async with asyncio.TaskGroup() as tasks:
            launcher = ProcessLauncher(
                tasks,
                lambda name: [sys.executable, "-c", program],
                tmp_path,
                tmp_path,
                lambda name, text: lines.append(text),
            )
            await launcher.launch("worker-0")
        assert launcher.running() == ()
        assert launcher.tail("worker-0") == lines
        return launcher.take_exits()

    (how,) = asyncio.run(main())
    assert unnumbered(how) == ProcessExit(name="worker-0", code=0, reason="exit code 0")
    assert lines == ["a" * 300_000, "\ufffd", "end"]
    written = (tmp_path / "worker-0.log").read_bytes()
    assert written.startswith(b"a" * 300_000 + b"\n\xff\nend\n--- ended after ")


def launcher_of(tasks: asyncio.TaskGroup, program: str, folder: Path) -> ProcessLauncher:
    return ProcessLauncher(tasks, lambda name: [program], folder, folder, lambda name, text: None)


def sleepers(tasks: asyncio.TaskGroup, folder: Path, ready: asyncio.Event | None = None) -> ProcessLauncher:
    command, ready = [sys.executable, "-c", WAITS], ready or asyncio.Event()
    return ProcessLauncher(tasks, lambda name: command, folder, folder, lambda name, text: ready.set())


def test_what_is_being_started_counts_as_running_and_is_started_once(tmp_path: Path) -> None:
    async def main() -> None:
        ready = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            launcher = sleepers(tasks, tmp_path, ready)
            for _ in range(2):
                launcher.begin_launch("worker-0")
            assert launcher.running() == ("worker-0",)
            assert launcher.pid("worker-0") is None
            await ready.wait()
            assert launcher.pid("worker-0") is not None
            assert launcher.running() == ("worker-0",)
            launcher.begin_launch("worker-0")
            assert launcher.running() == ("worker-0",)
            await launcher.stop_all(0.0)
        assert launcher.take_exits() == ()
        assert launcher.error is None

    asyncio.run(main())


@pytest.mark.parametrize("end", ["one", "all", "kill"])
def test_what_is_not_wanted_any_more_when_it_has_started_ends(tmp_path: Path, end: str) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            launcher = sleepers(tasks, tmp_path)
            launcher.begin_launch("worker-0")
            if end == "one":
                launcher.begin_stop("worker-0", 0.1)
            elif end == "all":
                await launcher.stop_all(0.1)
            else:
                launcher.kill(launcher.running())
        assert launcher.running() == ()
        assert launcher.take_exits() == ()
        assert "ended after" in (tmp_path / "worker-0.log").read_text()

    asyncio.run(main())


def test_a_program_that_does_not_exist_is_a_crash(tmp_path: Path) -> None:
    async def main() -> tuple[ProcessExit, ...]:
        async with asyncio.TaskGroup() as tasks:
            launcher = launcher_of(tasks, "/nonexistent", tmp_path)
            await launcher.launch("ps-0")
        return launcher.take_exits()

    (gone,) = asyncio.run(main())
    assert gone.code == 1


def test_a_system_that_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*args: object, **more: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            launcher = launcher_of(tasks, "x", tmp_path)
            why = "ps-0 cannot be started: Resource temporarily unavailable"
            with pytest.raises(LaunchError, match=why):
                await launcher.launch("ps-0")
            launcher.begin_launch("ps-1")
            await launcher.exited.wait()
            assert launcher.running() == ()
            assert "ps-1 cannot be started" in str(launcher.error)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fail)
    asyncio.run(main())


def test_how_processes_end_in_words() -> None:
    assert describe_exit("a", 3).reason == "exit code 3"
    assert describe_exit("a", 1, ["error: no room", "help: x"]).reason == "exit code 1: no room"
    assert describe_exit("a", 0, ["WARNING: x"]).reason == "exit code 0"
    assert describe_exit("a", 143, ["WARNING: x"]).reason == "exit code 143"
    killed = ProcessExit(name="a", code=None, signal=9, reason="killed by signal 9 (SIGKILL)")
    assert describe_exit("a", -9) == killed
    assert describe_exit("a", -99).reason == "killed by signal 99"


def test_the_environment_of_services(tmp_path: Path) -> None:
    given = {"EDLZ_NUM_WORKERS": "5", "EDLZ_HOME": "/h", "PATH": "/bin", "EDLZ_TRAINING_DATA_DIR": "x"}
    found = service_environment(given, tmp_path)
    assert found == {
        "EDLZ_HOME": "/h",
        "PATH": "/bin",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TMPDIR": str(tmp_path),
    }


def test_services_keep_compiled_modules_apart_from_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    given = {"PYTHONDONTWRITEBYTECODE": "1"}
    found = service_environment(given, tmp_path)
    assert found["PYTHONPYCACHEPREFIX"] == str(tmp_path / "home" / "pycache")
    assert "PYTHONDONTWRITEBYTECODE" not in found
    own = service_environment({**given, "PYTHONPYCACHEPREFIX": "/own"}, tmp_path)
    assert own["PYTHONPYCACHEPREFIX"] == "/own"


def test_commands_of_services_are_what_the_services_read(folder: JobDirectory) -> None:
    config = JobConfig(
        model_def="m.n.custom_model", training_data="d", num_workers=3, seed=4, recovery_snapshot_secs=2.5
    )
    program, module, name, *arguments = service_command(config, folder, "master")
    assert (program, module, name) == (sys.executable, "-m", "edlz.services.master")
    master = read_config(arguments, "master", {}).checked()
    assert master.patience_secs == STOP_S, "a stop of the whole job is the supervisor's"
    assert dataclasses.replace(master, endpoint="", job_dir="", patience_secs=0.0) == config
    assert master.endpoint == folder.endpoint("master")
    ps = read_config(service_command(config, folder, "ps-1")[3:], "ps", {}).checked()
    assert ps.leave_secs == 0, "whoever it tells to end is needed no more"
    assert (ps.ps_id, ps.endpoint) == (1, folder.endpoint("ps-1"))
    assert ps.master_endpoint == folder.endpoint("master")
    assert master.recovery_snapshot_secs == 2.5
    worker = read_config(service_command(config, folder, "worker-12")[3:], "worker", {}).checked()
    assert (worker.worker_id, worker.master_endpoint) == (12, folder.endpoint("master"))
