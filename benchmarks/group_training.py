"""All-reduce jobs beside plain TensorFlow loops: their speed, what a loss and a join cost them, and their memory.

Speed: MNIST's convolutional net with two workers, each on a processor of its own, beside two plain loops that run at the same
time.  Losses and joins: the same job under `edlz train`; workers log each step, and seconds are taken from their logs.  Memory: a
dense net of 50 million parameters with Adam (wide_model.py), of which two members write checkpoints; of each process the
most that it ever had resident, which is what a container is killed for, beside that of a plain loop of the net.
"""

import asyncio
import itertools
import statistics
import tempfile
from pathlib import Path

from benchmarks.local_job import run_job
from benchmarks.rows import Row
from benchmarks.supervised_job import SupervisedJob
from benchmarks.training import BATCH, MODEL, PlainLoop
from edlz.model_zoo.datasets import built_in_sample

__all__ = ["measure"]

ROUNDS, EPOCHS, LOG_EVERY = 3, 6, 20
LEAST_SPEED = 0.9
GAP_S, JOINED_S, SPARE_S = 1.0, 12.0, 2.0
STEPS, AROUND_S = 20, 3.0  # that a job takes in peace; before and after a join
WIDE = Path(__file__).with_name("wide_model.py")
WIDE_BATCH, WIDE_STEPS, CHECKPOINT_STEPS = 16, 24, 10
WIDE_FLOATS = 3 * 49_905_610  # parameters and Adam's two slots
MOST_MEMORY = 2.4  # times parameters and slots


def measure() -> list[Row]:
    """Run all jobs; takes about six minutes."""
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        place = Path(folder)
        data = built_in_sample(place / "data")
        return [
            _speed(place, data),
            *asyncio.run(_lose_and_join(place / "lost", data)),
            asyncio.run(_lose_with_spare(place / "spare", data)),
            _memory(place, data),
        ]


def _speed(place: Path, data: Path) -> Row:
    ours, plain = [], []
    for number in range(ROUNDS):
        loops = [PlainLoop(data, processor) for processor in range(2)]
        plain.append(sum(loop.result()[0] for loop in loops) * BATCH)
        flags = [
            f"--model_def={MODEL}",
            f"--training_data={data}/train",
            f"--num_epochs={EPOCHS}",
            f"--minibatch_size={BATCH}",
            "--grads_to_wait=2",
            "--worker_threads=1",
            f"--log_loss_steps={LOG_EVERY}",
        ]
        about = {"workers": ({0}, {1}), "others": {0, 1}, "is_group": True}
        job = run_job(place / f"speed-{number}", flags, from_step=2 * LOG_EVERY, **about)  # type: ignore[arg-type]
        ours.append(job.steps_per_s * 2 * BATCH)
    return Row(
        f"MNIST CNN, batch {BATCH}, all-reduce of 2 workers",
        f"{statistics.median(ours):.0f} records/s",
        f"{statistics.median(plain):.0f} records/s, 2 plain loops",
        statistics.median(job / loops for job, loops in zip(ours, plain, strict=True)),
        LEAST_SPEED,
        True,
    )


def _job(home: Path, data: Path, *more: str) -> SupervisedJob:
    flags = [
        "--distribution_strategy=AllreduceStrategy",
        f"--model_def={MODEL}",
        f"--training_data={data}/train",
        "--num_epochs=200",
        f"--minibatch_size={BATCH}",
        "--grads_to_wait=2",
        "--worker_threads=1",
        "--progress=plain",
        "--log_loss_steps=1",
        *more,
    ]
    return SupervisedJob(home, flags)


async def _until_trains(job: SupervisedJob, *names: str) -> None:
    await job.watch(
        lambda _: all(len(job.steps(name)) >= STEPS for name in names), f"{STEPS} steps of {names}"
    )


async def _lose_and_join(home: Path, data: Path) -> list[Row]:
    async with _job(home, data, "--num_workers=2") as job:
        await _until_trains(job, "worker-0", "worker-1")
        killed_s = job.kill("worker-1")
        await _until_trains(job, "worker-2")
        stays, joins = job.steps("worker-0"), job.steps("worker-2")[0]
        await job.watch_for(AROUND_S)
        return [
            _seconds("member killed: longest gap of the other", _longest_gap_s(stays, killed_s), GAP_S),
            _seconds("member killed: its replacement's first gradient", joins - killed_s, JOINED_S),
            _seconds("member joins: longest gap of the other", _longest_gap_s(stays, joins), GAP_S),
        ]


async def _lose_with_spare(home: Path, data: Path) -> Row:
    async with _job(home, data, "--num_workers=1", "--warm_spares=1") as job:
        names = ("worker-0", "worker-1")
        await job.watch(lambda _: all("model built" in job.log(name) for name in names), "a spare")
        await job.watch(lambda _: any(len(job.steps(name)) >= STEPS for name in names), f"{STEPS} steps")
        trains, spare = sorted(names, key=lambda name: -len(job.steps(name)))
        killed_s = job.kill(trains)
        await _until_trains(job, spare)
        return _seconds(
            "member killed: a warm spare's first gradient", job.steps(spare)[0] - killed_s, SPARE_S
        )


def _longest_gap_s(steps: list[float], around_s: float) -> float:
    """Return the longest time between two steps that are near a moment."""
    pairs = itertools.pairwise(steps)
    near = [(a, b) for a, b in pairs if b > around_s - AROUND_S and a < around_s + AROUND_S]
    return max(after - before for before, after in near)


def _seconds(measure: str, taken_s: float, limit_s: float) -> Row:
    return Row(measure, f"{taken_s:.2f} s", f"limit {limit_s:g} s", taken_s / limit_s, 1.0, False)


def _memory(place: Path, data: Path) -> Row:
    about = {"model": "benchmarks.wide_model", "steps": WIDE_STEPS, "size": WIDE_BATCH}
    plain_bytes = PlainLoop(data, **about).result()[1]  # type: ignore[arg-type]
    flags = [
        f"--model_file={WIDE}",
        f"--training_data={data}/train",
        f"--max_step={WIDE_STEPS}",
        f"--minibatch_size={WIDE_BATCH}",
        "--grads_to_wait=2",
        "--worker_threads=1",
        "--log_loss_steps=1",
        f"--checkpoint_steps={CHECKPOINT_STEPS}",
    ]
    job = run_job(place / "wide", flags, from_step=1, workers=({0}, {1}), others={0, 1}, is_group=True)
    state_bytes = 4 * WIDE_FLOATS
    more_bytes = job.peak_bytes - plain_bytes
    return Row(
        "50M parameters, Adam: memory of a member beyond a plain loop's / parameters and slots",
        f"{job.peak_bytes / 1e6:.0f} MB",
        f"{plain_bytes / 1e6:.0f} MB, plain loop",
        more_bytes / state_bytes,
        MOST_MEMORY,
        False,
    )
