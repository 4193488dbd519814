"""The exchange of an all-reduce step between members of a group, beside gloo's and plain copies.

Members are a worker's core and lines over Unix sockets, in processes of their own, without a model: what is measured
begins with a gradient and ends with the mean.  The peer is `torch.distributed.all_reduce` with gloo, in an environment of
its own.  Groups of two and of four processes take turns with it, each turn some steps of one size; a rate is the vector's
bytes by the slowest member's time.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.interleaving import take_turns
from benchmarks.processes import quiet_environment
from benchmarks.rows import Row, Skipped

__all__ = ["measure"]

COUNTS = (2, 4)
# Megabytes of float32, and how many times gloo's rate is wanted.
SIZES = {1: 1.5, 10: 1.1, 100: 1.0}
TURN_BYTES = (
    300_000_000  # that the steps of a turn exchange: of the largest size too, a first step is not alone
)
MOST_STEPS = 40
FEWEST_TURNS = 7
GLOO_PYTHON = Path(__file__).parent.parent / "build" / "gloo" / "bin" / "python"


@dataclass
class _Group:
    """Processes that do something together when they are told to."""

    processes: list["subprocess.Popen[str]"]
    cpu_s: dict[tuple[str, int], list[float]] = field(default_factory=dict)  # of a step and process

    def run(self, what: str, megabytes: int) -> float:
        """Have all processes take some steps; return bytes of the vector a second."""
        floats = megabytes * 250_000
        steps = min(MOST_STEPS, max(1, TURN_BYTES // (4 * floats)))
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{what} {floats} {steps}\n")
            process.stdin.flush()
        answers = [_answer(process) for process in self.processes]
        cpu_s = sum(cpu_s for _, cpu_s in answers) / steps / len(answers)
        self.cpu_s.setdefault((what, megabytes), []).append(cpu_s)
        return 4 * floats * steps / max(seconds for seconds, _ in answers)

    def cpu_s_per_gb(self, what: str, megabytes: int) -> float:
        """Return the processor's seconds of a process for each GB of the vector."""
        return median(self.cpu_s[what, megabytes]) / (megabytes / 1000)


def measure() -> list[Row | Skipped]:
    """Let groups of all sizes take turns; takes about three minutes."""
    rows: list[Row | Skipped] = []
    for count in COUNTS:
        with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder, ExitStack() as stack:
            ours = stack.enter_context(_group("-m", "benchmarks.exchange_member", count=count, place=folder))
            gloo = _gloo(stack, count, folder)
            for megabytes in SIZES:
                rows.append(_compare(count, megabytes, ours, gloo))
    return rows


def _compare(count: int, megabytes: int, ours: _Group, gloo: _Group | None) -> Row | Skipped:
    title = f"exchange of a step, {count} members, {megabytes} MB"
    if gloo is None:
        return Skipped(title, f"needs a Python with torch: {GLOO_PYTHON}, or EDLZ_BENCH_GLOO")
    contenders: dict[str, Callable[[], float]] = {
        "ours": lambda: ours.run("exchange", megabytes),
        "gloo": lambda: gloo.run("exchange", megabytes),
        "copies": lambda: ours.run("copy", megabytes),
    }
    figures = take_turns(contenders, fewest=FEWEST_TURNS)
    costs = [group.cpu_s_per_gb("exchange", megabytes) for group in (ours, gloo)]
    return Row(
        title,
        f"{_rate(figures.median('ours'))}, CPU {costs[0]:.2f} s/GB",
        f"gloo {_rate(figures.median('gloo'))}, CPU {costs[1]:.2f} s/GB; copies {_rate(figures.median('copies'))}",
        figures.ratio("ours", "gloo"),
        SIZES[megabytes],
        True,
    )


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.0f} MB/s"


def _gloo(stack: ExitStack, count: int, folder: str) -> _Group | None:
    python = Path(os.environ.get("EDLZ_BENCH_GLOO", GLOO_PYTHON))
    if not python.exists():
        return None
    script = str(Path(__file__).with_name("gloo_member.py"))
    return stack.enter_context(_group(script, count=count, place=f"{folder}/gloo", python=str(python)))


@contextlib.contextmanager
def _group(*script: str, count: int, place: str, python: str = sys.executable) -> Iterator[_Group]:
    processes = [
        subprocess.Popen(
            [python, *script, str(rank), str(count), place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=quiet_environment(),
        )
        for rank in range(count)
    ]
    try:
        yield _Group(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _answer(process: "subprocess.Popen[str]") -> tuple[float, float]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} has ended with {process.wait()}")
    seconds, cpu_s = line.split()
    return float(seconds), float(cpu_s)
