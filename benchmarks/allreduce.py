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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.interleaving import Figures, take_turns
from benchmarks.processes import quiet_environment
from benchmarks.rows import Row, Skipped

__all__ = ["measure"]

COUNTS = (2, 4)
# Megabytes of float32, and how many times gloo's rate is wanted.
SIZES = {1: 1.5, 10: 1.1, 100: 1.0}
TURN_BYTES = 100_000_000  # that the steps of a turn exchange, or one step more
MOST_STEPS = 40
MOST_COPIES = {1: 6.0, 10: 6.0, 100: 6.0}  # times that plain copies take
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
    """Let groups of all sizes take turns; takes about two minutes."""
    rows: list[Row | Skipped] = []
    for count in COUNTS:
        with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder, ExitStack() as stack:
            ours = stack.enter_context(_group("-m", "benchmarks.exchange_member", count=count, place=folder))
            gloo = _gloo(stack, count, folder)
            for megabytes in SIZES:
                rows += _compare(count, megabytes, ours, gloo)
    return rows


def _compare(count: int, megabytes: int, ours: _Group, gloo: _Group | None) -> list[Row | Skipped]:
    contenders: dict[str, Callable[[], float]] = {
        "ours": lambda: ours.run("exchange", megabytes),
        "copies": lambda: ours.run("copy", megabytes),
    }
    if gloo is not None:
        contenders["gloo"] = lambda: gloo.run("exchange", megabytes)
    figures = take_turns(contenders)
    title = f"exchange of a step, {count} members, {megabytes} MB"
    rows: list[Row | Skipped] = []
    if gloo is None:
        reason = f"needs a Python with torch: {GLOO_PYTHON}, or EDLZ_BENCH_GLOO"
        rows += [Skipped(f"{title}: rate / gloo's", reason), Skipped(f"{title}: CPU / gloo's", reason)]
    else:
        rows += _beside_gloo(title, megabytes, figures, (ours, gloo))
    copies = figures.ratio("copies", "ours")
    rates = _rate(figures.median("ours")), f"{_rate(figures.median('copies'))}, plain copies"
    rows.append(Row(f"{title}: time / plain copies'", *rates, copies, MOST_COPIES[megabytes], False))
    return rows


def _beside_gloo(title: str, megabytes: int, figures: Figures, groups: Sequence[_Group]) -> list[Row]:
    rates = [_rate(figures.median(name)) for name in ("ours", "gloo")]
    costs = [group.cpu_s_per_gb("exchange", megabytes) for group in groups]
    ratio = figures.ratio("ours", "gloo")
    return [
        Row(f"{title}: rate / gloo's", rates[0], f"{rates[1]}, gloo", ratio, SIZES[megabytes], True),
        Row(
            f"{title}: CPU / gloo's",
            f"{costs[0]:.2f} s/GB",
            f"{costs[1]:.2f} s/GB, gloo",
            costs[0] / costs[1],
            1.0,
            False,
        ),
    ]


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
        raise RuntimeError(f"{process.args} has ended with {process.wait()}")
    seconds, cpu_s = line.split()
    return float(seconds), float(cpu_s)
