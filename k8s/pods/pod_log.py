"""What is kept of a pod that is gone: its last lines and how it ended, as a file and as an object of the cluster.  Pure.

A file is the lines, each after the time at which its node took it, and a last one with the end.  The object is a ConfigMap
that holds the same, compressed.
"""

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from edlz.k8s.cluster.names import labels, selector

__all__ = ["LINES", "LOG_BYTES", "POD_UID", "PodLog", "logs_selector", "read_config_map"]

LINES, LOG_BYTES = 500, 200_000  # of each pod: 50 of them are 10 MB
POD_UID = "edlz.io/pod-uid"
"""Annotation of a log: the uid of the pod that it is of."""

_KEPT, _POD = "edlz.io/kept", "edlz.io/pod"
_FILE = "log.z"
_LONGEST_LINE = 10_000
_END = "--- ended: "


@dataclass(frozen=True, slots=True)
class PodLog:
    """A pod's log.

    Attributes
    ----------
    name : str
        Of the service: ps-0, worker-3.
    uid : str
        Of the pod.
    at : float
        When it ended, or was seen to: seconds since the epoch.
    text : str
        Its lines, the last one says how it ended.
    """

    name: str
    uid: str
    at: float
    text: str

    @classmethod
    def of(cls, name: str, uid: str, at: float, lines: Iterable[str], end: str) -> "PodLog":
        """Return what is kept of these lines; the oldest are left out where they are too many or too long."""
        stamp = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
        last = f"{stamp} {_END}{end}"
        kept: list[str] = []
        left = LOG_BYTES - len(last.encode())
        for whole in reversed(list(lines)[-LINES:]):
            line = whole[:_LONGEST_LINE]
            left -= len(line.encode()) + 1
            if left < 0:
                break
            kept.append(line)
        return cls(name, uid, at, "\n".join([*reversed(kept), last]))

    @property
    def file_name(self) -> str:
        """`20261129T022100-worker-3-1a2b3c4d.log`: in the order of time."""
        stamp = datetime.fromtimestamp(self.at, UTC).strftime("%Y%m%dT%H%M%S")
        return f"{stamp}-{self.name}-{self.uid[:8]}.log"

    @property
    def short_name(self) -> str:
        """What is unique in it, as part of an object's name."""
        return f"log-{self.name}-{self.uid[:8]}"

    def lines(self) -> Sequence[str]:
        """Return the lines; each begins with its time."""
        return self.text.split("\n")

    def config_map(self, job: str, name: str, owner: Mapping[str, Any]) -> dict[str, Any]:
        """Return the object.

        Parameters
        ----------
        name : str
            Of the object.
        owner : mapping
            The reference to the master's pod, with which it goes.
        """
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "labels": {**labels(job, self.name), _KEPT: "log"},
                "annotations": {_POD: self.name, POD_UID: self.uid},
                "ownerReferences": [dict(owner)],
            },
            "immutable": True,
            "binaryData": {_FILE: base64.b64encode(zlib.compress(self.text.encode())).decode()},
        }


def logs_selector(job: str) -> str:
    """Return the label selector of a job's logs."""
    return f"{selector(job)},{_KEPT}=log"


def read_config_map(found: Mapping[str, Any]) -> PodLog | None:
    """Return the log that an object holds; None if it holds none, whoever has made it."""
    about = (found.get("metadata") or {}).get("annotations") or {}
    packed = (found.get("binaryData") or {}).get(_FILE)
    if not isinstance(packed, str) or not about.get(_POD):
        return None
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), 2 * LOG_BYTES)
    except (binascii.Error, zlib.error, ValueError):
        return None
    if not content:
        return None
    return PodLog(str(about[_POD]), str(about.get(POD_UID, "")), 0.0, content.decode(errors="replace"))
