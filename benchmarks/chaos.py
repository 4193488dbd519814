"""`python -m benchmarks.chaos`: small jobs whose processes are killed, stopped and cut off, and a recount.

Each run is a whole job of real processes on this machine.  A seed says what happens to which of them at which
version; at the end every minibatch and every evaluated record is counted from what the job has left on the
disk.  The exit code is 1 if a promise was broken.
"""

import argparse
import asyncio
import dataclasses
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from benchmarks.chaos_checks import Outcome, examine, problems_of_group
from benchmarks.chaos_data import EVALUATED, FLAGS, LIKE_GROUP, MODES, VERSIONS, write_data
from benchmarks.chaos_disk import can_mount
from benchmarks.chaos_group_schedule import draw_group
from benchmarks.chaos_job import ChaosJob, Missed
from benchmarks.chaos_report import Run, line_of, summary_of
from benchmarks.chaos_schedule import Fault, Mode, Schedule, draw
from edlz.services.errors import EdlzError

__all__ = ["Chaos", "drawn", "main"]


class Chaos:
    """Runs schedules, all on the same data and in folders of their own.

    Parameters
    ----------
    folder : Path
        For data and runs; those that succeed are removed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = write_data(folder / "data")
        self._digest = cache(self._undisturbed)  # by mode

    def run(self, schedule: Schedule, command: str = "") -> Run:
        """Run a schedule, but for what this machine cannot do, and check the promises."""
        schedule, left_out = _without_mounts(schedule)
        place = self._folder / f"run-{schedule.seed}-{schedule.mode}"
        digest = "" if schedule.mode == "async" else self._digest(schedule.mode)
        began_s = time.monotonic()
        try:
            outcome = self._job(place, MODES[schedule.mode], schedule)
            problems = outcome.problems
            if digest and outcome.digest != digest:
                problems += (f"digest {outcome.digest[:12]}, undisturbed {digest[:12]}",)
        except (Missed, EdlzError, OSError) as error:  # a file that is not there breaks a promise too
            outcome, problems = None, (str(error),)
        took_s = time.monotonic() - began_s
        if problems:
            return Run(schedule, took_s, 0, problems, str(place), command, left_out)
        shutil.rmtree(place)
        return Run(schedule, took_s, outcome.minibatches if outcome else 0, left_out=left_out)

    def _undisturbed(self, mode: Mode) -> str:
        """The digest of the job to which nothing happens; of an all-reduce job, that with a parameter server."""
        flags = LIKE_GROUP if mode == "allreduce" else MODES[mode]
        outcome = self._job(self._folder / f"undisturbed-{mode}", flags, Schedule(0, "sync", 1, 1, ()))
        if outcome.problems:
            raise Missed(f"the undisturbed run failed: {'; '.join(outcome.problems)}")
        return outcome.digest

    def _job(self, place: Path, flags: tuple[str, ...], schedule: Schedule) -> Outcome:
        place.mkdir()
        data = f"--training_data={self._data / 'train'}", f"--validation_data={self._data / 'test'}"

        async def work() -> None:
            about = {"workers": schedule.workers, "partitions": schedule.partitions}
            async with ChaosJob(place, (*FLAGS, *flags, *data), **about) as job:
                await job.run(schedule.faults)

        asyncio.run(work())
        outcome = examine(place / "job", evaluated=EVALUATED)
        if schedule.partitions:
            return outcome
        of_group = problems_of_group(place / "master.log", schedule)
        return dataclasses.replace(outcome, problems=(*outcome.problems, *of_group))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the schedules of some seeds.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default from the command line.

    Returns
    -------
    int
        0 if all promises were kept, otherwise 1; 130 if interrupted.
    """
    options = _parser().parse_args(arguments)
    # As Ctrl-C, so that no process is left behind.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    folder = Path(tempfile.mkdtemp(prefix="edlz-chaos-"))
    chaos = Chaos(folder)
    runs: list[Run] = []
    try:
        _run_all(chaos, options, runs)
    except KeyboardInterrupt:
        print(f"interrupted; what there is lies in {folder}")
        return 130
    finally:
        print(summary_of(runs))
    is_good = not any(run.problems for run in runs)
    if is_good:
        shutil.rmtree(folder)
    return 0 if is_good else 1


def drawn(seed: int, mode: Mode, counts: Sequence[int] = (1, 2, 3)) -> Schedule:
    """Return the schedule of a seed, with so many faults."""
    if mode == "allreduce":
        return draw_group(seed, VERSIONS[mode], counts)
    return draw(seed, mode, VERSIONS[mode], counts)


def _without_mounts(schedule: Schedule) -> tuple[Schedule, tuple[Fault, ...]]:
    """Return what can be carried out by somebody who may not mount a disk, and what is left out then."""
    left_out = tuple(fault for fault in schedule.faults if fault.kind == "full" and not can_mount())
    faults = tuple(fault for fault in schedule.faults if fault not in left_out)
    return dataclasses.replace(schedule, faults=faults), left_out


def _run_all(chaos: Chaos, options: argparse.Namespace, runs: list[Run]) -> None:
    low, high = options.faults
    for number in range(options.runs):
        seed = options.seed + number
        mode, which = _mode(seed, options)
        schedule = drawn(seed, mode, range(low, high + 1))
        command = f"python -m benchmarks.chaos --seed={seed} --runs=1 {which} --faults={low}..{high}"
        runs.append(chaos.run(schedule, command))
        print(line_of(runs[-1]), flush=True)


def _mode(seed: int, options: argparse.Namespace) -> tuple[Mode, str]:
    """Return the mode of a seed's run, and the flag that asks for it."""
    if options.strategy == "allreduce":
        return "allreduce", "--strategy=allreduce"
    mode: Mode = ("sync", "async")[seed % 2] if options.mode == "both" else options.mode
    return mode, f"--mode={mode}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first run; default: 0")
    parser.add_argument("--runs", type=int, default=10, metavar="M", help="seeds N to N+M-1; default: 10")
    parser.add_argument(
        "--strategy", choices=("ps", "allreduce"), default="ps", help="parameter servers (default), or none"
    )
    parser.add_argument(
        "--mode",
        choices=("sync", "async", "both"),
        default="both",
        help="of jobs with parameter servers; both: in turn (default)",
    )
    parser.add_argument(
        "--faults", type=_range, default=(1, 3), metavar="A..B", help="faults in a run; default: 1..3"
    )
    return parser


def _range(text: str) -> tuple[int, int]:
    low, separator, high = text.partition("..")
    try:
        found = int(low), int(high if separator else low)
    except ValueError:
        found = (0, -1)
    if not 0 <= found[0] <= found[1] <= 10:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of faults; write 2 or 1..3, up to 10')
    return found


if __name__ == "__main__":
    sys.exit(main())
