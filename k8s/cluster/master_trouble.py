"""What keeps a master from its cluster: said in its log alone, since its pod cannot be written on; read there by the commands.

A master needs the API server to tell anybody how its job fares.  If it cannot reach it, or may not ask it, its log is
the only place that says so: nodes hand logs on whatever the pod itself can reach.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterable

from edlz.k8s.cluster.access import may, user_name
from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.api_errors import NotPermitted, told
from edlz.k8s.cluster.rights import Subject, listed, rights_line, with_own_path
from edlz.services.errors import EdlzError

__all__ = ["UNSEEN", "UNTOLD", "check_rights", "trouble_in"]

UNSEEN = "pods cannot be watched"  # the beginnings of lines that are looked for
UNTOLD = "the status could not be written on the master pod"

RIGHTS_S, POLL_S = 5.0, 1.0  # for rights that were given a moment ago to count
_NEEDED = (("list", "pods"), ("watch", "pods"), ("patch", "pods"))  # without which it is deaf and dumb
_TROUBLE = re.compile(rf"(?:{UNSEEN}|{UNTOLD}): (?P<why>.+)")

logger = logging.getLogger(__name__)


async def check_rights(cluster: Cluster, patience_s: float = RIGHTS_S) -> None:
    """Raise NotPermitted if the master may not do what it needs to say anything at all.

    A server that does not answer is no reason to end: the workers that run go on meanwhile.
    """
    end = time.monotonic() + patience_s
    try:
        while missing := [right for right in _NEEDED if not await may(cluster, *right)]:
            if time.monotonic() >= end:
                raise await _refusal(cluster, missing)
            await asyncio.sleep(POLL_S)
    except NotPermitted:
        raise
    except EdlzError as error:
        logger.warning("the master's rights could not be seen: %s", told(error))


def trouble_in(lines: Iterable[str]) -> str:
    """Return what the last lines of a master's log say of its cluster; nothing if they say nothing."""
    found = [match["why"] for line in lines if (match := _TROUBLE.search(_event(line)))]
    return with_own_path(found[-1]) if found else ""


async def _refusal(cluster: Cluster, missing: list[tuple[str, str]]) -> NotPermitted:
    subject = Subject.of(await user_name(cluster) or "default")
    text = f'{subject.told(cluster.namespace)} may not {listed(missing)} in "{cluster.namespace}"'
    return NotPermitted(text, rights_line(cluster.namespace, subject))


def _event(line: str) -> str:
    """Return the text of a line, also if it is an object of --log_format=json."""
    if line.startswith("{"):
        try:
            return str(json.loads(line).get("event", ""))
        except (ValueError, AttributeError, RecursionError):
            return line
    return line
