"""Training speed: a job with one worker and one parameter server against a plain TensorFlow loop.

Both train the MNIST net of the model zoo at batch 64 on the same records, with one TensorFlow thread.  The
plain loop and the worker are held to processor 0, master and parameter server to processor 1, so neither
waits for the other's core.  They take turns, and the median of each is compared.  The second row compares
two workers with one at two gradients a step, each worker with a processor of its own.
"""

import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.local_job import run_job
from benchmarks.processes import peak_memory_bytes, pinned, quiet_environment
from benchmarks.rows import Row
from edlz.model_zoo.datasets import built_in_sample

__all__ = ["PlainLoop", "measure"]

MODEL = "mnist.mnist_functional_api.custom_model"
ZOO = "edlz.model_zoo.mnist.mnist_functional_api"
BATCH, EPOCHS, ROUNDS = 64, 2, 3
LOG_EVERY = 20


def measure() -> list[Row]:
    """Run the jobs and the plain loop in turn.

    Returns
    -------
    list of Row
    """
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        place = Path(folder)
        data = built_in_sample(place / "data")
        plain, one, single, double = [], [], [], []
        for number in range(ROUNDS):
            plain.append(PlainLoop(data).result()[0])
            one.append(_job(place / f"one-{number}", data, workers=1, slots=1))
            single.append(_job(place / f"single-{number}", data, workers=1, slots=2))
            double.append(_job(place / f"double-{number}", data, workers=2, slots=2))
    loop, job = statistics.median(plain), statistics.median(one)
    alone, both = statistics.median(single), statistics.median(double)
    return [
        Row(
            "MNIST CNN, batch 64, 1 worker + 1 ps",
            f"{job:.1f} steps/s",
            f"{loop:.1f} steps/s, plain loop",
            job / loop,
            0.9,
            True,
        ),
        Row(
            "same, k=2, 2 workers",
            f"{both:.1f} steps/s",
            f"{alone:.1f} steps/s, 1 worker",
            both / alone,
            1.5,
            True,
        ),
    ]


def _job(folder: Path, data: Path, *, workers: int, slots: int) -> float:
    """Return the steps per second of a whole job."""
    flags = [
        f"--model_def={MODEL}",
        f"--training_data={data}/train",
        f"--num_epochs={EPOCHS}",
        f"--minibatch_size={BATCH}",
        f"--grads_to_wait={slots}",
        "--worker_threads=1",
        f"--log_loss_steps={LOG_EVERY}",
    ]
    # With two workers each has a processor, and the others run where there is room.
    others = {0, 1} if workers > 1 else {1}
    places = [{worker} for worker in range(workers)]
    return run_job(folder, flags, from_step=2 * LOG_EVERY, workers=places, others=others).steps_per_s


class PlainLoop:
    """A process with the loop that a user would write without edlz.

    Parameters
    ----------
    data : Path
        Of MNIST.
    processor : int
        That it is held to.
    model : str
        The model's module.
    steps : int
        So many are taken; 0: some epochs.  The first ones do not count.
    size : int
        Of a minibatch.
    """

    def __init__(
        self,
        data: Path,
        processor: int = 0,
        *,
        model: str = ZOO,
        steps: int = 0,
        size: int = BATCH,
    ) -> None:
        # oneDNN is asked for as the worker asks for it: TensorFlow's default is slower on some machines.
        environment = quiet_environment(TF_ENABLE_ONEDNN_OPTS="1")
        command = [sys.executable, "-m", "benchmarks.training", str(data), model, str(steps), str(size)]
        self._process = subprocess.Popen(
            pinned(command, {processor}), env=environment, stdout=subprocess.PIPE, text=True
        )

    def result(self) -> tuple[float, int]:
        """Wait for its end; return steps a second, and the most memory that it had, in bytes."""
        output, _ = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"the plain loop ended with {self._process.returncode}")
        steps_per_s, peak_bytes = output.split()[-2:]
        return float(steps_per_s), int(peak_bytes)


def _run_plain_loop(data: Path, module: str, steps: int, size: int) -> float:
    import keras
    import tensorflow as tf

    from edlz.api.recordio import Reader

    zoo = importlib.import_module(module)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    records: list[bytes] = []
    for path in sorted((data / "train").iterdir()):
        with Reader(path) as reader:
            records += reader.read(0, len(reader))
    keras.utils.set_random_seed(0)
    model, optimizer = zoo.custom_model(), zoo.optimizer()
    dataset = zoo.feed(tf.data.Dataset.from_tensor_slices(records), "training", None)
    dataset = dataset.batch(size).prefetch(2).repeat(EPOCHS)
    dataset = dataset.take(steps) if steps else dataset

    @tf.function(input_signature=list(dataset.element_spec))
    def step(features, labels):  # type: ignore[no-untyped-def]
        with tf.GradientTape() as tape:
            loss = zoo.loss(labels, model(features, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    warm_up = min(2 * LOG_EVERY, steps // 2) if steps else 2 * LOG_EVERY
    count, began = 0, 0.0
    for features, labels in dataset:
        step(features, labels)
        count += 1
        if count == warm_up:
            began = time.perf_counter()
    return (count - warm_up) / (time.perf_counter() - began)


if __name__ == "__main__":
    speed = _run_plain_loop(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    sys.stdout.write(f"{speed} {peak_memory_bytes(os.getpid())}\n")
