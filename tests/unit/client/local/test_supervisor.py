"""The supervisor with real, small processes and a master that is played by the test."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from edlz.client.local import supervisor
from edlz.client.local.job_directory import JobDirectory
from edlz.client.local.share.share_file import LocalSlots
from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import EventView, JobStatus
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import ProcessExit, SupervisorStatus
from tests.small_processes import FAILS, STUBBORN, TELLS_PID, WAITS, is_gone, unnumbered
from tests.unit.client.local.supervised import Master, Screen, leaves_when, run

pytestmark = pytest.mark.usefixtures("quick")


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
            text = "worker-0 lost: exit code 3. Task 5 goes to another worker."
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
