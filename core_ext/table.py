"""Public face of the compiled embedding table; `table_numpy` documents each method and gives the same bits.

A table is rows of float32 keyed by any int64 id, each with the slots of its optimizer, which are created when a
step is first taken on them.  Rows keep their place once they are made, so `ids` is a view, not a copy.

**Threads.**  Any number of threads may `gather`, `digest` and `read` images at once.  `apply`, `extend`,
`index`, `freeze` and closing an image exclude everything else on their table, and get their turn before readers
that come later.  The lock does not depend on the GIL, which every method releases while it works or waits.
`read` takes the lock for blocks of 256 KiB, so that nobody waits long for it.  Not covered: writing to the memory
that `extend` gave after `index` was called, and changing an array while a call works on it.

**Memory.**  A row takes its width in floats, rounded up to a power of two below 16 and to a multiple of 16 above,
plus 8 bytes, plus 20 to 29 bytes of the index.  Growth moves the index, never the rows: about 10 ns a row, in the
call that needs it.  Address space is reserved for as many rows as this machine's memory could hold.

**Images.**  `freeze` copies nothing.  While an image is open, a row is saved before its first change, which makes
that step about twice as slow; once it was saved, 1.15 times.

Arrays are C-contiguous, of native byte order and aligned to their elements.  What does not fit raises ValueError
(TypeError for what is no array) and has changed nothing.
"""

from edlz.core_ext._table import MAX_DIM, MAX_ROWS, EmbeddingTable, TableImage
from edlz.core_ext.initializers import Initializer

__all__ = ["MAX_DIM", "MAX_ROWS", "EmbeddingTable", "Initializer", "TableImage"]
