"""Training speed: a job with one worker and one parameter server against a plain TensorFlow loop.

Both train the MNIST net of the model zoo at batch 64 on the same records, with one TensorFlow thread.  The
plain loop and the worker are held to processor 0, master and parameter server to processor 1, so neither
waits for the other's core.  They take turns, and the median of each is compared.  The second row compares
two workers with one at two gradients a step, each worker with a processor of its own.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from benchmarks.rows import Row
from edlz.model_zoo.datasets import built_in_sample

__all__ = ["measure"]

MODEL = "mnist.mnist_functional_api.custom_model"
BATCH, EPOCHS, ROUNDS = 64, 2, 3
LOG_EVERY = 20
_ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
_LOSS = re.compile(r"^\[([\d: ,-]+)\].*Loss = \S+ steps = (\d+)", re.MULTILINE)


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
            plain.append(_plain_loop(data))
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
    """Return the steps per second of a whole job, from the worker's own log lines."""
    folder.mkdir()
    endpoint = f"ipc://{folder}/m"
    common = [f"--master_addr={endpoint}", "--log_level=INFO"]
    master = [
        "edlz.services.master",
        f"--endpoint={endpoint}",
        f"--job_dir={folder}",
        f"--model_def={MODEL}",
        f"--training_data={data}/train",
        "--num_ps_pods=1",
        f"--num_epochs={EPOCHS}",
        f"--minibatch_size={BATCH}",
        f"--grads_to_wait={slots}",
        "--worker_threads=1",
        f"--log_loss_steps={LOG_EVERY}",
    ]
    ps = ["edlz.services.ps", "--ps_id=0", f"--job_dir={folder}", f"--endpoint=ipc://{folder}/p", *common]
    # With two workers each has a processor, and the others run where there is room.
    processes = [
        _start(folder / "master.log", master, {0, 1} if workers > 1 else {1}),
        _start(folder / "ps.log", ps, {0, 1} if workers > 1 else {1}),
    ]
    for worker in range(workers):
        flags = ["edlz.services.worker", f"--worker_id={worker}", *common]
        processes.append(_start(folder / f"worker-{worker}.log", flags, {worker}))
    try:
        for process in processes:
            if process.wait(600):
                raise RuntimeError(
                    f"a service failed; see {folder}:\n{(folder / 'worker-0.log').read_text()}"
                )
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return _rate((folder / "worker-0.log").read_text(), from_step=2 * LOG_EVERY)


def _start(log: Path, arguments: list[str], processors: set[int]) -> subprocess.Popen[bytes]:
    command = _pinned([sys.executable, "-m", *arguments], processors)
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=_ENVIRONMENT)


def _pinned(command: list[str], processors: set[int]) -> list[str]:
    """Return the command held to these processors, where the machine has them and can do so."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        return command
    code = f"import os, sys; os.sched_setaffinity(0, {processors}); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", code, *command]


def _rate(log: str, from_step: int) -> float:
    points = [
        (datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f").timestamp(), int(step))
        for when, step in _LOSS.findall(log)
        if int(step) >= from_step
    ]
    (began, first), (ended, last) = points[0], points[-1]
    return (last - first) / (ended - began)


def _plain_loop(data: Path) -> float:
    """Return the steps per second of the loop that a user would write without edlz."""
    # oneDNN is asked for as the worker asks for it: TensorFlow's default is slower on some machines.
    environment = {**_ENVIRONMENT, "TF_ENABLE_ONEDNN_OPTS": "1"}
    command = _pinned([sys.executable, "-m", "benchmarks.training", str(data)], {0})
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(output.split()[-1])


def _run_plain_loop(data: Path) -> float:
    import keras
    import tensorflow as tf

    from edlz.api.recordio import Reader
    from edlz.model_zoo.mnist import mnist_functional_api as zoo

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    records: list[bytes] = []
    for path in sorted((data / "train").iterdir()):
        with Reader(path) as reader:
            records += reader.read(0, len(reader))
    keras.utils.set_random_seed(0)
    model, optimizer = zoo.custom_model(), zoo.optimizer()
    dataset = zoo.feed(tf.data.Dataset.from_tensor_slices(records), "training", None)
    dataset = dataset.batch(BATCH).prefetch(2).repeat(EPOCHS)

    @tf.function(input_signature=list(dataset.element_spec))
    def step(features, labels):  # type: ignore[no-untyped-def]
        with tf.GradientTape() as tape:
            loss = zoo.loss(labels, model(features, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    count, began = 0, 0.0
    for features, labels in dataset:
        step(features, labels)
        count += 1
        if count == 2 * LOG_EVERY:
            began = time.perf_counter()
    return (count - 2 * LOG_EVERY) / (time.perf_counter() - began)


if __name__ == "__main__":
    sys.stdout.write(f"{_run_plain_loop(Path(sys.argv[1]))}\n")
