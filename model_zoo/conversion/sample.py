"""Where the samples of data sets lie that come with edlz; their licences lie beside them."""

from pathlib import Path

__all__ = ["SAMPLE_FOLDER"]

SAMPLE_FOLDER = Path(__file__).parents[1] / "data"
