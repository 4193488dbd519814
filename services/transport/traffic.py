"""What passes an endpoint of `services/transport/rpc.py`: how much, and how it is logged when it goes wrong."""

import logging
import time
from dataclasses import dataclass
from typing import Final

__all__ = ["RareLog", "Traffic"]

LOG_EVERY_S: Final = 5.0


@dataclass
class Traffic:
    """What passed an endpoint so far."""

    requests: int = 0  # server: valid ones received; client: sent, repetitions included
    answers: int = 0
    malformed: int = 0  # received messages that did not fit
    dropped: int = 0  # server: answers to peers that were gone; client: answers that nobody waits for
    bytes_in: int = 0
    newest_in: int = 0  # bytes of the message that was received last
    bytes_out: int = 0


class RareLog:
    """Logs the first of many equal lines, and every few seconds how many there were."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._held_back: dict[str, tuple[float, int]] = {}  # text to: until when, how many

    def warning(self, text: str, *fields: object) -> None:
        now = time.monotonic()
        until, count = self._held_back.get(text, (0.0, 0))
        if now < until:
            self._held_back[text] = until, count + 1
            return
        self._held_back[text] = now + LOG_EVERY_S, 0
        if count:
            self._logger.warning(text + " (and %d like it before)", *fields, count)
        else:
            self._logger.warning(text, *fields)
