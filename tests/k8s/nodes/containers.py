"""Containers as local processes: started with their own view of the files, watched, and ended without a trace."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.k8s.nodes.pod_folder import Mount, PodFolder, expand, image_environment, image_folders, rewritten

__all__ = ["Container", "can_mount", "start_container"]

Object = Mapping[str, Any]
LAUNCHER = Path(__file__).with_name("container.py")


class Container:
    """A process group that runs one attempt of a container."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", failure: Path, on_exit: Callable[[int, str], None]
    ) -> None:
        self.id = f"process://{process.pid}-{secrets.token_hex(8)}"
        self._process, self._failure, self._on_exit = process, failure, on_exit
        self._watched = os.pidfd_open(process.pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._watched, self._ended)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._watched < 0

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the first process; KILL to the whole group."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def close(self) -> None:
        """Kill what still runs, without telling anybody."""
        if self._watched >= 0:
            self._on_exit = lambda code, failure: None
            self.signal(signal.SIGKILL)
            self._process.wait()
            self._ended()

    def resident_bytes(self) -> int:
        """Return the memory of the whole group."""
        group, pages = str(self.pid), 0
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if entry.name.isdigit() and _group_of(entry) == group:
                    pages += int((entry / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _ended(self) -> None:
        self._loop.remove_reader(self._watched)
        os.close(self._watched)
        self._watched = -1
        # What the first process has left behind ends with it, as in a container. The group's id cannot have been
        # given away: the first process has not been waited for yet.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        failure = self._failure.read_text() if self._failure.exists() else ""
        self._on_exit(128 - code if code < 0 else code, failure)


def start_container(
    folder: PodFolder,
    spec: Object,
    attempt: int,
    variables: Mapping[str, str],
    access: Mapping[str, str],
    entrypoint: list[str],
    contents: Mapping[str, Path],
    on_exit: Callable[[int, str], None],
) -> Container:
    """Start a container's command.

    Parameters
    ----------
    variables : mapping of str to str
        What the pod's spec sets, beyond the image's own environment.
    access : mapping of str to str
        Variables by which it finds the API server: paths in them are those of this machine.
    entrypoint : list of str
        The image's own command, for a spec without one.
    contents : mapping of str to Path
        What the image has beyond this machine's files: path -> file or folder here.
    on_exit : callable (exit code, why the command could not be started)
    """
    command = [*(spec.get("command") or entrypoint), *(spec.get("args") or [])]
    if not command:
        raise FileNotFoundError("no command specified")
    command = [expand(word, variables) for word in command]
    environment = {**image_environment(), **access, **variables}
    mounts = [Mount(source, path, True) for path, source in contents.items()] + folder.mounts(spec)
    place = folder.path / "containers" / spec["name"] / str(attempt)
    place.mkdir(parents=True, exist_ok=True)
    working_dir = spec.get("workingDir") or "/"
    if not can_mount():
        command, working_dir = rewritten(command, mounts), rewritten([working_dir], mounts)[0]
        environment |= dict(zip(variables, rewritten(variables.values(), mounts), strict=True))
    if command[0] in ("python", "python3"):
        command[0] = sys.executable
    request = {
        "root": str(_made(place / "root")) if can_mount() else None,
        "mounts": [mount.to_json() for mount in mounts],
        "visible": image_folders(),
        "folder": working_dir,
        "command": command,
        "env": environment,
        "failure": str(place / "failure"),
    }
    return _launch(place / "request.json", request, folder.log(spec["name"], attempt), on_exit)


def _launch(file: Path, request: Object, log: Path, on_exit: Callable[[int, str], None]) -> Container:
    file.write_text(json.dumps(request))
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LAUNCHER), str(file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Container(process, Path(request["failure"]), on_exit)


@cache
def can_mount() -> bool:
    """Whether processes here may have mounts of their own (see container.py)."""
    with tempfile.TemporaryDirectory(prefix="edlz-mounts-") as made:
        place = Path(made)
        (_made(place / "volume") / "file").write_text("there")
        mount = Mount(place / "volume", "/edlz-volume", False)
        request = {
            "root": str(_made(place / "root")),
            "mounts": [mount.to_json()],
            "visible": image_folders(),
            "folder": "/",
            "command": ["cat", "/edlz-volume/file"],
            "env": dict(os.environ),
            "failure": str(place / "failure"),
        }
        (place / "request.json").write_text(json.dumps(request))
        command = [sys.executable, "-I", "-S", str(LAUNCHER), str(place / "request.json")]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout == "there" and os.environ.get("EDLZ_TEST_MOUNTS") != "False"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _group_of(process: Path) -> str:
    """Return the process group from /proc/PID/stat; the name, which may hold spaces, ends with the last ')'."""
    return (process / "stat").read_text().rpartition(")")[2].split()[2]
