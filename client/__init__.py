"""The `edlz` command, and the same from Python: `from edlz import client`.

Names are looked up when they are asked for: the command line has no need of them.
"""

import importlib
from typing import Any

__all__ = [
    "Job",
    "JobFailed",
    "JobResult",
    "JobStopped",
    "analyze",
    "analyze_async",
    "evaluate",
    "evaluate_async",
    "get",
    "jobs",
    "predict",
    "predict_async",
    "train",
    "train_async",
]

_CALLS = (
    "analyze",
    "analyze_async",
    "evaluate",
    "evaluate_async",
    "predict",
    "predict_async",
    "train",
    "train_async",
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "calls" if name in _CALLS else "handle"
    return getattr(importlib.import_module(f"edlz.client.python.{module}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
