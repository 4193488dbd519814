"""Generated click-through records: 26 ids and 13 numbers, and whether somebody clicked.

A record is 26 int64, 13 float32 and the label, a float32 of 0 or 1, as raw bytes.  The ids are log-uniform in
0 to 1M - 1, as those of users or of goods are: few are frequent, most are rare.
"""

import math
from pathlib import Path

import numpy as np

from edlz.api.recordio import Writer

__all__ = ["IDS", "NUMBERS", "VOCABULARY", "write_records"]

IDS, NUMBERS, VOCABULARY = 26, 13, 1_000_000
CLICKS = 0.3  # share of the records
SCATTER = 2_654_435_761  # makes frequent ids strangers in the table, as hashing does
RECORD = np.dtype([("ids", "<i8", IDS), ("numbers", "<f4", NUMBERS), ("label", "<f4")])


def write_records(path: Path, count: int, *, is_uniform: bool = False) -> None:
    """Write `count` random records, always the same ones: a RecordIO file, and a plain one beside it (.raw).

    Uniform ids, where asked for, make nearly all rows come to exist within 100,000 records.
    """
    generator = np.random.default_rng(7)
    records = np.zeros(count, RECORD)
    places = generator.random((count, IDS))
    ranks = (places * VOCABULARY if is_uniform else np.exp(places * math.log(VOCABULARY - 1))).astype(
        np.int64
    )
    records["ids"] = ranks * SCATTER % VOCABULARY
    records["numbers"] = generator.random((count, NUMBERS), np.float32)
    records["label"] = generator.random(count) < CLICKS
    records.tofile(path.with_suffix(".raw"))
    with Writer(path) as writer:
        for record in records:
            writer.write(record.tobytes())
