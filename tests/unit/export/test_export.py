"""Exports of tiny models: what comes out predicts what the worker's evaluation predicts, bit by bit."""

import json
import resource
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edlz.services.errors import DataError
from edlz.services.export.about import ABOUT
from edlz.services.export.exporter import Export, Exported, export_model, load_model
from edlz.services.storage.whole_cut import WholeCut
from tests.exported import Call, TrainedModel, run_in_python, run_session
from tests.table_jobs import IDS, PAIR_FEED, job, write_job

pytestmark = [
    pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # Keras, when it saves
]

KNOWN = [*range(0, IDS, 2), -(2**63), 2**63 - 1]  # half of the ids have rows, the others their initial values

FUNCTIONAL = """
def custom_model():
    ids = keras.Input((6,), dtype="int64", name="ids")
    x = L.Flatten()(Embedding(3, embeddings_initializer="normal", name="table")(ids))
    x = L.BatchNormalization()(L.Dense(4, activation="tanh")(x))
    return keras.Model(ids, L.Dense(1)(x))
"""
PLAIN = """
def custom_model():
    ids = keras.Input((6,), dtype="int64", name="ids")
    x = L.Embedding(400_000, 3, name="table", mask_zero=True)(ids - 1)
    return keras.Model(ids, L.Dense(1)(L.GlobalAveragePooling1D()(x)))
"""
# Names that TensorFlow would not take, strings in sparse and ragged tensors, vocabularies, two outputs.
WORDS = """
def feed(dataset, mode, metadata):
    def parse_words(record):
        ids, label = parse(record)
        words = tf.strings.as_string(ids)
        return {
            "the city": words[0],
            "tags": tf.sparse.from_dense(tf.where(ids[:3] > 20, "", words[:3])),
            "words": tf.RaggedTensor.from_tensor(words[tf.newaxis, : ids[5] % 6]),
        }, label
    return dataset.map(parse_words)

def loss(labels, predictions):
    return tf.reduce_mean(tf.square(predictions["score"][:, 0] - labels))

class CustomModel(keras.Model):
    def __init__(self):
        super().__init__(name="net")
        self.number = L.StringLookup(vocabulary=[str(i) for i in range(0, 30, 3)])
        self.hash = L.Hashing(1000)
        self.parts = {
            "cities": Embedding(3, embeddings_initializer="truncated_normal", name="cities"),
            "tags": Embedding(2, combiner="mean", name="tags"),
            "words": Embedding(4, combiner="sqrtn", embeddings_initializer="ones", name="words"),
        }
        self.dense = L.Dense(1)
        self.drop = L.Dropout(0.5)

    def call(self, features, training=False):
        city = self.parts["cities"](self.number(features["the city"]))
        tags = self.parts["tags"](self.hash(features["tags"]))
        words = self.parts["words"](tf.strings.to_number(features["words"], tf.int64))
        x = tf.concat([city, tags, words], 1)
        return {"score": self.dense(self.drop(x, training=training)), "norms": tf.reduce_sum(x * x, 1)}
"""
SUBCLASSED = """
class CustomModel(keras.Model):
    def __init__(self):
        super().__init__(name="net")
        self.parts = {"first": Embedding(3, name="first"), "second": Embedding(5, name="second")}
        self.dense = L.Dense(1)
        self.seen = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    @tf.function
    def looked_up(self, ids):
        if tf.shape(ids)[0] > 0:
            ids = ids + 0
        return tf.concat([self.parts["first"](ids[:, :2]), self.parts["second"](ids[:, 1:3])], 2)

    def call(self, ids, training=False):
        if training:
            self.seen.assign_add(1)
        x = tf.reduce_sum(self.looked_up(ids), 1) + tf.reduce_sum(self.looked_up(ids[:, 3:] * 2), 1)
        return self.dense(x * x) + 0.1 * tf.cast(self.seen, tf.float32)
"""
MODELS = {
    "functional": FUNCTIONAL,
    "plain": PLAIN,
    "words": WORDS,
    "subclassed": SUBCLASSED,
    "sequential, without tables": """
        def custom_model():
            return keras.Sequential([L.Lambda(lambda ids: tf.cast(ids, tf.float32) / 30), L.Dense(4), L.Dense(1)])
        """,
    "weights as an input": PAIR_FEED
    + """
def custom_model():
    ids = keras.Input((6,), dtype="int64", sparse=True, name="ids")
    weights = keras.Input((6,), sparse=True, name="weights")
    x = Embedding(3, combiner="sum", name="table")(ids, weights=weights)
    return keras.Model({"ids": ids, "weights": weights}, L.Dense(1)(x))
""",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """trained(source) -> TrainedModel; of each source one."""
    made: dict[str, TrainedModel] = {}

    def build(source: str) -> TrainedModel:
        if source not in made:
            folder = tmp_path_factory.mktemp("job") / "job"
            write_job(folder, textwrap.dedent(source), {})
            made[source] = TrainedModel(*job(folder), KNOWN)
        return made[source]

    yield build
    for model in made.values():
        model.close()


@pytest.fixture(scope="module")
def exports(
    request: pytest.FixtureRequest, trained: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Of kinds of models their exports, what evaluation predicts, and what two others predict with the export."""
    place = tmp_path_factory.mktemp("exports")
    found = {}
    for number, kind in enumerate(request.param):
        model = trained(MODELS[kind])
        features, expected = model.evaluate()
        with WholeCut.of_checkpoint(model.save(place / f"checkpoint{number}")) as cut:
            done = export_model(model.config, model.plan, cut, Export(output=place / str(number)))
        call = called(done.place, features[1])
        found[kind] = SimpleNamespace(done=done, call=call, expected=named(expected[1]), features=features[1])
    calls = [one.call for one in found.values()]
    for one, of_python, of_session in zip(
        found.values(), run_in_python(calls, place), run_session(calls, place), strict=True
    ):
        one.of_python, one.of_session = of_python, of_session
    return found


def called(folder: Path, features: Any) -> Call:
    """The default signature, given these features."""
    from edlz.services.worker.engine.tensorflow.backend import tf

    if isinstance(features, tf.Tensor):
        names = input_names(folder)
        return Call(folder, {names[0]: features.numpy()})
    inputs: dict[str, Any] = {}
    texts: dict[str, list[bytes]] = {}
    for key, value in features.items():
        name = key.replace(" ", "_")
        parts = {name: value}
        if isinstance(value, tf.SparseTensor):
            parts = {f"{name}_{part}": getattr(value, part) for part in ("indices", "values", "dense_shape")}
        if isinstance(value, tf.RaggedTensor):
            parts = {f"{name}_values": value.values, f"{name}_row_splits": value.row_splits}
        for part, tensor in parts.items():
            if tensor.dtype == tf.string:
                texts[part] = tensor.numpy().tolist()
            else:
                inputs[part] = tensor.numpy()
    return Call(folder, inputs, texts)


def input_names(folder: Path) -> list[str]:
    from tensorflow.core.protobuf import saved_model_pb2

    definition = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    return list(definition.meta_graphs[0].signature_def["serving_default"].inputs)


def named(predictions: Any) -> dict[str, bytes]:
    if not isinstance(predictions, dict):
        predictions = {"output_0": predictions}
    return {name: value.numpy().tobytes() for name, value in predictions.items()}


def bits(outputs: dict[str, Any]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in outputs.items()}


FEW = ("words", "plain")


@pytest.mark.parametrize(
    "exports",
    [FEW, pytest.param([kind for kind in MODELS if kind not in FEW], marks=pytest.mark.slow)],
    indirect=True,
    ids=["few", "others"],
)
def test_everybody_predicts_what_evaluation_does(exports: dict[str, Any]) -> None:
    from edlz.services.worker.engine.tensorflow.backend import tf

    for kind, one in exports.items():
        assert bits(one.of_python) == one.expected, kind
        assert bits(one.of_session) == one.expected, kind
        loaded = tf.saved_model.load(str(one.done.place))
        assert named(loaded.serve(one.features)) == one.expected, kind  # features as the feed yields them


@pytest.mark.parametrize("kind", ["functional", "plain"])
def test_the_variables_have_the_same_bytes_for_any_number_of_partitions(
    trained: Any, tmp_path: Path, kind: str
) -> None:
    model = trained(MODELS[kind])
    found = []
    for partitions in (1, 2, 3):
        done = exported(model, tmp_path, partitions=partitions)
        files = sorted((done.place / "variables").iterdir())
        found.append([(file.name, file.read_bytes()) for file in files])
    assert found[0] == found[1] == found[2]


def exported(
    model: TrainedModel, place: Path, output: Path | None = None, *, partitions: int = 1, **about: Any
) -> Exported:
    saved = model.save(place / f"checkpoint-{partitions}", partitions)
    with WholeCut.of_checkpoint(saved) as cut:
        return export_model(model.config, model.plan, cut, Export(output=output or place / "out", **about))


def test_exports_get_rising_numbers_and_say_what_they_are(trained: Any, tmp_path: Path) -> None:
    model = trained(FUNCTIONAL)
    (tmp_path / "out" / "7").mkdir(parents=True)
    done = exported(model, tmp_path, about={"job": "tiny"})
    assert done.place == tmp_path / "out" / "8"
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == ["7", "8"]
    about = json.loads((done.place / ABOUT).read_text())
    rows = {"path": "table/embeddings", "rows": 17, "dim": 3}
    assert about["tables"] == [rows]
    assert (about["job"], about["version"], about["minibatches"]) == ("tiny", 7, 11)
    assert done.tables == (("table/embeddings", 17, 3),)


@pytest.mark.parametrize("what", ["zeros", "mean"])
def test_unknown_ids(trained: Any, tmp_path: Path, what: str) -> None:
    from edlz.services.worker.engine.tensorflow.backend import tf

    model = trained(FUNCTIONAL)
    done = exported(model, tmp_path, unknown_ids=what)
    loaded = tf.saved_model.load(str(done.place))
    table = loaded.tables[0]
    np.testing.assert_array_equal(table.ids.numpy(), np.sort(model.ids[0]))
    mean = model.values[0][np.argsort(model.ids[0])].sum(0, dtype=np.float64) / len(model.ids[0])
    np.testing.assert_array_equal(table.rows[0], np.zeros(3) if what == "zeros" else mean.astype(np.float32))
    ids = np.array([[0, 2, 4, 6, 8, 1]], np.int64)
    others = np.array([[0, 2, 4, 6, 8, 2**40]], np.int64)
    np.testing.assert_array_equal(loaded.serve(ids), loaded.serve(others))


def test_a_table_without_rows(trained: Any, tmp_path: Path) -> None:
    from edlz.services.worker.engine.tensorflow.backend import tf

    model = trained(FUNCTIONAL)
    ids, values = model.ids, model.values
    model.ids, model.values = [np.empty(0, np.int64)], [np.empty((0, 3), np.float32)]
    try:
        features, expected = model.evaluate()
        done = exported(model, tmp_path)
    finally:
        model.ids, model.values = ids, values
    loaded = tf.saved_model.load(str(done.place))
    found = loaded.serve(features[0])
    assert found.numpy().tobytes() == expected[0].numpy().tobytes()


@pytest.mark.parametrize("kind", ["words", "plain"])
def test_a_model_in_python(trained: Any, tmp_path: Path, kind: str) -> None:
    from edlz.services.worker.engine.tensorflow.backend import tf

    model = trained(MODELS[kind])
    features, expected = model.evaluate()
    with WholeCut.of_checkpoint(model.save(tmp_path, 2)) as cut:
        keras_model = load_model(model.config, model.plan, cut)
    predict = tf.function(lambda x: keras_model(x, training=False))
    assert named(predict(features[0])) == named(expected[0])


def test_a_keras_file_of_stock_layers(trained: Any, tmp_path: Path) -> None:
    from edlz.services.worker.engine.tensorflow.backend import keras, tf

    for kind, source in (("any ids", FUNCTIONAL), ("plain", PLAIN)):
        model = trained(source)
        features, expected = model.evaluate()
        exported(model, tmp_path / kind, tmp_path / "m.keras", formats=("keras",))
        loaded = keras.models.load_model(tmp_path / "m.keras")
        kinds = {type(layer).__module__.partition(".")[0] for layer in loaded._flatten_layers()}
        assert kinds == {"keras"}
        predict = tf.function(lambda x, model=loaded: model(x, training=False))  # a graph, as evaluation runs
        if kind == "any ids":
            features, expected = only_known(model, features, loaded)
            predict = loaded
        assert np.array(predict(features[0])).tobytes() == np.array(expected[0]).tobytes()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["any ids", "m.keras", "plain"]


def only_known(model: TrainedModel, features: Any, loaded: Any) -> tuple[Any, Any]:
    """Ids that have rows, and predictions for them by evaluation's rows; an unknown one shares row 0, zeros."""
    from edlz.services.worker.engine.tensorflow.backend import tf

    ids = tf.constant(np.resize(model.ids[0], (3, 6)))
    rows = model.served(0, ids.numpy().ravel()).reshape(3, 6, 3)
    lookup = loaded.get_layer("table")
    np.testing.assert_array_equal(lookup(ids), rows)
    np.testing.assert_array_equal(lookup(ids * 0 + 5), np.zeros((3, 6, 3)))
    x = rows.reshape(3, 18)
    for layer in loaded.layers[3:]:
        x = layer(x, training=False) if "batch" in layer.name else layer(x)
    return [ids], [x]


def test_a_checkpoint_of_another_model(trained: Any, tmp_path: Path) -> None:
    one, other = trained(FUNCTIONAL), trained(PLAIN)
    with (
        WholeCut.of_checkpoint(one.save(tmp_path / "c")) as cut,
        pytest.raises(
            DataError, match=r"variables are not the model's: dense/kernel \(18, 4\).* there"
        ) as raised,
    ):
        export_model(other.config, other.plan, cut, Export(output=tmp_path / "out"))
    assert "--model_params" in raised.value.help
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("most", [2_000, 1_000_000])
def test_a_full_disk(trained: Any, tmp_path: Path, most: int) -> None:
    """Files may have so many bytes: the graph does not fit, or a table that is written to its end."""
    model = trained(PLAIN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with WholeCut.of_checkpoint(model.save(tmp_path / "c")) as cut:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        try:
            with pytest.raises(DataError, match="out cannot be written: File too large"):
                export_model(model.config, model.plan, cut, Export(output=tmp_path / "out"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "out").iterdir()) == []


def test_all_formats_at_once(trained: Any, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    model = trained(FUNCTIONAL)
    done = exported(model, tmp_path, partitions=2, formats=("safetensors", "keras", "saved_model"))
    names = sorted(entry.name for entry in done.place.iterdir())
    wanted = ["assets", "assets.extra", "fingerprint.pb", "model.keras", "safetensors", "saved_model.pb"]
    assert names == [*wanted, "variables"]
    index = json.loads((done.place / "safetensors" / "model.safetensors.index.json").read_text())
    values = load_file(done.place / "safetensors" / "model-00001-of-00001.safetensors")
    assert set(values) == set(index["weight_map"])
    np.testing.assert_array_equal(values["table/embeddings.ids"], np.sort(model.ids[0]))
    order = np.argsort(model.ids[0])
    np.testing.assert_array_equal(values["table/embeddings.rows"], model.values[0][order])
    place = model.built.layout.dense.offsets[1]
    np.testing.assert_array_equal(values["dense/bias"], model.dense[place : place + 4])


def test_safetensors_in_several_files(trained: Any, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    from edlz.services.export.loaded_model import LoadedModel
    from edlz.services.export.safetensors_files import write_safetensors

    model = trained(FUNCTIONAL)
    with WholeCut.of_checkpoint(model.save(tmp_path / "checkpoint")) as cut:
        loaded = LoadedModel(model.config, model.plan, cut)
        out = tmp_path / "out"
        out.mkdir()
        write_safetensors(loaded, out, tmp_path, file_bytes=100)
    index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    pieces = sorted(name for name in index if name.startswith("table/embeddings.rows"))
    assert len(pieces) == 3
    assert pieces[0] == "table/embeddings.rows.00001-of-00003"
    rows = np.concatenate([load_file(out / index[name])[name] for name in pieces])
    np.testing.assert_array_equal(rows, model.values[0][np.argsort(model.ids[0])])
    assert len({*index.values()}) == len(list(out.glob("*.safetensors")))
