"""Public face of the compiled embedding table."""

from edlz.core_ext._table import MAX_DIM, MAX_ROWS, EmbeddingTable, TableImage
from edlz.core_ext.initializers import Initializer

__all__ = ["MAX_DIM", "MAX_ROWS", "EmbeddingTable", "Initializer", "TableImage"]
