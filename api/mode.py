"""What a model's `feed` is asked to prepare records for."""

from enum import StrEnum

__all__ = ["Mode"]


class Mode(StrEnum):
    """The second argument of `feed(dataset, mode, metadata)`; equal to its string."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"
