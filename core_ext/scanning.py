"""Public face of the compiled kernels that find records in bytes; `scanning_numpy` documents each one.

Data is any buffer of bytes, also a mapped file.  A kernel releases the GIL while it runs, but for `slices` and `texts`.
"""

from edlz.core_ext._scanning import (
    count_rows,
    crc32c,
    hop_records,
    record_bounds,
    row_bounds,
    slices,
    texts,
)
from edlz.core_ext.scanning_numpy import BAD_DATA, BAD_LENGTH, CUT_OFF, WHOLE, Data, Places

__all__ = [
    "BAD_DATA",
    "BAD_LENGTH",
    "CUT_OFF",
    "WHOLE",
    "Data",
    "Places",
    "count_rows",
    "crc32c",
    "hop_records",
    "record_bounds",
    "row_bounds",
    "slices",
    "texts",
]
