"""What it takes to submit a job on a CSV file of 2 GB, and to go on with one: memory, and bytes that are read.

The file has rows of 40 columns, a label, 13 numbers and 26 ids, and lies in the folder for temporary files as long as this lasts.
What `edlz train` checks and what the master does until it listens are looked at in their own processes.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.processes import quiet_environment, start
from benchmarks.rows import Row

__all__ = ["measure"]

FILE_BYTES = 2 << 30
DRAWN_ROWS, NUMBERS, IDS = 50_000, 13, 26
MOST_BYTES = 300 << 20
READ_SHARE = 0.01  # of the file, by a master that goes on
LIMIT_S, POLL_S = 300.0, 0.1
_TELLING_ITS_MEMORY = """
import sys
from edlz.client.cli import main
if main(sys.argv[1:]):
    sys.exit("edlz train --dry_run has failed")
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""  # the system's own figure at its end is that of its parent, where that is larger
MODEL = Path(__file__).parent / "ctr_csv_model.py"


@dataclass(frozen=True)
class _Taken:
    resident_bytes: int
    read_bytes: int


def measure() -> list[Row]:
    """Submit the job, and start its master again; takes about a minute and 2 GB of disk."""
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as name:
        folder = Path(name)
        data = folder / "rows.csv"
        _write(data)
        size = data.stat().st_size
        checked = _check(folder, data)
        planned = _lead(folder, data, "planned")
        resumed = _lead(folder, data, "resumed")
    assert planned.read_bytes >= size, "the master has not looked at the whole file"
    most = max(checked.resident_bytes, planned.resident_bytes)
    return [
        Row(
            measure=f"submission of a CSV of {size / 1e9:.1f} GB: resident memory / limit",
            ours=f"edlz train {_mb(checked.resident_bytes)}, master {_mb(planned.resident_bytes)}",
            limit_or_peer=f"limit {_mb(MOST_BYTES)}",
            ratio=most / MOST_BYTES,
            target=1.0,
            higher_is_better=False,
        ),
        Row(
            measure="going on with that job: bytes read by its master / size of the file",
            ours=_mb(resumed.read_bytes),
            limit_or_peer=f"the file {_mb(size)}",
            ratio=resumed.read_bytes / size,
            target=READ_SHARE,
            higher_is_better=False,
        ),
    ]


def _check(folder: Path, data: Path) -> _Taken:
    """Let `edlz train` check the job, and start nothing."""
    command = [sys.executable, "-c", _TELLING_ITS_MEMORY, "train", "--dry_run", *_flags(data)]
    environment = quiet_environment(EDLZ_HOME=str(folder / "home"))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return _Taken(_number(done.stdout, "VmHWM:") << 10, 0)


def _lead(folder: Path, data: Path, name: str) -> _Taken:
    """Start the job's master, and look at it when it listens: then it has its plan."""
    log, job = folder / f"{name}.log", folder / "job"
    arguments = [f"--endpoint=ipc://{folder}/m", f"--job_dir={job}", "--status_port=none", *_flags(data)]
    process = start(log, ["edlz.services.master", *arguments], os.sched_getaffinity(0))
    try:
        end = time.monotonic() + LIMIT_S
        while "listens at" not in log.read_text():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the master has no plan\n{log.read_text()}")
            time.sleep(POLL_S)
        about = Path(f"/proc/{process.pid}")
        return _Taken(
            _number((about / "status").read_text(), "VmHWM:") << 10,
            _number((about / "io").read_text(), "rchar:"),
        )
    finally:
        process.kill()
        process.wait()


def _flags(data: Path) -> list[str]:
    return [f"--model_file={MODEL}", f"--training_data={data}", "--minibatch_size=512", "--job_name=large"]


def _number(text: str, name: str) -> int:
    return int(text.split(name, 1)[1].split(None, 1)[0])


def _mb(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"


def _write(path: Path) -> None:
    """Write rows until the file is large enough: drawn ones, over and over."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, DRAWN_ROWS).tolist()
    numbers = draw.standard_normal((DRAWN_ROWS, NUMBERS)).round(4).astype(str).tolist()
    ids = draw.integers(0, 10**6, (DRAWN_ROWS, IDS)).astype(str).tolist()
    rows = zip(labels, numbers, ids, strict=True)
    block = "".join(f"{label},{','.join(some)},{','.join(more)}\n" for label, some, more in rows).encode()
    names = ["label", *(f"number_{i}" for i in range(NUMBERS)), *(f"id_{i}" for i in range(IDS))]
    with path.open("wb") as file:
        file.write(",".join(names).encode() + b"\n")
        while file.tell() < FILE_BYTES:
            file.write(block)
