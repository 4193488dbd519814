"""What a job exports at its end predicts what the job's own checkpoint does, in Python and in C++."""

import json
from pathlib import Path

import numpy as np
import pytest

from edlz.api.recordio import Reader, Writer
from edlz.model_zoo.datasets import convert
from edlz.services.predictions.output import read_manifest
from tests.exported import Call, run_in_python, run_session
from tests.processes import TrainJob

pytestmark = pytest.mark.slow

MINIBATCH = 64
MODELS = {
    "mnist.mnist_functional_api.custom_model": "mnist",
    "census.wide_deep.custom_model": "adult",
    "criteo.deepfm.custom_model": "criteo-generated",
}


MEMBERS = ("--distribution_strategy=AllreduceStrategy", "--num_workers=2")


@pytest.mark.parametrize(
    ("name", "who"), [*((name, ("--num_ps_pods=2",)) for name in MODELS), (next(iter(MODELS)), MEMBERS)]
)
def test_what_a_job_exports_at_its_end(
    name: str, who: tuple[str, ...], tmp_path: Path, mnist_sample: Path
) -> None:
    """It predicts what `edlz predict` does with the checkpoint of the same state."""
    data = mnist_sample / "train"
    if (data_set := MODELS[name]) != "mnist":
        convert(data_set, None, tmp_path / "data", records=500 if "generated" in data_set else None)
        data = tmp_path / "data" / "train"
    with Reader(min(data.iterdir())) as reader:
        records = reader.read(0, MINIBATCH)
    with Writer(tmp_path / "few") as writer:
        for record in records:
            writer.write(record)
    model = (f"--model_def={name}", "--worker_threads=2", f"--minibatch_size={MINIBATCH}", *who)
    flags = (f"--training_data={data}", f"--output={tmp_path}/out", "--checkpoint_steps=100000")
    with TrainJob(tmp_path, *model, *flags) as job:
        exported = job.finish().exported
    assert exported is not None
    rows = tmp_path / "rows"
    flags = (f"--prediction_data={tmp_path}/few", f"--prediction_output={rows}")
    begin = f"--checkpoint_dir_for_init={job.folder}/checkpoints"
    with TrainJob(tmp_path, *model, *flags, begin, name="predicted", command="predict") as predicted:
        assert predicted.finish().records == MINIBATCH
    manifest = read_manifest(rows)
    assert manifest is not None
    lines = [line for part in manifest.parts for line in (rows / part.file).read_text().splitlines()]
    expected = np.array(
        [next(v for k, v in json.loads(line).items() if k != "record") for line in lines], np.float32
    )

    call = Call(Path(exported.place), {}, {"examples": records}, "examples")
    for run in (run_in_python, run_session):
        (found,) = run([call], tmp_path)
        assert found["output_0"].reshape(expected.shape).tobytes() == expected.tobytes(), run.__name__
