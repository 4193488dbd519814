"""What signals mean to a service's process."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from edlz.services.process.runtime import END_SIGNAL

SERVICE = """
import logging, signal, sys
from edlz.services.process.runtime import run_service

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
if sys.argv[2] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

async def main(stop):
    print("ready", flush=True)
    await stop.wait()
    return stop.code

sys.exit(run_service(main, float(sys.argv[1])))
"""
TOLD = "told to end: it ends in 600s at the latest, if the job is not ended before\n"


@contextmanager
def service(patience_s: float = 0.0, how: str = "") -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", SERVICE, str(patience_s), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGINT, 130), (END_SIGNAL, 128 + END_SIGNAL)],
)
def test_a_service_by_hand_ends_at_once(number: signal.Signals, code: int) -> None:
    with service() as process:
        process.send_signal(number)
        assert process.wait(20) == code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (END_SIGNAL, 128 + END_SIGNAL)])
def test_one_of_a_supervisor_gives_it_time_to_save_the_job(number: signal.Signals, code: int) -> None:
    with service(600.0) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == TOLD
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(20) == code


def test_it_ends_when_that_time_is_over() -> None:
    with service(0.05) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143


def test_the_code_of_a_service_that_has_ended_stays() -> None:
    """It takes a while until its process is gone; a supervisor that stops everybody meanwhile is too late."""
    code = """
import sys
from edlz.services.process.runtime import run_service

async def main(stop):
    return 3

code = run_service(main)
print("over", flush=True)
sys.stdin.read()
sys.exit(code)
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "over\n"
        process.send_signal(END_SIGNAL)
        process.stdin.close()
        assert process.wait(20) == 3


def test_a_hangup_that_was_ignored_stays_so() -> None:
    with service(how="nohup") as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(END_SIGNAL)
        assert process.wait(20) == 128 + END_SIGNAL


def test_a_bug_ends_a_service_at_once_with_its_traceback() -> None:
    """A thread that computes for hours keeps no process that nobody can use."""
    code = """
import sys, threading
from edlz.services.process.runtime import run_service

async def main(stop):
    threading.Thread(target=threading.Event().wait, daemon=False).start()
    raise ValueError("a bug")

code = run_service(main)
sys.stderr.flush()
import os
os._exit(code)
"""
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 70
    assert done.stderr.splitlines()[-1] == "ValueError: a bug"
