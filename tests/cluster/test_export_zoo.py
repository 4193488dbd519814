"""Models of the zoo, exported: three ways to run them give the same bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edlz.api.recordio import Reader
from edlz.model_zoo.datasets import convert
from edlz.services.configuration.job_config import JobConfig
from edlz.services.export.exporter import Export, export_model
from edlz.services.master.planning import make_plan
from edlz.services.storage.whole_cut import WholeCut
from tests.exported import Call, TrainedModel, run_in_python, run_session

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")]

MODELS = {
    "mnist.mnist_functional_api.custom_model": "mnist",
    "mnist.mnist_subclass.CustomModel": "mnist",
    "census.wide_deep.custom_model": "adult",
    "census.feature_columns.custom_model": "adult",
    "census.preprocessing_layers.custom_model": "adult",
    "criteo.deepfm.custom_model": "criteo-generated",
    "criteo.wide_deep.custom_model": "criteo-generated",
}


def test_the_zoo(tmp_path: Path, mnist_sample: Path) -> None:
    data = {"mnist": mnist_sample / "train"}
    for name, records in (("adult", None), ("criteo-generated", 500)):
        convert(name, None, tmp_path / name, records=records)
        data[name] = tmp_path / name / "train"
    expected: list[Any] = []
    calls: list[Call] = []
    of_records: list[Call] = []
    parsed: list[Any] = []
    for number, (name, data_set) in enumerate(MODELS.items()):
        config = JobConfig(model_def=name, training_data=str(data[data_set]), worker_threads=2, seed=3)
        model = TrainedModel(config, make_plan(config))
        features, predictions = model.evaluate()
        with WholeCut.of_checkpoint(model.save(tmp_path / f"checkpoint{number}", 2)) as cut:
            done = export_model(config, model.plan, cut, Export(output=tmp_path / f"out{number}"))
        assert done.signatures == ("serving_default", "examples"), name
        expected.append(predictions[0].numpy())
        calls.append(Call(done.place, arrays(features[0])))
        with Reader(next(data[data_set].iterdir())) as reader:
            records = reader.read(0, 20)
        of_records.append(Call(done.place, {}, {"examples": records}, "examples"))
        parsed.append(Call(done.place, arrays(predicted_features(model, records))))
        model.close()
    found = run_in_python([*calls, *of_records, *parsed], tmp_path)
    assert [one["output_0"].tobytes() for one in found] == [
        one["output_0"].tobytes() for one in run_session([*calls, *of_records, *parsed], tmp_path)
    ]
    for name, ours, theirs in zip(MODELS, expected, found, strict=False):
        assert ours.shape[0] == 64
        assert theirs["output_0"].tobytes() == ours.tobytes(), name
    count = len(MODELS)
    for by_record, by_feature in zip(found[count : 2 * count], found[2 * count :], strict=True):
        np.testing.assert_array_equal(by_record["output_0"], by_feature["output_0"])


def arrays(features: Any) -> dict[str, Any]:
    """Return features as the default signature takes them."""
    if isinstance(features, dict):
        return {name: value.numpy() for name, value in features.items()}
    return {"features": features.numpy()}


def predicted_features(model: TrainedModel, records: list[bytes]) -> Any:
    """Return what the feed makes of records in prediction mode."""
    import tensorflow as tf

    from edlz.api.feeds import Mode

    contract = model.model.contract
    dataset = tf.data.Dataset.from_tensor_slices(records)
    if contract.is_batched:
        return next(iter(contract.feed(dataset.batch(len(records)), Mode.PREDICTION, None)))
    return next(iter(contract.feed(dataset, Mode.PREDICTION, None).batch(len(records))))
