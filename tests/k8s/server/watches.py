"""Watches: the stream of a resource's changes, as a selector sees them."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

from tests.k8s.server.faults import Faults
from tests.k8s.server.lists import parse_revision, reach_revision
from tests.k8s.server.objects.errors import expired
from tests.k8s.server.objects.history import Change, Object
from tests.k8s.server.objects.kinds import Resource
from tests.k8s.server.objects.selectors import field_selector, label_selector
from tests.k8s.server.objects.store import Store

__all__ = ["Watch", "WatchBroken"]

_SHUFFLE_S = 0.1
_LAST_BOOKMARK_S = 2.0
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class WatchBroken(Exception):
    """A fault was injected: the connection is to be cut."""


class Watch:
    """One watch request. Iterate `lines()`; the end of the iteration is the stream's orderly end."""

    def __init__(
        self,
        store: Store,
        faults: Faults,
        row: Resource,
        namespace: str | None,
        query: Any,
        bookmark_interval_s: float,
    ) -> None:
        self._store, self._faults, self._row, self._namespace = store, faults, row, namespace
        self._labels = label_selector(query.get("labelSelector", ""))
        self._fields = field_selector(row, query.get("fieldSelector", ""))
        self._start = parse_revision(query.get("resourceVersion", ""))
        self._timeout_s = float(query.get("timeoutSeconds") or 1800)
        self._has_bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        self._wants_initial = query.get("sendInitialEvents") in ("true", "1")
        self._bookmark_interval_s = bookmark_interval_s
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._is_dropped = False

    async def open(self, wait_s: float) -> None:
        """Wait for the revision to begin at; what this raises is an answer of its own, not an event."""
        if self._start:
            await reach_revision(self._store, self._start, wait_s)

    async def lines(self) -> AsyncGenerator[bytes, None]:
        unsubscribe = self._store.subscribe(self._on_change)
        forget = self._faults.on_drop(self._drop)
        try:
            async for event in self._events():
                for _ in range(2 if self._faults.doubles_events else 1):
                    yield json.dumps(event, separators=(",", ":")).encode() + b"\n"
        finally:
            unsubscribe()
            forget()

    async def _events(self) -> AsyncIterator[Object]:
        begin = self._loop.time()
        position, initial = self._begin()
        if self._is_too_old(position) or (self._faults.is_expired and self._start):
            yield {"type": "ERROR", "object": expired(position, self._store.history.oldest).status()}
            return
        for event in initial:
            yield event
        next_bookmark = begin + self._bookmark_interval_s
        last_bookmark = begin + self._timeout_s - _LAST_BOOKMARK_S
        if last_bookmark < begin:
            last_bookmark = float("inf")
        while (now := self._loop.time()) < begin + self._timeout_s:
            self._check_faults(now - begin)
            self._news.clear()
            if self._is_too_old(position):
                yield {"type": "ERROR", "object": expired(position, self._store.history.oldest).status()}
                return
            with self._store.history.lock:
                changes = self._store.history.since(self._row.name, position)
                position = self._store.revision
            for event in self._mixed(changes):
                yield event
            if self._has_bookmarks and now >= min(next_bookmark, last_bookmark):
                yield self._bookmark(position)
                next_bookmark = now + self._bookmark_interval_s
                if now >= last_bookmark:
                    last_bookmark = float("inf")
            await self._wait(min(next_bookmark, last_bookmark, begin + self._timeout_s) - now, now - begin)

    # -- events

    def _begin(self) -> tuple[int, list[Object]]:
        """Return the revision to go on from, and the synthetic events before it."""
        if self._start and not self._wants_initial:
            return self._start, []
        with self._store.history.lock:
            position, objects = self._store.revision, self._store.history.all(self._row.name)
        found = [obj for _, obj in sorted(objects.items()) if self._selects(obj)]
        events = [{"type": "ADDED", "object": obj} for obj in found]
        if self._wants_initial and self._has_bookmarks:
            events.append(self._bookmark(position, _INITIAL_EVENTS_END))
        return position, events

    def _is_too_old(self, position: int) -> bool:
        return position < self._store.history.oldest

    def _mixed(self, changes: list[Change]) -> list[Object]:
        events = [event for change in changes for event in self._seen(change)]
        if self._faults.shuffle_seed is not None:
            random.Random(self._faults.shuffle_seed + len(events)).shuffle(events)
        return events

    def _seen(self, change: Change) -> Iterator[Object]:
        was_seen = change.before is not None and self._selects(change.before)
        is_seen = change.kind != "DELETED" and self._selects(change.after)
        if is_seen:
            yield {"type": "MODIFIED" if was_seen else "ADDED", "object": change.after}
        elif was_seen and change.before is not None:
            metadata = {**change.before["metadata"], "resourceVersion": str(change.revision)}
            yield {"type": "DELETED", "object": {**change.before, "metadata": metadata}}

    def _selects(self, obj: Object) -> bool:
        metadata = obj["metadata"]
        return (
            (self._namespace is None or metadata.get("namespace", "") == self._namespace)
            and self._labels(metadata.get("labels", {}))
            and self._fields(obj)
        )

    def _bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> Object:
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        obj: Object = {"kind": self._row.kind, "apiVersion": self._row.api_version, "metadata": metadata}
        if self._row.name == "pods":
            obj |= {"spec": {"containers": None}, "status": {}}
        return {"type": "BOOKMARK", "object": obj}

    # -- waiting

    def _on_change(self, change: Change) -> None:
        if change.resource == self._row.name:
            self._wake()

    def _drop(self) -> None:
        self._is_dropped = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has just been closed
            self._loop.call_soon_threadsafe(self._news.set)

    def _check_faults(self, age_s: float) -> None:
        life_s = self._faults.watch_life_s
        if self._is_dropped or (life_s is not None and age_s >= life_s):
            self._faults.dropped_watches += 1
            raise WatchBroken

    async def _wait(self, timeout_s: float, age_s: float) -> None:
        if self._faults.watch_life_s is not None:
            timeout_s = min(timeout_s, self._faults.watch_life_s - age_s)
        # A fault that is switched on meanwhile has to be seen, too.
        timeout_s = min(max(timeout_s, 0.0), 0.25)
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return
        if self._faults.shuffle_seed is not None:
            await asyncio.sleep(_SHUFFLE_S)
