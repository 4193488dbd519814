"""The zoo's recommendation models: fed with records of their converters, trained a little in plain Keras."""

import importlib
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from edlz.api.embedding import Embedding
from edlz.api.example import encode_example
from edlz.api.feeds import takes_batches
from edlz.api.recordio import Reader
from edlz.model_zoo import datasets
from edlz.model_zoo.blocks.ids import field_ids
from edlz.model_zoo.criteo.generator import Generator
from edlz.model_zoo.criteo.layout import CATEGORICAL, MISSING, NUMERIC, PRESENT, encode_clicks
from edlz.model_zoo.datasets import convert
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.listing import list_data
from edlz.services.protocol.plan import TaskRange

CRITEO = ("criteo.deepfm", "criteo.wide_deep", "criteo.dcn", "criteo.xdeepfm")
CSV = "census.string_lookup"
CENSUS = ("census.dnn", "census.wide_deep", "census.feature_columns", "census.preprocessing_layers")
HEART = ("heart.dnn", "heart.feature_columns")
ALL = (*CRITEO, "movielens.deepfm", "frappe.deepfm", *CENSUS, CSV, *HEART)
COUNT = 512


class Tables:
    """Rows for all `edlz.api.Embedding` layers, of ids hashed into tables of a fixed size."""

    def __init__(self, rows=1 << 14):
        self.rows = rows
        self.variables = {}
        self.lookups = []

    def __call__(self, layer, ids):
        if layer.name not in self.variables:
            table = layer.embeddings_initializer((self.rows, layer.output_dim))
            self.variables[layer.name] = tf.Variable(table)
        self.lookups.append(layer.name)
        return tf.gather(self.variables[layer.name], tf.math.floormod(ids, self.rows))


@pytest.fixture
def tables(monkeypatch):
    tables = Tables()
    monkeypatch.setattr(Embedding, "default_source", tables)
    return tables


@pytest.fixture(scope="module")
def adult_records(tmp_path_factory):
    done = convert("adult", None, tmp_path_factory.mktemp("data") / "adult")
    with Reader(done.paths[0]) as reader:
        return reader.read(0, COUNT)


@pytest.fixture(scope="module")
def adult_rows(tmp_path_factory):
    """Return columns, as the reader of CSV gives them to a worker."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("rows")
    convert("adult-csv", None, folder)
    listed = list_data(str(folder / "train"))
    found = RecordSource(listed.source).read(TaskRange(name=listed.shards[0].name, first=0, count=COUNT))
    return found.values


def frappe_records():
    rng = np.random.default_rng(0)
    uses = rng.integers(0, 50, (COUNT, 10)) + 50 * np.arange(10)
    return [encode_example({"features": use.tolist(), "label": int(use[0] % 2)}) for use in uses]


def movielens_records():
    rng = np.random.default_rng(0)
    genres = [b"Action", b"Comedy", b"Drama"]
    return [
        encode_example(
            {
                "user": n % 20,
                "movie": n % 33,
                "year": 1950 + n % 33,
                "timestamp": 86_400 * (n % 50),
                "label": n % 20 % 2,
                **({"genres": genres[: n % 4]} if n % 4 else {}),
            }
        )
        for n in rng.permutation(COUNT)
    ]


def heart_records():
    rng = np.random.default_rng(0)
    records = []
    for n in range(COUNT):
        values = {"age": 40 + n % 30, "sex": n % 2, "cp": n % 4 + 1, "thal": (3, 6, 7)[n % 3], "ca": np.nan}
        values |= {
            "trestbps": 130,
            "chol": 200 + n % 50,
            "fbs": 0,
            "restecg": n % 3,
            "thalach": 150,
            "exang": 0,
        }
        values |= {"oldpeak": rng.random(), "slope": n % 3 + 1}
        numbers = {name: float(value) for name, value in values.items()}
        records.append(encode_example({**numbers, "label": int(n % 4 == 3)}))
    return records


def records_for(name, adult_records, adult_rows=None):
    if name == CSV:
        return adult_rows
    if name == "frappe.deepfm":
        return frappe_records()
    if name in CRITEO:
        clicks = Generator(0).clicks(0, COUNT)
        return encode_clicks(clicks.labels, clicks.numeric, clicks.categorical)
    if name in CENSUS:
        return adult_records
    return movielens_records() if name.startswith("movielens") else heart_records()


def load(name):
    return importlib.import_module(f"edlz.model_zoo.{name}")


def fed(module, records, mode="evaluation"):
    minibatch = tf.data.Dataset.from_tensor_slices(records).batch(COUNT)
    return next(iter(module.feed(minibatch, mode, None)))


@pytest.mark.parametrize("name", ALL)
def test_a_few_steps_lower_the_loss(name, tables, adult_records, adult_rows):
    keras.utils.set_random_seed(1)
    module = load(name)
    model = module.custom_model()
    features, labels = fed(module, records_for(name, adult_records, adult_rows))
    assert model(features).shape == labels.shape == (COUNT,)
    variables = [*model.trainable_variables, *tables.variables.values()]
    optimizer = module.optimizer()
    optimizer.build(variables)
    losses = []
    for _ in range(8):
        with tf.GradientTape() as tape:
            loss = module.loss(labels, model(features, training=True))
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
        optimizer.apply(gradients, variables)
        losses.append(float(loss))
    assert losses[-1] < 0.9 * losses[0]
    metrics = module.eval_metrics_fn()
    logits = model(features, training=False)
    metrics["auc"].update_state(labels, logits)
    assert 0.6 < float(metrics["auc"].result()) <= 1
    assert float(np.mean(metrics["logloss"](labels, logits))) < losses[0]


@pytest.mark.parametrize("name", ALL)
def test_feeds_in_all_modes(name, adult_records, adult_rows):
    module, records = load(name), records_for(name, adult_records, adult_rows)
    in_order, labels = fed(module, records)
    to_predict = fed(module, records, "prediction")
    assert in_order.keys() == to_predict.keys()
    for key, value in in_order.items():
        assert np.array_equal(value, to_predict[key]), key
        assert value.dtype == tf.string or np.isfinite(value).all()
    _, to_train = fed(module, records, "training")
    assert np.array_equal(to_train, labels)  # they are shuffled already
    assert takes_batches(module.feed)


@pytest.mark.parametrize(
    ("name", "arguments", "width"),
    [
        ("criteo.deepfm", {"dim": 4, "hidden": [10, 5]}, 26 * 4 + 13),
        ("criteo.wide_deep", {"dim": 4, "hidden": (10, 5)}, 26 * 4 + 13),
        ("criteo.dcn", {"dim": 4, "hidden": (10, 5), "cross_layers": 3, "rank": None}, 26 * 4 + 13),
        ("criteo.xdeepfm", {"dim": 4, "hidden": (10, 5), "maps": (3,)}, 26 * 4 + 13),
        ("movielens.deepfm", {"dim": 4, "hidden": (10, 5)}, (8 + 3) * 4),
        ("frappe.deepfm", {"dim": 4, "hidden": (10, 5)}, 10 * 4),
        ("census.dnn", {"dim": 4, "hidden": (10, 5)}, 12 * 4 + 5),
        ("census.wide_deep", {"dim": 4, "hidden": (10, 5)}, 12 * 4 + 5),
        ("heart.dnn", {"hidden": (10, 5)}, 22),
    ],
)
def test_model_params_set_the_sizes(name, arguments, width):
    model = load(name).custom_model(dropout=0.5, **arguments)
    kernels = [tuple(v.shape) for v in model.trainable_variables if len(v.shape) == 2]
    assert (width, 10) in kernels
    assert (10, 5) in kernels
    if "dim" in arguments:
        assert model.get_layer("vectors").output_dim == 4


@pytest.mark.parametrize("name", ALL)
def test_learning_rate_can_be_set(name):
    assert float(load(name).optimizer(learning_rate=0.375).learning_rate) == 0.375


@pytest.mark.parametrize("name", CRITEO)
def test_one_lookup_a_table_and_step(name, tables):
    module = load(name)
    model = module.custom_model()
    features, _ = fed(module, records_for(name, None))
    tables.lookups.clear()
    model(features)
    assert sorted(tables.lookups) == (["vectors"] if name == "criteo.dcn" else ["vectors", "weights"])


def test_inputs_of_clicks():
    numeric = np.zeros((2, NUMERIC), np.float32)
    numeric[0, :4] = (np.nan, -2, 0, np.e**4 - 1)
    categorical = np.full((2, CATEGORICAL), PRESENT + 5)
    categorical[1, 3] = MISSING
    features, labels = fed(load("criteo.deepfm"), encode_clicks(np.array([0, 1]), numeric, categorical))
    assert labels.numpy().tolist() == [0, 1]
    assert features["numeric"][0, :4].numpy() == pytest.approx([-1, 0, 0, 1])
    ids = features["ids"].numpy()
    assert np.array_equal(ids, field_ids(tf.constant(categorical)))
    assert len(np.unique(ids)) == CATEGORICAL + 1


def test_inputs_of_ratings():
    records = movielens_records()
    features = fed(load("movielens.deepfm"), records, "prediction")
    ids, has_genre = features["ids"].numpy(), features["has_genre"].numpy()
    assert (ids.shape, has_genre.shape) == ((COUNT, 38), (COUNT, 10))
    assert set(has_genre.sum(axis=1)) == {0, 1, 2, 3}
    assert (np.diff(has_genre, axis=1) <= 0).all()  # filling comes last
    assert len(np.unique(ids[:, 0])) == 20
    assert len(np.unique(ids[:, 1])) == 33
    assert len(np.unique(ids[:, 8:18][has_genre > 0])) == 3
    assert len(np.unique(ids[:, 18:28][has_genre > 0])) == 3 * 20 - missing_pairs()
    fields = [ids[:, :1], ids[:, 1:2], ids[:, 4:5], ids[:, 8:18], ids[:, 18:28], ids[:, 28:]]
    assert sum(len(np.unique(field)) for field in fields) == len(np.unique(np.concatenate(fields, axis=1)))


def missing_pairs():
    """How many of the 20 x 3 pairs of user and genre do not occur in the ratings above."""
    return 60 - len({(n % 20, genre) for n in range(COUNT) for genre in range(n % 4)})


def test_filling_changes_nothing(tables):
    module = load("movielens.deepfm")
    model = module.custom_model()
    features = dict(fed(module, movielens_records(), "prediction"))
    before = model(features).numpy()
    ids = features["ids"].numpy()
    is_filling = np.concatenate([np.zeros((COUNT, 8), bool), np.tile(features["has_genre"] == 0, 3)], axis=1)
    ids[is_filling] = 12345
    assert np.array_equal(model({**features, "ids": tf.constant(ids)}), before)


def test_more_genres_than_fit_are_left_out():
    genres = [b"genre %d" % n for n in range(12)]
    record = {"user": 1, "movie": 2, "year": 1999, "timestamp": 3, "label": 1}
    module = load("movielens.deepfm")
    twelve = fed(module, [encode_example({**record, "genres": genres})], "prediction")
    ten = fed(module, [encode_example({**record, "genres": genres[:10]})], "prediction")
    assert np.array_equal(twelve["ids"], ten["ids"])
    assert twelve["has_genre"].numpy().all()


def test_inputs_of_persons(adult_records):
    features, _ = fed(load("census.wide_deep"), adult_records)
    ids, crosses = features["ids"].numpy(), features["crosses"].numpy()
    assert (ids.shape, crosses.shape) == ((COUNT, 12), (COUNT, 9))
    assert 10 < len(np.unique(ids[:, 8])) <= 15  # bins of age
    assert len(np.unique(ids[:, 6])) == 2  # sex
    assert np.abs(features["numbers"].numpy().mean(axis=0)).max() < 0.5
    sizes = [len(np.unique(column)) for column in crosses.T]
    assert min(sizes) > 20
    assert len(np.unique(np.concatenate([ids, crosses], axis=1))) == sum(sizes) + sum(
        len(np.unique(column)) for column in ids.T
    )
    assert fed(load("census.dnn"), adult_records)[0].keys() == {"ids", "numbers"}


def test_inputs_of_patients():
    numbers = fed(load("heart.dnn"), heart_records()[:6], "prediction")["numbers"].numpy()
    kinds = {"cp": slice(2, 6), "restecg": slice(9, 12), "slope": slice(15, 18), "thal": slice(19, 22)}
    for name, place in kinds.items():
        assert (numbers[:, place].sum(axis=1) == 1).all(), name
    assert numbers[:3, kinds["thal"]].argmax(axis=1).tolist() == [0, 1, 2]
    assert not numbers[:, 18].any()  # ca is missing


@pytest.mark.parametrize("is_published", [False, True], ids=["converted", "as published"])
def test_flowers_from_csv(tmp_path, is_published):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    lengths = {"Iris-setosa": (5, 3, 1, 0), "Iris-versicolor": (6, 3, 4, 1), "Iris-virginica": (7, 3, 6, 2)}
    rows = [(*(base + rng.random(4) / 2).round(1), name) for name, base in lengths.items() for _ in range(50)]
    (tmp_path / "iris.data").write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n\n")
    if is_published:
        names = "sepal_length,sepal_width,petal_length,petal_width,species"
        listed = list_data(str(tmp_path / "iris.data"), params=f"reader_type=CSV;header=no;columns={names}")
    else:
        convert("iris", tmp_path, tmp_path / "out")
        listed = list_data(str(tmp_path / "out" / "train"))
    (shard,) = listed.shards
    read = RecordSource(listed.source).read(TaskRange(name=shard.name, first=0, count=shard.count))
    keras.utils.set_random_seed(1)
    module = load("iris.dnn")
    model, optimizer = module.custom_model(), module.optimizer(0.1)
    features, labels = fed(module, read.values)
    assert fed(module, read.values, "prediction").keys() == features.keys()
    assert np.bincount(labels).tolist() == [shard.count // 3] * 3
    for _ in range(60):
        with tf.GradientTape() as tape:
            loss = module.loss(labels, model(features, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    accuracy = module.eval_metrics_fn()["accuracy"]
    accuracy.update_state(labels, model(features, training=False))
    assert float(accuracy.result()) > 0.9
    with pytest.raises(tf.errors.InvalidArgumentError, match="an unknown species"):
        fed(module, {**read.values, "species": np.full(shard.count, b"Iris")})


def test_models_are_found_by_their_names():
    from edlz.services.inputs.model_location import zoo_modules

    names = zoo_modules(Path(datasets.__file__).parent)
    assert set(ALL) <= set(names)
