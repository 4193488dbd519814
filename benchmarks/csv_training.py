"""The click-through job on CSV beside the same job on RecordIO: what columns cost a training job."""

import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import csv

from benchmarks.ctr_data import IDS, NUMBERS, RECORD, write_records
from benchmarks.local_job import run_job
from benchmarks.rows import Row

__all__ = ["measure"]

ROUNDS = 3
RECORDS, EPOCHS, SIZE = (
    131_072,
    3,
    512,
)  # all rows of the table are made in the first epoch, which does not count
LEAST = 0.9
NEVER_S = 3_600
HERE = Path(__file__).parent


def measure() -> list[Row]:
    """Run both jobs in turn; takes about three minutes."""
    rates: dict[str, list[float]] = {"ctr_model": [], "ctr_csv_model": []}
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        place = Path(folder)
        data = {"ctr_model": place / "records", "ctr_csv_model": place / "rows.csv"}
        write_records(data["ctr_model"], RECORDS)
        _write_csv(data["ctr_model"].with_suffix(".raw"), data["ctr_csv_model"])
        for number in range(ROUNDS):
            for model, path in data.items():
                rates[model].append(_rate(place / f"{number}-{model}", model, path))
    by_records, by_rows = (statistics.median(found) for found in rates.values())
    return [
        Row(
            measure=f"CTR training, batch {SIZE}: on CSV / on RecordIO",
            ours=f"CSV {by_rows / 1e3:.1f} k examples/s",
            limit_or_peer=f"RecordIO {by_records / 1e3:.1f} k examples/s",
            ratio=by_rows / by_records,
            target=LEAST,
            higher_is_better=True,
        )
    ]


def _rate(folder: Path, model: str, data: Path) -> float:
    flags = [
        f"--model_file={HERE / model}.py",
        f"--training_data={data}",
        "--use_async",
        f"--num_epochs={EPOCHS}",
        f"--minibatch_size={SIZE}",
        "--worker_threads=1",
        "--log_loss_steps=64",
        f"--recovery_snapshot_secs={NEVER_S}",
    ]
    return run_job(folder, flags, from_step=RECORDS // SIZE).steps_per_s * SIZE


def _write_csv(raw: Path, path: Path) -> None:
    """Write the same records as rows of columns."""
    records = np.fromfile(raw, RECORD)
    columns = {"label": records["label"].astype(np.int64)}
    columns |= {f"number_{place}": records["numbers"][:, place].copy() for place in range(NUMBERS)}
    columns |= {f"id_{place}": records["ids"][:, place].copy() for place in range(IDS)}
    csv.write_csv(pyarrow.table(columns), path)
