"""How numbers, durations and states are put into words, the same on every screen."""

import math
from collections.abc import Iterable
from itertools import pairwise

from edlz.client.screen.spans import Role
from edlz.services.protocol.job_status import EvaluationView, JobStatus, WorkerView

__all__ = [
    "age",
    "best_evaluation",
    "count_of",
    "due_again_s",
    "duration",
    "how_far",
    "joined",
    "memory",
    "metric",
    "nonfinite_losses",
    "percent",
    "progress_line",
    "rate_now",
    "role_of",
    "short_count",
    "size",
    "working",
]

_ROLES: dict[str, Role] = {
    "training": "good",
    "evaluating": "good",
    "predicting": "good",
    "analyzing": "good",
    "serving": "good",
    "done": "good",
    "sealed": "good",
    "silent": "bad",
    "lost": "bad",
    "failed": "bad",
}
_WORKING = frozenset(("training", "waiting", "evaluating", "predicting", "analyzing"))
_SMALLER_IS_BETTER = ("loss", "error", "mse", "mae", "rmse", "perplexity", "crossentropy", "deviance")


def age(seconds: float) -> str:
    """Return an age in one unit: `45s`, `3m`, `2h`, `5d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"


def duration(seconds: float) -> str:
    """Return a duration in two units at most: `45s`, `4m 10s`, `1h 20m`, `2d 3h`."""
    whole = max(0, round(seconds))
    units = (("d", whole // 86400), ("h", whole // 3600 % 24), ("m", whole // 60 % 60), ("s", whole % 60))
    for (unit, amount), (smaller, rest) in pairwise(units):
        if amount:
            return f"{amount}{unit} {rest}{smaller}" if rest else f"{amount}{unit}"
    return f"{whole}s"


def metric(value: float) -> str:
    """Return a loss or metric: three digits behind the point, or an exponent where they say nothing."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1e6 or 0 < abs(value) < 0.001:
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"


def nonfinite_losses(status: JobStatus) -> str:
    """Return what is to be said of losses that were NaN or infinite; nothing if there were none."""
    if not status.nonfinite_losses:
        return ""
    text = f"{count_of(status.nonfinite_losses, 'minibatch')} had a loss that is NaN or infinite"
    if status.first_nonfinite is None:
        return text
    task, index = status.first_nonfinite
    return f"{text}, the first: task {task}, minibatch {index}"


def percent(ratio: float) -> str:
    """Return a share as `59 %`; 100 % only when nothing is left."""
    return f"{100 if ratio >= 1 else min(99, math.floor(ratio * 100 + 1e-9))} %"


def how_far(share: float | None, records: int) -> str:
    """Return how much of a job is done: `59 %`, or `70,800 records` where nobody knows of how many."""
    return count_of(records, "record") if share is None else percent(share)


def memory(size_bytes: int) -> str:
    """Return a size of memory: `0.1 GB`."""
    return f"{size_bytes / 1e9:.1f} GB"


def count_of(count: int, noun: str) -> str:
    """Return `1 worker`, `1,200 minibatches`."""
    plural = noun + ("es" if noun.endswith(("h", "s")) else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def short_count(count: int) -> str:
    """Return a large number as `4.1 M`; a small one as it is."""
    if count >= 1_000_000_000:
        return f"{count / 1e9:.1f} G"
    if count >= 1_000_000:
        return f"{count / 1e6:.1f} M"
    return f"{count / 1000:.0f} k" if count >= 10_000 else f"{count:,}"


def size(size_bytes: int) -> str:
    """Return a size: `312 B`, `4.8 MB`."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    amount = float(size_bytes)
    for unit in ("KB", "MB", "GB"):
        amount /= 1000
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:,.1f} TB"


def joined(workers: Iterable[WorkerView]) -> int:
    """Return how many of the workers are there, though they may not take part yet; a note says why one is not."""
    return sum(not (worker.state == "starting" and worker.note) for worker in workers)


def working(workers: Iterable[WorkerView]) -> int:
    """Return how many of the workers take part."""
    return sum(worker.state in _WORKING for worker in workers)


def best_evaluation(status: JobStatus, name: str) -> EvaluationView | None:
    """Return the evaluation in which a metric was best; the earliest of equal ones, NaN only if nothing else."""
    having = [view for view in status.evaluations if name in view.metrics]
    having = [view for view in having if not math.isnan(view.metrics[name])] or having
    if not having:
        return None
    is_smaller_better = any(word in name.lower() for word in _SMALLER_IS_BETTER)
    pick = min if is_smaller_better else max
    return pick(having, key=lambda view: view.metrics[name])


def rate_now(status: JobStatus) -> float:
    """Return records per second, of a job that works on records just now; 0 if that is over, or not known."""
    is_alone = status.state == "Evaluating" and not status.is_training  # not the last part of a training job
    is_at_work = is_alone or status.state in ("Training", "Predicting", "Analyzing")
    return status.records_per_s if is_at_work else 0.0


def role_of(state: str) -> Role:
    """Return how the state of a worker or a parameter server is shown."""
    return _ROLES.get(state, "wait")


_OFTEN_S, _SELDOM_S, _FIRST_MINUTE_S = 10.0, 60.0, 60.0


def progress_line(status: JobStatus, asked_workers: int) -> str:
    """Return `progress=0.59 epoch=2/2 version=354 loss=0.083 … eta_s=12`; what is not known is left out."""
    fields: dict[str, object] = {
        "progress": None if status.share is None else f"{int(status.share * 100) / 100:.2f}",
        "records": status.records if status.share is None else None,
        "epoch": status.epoch_text.removeprefix("epoch ") or None,
        "version": status.version,
        "loss": None if status.loss is None else f"{status.loss:.4g}",
        "records_per_s": round(rate_now(status)) or None,
        "workers": f"{working(status.workers)}/{asked_workers}",
        "eta_s": None if status.eta_s is None else round(status.eta_s),
        "stalled_s": None if status.stalled_s is None else round(status.stalled_s),
        "waits_for_data_s": None if status.waits_for_data_s is None else round(status.waits_for_data_s),
    }
    return " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)


def due_again_s(running_s: float) -> float:
    """Return the seconds until the next progress line: 10 in the first minute, then 60."""
    return _OFTEN_S if running_s < _FIRST_MINUTE_S else _SELDOM_S
