"""Outputs that go away or are full: what a command and a service make of them, with real pipes and devices."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edlz.services.process.outputs import OutputGone, guard_outputs, outlive_output

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")

COMMAND = """
import sys
from edlz.client import cli
from edlz.services.process.outputs import outlive_output

def run(arguments):
    {before}
    for number in range(100_000):
        print("line", number)
    sys.stderr.write("reached the end\\n")
    return 3

cli._run = run
sys.exit(cli.main([]))
"""


def ended(program: str, stdout: int, stderr: int = subprocess.PIPE) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=stdout, stderr=stderr, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.fixture
def closed_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.fixture
def full() -> int:
    return os.open(FULL, os.O_WRONLY)


def test_a_terminal_that_cannot_express_a_name_shows_it_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    program = "from edlz.services.process.outputs import guard_outputs; guard_outputs(is_deadly=True); print('caf\xe9')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "caf\\xe9\n")


def test_a_command_that_only_shows_ends_with_its_reader(closed_pipe: int) -> None:
    assert ended(COMMAND.format(before="pass"), closed_pipe) == (141, "")


@needs_full
def test_a_command_on_a_full_disk_says_so(full: int) -> None:
    said = "error: standard output cannot be written: No space left on device\n"
    assert ended(COMMAND.format(before="pass"), full) == (1, said)


@needs_full
def test_the_last_lines_count_too(full: int) -> None:
    """They wait in a buffer until the command is over."""
    program = COMMAND.format(before="return print('one line') or 0")
    said = "error: standard output cannot be written: No space left on device\n"
    assert ended(program, full) == (1, said)


@pytest.mark.parametrize("output", ["closed_pipe", pytest.param("full", marks=needs_full)])
def test_what_does_something_goes_on(output: str, request: pytest.FixtureRequest) -> None:
    program = COMMAND.format(before="outlive_output()")
    assert ended(program, request.getfixturevalue(output)) == (3, "reached the end\n")


@pytest.mark.parametrize("output", ["closed_pipe", pytest.param("full", marks=needs_full)])
def test_an_error_that_nobody_can_read_keeps_its_code(output: str, request: pytest.FixtureRequest) -> None:
    where = request.getfixturevalue(output)
    program = "import sys; from edlz.client.cli import main; sys.exit(main(['status', 'no-such-job']))"
    code, _ = ended(program, where, where)
    assert code == 4


def test_a_log_line_ends_a_command_as_any_other(closed_pipe: int) -> None:
    program = COMMAND.format(
        before="from edlz.services.process.logs import configure_logging; import logging; "
        "configure_logging(stream=sys.stdout); [logging.info('%d', n) for n in range(100)]"
    )
    assert ended(program, closed_pipe) == (141, "")


@needs_full
def test_a_service_never_notices(full: int) -> None:
    program = (
        "import logging, sys; from edlz.services.process.outputs import guard_outputs\n"
        "from edlz.services.process.logs import configure_logging\n"
        "guard_outputs(); configure_logging(); logging.info('x'); print('user', flush=True)\n"
        "raise SystemExit(5)"
    )
    assert ended(program, full, full)[0] == 5


def test_streams_that_were_closed_before(tmp_path: Path) -> None:
    """A file that is opened later must not get their numbers: prints of others would land in it."""
    program = (
        "from edlz.services.process.outputs import guard_outputs; guard_outputs(); print('lost')\n"
        f"kept = open({str(tmp_path / 'kept')!r}, 'w'); assert kept.fileno() > 2"
    )
    command = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, program]
    assert subprocess.run(command, check=False).returncode == 0
    assert (tmp_path / "kept").read_text() == ""


def test_what_fits_again_is_written_again(tmp_path: Path) -> None:
    """A soft limit on the size of files stands for a disk that is full for a while."""
    program = (
        "import resource, signal, sys; from edlz.services.process.outputs import guard_outputs\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); guard_outputs()\n"
        "_, most = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "print('one', flush=True)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4, most)); print('two', flush=True)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)); print('three', flush=True)\n"
    )
    with (tmp_path / "out").open("wb") as out:
        assert ended(program, out.fileno()) == (0, "")
    assert (tmp_path / "out").read_text() == "one\nthree\n"


def test_a_loss_is_raised_once(closed_pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with os.fdopen(closed_pipe, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", sys.stderr)
        guard_outputs(is_deadly=True)
        with pytest.raises(OutputGone) as raised:
            print("x", flush=True)
        assert (raised.value.is_reader_gone, raised.value.status) == (True, 141)
        print("y", flush=True)
        outlive_output()
        print("z", flush=True)
