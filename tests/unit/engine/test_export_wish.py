"""A model's callbacks() may wish for an export at the end of its job; under Keras' own fit they do much the same."""

from pathlib import Path

import keras
import numpy as np
import pytest

from edlz.api.callbacks import SavedModelExporter
from edlz.services.protocol.messages import ExportWish
from edlz.services.worker.engine.keras_engine import KerasEngine
from tests.table_jobs import job, write_job

MODEL = """
from edlz.api import SavedModelExporter

def custom_model():
    ids = keras.Input((6,), dtype="int64")
    return keras.Model(ids, L.Dense(1)(L.Flatten()(Embedding(3, name="table")(ids))))

def callbacks():
    return [SavedModelExporter(%r)]
"""


@pytest.mark.parametrize(
    ("output", "formats"), [("models/out", ("saved_model",)), ("m.keras", ("keras",)), ("", None)]
)
def test_a_worker_tells_what_the_callbacks_wish_for(
    output: str, formats: tuple[str, ...] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path, MODEL % output, {})
    trainer = KerasEngine(*job(tmp_path))
    wish = trainer.build().export_wish
    trainer.close()
    wanted = None if formats is None else ExportWish(output=str(tmp_path / output), formats=formats)
    assert wish == wanted


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras' own
def test_under_fit_it_exports_with_rising_numbers(tmp_path: Path) -> None:
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    outputs = (tmp_path / "out", tmp_path / "m.keras")
    for _ in range(2):
        exporters = [SavedModelExporter(output) for output in outputs]
        model.fit(np.zeros((4, 2)), np.zeros((4, 1)), verbose=0, callbacks=exporters)
    assert sorted(place.name for place in (tmp_path / "out").iterdir()) == ["1", "2"]
    assert keras.models.load_model(tmp_path / "m.keras").count_params() == 3
