"""What tests make go wrong between a client and the API server."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tests.k8s.server.objects.errors import ApiError

__all__ = ["Faults", "Refusal"]

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_TEXTS = {429: "Too many requests, please try again later.", 500: "Internal error occurred: injected"}


@dataclass
class Refusal:
    """Requests to refuse with a status: the next `times`, or a `share` of all by a seeded generator."""

    status: int
    times: int | None
    share: float
    rng: random.Random
    retry_after_s: int
    matches: Callable[[str, str], bool]

    def applies(self, method: str, path: str) -> bool:
        if not self.matches(method, path) or self.times == 0 or self.rng.random() >= self.share:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """Switches; all off at first. Each may be changed at any time, from any thread.

    Attributes
    ----------
    watch_life_s : float or None
        Break every watch without an end after this time.
    is_expired : bool
        Answer every new watch that names a revision (but 0) with 410 Expired, as after a compaction.
    doubles_events : bool
        Send each event of a watch twice.
    shuffle_seed : int or None
        Send the events of a watch out of order, those that come within a tenth of a second of each other.
    delay_s : float
        Let every answer wait.
    """

    def __init__(self) -> None:
        self.watch_life_s: float | None = None
        self.is_expired = False
        self.doubles_events = False
        self.shuffle_seed: int | None = None
        self.delay_s = 0.0
        self.refused = 0  # requests so far
        self.dropped_watches = 0
        self._refusals: list[Refusal] = []
        self._lock = threading.Lock()
        self._drops: list[Callable[[], None]] = []

    def refuse(
        self,
        status: int,
        times: int | None = None,
        *,
        share: float = 1.0,
        seed: int = 0,
        retry_after_s: int = 1,
        matches: Callable[[str, str], bool] = lambda method, path: True,
    ) -> None:
        """Refuse the next `times` requests (all, if None), or a share of them, for which `matches` is true.

        `matches` gets the method and the path with its query.
        """
        refusal = Refusal(status, times, share, random.Random(seed), retry_after_s, matches)
        with self._lock:
            self._refusals.append(refusal)

    def accept(self) -> None:
        """End all refusals."""
        with self._lock:
            self._refusals.clear()

    def drop_watches(self) -> None:
        """Break all watches that run now, once."""
        with self._lock:
            drops = tuple(self._drops)
        for drop in drops:
            drop()

    # -- for the server

    def check(self, method: str, path: str) -> None:
        with self._lock:
            refusal = next((r for r in self._refusals if r.applies(method, path)), None)
            self.refused += refusal is not None
        if refusal is None:
            return
        status = refusal.status
        headers = {"Retry-After": str(refusal.retry_after_s)} if status in (429, 503) else {}
        details = {"retryAfterSeconds": refusal.retry_after_s} if headers else None
        message = _TEXTS.get(status, "injected")
        raise ApiError(status, _REASONS.get(status, "Unknown"), message, details, headers)

    def on_drop(self, drop: Callable[[], None]) -> Callable[[], None]:
        """Call `drop` at each drop_watches(); return what ends that."""
        with self._lock:
            self._drops.append(drop)

        def forget() -> None:
            with self._lock:
                self._drops.remove(drop)

        return forget
