"""Public face of the compiled kernels on ids; `ids_numpy` documents each one and gives the same bits.

Arrays are C-contiguous and aligned to their elements; all of them may be read-only.  Anything else raises
ValueError (TypeError for what is no array).  Results are new arrays.  A kernel releases the GIL while it runs.
Gradients are added in a fixed order, so sums have the same bits on every processor.
"""

from edlz.core_ext._ids import group_ids, merge_rows, partition_of, sum_rows

__all__ = ["group_ids", "merge_rows", "partition_of", "sum_rows"]
