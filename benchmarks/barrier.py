"""What callbacks that decide cost a job at each barrier, beside one drain of its pipeline.

MNIST with one worker and one parameter server, evaluated every 20 versions on 640 records, with EarlyStopping and
without callbacks in turn.  A *round* is from the first step behind a multiple of 20 to the first one behind the next. Both
jobs compute the same steps and the same evaluation in it, so what a barrier costs is how much longer the worker's engine
has nothing to do.

A *drain* is how long the pipeline takes to run empty and to fill again: from the end of the last step before a multiple of 20 until
the next one begins, less what the engine does meanwhile, in a job that evaluates nothing and whose worker takes no task behind before it has
finished all those before.  (From the last push until it is answered, as it was measured before, is but the first part
of that: then the task is reported, another one is leased, and its parameters are pulled, each a way there and back.)
"""

import itertools
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import start
from benchmarks.rows import Row
from edlz.api.recordio import Reader, Writer
from edlz.model_zoo.datasets import built_in_sample

__all__ = ["measure"]

TURNS, EPOCHS, EVERY, BATCH = 3, 3, 20, 64
TASK = 5 * BATCH  # records: the tasks before a multiple of EVERY end there
TRAINED, EVALUATED = 15 * TASK, 2 * TASK
JOB_S, LOG_TAIL = 300.0, 3_000
WARM_ROUNDS = 2  # they do not count: graphs are traced, memory is touched
MOST = 1.0  # drains that a barrier may cost

MODEL = """
from edlz.model_zoo.mnist.mnist_functional_api import custom_model, eval_metrics_fn, feed, loss, optimizer
"""
CALLBACKS = """
import keras

def callbacks():
    return [keras.callbacks.EarlyStopping("val_accuracy", mode="max", patience=10**6)]
"""


@dataclass(frozen=True)
class Trace:
    """What a worker noted: (kind, begun, ended) of its engine's work."""

    work: list[tuple[str, float, float]]

    def idle_s(self, steps: int) -> list[float]:
        """Return how long the engine had nothing to do in so many steps before each barrier's end, those of the beginning left out."""
        places = [place for place, (kind, _, _) in enumerate(self.work) if kind == "step"]
        ends = range((WARM_ROUNDS + 1) * EVERY, len(places), EVERY)
        rounds = [self.work[places[end - steps] : places[end] + 1] for end in ends]
        return [sum(b[1] - a[2] for a, b in itertools.pairwise(pieces)) for pieces in rounds]


@dataclass(frozen=True)
class Kind:
    """A job that is measured: over so many steps before the end of each round.

    `drains`: it evaluates nothing, and its worker lets its pipeline run empty behind each round.
    """

    model: str
    steps: int
    drains: bool = False


KINDS = {
    "held": Kind(MODEL + CALLBACKS, EVERY),
    "free": Kind(MODEL, EVERY),
    "drained": Kind(MODEL, 1, drains=True),
}


def measure() -> list[Row]:
    """Run all jobs in turn; takes about four minutes on a quiet machine."""
    idle_s: dict[str, list[float]] = {name: [] for name in KINDS}
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as name:
        folder = Path(name)
        make_data(folder)
        for turn, kind in itertools.product(range(TURNS), KINDS):
            idle_s[kind] += run(folder, f"{kind}-{turn}", KINDS[kind]).idle_s(KINDS[kind].steps)
    medians = {kind: statistics.median(seconds) for kind, seconds in idle_s.items()}
    cost, drain = medians["held"] - medians["free"], medians["drained"]
    return [
        Row(
            f"EarlyStopping every {EVERY} versions, waiting at a barrier",
            f"{1e3 * cost:.1f} ms",
            f"{1e3 * drain:.1f} ms, one drain",
            cost / drain,
            MOST,
            False,
        )
    ]


def make_data(folder: Path) -> None:
    """Make the data of all jobs: whole tasks, so that barriers stand behind the same numbers of minibatches."""
    sample = built_in_sample(folder / "sample")
    for part, count in (("train", TRAINED), ("test", EVALUATED)):
        with Reader(sorted((sample / part).iterdir())[0]) as reader:
            records = reader.read(0, len(reader))
        (folder / part).mkdir()
        with Writer(folder / part / "part-0") as writer:
            for number in range(count):
                writer.write(records[number % len(records)])


def run(data: Path, name: str, kind: Kind) -> Trace:
    """Run a job in a folder beside its data; return what its worker noted.

    Raises
    ------
    RuntimeError
        If a process fails, or the job does not end.
    """
    folder = data / name
    folder.mkdir()
    (folder / "model.py").write_text(kind.model)
    master, job = f"ipc://{folder}/m", f"--job_dir={folder}"
    flags = [
        f"--model_file={folder}/model.py",
        f"--training_data={data}/train",
        f"--num_epochs={EPOCHS}",
        f"--minibatch_size={BATCH}",
        f"--records_per_task={TASK}",
        "--num_ps_pods=1",
        "--worker_threads=1",
    ]
    drains = ["--drain_behind", str(EVERY * BATCH // TASK)] if kind.drains else []
    if not kind.drains:
        flags += [f"--validation_data={data}/test", f"--evaluation_steps={EVERY}"]
    trace = folder / "trace.json"
    services = {
        "master": (["edlz.services.master", f"--endpoint={master}", job, *flags], {1}),
        "ps": (
            ["edlz.services.ps", "--ps_id=0", f"--endpoint=ipc://{folder}/p", f"--master_addr={master}", job],
            {1},
        ),
        "worker": (
            ["benchmarks.traced_worker", str(trace), *drains, "--worker_id=0", f"--master_addr={master}"],
            {0},
        ),
    }
    processes = [start(folder / f"{each}.log", *about) for each, about in services.items()]
    end = time.monotonic() + JOB_S
    try:
        while any(process.poll() is None for process in processes) and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if any(process.returncode for process in processes):
        logs = "\n".join(f"--- {path.name}\n{path.read_text()[-LOG_TAIL:]}" for path in folder.glob("*.log"))
        raise RuntimeError(f"the job failed, or does not end within {JOB_S:.0f} s\n{logs}")
    found = json.loads(trace.read_text())
    return Trace([tuple(each) for each in found])
