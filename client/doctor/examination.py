"""All that `edlz doctor` looks at, side by side, each for so long and no longer.

A check may hang where nothing can interrupt it: a file system whose server is gone, a daemon that takes a connection
and says nothing.  So each has a thread of its own, and one that is late is left behind: it does not keep the process
from ending.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from edlz.client.doctor.machine import (
    check_address_space,
    check_disk,
    check_files,
    check_home,
    check_memory,
    check_processor,
    check_shared_memory,
    check_socket_folder,
)
from edlz.client.doctor.services import check_cluster_access, check_docker
from edlz.client.doctor.software import check_kernels, check_packages, check_zoo
from edlz.client.screen.checks import Check
from edlz.services.errors import EdlzError
from edlz.services.redaction import without_passwords

__all__ = ["CHECKS", "LIMIT_S", "examine", "to_correct"]

LIMIT_S = 10.0

Examiner = Callable[[], Check | Sequence[Check]]

CHECKS: Mapping[str, Examiner] = {
    "packages": check_packages,
    "kernels": check_kernels,
    "processor": check_processor,
    "memory": check_memory,
    "disk": check_disk,
    "open files": check_files,
    "/dev/shm": check_shared_memory,
    "ulimit -v": check_address_space,
    "sockets": check_socket_folder,
    "EDLZ_HOME": check_home,
    "model zoo": check_zoo,
    "docker": check_docker,
    "cluster": check_cluster_access,
}


def examine(checks: Mapping[str, Examiner] = CHECKS, limit_s: float = LIMIT_S) -> list[Check]:
    """Return what all checks found, in their order, after `limit_s` at most."""
    found: dict[str, Sequence[Check]] = {}
    answers: queue.SimpleQueue[tuple[str, Sequence[Check]]] = queue.SimpleQueue()
    for about, check in checks.items():
        threading.Thread(target=_answer, args=(about, check, answers), name=about, daemon=True).start()
    end = time.monotonic() + limit_s
    while len(found) < len(checks) and (left := end - time.monotonic()) > 0:
        try:
            about, answer = answers.get(timeout=left)
        except queue.Empty:
            break
        found[about] = answer
    for about in checks.keys() - found.keys():
        found[about] = [
            Check("no", about, f"no answer within {limit_s:.0f}s", "a file system or a server hangs")
        ]
    return [_without_secrets(one) for about in checks for one in found[about]]


def to_correct(checks: Iterable[Check]) -> list[Check]:
    """Return what should be corrected: what keeps jobs from running first."""
    found = [check for check in checks if check.mark in ("no", "warn")]
    return sorted(found, key=lambda check: check.mark != "no")


def _without_secrets(check: Check) -> Check:
    text, help_ = without_passwords(check.text), without_passwords(check.help)
    return replace(check, text=text, help=help_)


def _answer(about: str, check: Examiner, answers: "queue.SimpleQueue[Any]") -> None:
    try:
        answer = check()
    except EdlzError as error:
        answer = Check("no", about, error.message, error.help)
    except Exception as error:  # the others are told all the same
        answer = Check("warn", about, f"cannot be looked at: {type(error).__name__}: {error}")
    answers.put((about, [answer] if isinstance(answer, Check) else answer))
