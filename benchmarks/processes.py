"""Processes of a benchmark: started, held to processors, found, and their CPU time."""

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np

__all__ = [
    "cpu_s",
    "held_to_processor",
    "is_complete",
    "peak_memory_bytes",
    "pinned",
    "quiet_environment",
    "services_of",
    "start",
    "touch_memory",
]

_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def cpu_s(pid: int) -> float:
    """Return the CPU time of all threads of a process in seconds, from the kernel's scheduler (Linux)."""
    total_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            total_ns += int((thread / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):  # the thread ended meanwhile
            continue
    return total_ns / 1e9


def peak_memory_bytes(pid: int) -> int:
    """Return the most memory that a process has had resident, libraries that it shares included; 0: it is gone (Linux)."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 0


def services_of(pid: int) -> dict[str, int]:
    """Return the services that an `edlz train` has started and that run: their process ids, by name (Linux)."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # it ended meanwhile
            name = _service_of(Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0"))
            if name is not None:
                found[name] = int(child)
    return found


def is_complete(job_folder: Path) -> bool:
    """Whether `complete` stands in a job's journal."""
    path = f"file:{quote(str(job_folder / 'journal.sqlite'))}?mode=ro"
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(path, uri=True)) as journal,
    ):
        row = journal.execute("SELECT value FROM facts WHERE name = 'is_complete'").fetchone()
        return row is not None and bytes(row[0]) == b"true"
    return False


def _service_of(arguments: Sequence[str]) -> str | None:
    """Return the name of the service that a command line starts."""
    for flag in arguments:
        for role in ("worker", "ps"):
            if flag.startswith(f"--{role}_id="):
                return f"{role}-{flag.partition('=')[2]}"
    return "master" if "edlz.services.master" in arguments else None


def touch_memory(size_bytes: int) -> None:
    """Write to so much memory and give it back, before something is measured that needs it anew.

    A virtual machine's memory that nobody has touched lately has to be found by its host: several times the
    work of a page fault here, and nothing that a program could help.
    """
    block = np.empty(size_bytes, np.uint8)
    block[::4096] = 1


def quiet_environment(**extra: str) -> dict[str, str]:
    """Return this process' environment for a child that uses TensorFlow, on the processor and without chatter."""
    return {**os.environ, **_QUIET, **extra}


def pinned(command: Sequence[str], processors: Collection[int]) -> list[str]:
    """Return the command held to these processors, where the machine has them and can do so."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        return list(command)
    code = f"import os, sys; os.sched_setaffinity(0, {set(processors)}); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", code, *command]


@contextmanager
def held_to_processor(number: int) -> Iterator[None]:
    """Hold this process to one processor, where the machine has several and can do so."""
    with ExitStack() as stack:
        if hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1:
            stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
            os.sched_setaffinity(0, {number})
        yield


def start(log: Path, arguments: Sequence[str], processors: Collection[int]) -> subprocess.Popen[bytes]:
    """Start `python -m ARGUMENTS` on these processors; what it prints goes into `log`."""
    command = pinned([sys.executable, "-m", *arguments], processors)
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=quiet_environment())
