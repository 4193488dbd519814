"""What a model module imports.

Names are looked up when they are asked for: the folder also holds what must be there without Keras.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edlz.api.callbacks import LearningRateScheduler, MaxStepsStopping, SavedModelExporter
    from edlz.api.column_statistics import ColumnStatistics, statistics
    from edlz.api.embedding import Embedding, SparseEmbedding
    from edlz.api.feature_columns import DenseFeatures, concatenated_categorical_column
    from edlz.api.feeds import batched
    from edlz.api.loading import load
    from edlz.api.optimizers import RowwiseAdagrad
    from edlz.api.predictions import BasePredictionOutputsProcessor, PredictionContext
    from edlz.api.readers import AbstractDataReader, Metadata

__all__ = [
    "AbstractDataReader",
    "BasePredictionOutputsProcessor",
    "ColumnStatistics",
    "DenseFeatures",
    "Embedding",
    "LearningRateScheduler",
    "MaxStepsStopping",
    "Metadata",
    "PredictionContext",
    "RowwiseAdagrad",
    "SavedModelExporter",
    "SparseEmbedding",
    "batched",
    "concatenated_categorical_column",
    "load",
    "statistics",
]

_MODULES = {
    "batched": "edlz.api.feeds",
    "AbstractDataReader": "edlz.api.readers",
    "Metadata": "edlz.api.readers",
    "BasePredictionOutputsProcessor": "edlz.api.predictions",
    "PredictionContext": "edlz.api.predictions",
    "ColumnStatistics": "edlz.api.column_statistics",
    "statistics": "edlz.api.column_statistics",
    "DenseFeatures": "edlz.api.feature_columns",
    "concatenated_categorical_column": "edlz.api.feature_columns",
    "Embedding": "edlz.api.embedding",
    "LearningRateScheduler": "edlz.api.callbacks",
    "MaxStepsStopping": "edlz.api.callbacks",
    "RowwiseAdagrad": "edlz.api.optimizers",
    "SavedModelExporter": "edlz.api.callbacks",
    "SparseEmbedding": "edlz.api.embedding",
    "load": "edlz.api.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
