"""What the tasks' files of a job make together: predictions, or statistics."""

from dataclasses import dataclass

__all__ = ["PREDICTIONS", "STATISTICS", "OutputKind"]


@dataclass(frozen=True, slots=True)
class OutputKind:
    """One of the kinds.

    Attributes
    ----------
    flag : str
        Names the folder.
    whole : str
        The file without which nothing there is whole.
    noun : str
        What it is.
    """

    flag: str
    whole: str
    noun: str


PREDICTIONS = OutputKind("prediction_output", "manifest.json", "predictions")
STATISTICS = OutputKind("statistics_output", "statistics.json", "statistics")
