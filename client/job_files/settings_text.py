"""The settings that a job keeps as YAML, read without a check: enough to say something about it."""

from collections.abc import Mapping
from typing import Any

from edlz.services.configuration.yaml_text import NotYaml, load
from edlz.services.protocol.job_status import JobStatus

__all__ = ["asked_workers_in", "settings_in", "status_from"]


def settings_in(text: str) -> Mapping[str, Any]:
    """Return the settings of a text; nothing if it holds none."""
    try:
        found = load(text)
    except NotYaml:
        return {}
    return found if isinstance(found, dict) else {}


def asked_workers_in(settings: Mapping[str, Any]) -> int:
    """Return --num_workers; 0 if the settings do not say it."""
    return _number(settings, "num_workers", 0)


def status_from(name: str, settings: Mapping[str, Any], began: float) -> JobStatus:
    """Return the status of a job whose master has said nothing: no more than its settings do.

    Parameters
    ----------
    began : float, seconds since the epoch
        When the job was submitted or started, as far as is known.
    """
    return JobStatus(
        name=name,
        state="Stopped",
        mode="async" if settings.get("use_async") else "sync",
        slots=_number(settings, "grads_to_wait", 1),
        started_at=began,
        now=began,
        epochs=_number(settings, "num_epochs", 0),
    )


def _number(settings: Mapping[str, Any], name: str, default: int) -> int:
    value = settings.get(name)
    return value if isinstance(value, int) else default
