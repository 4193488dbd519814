"""What this machine gives a job: processors, memory, disk, limits, folders.

Each function reads one thing and judges it; the judgements stand apart, so that any machine can be put before them.
"""

import fcntl
import os
import platform
import re
import resource
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from edlz.client.job_files.job_index import list_jobs
from edlz.client.local.job_directory import check_sockets
from edlz.client.screen.checks import Check
from edlz.client.screen.wording import count_of, size
from edlz.services.configuration.job_config import edlz_home
from edlz.services.errors import EdlzError

__all__ = [
    "check_address_space",
    "check_disk",
    "check_files",
    "check_home",
    "check_memory",
    "check_processor",
    "check_shared_memory",
    "check_socket_folder",
    "judged_disk",
    "judged_files",
    "judged_memory",
]

FEW_FILES, LOW_FILES = 256, 1024  # a service needs its own, and one for each that talks to it
LITTLE_MEMORY_BYTES = 1_500_000_000  # a master, a parameter server and a worker with TensorFlow
FULL_BYTES, LOW_DISK_BYTES = 200_000_000, 2_000_000_000
_SHM = Path("/dev/shm")
_UNLIMITED_BYTES = 1 << 60  # what control groups of version 1 say for "no limit" is larger
_LEVELS = (("AVX-512", "avx512f"), ("AVX2", "avx2"), ("FMA", "fma"), ("NEON", "asimd"))


def check_processor() -> Check:
    """Return which processor this is, and how many of its cores may be used."""
    info = _text("/proc/cpuinfo")
    named = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    flags = set((re.search(r"^(?:flags|Features)\s*:\s*(.+)$", info, re.MULTILINE) or [""])[0].split())
    features = [name for name, flag in _LEVELS if flag in flags]
    total = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    quota = _cpu_quota(_text("/sys/fs/cgroup/cpu.max"))
    share = f", {quota:g} of them at a time" if quota and quota < usable else ""
    what = named[1] if named else platform.machine()
    text = f"{usable} of {count_of(total, 'core')}{share}: {', '.join([what, *features])}"
    return Check("ok", "processor", text)


def check_memory() -> Check:
    """Return how much memory there is."""
    found = re.findall(r"^(\w+):\s+(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    bytes_of = {str(name): 1024 * int(count) for name, count in found}
    if "MemTotal" not in bytes_of:
        return Check("info", "memory", "how much there is cannot be seen here")
    limits = (
        _text(f"/sys/fs/cgroup/{name}").strip() for name in ("memory.max", "memory/memory.limit_in_bytes")
    )
    limit = min((int(text) for text in limits if text.isdecimal()), default=_UNLIMITED_BYTES)
    total = bytes_of["MemTotal"]
    return judged_memory(total, bytes_of.get("MemAvailable", total), min(limit, total))


def judged_memory(total: int, available: int, limit: int) -> Check:
    """Return what is to be said of so many bytes; `limit`: of this container, at most `total`."""
    bound = f", of which this container may have {size(limit)}" if limit < total else ""
    text = f"{size(available)} of {size(total)} free{bound}"
    if min(available, limit) >= LITTLE_MEMORY_BYTES:
        return Check("ok", "memory", text)
    help_ = "end what else runs, or train with one worker: --num_workers=1 --num_ps_pods=0"
    return Check("warn", "memory", f"{text}: little for a worker with TensorFlow", help_)


def check_disk() -> list[Check]:
    """Return how much room there is for jobs, and for what is temporary."""
    places = dict.fromkeys((_existing(edlz_home()), Path(tempfile.gettempdir())))
    by_device: dict[int, Path] = {}
    for place in places:
        by_device.setdefault(place.stat().st_dev, place)
    return [judged_disk(place, shutil.disk_usage(place).free) for place in by_device.values()]


def judged_disk(place: Path, free: int) -> Check:
    """Return what is to be said of a file system with so many free bytes."""
    text = f"{size(free)} free in {place}"
    if free >= LOW_DISK_BYTES:
        return Check("ok", "disk", text)
    help_ = "edlz ls --all; edlz rm --all succeeded; or EDLZ_HOME on another disk"
    if free >= FULL_BYTES:
        return Check("warn", "disk", text, help_)
    return Check("no", "disk", f"{text}: snapshots and logs will not fit", help_)


def check_files() -> Check:
    """Return how many files a process may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return judged_files(soft, hard)


def judged_files(soft: int, hard: int) -> Check:
    """Return what is to be said of these limits; a service raises its own to the hard one."""
    if hard < 0 or hard >= LOW_FILES:
        most = "any number" if hard < 0 else f"{hard:,}"
        now = "any number" if soft < 0 else f"{soft:,}"
        return Check("ok", "open files", f"{now} now, {most} for services" if soft != hard else f"{most}")
    text = f"a process may have {hard} open files"
    help_ = f"raise the hard limit to {LOW_FILES} or more: /etc/security/limits.conf; docker run --ulimit nofile=65536"
    if hard >= FEW_FILES:
        return Check("warn", "open files", f"{text}: enough for a small job only", help_)
    return Check("no", "open files", f"{text}: too few for a job", help_)


def check_shared_memory() -> Check:
    """Return how large /dev/shm is."""
    if not _SHM.is_dir():
        return Check("info", "/dev/shm", "there is none; edlz needs none")
    usage = shutil.disk_usage(_SHM)
    return Check("ok", "/dev/shm", f"{size(usage.free)} of {size(usage.total)} free")


def check_address_space() -> Sequence[Check]:
    """Return whether the memory of processes is limited by `ulimit -v`, which counts what is only reserved."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most < 0:
        return []
    text = f"a process may have {size(most)} of addresses; embedding tables and TensorFlow reserve more than they use"
    return [Check("no" if most < 1 << 34 else "warn", "ulimit -v", text, "ulimit -v unlimited")]


def check_socket_folder() -> Check:
    """Return whether the sockets of local jobs can be made."""
    try:
        return Check("ok", "sockets", f"can be made in {check_sockets()}")
    except EdlzError as error:
        return Check("no", "sockets", error.message, error.help)


def check_home() -> Check:
    """Return whether jobs can be kept, and locked, in EDLZ_HOME; how many there are."""
    home = edlz_home()
    help_ = (
        "set EDLZ_HOME to a folder of yours on a local disk"
        if os.environ.get("EDLZ_HOME")
        else ("make it writable, or set EDLZ_HOME to a folder of yours")
    )
    place = _existing(home)
    try:
        if not place.is_dir():
            raise NotADirectoryError(0, f"{place} is no folder")
        with tempfile.TemporaryFile(dir=place) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        what = "cannot be written to" if place == home else "cannot be made"
        return Check("no", "EDLZ_HOME", f"{home} {what}: {error.strerror or error}", help_)
    if place != home:
        return Check("ok", "EDLZ_HOME", f"{home}: not there yet")
    return Check("ok", "EDLZ_HOME", f"{home}: {count_of(len(list_jobs()), 'job')}")


def _existing(path: Path) -> Path:
    """Return the path, or the nearest of its parents that is there."""
    return next(place for place in (path, *path.parents) if _is_there(place))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _cpu_quota(text: str) -> float:
    """Return how many processors a control group of version 2 may use at a time; 0 if that is not limited."""
    quota, _, period = text.strip().partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else 0.0


def _text(path: str) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text(encoding="utf-8")
    return ""
