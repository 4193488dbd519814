"""A master that ends: it is started again, or the job ends with its reason."""

import os
import signal
from collections.abc import Sequence

import pytest

from edlz.client.local import supervisor
from edlz.client.local.job_directory import JobDirectory
from edlz.services.errors import PeerUnavailable
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import SupervisorStatus
from edlz.services.supervision import backoff
from tests.small_processes import FAILS, TELLS_PID, WAITS
from tests.unit.client.local.supervised import Master, Screen, leaves_when, run

pytestmark = pytest.mark.usefixtures("quick")


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
