"""What callbacks decide in simulated jobs: a pure function of what they were shown, which every bit of it changes."""

import zlib
from collections.abc import Sequence

from edlz.services.protocol.concluded_rounds import CallbackNeeds, ConcludedRound, Decision
from tests.simulation.schedule import Schedule

__all__ = ["callback_needs", "decide", "loss_of", "seen"]

RATE = 0.01  # the model's own


def callback_needs(schedule: Schedule) -> CallbackNeeds | None:
    """What a worker tells of its model."""
    max_steps = schedule.max_step if schedule.workers_tell_max_step else 0
    if not (schedule.has_callbacks or max_steps):
        return None
    return CallbackNeeds(runs=schedule.has_callbacks, decides=schedule.decides, max_steps=max_steps)


def loss_of(task: int, index: int) -> float:
    return 0.1 * (task + 1) + 0.3 / (index + 1)


def seen(*parts: bytes) -> float:
    """What an evaluation measures: every bit of the parameters."""
    return float(zlib.crc32(b"".join(parts)))


def decide(
    schedule: Schedule,
    version: int,
    measured: float,
    loss: float | None,
    before: Sequence[ConcludedRound],
    *,
    is_end: bool,
) -> Decision:
    """Another learning rate half of the time, a stop at some time, and the version that measured least is kept."""
    shown = float(zlib.crc32(repr((measured, loss, [round_.decision.logs for round_ in before])).encode()))
    stop = len(before) == schedule.stops_behind
    logs = {"measured": measured, "shown": shown, **({} if loss is None else {"loss": loss})}
    kept: tuple[int, ...] = ()
    if schedule.keeps_best:
        best = min([*((r.decision.logs["measured"], r.version) for r in before), (measured, version)])
        kept = (best[1],)
    is_over = stop or is_end
    return Decision(
        logs=logs,
        stop=stop,
        learning_rate=RATE / (1 + shown % 7) if shown % 2 else None,
        kept=kept,
        result=kept[0] if kept and is_over else -1,
    )
