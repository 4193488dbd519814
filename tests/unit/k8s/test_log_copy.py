"""What stands before a service in its container if its output goes to a file too."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT_S = 60.0  # for a broken copy to end the test in place of hanging it


STARTED: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    for process in STARTED:
        process.kill()
        process.wait()
    STARTED.clear()


def start(path: Path, program: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "edlz.k8s.log_copy",
        f"--file={path}",
        "--",
        sys.executable,
        "-u",
        "-c",
        program,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    STARTED.append(process)
    return process


def test_both_streams_go_to_both_places(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "all.log"
    program = "import sys; print('one'); print('two', file=sys.stderr); sys.stdout.write('end'); sys.exit(7)"
    out, err = start(path, program).communicate(timeout=LIMIT_S)
    assert out == b"one\ntwo\nend"
    assert err == b""
    assert path.read_bytes() == b"one\ntwo\nend\n"


def test_the_exit_code_is_that_of_the_command(tmp_path: Path) -> None:
    for program, code in (("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("", 0)):
        process = start(tmp_path / "log", program)
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == code


def test_a_signal_reaches_the_command(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        "def leave(number, frame): print('leaving', number); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "print('ready')\n"
        "for _ in range(60): time.sleep(1)\n"
    )
    process = start(tmp_path / "log", program)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=LIMIT_S)
    assert (out, process.returncode) == (b"leaving 15\n", 3)
    assert (tmp_path / "log").read_bytes() == b"ready\nleaving 15\n"


def test_a_file_that_exists_is_added_to(tmp_path: Path) -> None:
    for _ in range(2):
        start(tmp_path / "log", "print('again')").communicate(timeout=LIMIT_S)
    assert (tmp_path / "log").read_bytes() == b"again\nagain\n"


def test_a_file_that_cannot_be_written_does_not_end_the_service(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    process = start(tmp_path / "file" / "log", "print('still here')")
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert out.endswith(b"still here\n")
    assert b"cannot be written: " in out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_a_disk_that_is_full_does_not_end_the_service() -> None:
    process = start(Path("/dev/full"), "print('one'); print('two')")
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert out.count(b"cannot be written: No space left on device") == 1
    assert b"two\n" in out


def test_an_output_that_nobody_reads_does_not_end_the_service(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    program = "for number in range(20_000): print('line', number)"
    wanted = [sys.executable, "-m", "edlz.k8s.log_copy", f"--file={tmp_path}/log", "--", sys.executable, "-c"]
    process = subprocess.run([*wanted, program], stdout=writing, timeout=LIMIT_S, check=False)
    os.close(writing)
    assert process.returncode == 0
    assert (tmp_path / "log").read_text().endswith("line 19999\n")


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edlz.k8s.log_copy", f"--file={tmp_path}/log", "--", "no-such-command"]
    process = subprocess.run(command, capture_output=True, check=False)
    assert process.returncode == 127
    assert process.stderr == b"error: no-such-command cannot be started: No such file or directory\n"
