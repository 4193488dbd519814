"""What the loss of a process costs a job: a worker, a parameter server with 1M rows, the master.

The job is the click-through model (ctr_model.py), asynchronous, under `edlz train`; workers log every step.
The snapshots' cost is the difference of two jobs, with and without them.
"""

import asyncio
import itertools
import re
import statistics
import tempfile
from pathlib import Path

from benchmarks.ctr_data import VOCABULARY, write_records
from benchmarks.local_job import run_job
from benchmarks.rows import Row
from benchmarks.supervised_job import Sample, SupervisedJob

__all__ = ["measure"]

RECORDS, BATCH, EPOCHS = 131_072, 512, 100
MODEL = Path(__file__).parent / "ctr_model.py"
INTERVAL_S, NEVER_S = 30.0, 3_600.0  # of recovery snapshots: the default, and none
BEFORE_S = 5.0  # that the rate before a loss is taken from
BACK_S = 0.5  # a status that comes sooner after a loss was on its way before
GAP_S, LEASE_S, REPLACED_S, SPARE_S, SERVING_S, LOST_S = 1.0, 1.0, 8.0, 2.0, 3.0, 5.0
ROWS_SHARE = 0.95  # of 1M rows: 131,072 records of 26 uniform ids make 0.97 of them
ROUNDS, COST_EPOCHS, LOG_EVERY = 2, 40, 64
LEAST_WITH_SNAPSHOTS, LEAST_WITHOUT_MASTER = 0.97, 0.8


def measure() -> list[Row]:
    """Disturb jobs in all ways; takes about ten minutes."""
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        place = Path(folder)
        data = place / "records"
        write_records(data, RECORDS)
        rows = asyncio.run(_lose_worker(place / "w", data))
        rows += asyncio.run(_lose_worker_with_spare(place / "s", data))
        uniform = place / "uniform"
        write_records(uniform, RECORDS, is_uniform=True)
        rows += asyncio.run(_lose_server(place / "p", uniform))
        rows += asyncio.run(_lose_master(place / "m", data))
        return [*rows, _cost_of_snapshots(place, uniform)]


def _flags(data: Path, *more: str) -> list[str]:
    return [
        f"--model_file={MODEL}",
        f"--training_data={data}",
        "--use_async",
        f"--num_epochs={EPOCHS}",
        f"--minibatch_size={BATCH}",
        "--num_minibatches_per_task=4",
        "--worker_threads=1",
        "--progress=plain",
        "--log_loss_steps=1",
        f"--recovery_snapshot_secs={INTERVAL_S:g}",
        *more,
    ]


def _seconds(measure: str, taken_s: float, limit_s: float) -> Row:
    return Row(measure, f"{taken_s:.2f} s", f"limit {limit_s:g} s", taken_s / limit_s, 1.0, False)


async def _until_both_train(job: SupervisedJob) -> None:
    def both(sample: Sample) -> bool:
        return sum(worker.state == "training" for worker in sample.status.workers) >= 2

    await job.watch(both, "two workers that train")
    await job.watch_for(5.0)


async def _lose_worker(home: Path, data: Path) -> list[Row]:
    async with SupervisedJob(home, _flags(data, "--num_workers=2")) as job:
        await _until_both_train(job)
        killed_s = job.kill("worker-0")
        lost = await job.watch_event("worker-0 lost")
        tasks = _lost_tasks(lost)
        taken = await job.watch(
            lambda sample: any(worker.task in tasks for worker in sample.status.workers if worker.id != "0"),
            "another worker on the lost task",
        )
        trains = await job.watch_event("worker-2 training after")
        return [
            _seconds(
                "worker killed: longest gap between two gradients of the others",
                _longest_gap_s(job.steps("worker-1"), killed_s, trains.at_s),
                GAP_S,
            ),
            _seconds("worker killed: its task is worked on again", taken.at_s - killed_s, LEASE_S),
            _seconds("worker killed: its replacement's first gradient", trains.at_s - killed_s, REPLACED_S),
        ]


def _longest_gap_s(steps: list[float], from_s: float, to_s: float) -> float:
    """Return the longest time without a step in this interval."""
    moments = [from_s, *(step for step in steps if from_s < step < to_s), to_s]
    return max(after - before for before, after in itertools.pairwise(moments))


def _lost_tasks(sample: Sample) -> set[int]:
    text = next(event.text for event in sample.status.events if "worker-0 lost" in event.text)
    found = re.search(r"Task ([\d, ]+) goes on", text)
    if found is None:
        raise RuntimeError(f"no task was lost: {text}")
    return {int(task) for task in found[1].split(",")}


async def _lose_worker_with_spare(home: Path, data: Path) -> list[Row]:
    async with SupervisedJob(home, _flags(data, "--num_workers=1", "--warm_spares=1")) as job:
        await job.watch(lambda sample: sample.status.version > 50, "version 50")
        await job.watch(
            lambda _: all("model built" in job.log(f"worker-{n}") for n in (0, 1)), "a spare that is ready"
        )
        trains = next(worker.id for worker in job.status.workers if worker.state == "training")
        killed_s = job.kill(f"worker-{trains}")
        taken = await job.watch_event("has taken over after")
        return [_seconds("the only worker killed: a spare's first gradient", taken.at_s - killed_s, SPARE_S)]


async def _lose_server(home: Path, data: Path) -> list[Row]:
    async with SupervisedJob(home, _flags(data, "--num_workers=2", "--num_ps_pods=1")) as job:
        await _until_both_train(job)
        full = int(ROWS_SHARE * VOCABULARY)
        has_rows = await job.watch(
            lambda sample: sum(p.rows for p in sample.status.partitions) > full, "1M rows"
        )
        at = await job.watch(
            lambda sample: (sample.status.snapshot or 0) >= has_rows.status.version, "a snapshot of them"
        )
        killed_s = job.kill("ps-0")
        await job.watch_event("ps-0 is back")
        again = await job.watch(
            lambda sample: sample.status.version >= at.status.version, "the version again"
        )
        steps = sorted(step for name in ("worker-0", "worker-1") for step in job.steps(name))
        return [
            _seconds(
                "ps killed at 1M rows: longest time without a gradient",
                _longest_gap_s(steps, killed_s, again.at_s),
                SERVING_S,
            ),
            _seconds(
                "ps killed at 1M rows: time lost by the job",
                again.at_s - killed_s,
                INTERVAL_S + LOST_S,
            ),
        ]


async def _lose_master(home: Path, data: Path) -> list[Row]:
    # Tasks that last for longer than the master is away: with nothing to do, a worker would wait for it.
    flags = _flags(data, "--num_workers=2", "--num_minibatches_per_task=128")
    async with SupervisedJob(home, flags) as job:
        await _until_both_train(job)
        done = job.status.tasks_done
        killed_s = job.kill("master")
        away = await job.watch(
            lambda sample: sample.at_s > killed_s + BACK_S and sample.status.state == "Training",
            "a master that leads the training again",
        )
        if away.status.tasks_done < done:
            raise RuntimeError(
                f"{done} tasks were done before the master's loss, {away.status.tasks_done} after"
            )
        away_s = away.at_s - killed_s
        steps = [step for name in ("worker-0", "worker-1") for step in job.steps(name)]
        rate = sum(killed_s - BEFORE_S < step < killed_s for step in steps) / BEFORE_S
        meanwhile = sum(killed_s < step < away.at_s for step in steps) / away_s
        return [
            Row(
                f"master killed: gradients a second while it was away ({away_s:.1f} s)",
                f"{meanwhile:.1f}/s",
                f"before {rate:.1f}/s",
                meanwhile / rate,
                LEAST_WITHOUT_MASTER,
                True,
            )
        ]


def _cost_of_snapshots(place: Path, data: Path) -> Row:
    speeds: dict[float, list[float]] = {INTERVAL_S: [], NEVER_S: []}
    for number in range(ROUNDS):
        for every_s, found in speeds.items():
            flags = [
                f"--model_file={MODEL}",
                f"--training_data={data}",
                "--use_async",
                f"--num_epochs={COST_EPOCHS}",
                f"--minibatch_size={BATCH}",
                "--worker_threads=1",
                f"--log_loss_steps={LOG_EVERY}",
                f"--recovery_snapshot_secs={every_s:g}",
            ]
            speed = run_job(place / f"c{number}-{every_s:.0f}", flags, from_step=RECORDS // BATCH)
            found.append(speed.steps_per_s)
    with_, without = (statistics.median(found) for found in speeds.values())
    return Row(
        f"snapshots of 1M rows every {INTERVAL_S:g} s: steps/s",
        f"{with_:.1f}/s",
        f"without {without:.1f}/s",
        with_ / without,
        LEAST_WITH_SNAPSHOTS,
        True,
    )
