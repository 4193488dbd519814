"""Objects and all their versions under one revision, as etcd keeps them: no semantics, no validation.

Stored objects are never changed in place: a change stores a new one, so they may be shared between readers.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Change", "History", "Key", "Object"]

Object = dict[str, Any]
Key = tuple[str, str]  # namespace ("" for what has none), name


@dataclass(frozen=True)
class Change:
    """One revision: an object before (None when it is new) and after (for a deletion: its last state)."""

    revision: int
    kind: str  # ADDED, MODIFIED, DELETED
    resource: str
    key: Key
    before: Object | None
    after: Object


class History:
    """Thread-safe; `lock` may be held around several calls to make them one transaction."""

    def __init__(self, start: int = 1) -> None:
        self.lock = threading.RLock()
        self.revision = start
        self.oldest = start  # watches may begin at this revision or later
        self._live: dict[str, dict[Key, Object]] = {}
        self._changes: list[Change] = []
        self._revisions: list[int] = []
        self._listeners: dict[int, Callable[[Change], None]] = {}
        self._next_listener = 0

    def get(self, resource: str, key: Key) -> Object | None:
        return self._live.get(resource, {}).get(key)

    def all(self, resource: str) -> Mapping[Key, Object]:
        with self.lock:
            return dict(self._live.get(resource, {}))

    def at(self, resource: str, revision: int) -> Mapping[Key, Object]:
        """Return the objects as they were at a revision that is not compacted."""
        with self.lock:
            objects = dict(self._live.get(resource, {}))
            for change in reversed(self.since(resource, revision)):
                if change.before is None:
                    objects.pop(change.key, None)
                else:
                    objects[change.key] = change.before
            return objects

    def since(self, resource: str, revision: int) -> list[Change]:
        with self.lock:
            start = bisect_right(self._revisions, revision)
            return [change for change in self._changes[start:] if change.resource == resource]

    def put(self, resource: str, key: Key, obj: Object) -> Object:
        """Store a version and return it, with its revision set."""
        with self.lock:
            before = self.get(resource, key)
            stored = self._stamp(obj)
            self._live.setdefault(resource, {})[key] = stored
            self._tell("ADDED" if before is None else "MODIFIED", resource, key, before, stored)
            return stored

    def remove(self, resource: str, key: Key) -> Object:
        """Remove an object; return its last state with the deletion's revision."""
        with self.lock:
            before = self._live[resource].pop(key)
            gone = self._stamp(before)
            self._tell("DELETED", resource, key, before, gone)
            return gone

    def compact(self) -> None:
        """Forget all old versions: watches and lists from before now get 410."""
        with self.lock:
            self.oldest = self.revision
            self._changes.clear()
            self._revisions.clear()

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call the listener with every later change, under the lock; return what ends it."""
        with self.lock:
            number, self._next_listener = self._next_listener, self._next_listener + 1
            self._listeners[number] = listener

        def unsubscribe() -> None:
            with self.lock:
                self._listeners.pop(number, None)

        return unsubscribe

    def _stamp(self, obj: Object) -> Object:
        self.revision += 1
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}

    def _tell(self, kind: str, resource: str, key: Key, before: Object | None, after: Object) -> None:
        change = Change(self.revision, kind, resource, key, before, after)
        self._changes.append(change)
        self._revisions.append(self.revision)
        for listener in tuple(self._listeners.values()):
            listener(change)
