"""Public face of the compiled dense kernels; `dense_numpy` documents each one and gives the same bits.

All arrays are flat, C-contiguous float32 of one length, aligned to at least 4 bytes; those that are only
read may be read-only.  A written array may overlap no other one, except that `out` may be exactly `values`.
Anything else raises ValueError (TypeError for what is no array) and nothing has been changed.  A kernel
releases the GIL while it runs; nothing keeps two threads from writing one array, that is the caller's part.
Only `squared_norm` (and a step of row-wise Adagrad) sums across elements; its order is fixed, as is that in which
`tree_mean` adds up vectors.
"""

from edlz.core_ext._dense import (
    add,
    apply,
    clip,
    copy,
    divide,
    instruction_set,
    kinds,
    scale,
    squared_norm,
    tree_mean,
)

__all__ = [
    "add",
    "apply",
    "clip",
    "copy",
    "divide",
    "instruction_set",
    "kinds",
    "scale",
    "squared_norm",
    "tree_mean",
]
