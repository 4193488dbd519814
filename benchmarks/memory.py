"""What an embedding table takes in memory, beside its rows and slots alone.

A child process fills a table with 10M rows, as training would: batch by batch, with ids in no order.  Counted
is what the process has resident afterwards beyond what it had before.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.rows import Row

__all__ = ["measure"]

ROWS, DIM = 10_000_000, 16
SLOTS = 1  # Adagrad's sums, as wide as the rows
MOST = 1.35


def measure() -> list[Row]:
    """Fill the table; takes about 10 s and 2 GB of memory."""
    command = [sys.executable, "-m", "benchmarks.memory"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    resident_bytes = json.loads(output)
    row_bytes = ROWS * DIM * 4 * (1 + SLOTS)
    return [
        Row(
            f"table of {ROWS // 10**6}M rows of {DIM} with Adagrad: resident / rows and slots",
            f"{resident_bytes / 1e6:.0f} MB",
            f"rows and slots {row_bytes / 1e6:.0f} MB",
            resident_bytes / row_bytes,
            MOST,
            False,
        )
    ]


def _measure_here() -> int:
    from benchmarks.filled_table import filled_table

    filled_table("Adagrad", 1, DIM)  # what is loaded once does not count
    before_bytes = _resident_bytes()
    table = filled_table("Adagrad", ROWS, DIM)
    resident_bytes = _resident_bytes() - before_bytes
    assert table.row_count == ROWS
    return resident_bytes


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure_here()))
