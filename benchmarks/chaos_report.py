"""What the chaos runs print: a line for each run, how to repeat a failed one, and a sum."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.chaos_schedule import Fault, Schedule

__all__ = ["Run", "line_of", "summary_of"]


@dataclass(frozen=True)
class Run:
    """One schedule, and how it went.

    Attributes
    ----------
    schedule : Schedule
        What was carried out of it.
    took_s : float
    minibatches : int
        Of the plan.
    problems : tuple of str
        Empty if all promises were kept.
    folder : str
        Where a failed run is kept.
    command : str
        What repeats it.
    left_out : tuple of Fault
        What the schedule had besides, and this machine cannot do.
    """

    schedule: Schedule
    took_s: float
    minibatches: int = 0
    problems: tuple[str, ...] = ()
    folder: str = ""
    command: str = ""
    left_out: tuple[Fault, ...] = ()


def line_of(run: Run) -> str:
    """Return the run's line, and if it failed a few more."""
    schedule = run.schedule
    servers = f" {schedule.partitions}ps" if schedule.partitions else ""
    about = f"seed {schedule.seed} {schedule.mode} {schedule.workers}w{servers}"
    faults = "; ".join(map(str, schedule.faults))
    left_out = f"  left out: {'; '.join(map(str, run.left_out))}" if run.left_out else ""
    end = f"{run.took_s:.1f}s  {about}  {faults}{left_out}"
    if not run.problems:
        same = "" if schedule.mode == "async" else ", same bits"
        return f"ok      {run.minibatches} minibatches once{same}  {end}"
    lines = [f"FAILED  {end}", *(f"        {problem}" for problem in run.problems)]
    return "\n".join([*lines, f"        kept    {run.folder}", f"        repeat  {run.command}"])


def summary_of(runs: Sequence[Run]) -> str:
    """Return how many runs there were, how many failed, and what happened to whom."""
    failed = [run for run in runs if run.problems]
    hits = Counter(
        f"{fault.kind} {fault.target.partition('-')[0]}" for run in runs for fault in run.schedule.faults
    )
    parts = ", ".join(f"{count} {name}" for name, count in sorted(hits.items()))
    seeds = f" (seeds {', '.join(str(run.schedule.seed) for run in failed)})" if failed else ""
    left_out = sum(len(run.left_out) for run in runs)
    rest = f"; {left_out} disk full left out (only root can mount a small disk)" if left_out else ""
    return f"{len(runs)} runs, {len(failed)} failed{seeds}; {sum(hits.values())} faults: {parts}{rest}"
