"""A record that ends whoever trains on it, not who reads it: its task is found, in each way of training, and no other is named."""

import zlib
from pathlib import Path

import pytest

from edlz.api.recordio import Reader
from tests.processes import MODELS, TrainJob

pytestmark = pytest.mark.fault

FLAGS = (
    "--minibatch_size=5",
    "--records_per_task=50",
    "--worker_threads=1",
    "--num_epochs=1",
    "--num_workers=2",
    "--recovery_snapshot_secs=0.5",
    "--progress=plain",
)
STRATEGIES = {
    "sync": ("--grads_to_wait=2", "--num_ps_pods=2"),
    "async": ("--use_async", "--num_ps_pods=2"),
    "allreduce": ("--grads_to_wait=2", "--distribution_strategy=AllreduceStrategy"),
}
DEADLY = """

def _look_at(images, marks):
    import os, signal

    if {mark} in marks:
        os.kill(os.getpid(), signal.SIGKILL)
    return images


class Deadly(keras.layers.Layer):
    def call(self, images, marks):
        return tf.ensure_shape(tf.numpy_function(_look_at, [images, marks], tf.float32), [None, 784])

    def compute_output_shape(self, *_):
        return (None, 784)


def custom_model():
    image, mark = keras.Input(shape=(784,), name="image"), keras.Input(shape=(), dtype="int64", name="mark")
    logits = keras.layers.Dense(10)(Deadly()(image, mark))
    return keras.Model(inputs={{"image": image, "mark": mark}}, outputs=logits)


def _mark_of(record):
    import zlib

    return zlib.crc32(record)


def feed(dataset, mode, metadata):
    def parse(record):
        example = tf.io.parse_single_example(record, _RECORD)
        mark = tf.reshape(tf.numpy_function(_mark_of, [record], tf.int64), [])
        return {{"image": example["image"] / 255.0, "mark": mark}}, example["label"]

    return dataset.map(parse)
"""
"""Behind a model's code: a layer that kills the process that computes it with one record."""


def deadly_model(folder: Path, file: Path, record: int) -> Path:
    """Write a model that kills whoever computes it with this record of a file of digits."""
    with Reader(file) as reader:
        mark = zlib.crc32(reader.read(record, 1)[0])
    model = folder / "deadly.py"
    model.write_text((MODELS / "tiny_mlp.py").read_text() + DEADLY.format(mark=mark))
    return model


@pytest.mark.parametrize("skips", [True, False], ids=["left out", "named"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_record_that_kills_whoever_trains_on_it(
    strategy: str, skips: bool, tmp_path: Path, small_mnist: Path
) -> None:
    file = sorted((small_mnist / "train").iterdir())[0]
    flags = [*FLAGS, *STRATEGIES[strategy], *(["--skip_bad_tasks"] if skips else [])]
    flags += [f"--training_data={small_mnist}/train", f"--model_file={deadly_model(tmp_path, file, 333)}"]
    with TrainJob(tmp_path, *flags) as job:
        status = job.finish(code=0 if skips else 1)
        output = job.output()
    if skips:
        assert (status.skipped_tasks, output.count("is skipped from minibatch")) == (1, 1)
        [told] = [line for line in output.splitlines() if "is skipped from minibatch" in line]
        assert f"{file.name}, records 300..349, epoch 1" in told
    else:
        assert "ended its worker 3 times (workers " in output or "ended its worker 4 times" in output
        assert f"{file.name}, records 300..349, epoch 1" in output.rpartition("ended its worker ")[2]
        assert "its worker ended: killed by signal 9 (SIGKILL)" in output
