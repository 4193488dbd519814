"""Replay what was recorded from a real Kubernetes 1.36.2, and compare: same answers but for names made up by it.

What may differ: uids, times, revisions, random suffixes, cluster IPs. Uids and revisions are not simply ignored:
each recorded one has to stand for one and the same here, and revisions have to keep their order.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp

from tests.k8s.server.api_server import ApiServer

__all__ = ["RECORDS", "Replay"]

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NO_UID = "00000000-0000-0000-0000-000000000000"
_TIME = re.compile(r"(?!2026-01-01)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_MADE_UP = (
    (re.compile(r"kube-api-access-\w{5}"), "kube-api-access-*"),
    (re.compile(r"\bgn-\w{5}"), "gn-*"),
    (re.compile(r"^(10\.96|198\.51)\.\d+\.\d+$"), "a cluster IP"),
    (re.compile(r"current: \d+"), "current: *"),
    # The real server shows the lines around the change as its own types print them.
    (re.compile(r"(previously negative\)\n).*", re.DOTALL), r"\1"),
)
_VOLUME = "kube-api-access-00000"  # in the recording, where each pod had its own
_SPEED = 30.0  # watches end so many times sooner

# The garbage collector is a controller of its own: here is what it did, and after which requests.
_COLLECTED = {"finalizer pod": "orph", "delete missing": "own"}


def _load() -> list[dict[str, Any]]:
    """Read the recording; pods' specs, which repeat, stand in its first line."""
    lines = (Path(__file__).parents[1] / "kubernetes-1.36.2.jsonl").read_text().splitlines()
    specs = json.loads(lines[0])["specs"]

    def unfold(obj: dict[str, Any]) -> Any:
        return specs[obj["$spec"]] if "$spec" in obj else obj

    records = [json.loads(line, object_hook=unfold) for line in lines[1:]]
    for record in records:
        if record.get("request", "").startswith(("{", "[")) and record["name"] != "bad json":
            request = json.loads(record["request"], object_hook=unfold)
            record["request"] = json.dumps(request)
    return records


RECORDS = _load()


class Replay:
    """All recorded requests, asked again; `answers` holds what came, by the requests' names."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._uids: dict[str, str] = {}
        self._revisions: dict[int, int] = {}
        self._pages: dict[str, str] = {}
        self._volume = _VOLUME
        self.answers: dict[str, dict[str, Any]] = {}

    async def run(self) -> None:
        async with aiohttp.ClientSession() as session:
            for record in RECORDS:
                answer = await self._ask(session, record)
                self.answers[record["name"]] = answer
                self._learn(record, answer)
                if record["name"] in _COLLECTED:
                    self._server.store.delete("pods", _COLLECTED[record["name"]], "recorded")

    # -- asking

    async def _ask(self, session: aiohttp.ClientSession, record: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": record.get("type", "application/json")}
        token = {"no token": "", "bad token": "wrong"}.get(record["name"], self._server.admin_token)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        body = self._here(record["request"]) if "request" in record else None
        url = self._server.url + self._path(record["path"])
        async with session.request(record["method"], url, data=body, headers=headers) as response:
            text = await response.text()
            answer: dict[str, Any] = {"status": response.status, "warning": response.headers.get("Warning")}
            answer["content_type"] = response.headers["Content-Type"]
        if "events" in record:
            answer["events"] = [json.loads(line) for line in text.splitlines()]
        else:
            answer["body"] = json.loads(text)
        return answer

    def _here(self, request: str) -> str:
        """Put the names of this run in the place of the recorded ones."""
        request = request.replace(_VOLUME, self._volume)
        request = _UID.sub(lambda match: self._uids.get(match[0], match[0]), request)
        return re.sub(
            r'(?<="resourceVersion": ")\d+',
            lambda match: str(self._revisions.get(int(match[0]), int(match[0]))),
            request,
        )

    def _path(self, path: str) -> str:
        parts = urlsplit(path)
        if not parts.query:
            return path
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if query.get("resourceVersion", "").isdecimal():
            revision = int(query["resourceVersion"])
            query["resourceVersion"] = str(self._revisions.get(revision, revision))
        if "continue" in query:
            query["continue"] = self._pages.get(query["continue"], query["continue"])
        if "timeoutSeconds" in query:
            query["timeoutSeconds"] = str(float(query["timeoutSeconds"]) / _SPEED)
        return f"{parts.path}?{urlencode(query)}"

    # -- what stands for what

    def _learn(self, record: dict[str, Any], answer: dict[str, Any]) -> None:
        if record["name"] == "get for replace":
            self._volume = answer["body"]["spec"]["volumes"][0]["name"]
        pairs = [(record.get("body"), answer.get("body"))]
        pairs += zip(record.get("events", ()), answer.get("events", ()), strict=False)
        for recorded, found in pairs:
            self._pair(recorded, found)

    def _pair(self, recorded: Any, found: Any) -> None:
        if isinstance(recorded, dict) and isinstance(found, dict):
            for key, value in recorded.items():
                other = found.get(key)
                if key == "uid" and isinstance(other, str):
                    self._uids.setdefault(value, other)
                elif key == "resourceVersion" and isinstance(other, str):
                    self._revisions.setdefault(int(value), int(other))
                elif key == "continue" and isinstance(other, str):
                    self._pages.setdefault(value, other)
                else:
                    self._pair(value, other)
        elif isinstance(recorded, list) and isinstance(found, list):
            for one, other in zip(recorded, found, strict=False):
                self._pair(one, other)

    # -- comparing

    def expected(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return the recorded answer with the uids and revisions of this run."""
        expected: dict[str, Any] = {"status": record["status"], "warning": record.get("warning")}
        expected["content_type"] = record.get("content_type", "application/json")
        for key in ("body", "events"):
            if key in record:
                expected[key] = self._translated(record[key])
        return expected

    def _translated(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._translated(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._translated(item) for item in value]
        if key == "resourceVersion":
            return str(self._revisions.get(int(value), value))
        if isinstance(value, str):
            return _UID.sub(lambda match: self._uids.get(match[0], match[0]), value)
        return value

    @property
    def revisions(self) -> list[tuple[int, int]]:
        """Recorded revisions and those here, in the recorded order."""
        return sorted(self._revisions.items())

    def comparable(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Blank out what is made up anew at each run."""
        blank: dict[str, Any] = self._blank(answer, self._is_dry(answer))
        return blank

    @staticmethod
    def _is_dry(answer: dict[str, Any]) -> bool:
        return "resourceVersion" not in (answer.get("body") or {}).get("metadata", {})

    def _blank(self, value: Any, is_dry: bool, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._blank(item, is_dry, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._blank(item, is_dry) for item in value]
        if not isinstance(value, str):
            return value
        if key == "continue":
            content = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).decode()
            return re.sub(r'"rv":\d+', '"rv":*', re.sub(r"gn-\w{5}", "gn-*", content))
        if key == "uid" and is_dry and value != _NO_UID:
            return "a new uid"
        value = _TIME.sub("a time", value)
        for pattern, text in _MADE_UP:
            value = pattern.sub(text, value)
        return value
