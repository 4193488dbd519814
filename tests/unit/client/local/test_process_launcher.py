"""Services as child processes: they begin once, end with their parent, and all they print is kept."""

import asyncio
import dataclasses
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from edlz.client.local.job_directory import JobDirectory
from edlz.client.local.launching import child
from edlz.client.local.launching.process_launcher import ProcessLauncher, describe_exit, service_environment
from edlz.client.local.run import service_command
from edlz.client.local.supervisor import STOP_S
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import LaunchError
from edlz.services.protocol.messages import ProcessExit
from tests.small_processes import LIMIT_S, STUBBORN, WAITS, is_gone, unnumbered


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


def test_only_who_waits_for_a_service_takes_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever took it of one that is about to be told to end would leave "exit code 255" and a warning."""

    def poll(process: subprocess.Popen[bytes]) -> None:
        raise AssertionError(f"the exit code of {process.pid} is asked for")

    async def main() -> None:
        ready = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            launcher = sleepers(tasks, tmp_path, ready)
            await launcher.launch("worker-0")
            await ready.wait()
            monkeypatch.setattr(subprocess.Popen, "poll", poll)
            await launcher.stop("worker-0", LIMIT_S)
        assert launcher.take_exits() == ()

    asyncio.run(main())
    assert "killed by signal 12 (SIGUSR2)" in (tmp_path / "worker-0.log").read_text()


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
