"""The first moments of a container: gives the process its own view of the file system, then becomes its command.

Run as a script: `python -I -S container.py SPEC.json`. In a mount namespace of its own the process gets a new root
that shows the machine's files, with the pod's volumes at their mount paths; folders of the machine that the
interpreter needs (`visible`) stay visible even below a mount path such as /tmp. Nothing of this touches the
machine: all mounts vanish with the process. An ordinary user needs user namespaces for it.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

NEW_NAMESPACE, NEW_USER = 0x00020000, 0x10000000
BIND, RECURSIVE, READ_ONLY, REMOUNT, PRIVATE = 0x1000, 0x4000, 0x1, 0x20, 1 << 18
DIE_WITH_PARENT = 1
NOT_STARTED = 128

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    _libc.prctl(DIE_WITH_PARENT, signal.SIGKILL)
    with open(spec["failure"], "w") as failure:  # opened before the way to it may be hidden
        try:
            become(spec)
        except OSError as error:
            failure.write(f"{type(error).__name__}: {error}")
    sys.exit(NOT_STARTED)


def become(spec: dict[str, Any]) -> None:
    """Go where the spec says and run its command in this process's place; OSError if that is impossible."""
    if spec["root"] is not None:
        enter_namespace()
        Root(Path(spec["root"])).enter(spec["mounts"], spec["visible"])
    os.chdir(spec["folder"] or "/")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(spec["command"][0], spec["command"], spec["env"])


def enter_namespace() -> None:
    """Give this process mounts of its own; for an ordinary user in a user namespace, as the same user."""
    user, group = os.getuid(), os.getgid()
    if user == 0:
        _call("unshare", NEW_NAMESPACE)
        return
    _call("unshare", NEW_NAMESPACE | NEW_USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


class Root:
    """A new root folder, which shows the machine's files but for what is mounted over them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own: list[Path] = []  # folders in which mount points may be made

    def enter(self, mounts: list[dict[str, object]], visible: list[str]) -> None:
        """Mount everything, outer folders before inner ones, and make it this process's root."""
        _mount("none", "/", RECURSIVE | PRIVATE)
        self._open_up(Path("/"))
        for one in sorted(mounts, key=lambda one: str(one["path"]).count("/")):
            self._show(Path(str(one["source"])), str(one["path"]), bool(one["read_only"]))
        for path in sorted(visible, key=len):
            inside = self._inside(path)
            # A volume keeps the empty folder that was this mount's point in the container's life before.
            if not (inside.exists() and os.path.samefile(inside, path)):
                self._show(Path(path), path, False)
        os.chroot(self._path)

    def _inside(self, path: str) -> Path:
        """Return where a path of the container lies, with the machine's links (/var/run) resolved."""
        resolved = self._path
        for part in Path(path).parts[1:]:
            resolved = resolved / part
            if resolved.is_symlink():
                target = os.readlink(resolved)
                inner = (
                    target
                    if target.startswith("/")
                    else str(Path("/", resolved.parent.relative_to(self._path), target))
                )
                resolved = self._inside(os.path.normpath(inner))
        return resolved

    def _show(self, source: Path, path: str, read_only: bool) -> None:
        target = self._inside(path)
        if not target.exists():
            self._make_point(target, source.is_dir())
        _bind(source, target)
        if read_only:
            _mount("none", target, BIND | REMOUNT | READ_ONLY)
        elif source.is_dir():
            self._own.append(target)

    def _make_point(self, target: Path, is_folder: bool) -> None:
        existing = next(one for one in target.parents if one.exists())
        if not any(
            existing.is_relative_to(own) and os.stat(existing).st_dev == os.stat(own).st_dev
            for own in self._own
        ):
            self._open_up(Path("/", existing.relative_to(self._path)))
        (target if is_folder else target.parent).mkdir(parents=True, exist_ok=True)
        if not is_folder:
            target.touch()

    def _open_up(self, folder: Path) -> None:
        """Put an empty folder in a folder's place and show in it what was there."""
        place = self._path / folder.relative_to("/")
        before = os.open(folder if folder == Path("/") else place, os.O_PATH | os.O_DIRECTORY)
        shown = Path(f"/proc/self/fd/{before}")
        entries = sorted(os.scandir(shown), key=lambda entry: entry.name)
        _mount("tmpfs", place, 0, "tmpfs", "mode=755")
        for entry in entries:
            target = place / entry.name
            if entry.is_symlink():
                target.symlink_to(os.readlink(entry.path))
            elif entry.is_dir():
                target.mkdir()
                _bind(shown / entry.name, target)
            else:
                target.touch()
                _bind(shown / entry.name, target)
        os.close(before)
        self._own.append(place)


def _bind(source: Path, target: Path) -> None:
    _mount(source, target, BIND | RECURSIVE)


def _mount(
    source: object, target: object, flags: int, kind: str | None = None, options: str | None = None
) -> None:
    encoded = [None if one is None else str(one).encode() for one in (source, target, kind, options)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def _call(name: str, argument: int) -> None:
    if getattr(_libc, name)(argument) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
