"""What a model module imports.

Names are looked up when they are asked for: the folder also holds what must be there without Keras.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edlz.api.callbacks import LearningRateScheduler, MaxStepsStopping, SavedModelExporter
    from edlz.api.embedding import Embedding
    from edlz.api.loading import load
    from edlz.api.optimizers import RowwiseAdagrad
    from edlz.api.predictions import BasePredictionOutputsProcessor, PredictionContext

__all__ = [
    "BasePredictionOutputsProcessor",
    "Embedding",
    "LearningRateScheduler",
    "MaxStepsStopping",
    "PredictionContext",
    "RowwiseAdagrad",
    "SavedModelExporter",
    "load",
]

_MODULES = {
    "BasePredictionOutputsProcessor": "edlz.api.predictions",
    "PredictionContext": "edlz.api.predictions",
    "Embedding": "edlz.api.embedding",
    "LearningRateScheduler": "edlz.api.callbacks",
    "MaxStepsStopping": "edlz.api.callbacks",
    "RowwiseAdagrad": "edlz.api.optimizers",
    "SavedModelExporter": "edlz.api.callbacks",
    "load": "edlz.api.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
