"""A job's progress as one line of a log: what a pipe and a file get."""

from edlz.client.screen.wording import rate_now, working
from edlz.services.protocol.job_status import JobStatus

__all__ = ["due_again_s", "progress_line"]

_OFTEN_S, _SELDOM_S, _FIRST_MINUTE_S = 10.0, 60.0, 60.0


def progress_line(status: JobStatus, asked_workers: int) -> str:
    """Return `progress=0.59 epoch=2/2 version=354 loss=0.083 … eta_s=12`; what is not known is left out."""
    fields: dict[str, object] = {
        "progress": f"{int(status.ratio * 100) / 100:.2f}",
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
