"""What a worker has done since its last status: figures for screens, which decide nothing."""

import resource
import time
from collections.abc import Callable
from typing import Literal

from edlz.services.protocol.messages import WorkerTelemetry
from edlz.services.worker.core.computation import Computed

__all__ = ["Meter", "State"]

IDLE_S = 0.5
State = Literal[
    "starting", "training", "waiting", "evaluating", "done", "exporting", "predicting", "analyzing"
]


class Meter:
    """Sums of seconds and counts, told with each status and counted on from what was told."""

    def __init__(self) -> None:
        self.state: State = "starting"
        self._task: int | None = None
        self._loss: float | None = None
        self._minibatches = self._records = 0
        self._read_s = self._compute_s = self._wait_s = 0.0
        self.pull_s = self.push_s = 0.0
        self._sum_s = 0.0
        # Of a member: bytes from and to the others so far, those that were told, and seconds that passed in sums and sending.
        self.traffic: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._told_in = self._told_out = 0
        self._exchange_s = self._exchange_before_s = 0.0
        self._waits_for = ""
        self.learning_rate: float | None = None  # of the newest step
        self._begun = 0  # pieces of work that the compute thread has, or that wait for it
        self._idle_since_s: float | None = None

    def begin(self, state: State, task: int | None) -> None:
        """The compute thread begins something."""
        self.state, self._task, self._begun = state, task, self._begun + 1
        if self._idle_since_s is not None:
            idle_s = time.perf_counter() - self._idle_since_s
            self._wait_s += max(0.0, idle_s - (self._exchange_s - self._exchange_before_s))
            self._idle_since_s = None

    def end(self, computed: Computed | None) -> None:
        """The compute thread has ended it."""
        self._begun -= 1
        if not self._begun:
            self._idle_since_s, self._exchange_before_s = time.perf_counter(), self._exchange_s
        if computed is None:
            self.state = self.state if self._begun else "waiting"
            return
        self._minibatches += 1
        self._records += computed.records
        self._read_s += computed.read_s
        self._compute_s += computed.compute_s
        self._loss = computed.loss if computed.loss is not None else self._loss

    def note_sum(self, seconds: float) -> None:
        """A member has added up, or taken a step."""
        self._sum_s += seconds
        self._exchange_s += seconds

    def note_send(self, seconds: float) -> None:
        """A member has sent parts."""
        self.push_s += seconds
        self._exchange_s += seconds

    def set_waits_for(self, what: str) -> None:
        """Something keeps the worker from its work, or nothing does any more; called in any thread."""
        self._waits_for = what

    def telemetry(self) -> WorkerTelemetry:
        bytes_in, bytes_out = self.traffic()
        is_idle = self._idle_since_s is not None and time.perf_counter() - self._idle_since_s > IDLE_S
        return WorkerTelemetry(
            state="waiting" if is_idle else self.state,
            task=self._task,
            loss=self._loss,
            minibatches=self._minibatches,
            records=self._records,
            read_s=self._read_s,
            pull_s=self.pull_s,
            compute_s=self._compute_s,
            push_s=self.push_s,
            wait_s=self._wait_s,
            waits_for=self._waits_for,
            memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            learning_rate=self.learning_rate,
            sum_s=self._sum_s,
            bytes_in=bytes_in - self._told_in,
            bytes_out=bytes_out - self._told_out,
        )

    def reset(self, told: WorkerTelemetry) -> None:
        """The master has these figures: count on from there."""
        self._minibatches -= told.minibatches
        self._records -= told.records
        self._read_s -= told.read_s
        self.pull_s -= told.pull_s
        self._compute_s -= told.compute_s
        self.push_s -= told.push_s
        self._wait_s -= told.wait_s
        self._sum_s -= told.sum_s
        self._told_in += told.bytes_in
        self._told_out += told.bytes_out
