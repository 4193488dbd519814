"""What a Docker daemon says while it builds or pushes, made into happenings.

Knows the running step and its last lines, and how far layers have travelled; draws nothing, waits for nothing.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from edlz.client.images.daemon import ImageError, Record

__all__ = ["Happening", "Progress", "Transfer"]

Kind = Literal["step", "output", "note"]

_STEP = re.compile(r"Step (?P<number>\d+)/(?P<total>\d+) : (?P<text>.*)")
_INTERNAL = re.compile(
    r" ---> |Removing intermediate container |Successfully (built|tagged) |Sending build context|\s*$"
)
_ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[@-_])")
_EXIT = re.compile(r"The command '.*' returned a non-zero code: (\d+)", re.DOTALL)
_ENDS_OF_A_LAYER = ("Pull complete", "Already exists", "Pushed", "Layer already exists", "Mounted from")
_KEPT_LINES = 12
_ADVICE = (
    (
        "exec format error",
        "the base image is of another platform than this daemon: edlz zoo build --platform=linux/amd64",
    ),
    (
        "is not a supported wheel on this platform",
        "build the wheels in an image: scripts/docker_build_wheel.sh",
    ),
    (
        "No matching distribution found for edlz",
        "name a folder with wheels of edlz: edlz zoo init --local_pkg_dir=DIR",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "a proxy has a certificate of its own? give it to the build: --ca_bundle=FILE.pem",
    ),
    ("No matching distribution found", "see requirements.txt; for another index: --extra_pypi_index=URL"),
    ("not found: manifest unknown", "see --base_image"),
    ("pull access denied", "see --base_image; docker login, if it is private"),
    ("failed to resolve reference", "see --base_image"),
    (
        "no such host",
        "can the daemon reach that registry? or begin with an image that is here: --base_image=IMAGE",
    ),
    ("no basic auth credentials", "docker login"),
    ("authentication required", "docker login"),
    ("denied", "docker login, and see who may push there"),
    ("no space left on device", "docker system prune"),
    ("python: not found", "the base image needs Python 3.11 or newer as `python`, e.g. python:3.11-slim"),
    ("No module named pip", "the base image needs pip, e.g. python:3.11-slim"),
)


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that is worth a line: a step begins, a line of its output, a note of the daemon."""

    kind: Kind
    text: str


@dataclass(slots=True)
class Transfer:
    """Layers on their way from or to a registry; sizes in bytes."""

    done: int = 0
    layers: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def moved_bytes(self) -> int:
        return sum(moved for moved, _ in self.layers.values())

    @property
    def total_bytes(self) -> int:
        return sum(total for _, total in self.layers.values())


class Progress:
    """Follows one build or push.

    Attributes
    ----------
    step : str
        The step that runs, as `3/8  COPY a b`; empty before the first.
    tail : deque[str]
        The last lines of its output.
    transfer : Transfer
        Layers that are pulled or pushed.
    """

    def __init__(self) -> None:
        self.step = ""
        self.tail: deque[str] = deque(maxlen=_KEPT_LINES)
        self.transfer = Transfer()
        self._partial = ""

    def feed(self, record: Record) -> Iterator[Happening]:
        """Take one record of the stream and yield what it tells.

        Raises
        ------
        ImageError
            If the record says that the daemon has given up: with its message, the step, and its last lines.
        """
        if "error" in record or "errorDetail" in record:
            told = record.get("error") or record["errorDetail"].get("message", "")
            raise self._failure(str(told))
        if set(record) == {"message"}:  # an answer that is no stream, such as to a Dockerfile it cannot read
            raise self._failure(str(record["message"]))
        if "stream" in record:
            yield from self._output(str(record["stream"]))
        elif "status" in record:
            yield from self._status(record)

    def _output(self, text: str) -> Iterator[Happening]:
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            shown = _ESCAPE.sub("", line.rstrip("\r").rpartition("\r")[2]).rstrip()
            step = _STEP.match(shown)
            if step:
                self.step = f"{step['number']}/{step['total']}  {' '.join(step['text'].split())}"
                self.tail.clear()
                self.transfer = Transfer()
                yield Happening("step", self.step)
            elif not _INTERNAL.match(shown):
                self.tail.append(shown)
                yield Happening("output", shown)

    def _status(self, record: Record) -> Iterator[Happening]:
        status, layer = str(record["status"]), str(record.get("id", ""))
        detail = record.get("progressDetail") or {}
        if "total" in detail:
            self.transfer.layers[layer] = (int(detail.get("current", 0)), int(detail["total"]))
        elif status.startswith(_ENDS_OF_A_LAYER):
            self.transfer.done += 1
            total = self.transfer.layers.get(layer, (0, 0))[1]
            self.transfer.layers[layer] = (total, total)
            yield Happening("note", f"{layer}: {status}")
        elif not layer or "digest:" in status or status.startswith("Pulling from"):
            yield Happening("note", status)

    def _failure(self, told: str) -> ImageError:
        text = "\n".join((told, *self.tail))
        advice = next((help_line for words, help_line in _ADVICE if words in text), "")
        ended = _EXIT.fullmatch(told)
        told = f"it ended with code {ended[1]}" if ended else told
        lines = [f"step {self.step} failed: {told}" if self.step else told.strip()]
        lines += [f"  {line}" for line in self.tail]
        return ImageError("\n".join(lines), advice)
