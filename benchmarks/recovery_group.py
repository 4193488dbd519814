"""What the loss of a member costs an all-reduce job: the others' gap, the newcomer's first gradient, steps computed twice.

The job is MNIST (model_zoo), under `edlz train`; members log each block of slots that they begin, and the loss of each step.
A step is computed twice if one member has begun its block of it more than once.
"""

import asyncio
import itertools
import re
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.rows import Row
from benchmarks.supervised_job import Sample, SupervisedJob
from edlz.model_zoo.datasets import built_in_sample

__all__ = ["measure"]

MODEL = "mnist.mnist_functional_api.custom_model"
BATCH, EPOCHS, WORKERS, ROUNDS = 64, 1000, 2, 3
GAP_S, NEWCOMER_S, SPARE_S, TWICE = 1.0, 12.0, 2.0, 1
AFTER_S = 3.0  # behind a newcomer's first gradient, for what its coming may cost
_BLOCK = re.compile(r"block of v(\d+): ")


def measure() -> list[Row]:
    """Kill members, without a spare and with one; takes about three minutes."""
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        place = Path(folder)
        data = built_in_sample(place / "data")
        rows = []
        for number in range(ROUNDS):
            rows += asyncio.run(_lose_member(place / f"m{number}", data, NEWCOMER_S))
            rows += asyncio.run(_lose_member(place / f"s{number}", data, SPARE_S, "--warm_spares=1"))
        return [
            _worst([row for row in rows if row.measure == name])
            for name in dict.fromkeys(r.measure for r in rows)
        ]


def _worst(rows: list[Row]) -> Row:
    """Return the one with the greatest ratio."""
    return max(rows, key=lambda row: row.ratio)


async def _lose_member(home: Path, data: Path, newcomer_s: float, *more: str) -> list[Row]:
    flags = [
        f"--model_def={MODEL}",
        f"--training_data={data}/train",
        "--distribution_strategy=AllreduceStrategy",
        f"--num_workers={WORKERS}",
        f"--grads_to_wait={WORKERS}",
        f"--num_epochs={EPOCHS}",
        f"--minibatch_size={BATCH}",
        "--worker_threads=1",
        "--progress=plain",
        "--log_loss_steps=1",
        "--log_level=DEBUG",
        *more,
    ]
    async with SupervisedJob(home, flags) as job:
        workers = [f"worker-{number}" for number in range(WORKERS + len(more))]
        await job.watch(lambda sample: _is_whole(sample), f"{WORKERS} members")
        await job.watch(lambda _: all("model built" in job.log(name) for name in workers), "all models")
        await job.watch_for(5.0)
        members = [f"worker-{number}" for number in job.status.members]
        killed_s, lost, others = job.kill(members[0]), members[0], members[1:]
        await job.watch(
            lambda sample: _is_whole(sample) and lost[7:] not in sample.status.members, "a newcomer"
        )
        [newcomer] = {f"worker-{number}" for number in job.status.members} - set(others)
        await job.watch(lambda _: bool(job.steps(newcomer)), "a newcomer's gradient")
        await job.watch_for(AFTER_S)
        first_s, what = job.steps(newcomer)[0], "a warm spare" if more else "a newcomer"
        gap_s = max(_longest_gap_s(job.steps(name), killed_s) for name in others)
        twice = max(_computed_twice(job.log(name)) for name in others)
        return [
            _row(f"member killed, {what}: longest gap between two gradients of the others", gap_s, GAP_S),
            _row(f"member killed, {what}: its first gradient", first_s - killed_s, newcomer_s),
            Row(
                f"member killed, {what}: steps that another one computed twice",
                f"{twice}",
                f"limit {TWICE}",
                twice / TWICE,
                1.0,
                False,
            ),
        ]


def _is_whole(sample: Sample) -> bool:
    return len(sample.status.members) == WORKERS


def _row(measure: str, taken_s: float, limit_s: float) -> Row:
    return Row(measure, f"{taken_s:.2f} s", f"limit {limit_s:g} s", taken_s / limit_s, 1.0, False)


def _longest_gap_s(steps: list[float], from_s: float) -> float:
    """Return the longest time without a step that ends after this moment."""
    return max(after - before for before, after in itertools.pairwise(steps) if after > from_s)


def _computed_twice(log: str) -> int:
    versions = Counter(_BLOCK.findall(log))
    return sum(count - 1 for count in versions.values())
