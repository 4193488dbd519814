"""What is mounted into every pod of a job: `claim_name=mnist,mount_path=/data;host_path=/ckpt,mount_path=/ckpt`.

Volumes are separated by `;`.  Each has one of

    claim_name    a PersistentVolumeClaim
    host_path     a path of the node, with `type` if it shall be checked or made (Directory, DirectoryOrCreate, …)

and `mount_path`, and perhaps `sub_path` (a folder inside the volume) and `volume_name` (its name in the pod).
A claim or path that stands there twice is one volume with two mounts.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from edlz.k8s.flags.syntax import is_label, is_subdomain, problem_of, unknown
from edlz.services.configuration.problems import InvalidConfigError, Problem

__all__ = ["OWN_VOLUMES", "Mount", "Volume", "Volumes", "parse_volumes"]

OWN_VOLUMES = ("job", "tmp", "keys", "checkpoints", "logs")
"""Names of the volumes that edlz itself puts into pods."""

_FLAG = "volume"
_KEYS = ("claim_name", "host_path", "mount_path", "sub_path", "type", "volume_name")
_HOST_PATH_TYPES = (
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_EXAMPLE = "e.g. --volume=claim_name=mnist,mount_path=/data"


@dataclass(frozen=True, slots=True)
class Volume:
    """A claim, or a path of the node.

    Attributes
    ----------
    name : str
        Inside the pod.
    host_path_type : str
        What has to be at the path; nothing for no check.
    """

    name: str
    claim_name: str = ""
    host_path: str = ""
    host_path_type: str = ""


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a volume, or a folder inside it, appears in the container."""

    volume: str
    mount_path: str
    sub_path: str = ""


@dataclass(frozen=True, slots=True)
class Volumes:
    """What `--volume` says."""

    volumes: tuple[Volume, ...] = ()
    mounts: tuple[Mount, ...] = ()

    def holds(self, path: str) -> bool:
        """Whether a path in the container lies on one of the volumes."""
        here = PurePosixPath(path)
        return any(here.is_relative_to(mount.mount_path) for mount in self.mounts)

    def below(self, path: str) -> Volume | None:
        """Return the volume that a path in the container lies on; None if it lies on none."""
        here = PurePosixPath(path)
        found = [mount for mount in self.mounts if here.is_relative_to(mount.mount_path)]
        if not found:
            return None
        innermost = max(found, key=lambda mount: len(PurePosixPath(mount.mount_path).parts))
        return next(volume for volume in self.volumes if volume.name == innermost.volume)


def parse_volumes(text: str) -> Volumes:
    """Return the volumes and mounts of a text as above.

    Raises
    ------
    InvalidConfigError
        With a problem for each part that is wrong.
    """
    problems: list[Problem] = []
    volumes: dict[tuple[str, str], Volume] = {}  # by what they are
    mounts: dict[str, tuple[tuple[str, str], str]] = {}  # by path: what is mounted, and its sub_path
    for part in filter(str.strip, text.split(";")):
        found, wrong = _fields(part)
        wrong = wrong or _field_problems(part, found)
        if not wrong:
            source = (found.get("claim_name", ""), found.get("host_path", ""))
            wrong = _join(part, volumes, source, found)
        path = _clean(found.get("mount_path", ""))
        if not wrong and path in mounts:
            message = f'something else is mounted at "{found["mount_path"]}"'
            wrong = [problem_of(_FLAG, part, message, "give each mount a path of its own")]
        problems += wrong
        if not wrong:
            mounts[path] = (source, found.get("sub_path", ""))
    if problems:
        raise InvalidConfigError(problems)
    return _named(volumes, mounts)


def _fields(part: str) -> tuple[dict[str, str], list[Problem]]:
    """Return the `key=value` pairs of one volume."""
    found: dict[str, str] = {}
    problems = []
    for item in part.split(","):
        key, equals, value = (piece.strip() for piece in item.partition("="))
        if not equals or not value:
            message = "is not key=value" if item.strip() else "an item is empty"
            problems.append(problem_of(_FLAG, item.strip() or part.strip(), message, _EXAMPLE))
        elif key not in _KEYS:
            message = f'no key "{key}" in a volume'
            problems.append(problem_of(_FLAG, item.strip(), message, unknown(key, _KEYS)))
        elif key in found:
            message = f"{key} stands there twice"
            problems.append(
                problem_of(_FLAG, item.strip(), message, 'separate volumes by ";", with quotes around all')
            )
        else:
            found[key] = value
    return found, problems


def _field_problems(part: str, found: Mapping[str, str]) -> list[Problem]:
    part = part.strip()
    problems = []
    if ("claim_name" in found) == ("host_path" in found):
        message = (
            "both claim_name and host_path" if "host_path" in found else "neither claim_name nor host_path"
        )
        problems.append(problem_of(_FLAG, part, message, "give one of the two"))
    if "mount_path" not in found:
        problems.append(problem_of(_FLAG, part, "no mount_path", _EXAMPLE))
    if "type" in found and "host_path" not in found:
        problems.append(problem_of(_FLAG, part, "type is for host_path only", "drop type"))
    checks = [_value_problem(key, value) for key, value in found.items()]
    return problems + [problem for problem in checks if problem is not None]


def _value_problem(key: str, value: str) -> Problem | None:
    item = f"{key}={value}"
    if key == "claim_name" and not is_subdomain(value):
        message = "is no name of a claim: a-z, 0-9, - and ., at most 253 letters"
        return problem_of(_FLAG, item, message, "kubectl get pvc lists the claims")
    if key == "volume_name" and (not is_label(value) or value in OWN_VOLUMES):
        taken = "is taken by edlz" if value in OWN_VOLUMES else "is no name of a volume: a-z, 0-9 and -"
        return problem_of(_FLAG, item, f"{taken} (at most 63 letters)", "e.g. volume_name=data")
    if key == "type" and value not in _HOST_PATH_TYPES:
        return problem_of(_FLAG, item, "is no type of a host path", unknown(value, _HOST_PATH_TYPES))
    if key in ("host_path", "mount_path"):
        return _path_problem(key, value)
    if key == "sub_path" and (value.startswith("/") or ".." in value.split("/")):
        return problem_of(_FLAG, item, "is no path inside the volume", "e.g. sub_path=mnist/train")
    return None


def _path_problem(key: str, value: str) -> Problem | None:
    item = f"{key}={value}"
    if not value.startswith("/"):
        return problem_of(_FLAG, item, "is no absolute path", f"{key}=/{value.removeprefix('./')}")
    if ".." in value.split("/"):
        return problem_of(_FLAG, item, '".." has no place in it', f"e.g. {key}=/data")
    if key == "mount_path" and ":" in value:
        return problem_of(_FLAG, item, '":" has no place in it', f"e.g. {key}=/data")
    if key == "mount_path" and _clean(value) == "/":
        return problem_of(_FLAG, item, "would hide the image", "e.g. mount_path=/data")
    return None


def _join(
    part: str, volumes: dict[tuple[str, str], Volume], source: tuple[str, str], found: Mapping[str, str]
) -> list[Problem]:
    """Enter a volume, or what a further mount of it says of it; change nothing if they differ."""
    name, kind = found.get("volume_name", ""), found.get("type", "")
    known = volumes.get(source, Volume("", *source))
    for word, old, new in (("volume_name", known.name, name), ("type", known.host_path_type, kind)):
        if old and new and old != new:
            message = f"the same volume has {word}={old} before"
            return [problem_of(_FLAG, part.strip(), message, f"give it one {word}")]
    if name and any(other.name == name for key, other in volumes.items() if key != source):
        message = f'volume_name "{name}" is that of another volume'
        return [problem_of(_FLAG, part.strip(), message, "give each volume a name of its own")]
    volumes[source] = replace(known, name=known.name or name, host_path_type=known.host_path_type or kind)
    return []


def _named(
    volumes: Mapping[tuple[str, str], Volume], mounts: Mapping[str, tuple[tuple[str, str], str]]
) -> Volumes:
    """Return what was found, with a name for each volume that was given none."""
    taken = {volume.name for volume in volumes.values()}
    free = (f"volume-{number}" for number in itertools.count() if f"volume-{number}" not in taken)
    named = {
        source: volume if volume.name else replace(volume, name=next(free))
        for source, volume in volumes.items()
    }
    return Volumes(
        tuple(named.values()),
        tuple(Mount(named[source].name, path, sub_path) for path, (source, sub_path) in mounts.items()),
    )


def _clean(path: str) -> str:
    """Return a path without what means nothing: `/data/`, `//data`."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
