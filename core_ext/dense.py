"""Public face of the compiled dense kernels; `dense_numpy` documents each one and gives the same bits.

All arrays are flat, C-contiguous float32 of one length, aligned to at least 4 bytes; those that are only
read may be read-only.  A written array may overlap no other one, except that `out` may be exactly `values`.
Anything else raises ValueError (TypeError for what is no array) and nothing has been changed.  A kernel
releases the GIL while it runs; nothing keeps two threads from writing one array, that is the caller's part.
No kernel sums across elements, so there is no order of summation.
"""

from edlz.core_ext._dense import (
    add,
    apply_adam,
    apply_momentum,
    apply_sgd,
    copy,
    divide,
    instruction_set,
)

__all__ = ["add", "apply_adam", "apply_momentum", "apply_sgd", "copy", "divide", "instruction_set"]
