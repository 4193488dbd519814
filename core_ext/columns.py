"""Public face of the compiled views of Arrow's columns; `columns_numpy` documents each one and gives the same bits."""

from edlz.core_ext._columns import number, numbers

__all__ = ["number", "numbers"]
