"""Flat vectors against variables, and which variables of a model become which vector."""

import logging
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.core_ext.memory import aligned_zeros
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import LocalProtocolError, ModelError
from edlz.services.worker.engine.contract.model_module import load_contract
from edlz.services.worker.engine.model.keras_model import build_model, start_from
from edlz.services.worker.engine.model.vectors import (
    assign,
    flatten,
    initial_vector,
    shared_array,
    shared_tensor,
    vector_layout,
)
from edlz.services.worker.engine.tensorflow.backend import keras, tf
from edlz.services.worker.engine.user_code.user_code import UserCodeError

shapes = st.lists(st.lists(st.integers(1, 7), max_size=3).map(tuple), min_size=1, max_size=6)


def make_variables(shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    values = [rng.integers(-9, 9, shape).astype(dtype) for shape in shapes]
    return [keras.Variable(value, dtype=dtype) for value in values], values


# ---------------------------------------------------------------- vectors


@settings(max_examples=40, deadline=None)
@given(shapes, st.sampled_from(["float32", "int64", "int32", "bool"]))
def test_variables_go_into_a_vector_and_back(shapes, dtype):
    variables, values = make_variables(shapes, dtype)
    layout = vector_layout(variables)
    vector_dtype = np.float32 if dtype == "float32" else np.int64
    vector = initial_vector(variables, layout, vector_dtype)
    assert vector.ctypes.data % 64 == 0
    for value, offset in zip(values, layout.offsets, strict=False):
        assert offset % 16 == 0
        assert np.array_equal(vector[offset : offset + value.size], value.ravel())
    assert vector.sum() == sum(value.sum() for value in values)  # the padding is 0
    again = flatten([v.value for v in variables], layout, vector_dtype)
    assert np.array_equal(shared_array(again), vector)
    for variable in variables:
        variable.assign(tf.zeros_like(variable.value))
    assign(variables, shared_tensor(vector), layout)
    for variable, value in zip(variables, values, strict=True):
        assert np.array_equal(variable.numpy(), value)


def test_a_loaded_variable_is_the_vectors_memory():
    variables, _ = make_variables([(4, 8), (3,)])
    layout = vector_layout(variables)
    vector = aligned_zeros(layout.size, np.float32)
    assign(variables, shared_tensor(vector), layout)
    vector[0], vector[32] = 5.0, 7.0
    assert variables[0].numpy()[0, 0] == 5.0
    assert variables[1].numpy()[0] == 0.0  # not a multiple of 16: copied


def test_a_tensors_memory_is_read_without_a_copy():
    tensor = tf.range(100.0)
    array = shared_array(tensor)
    assert not array.flags.writeable
    assert np.shares_memory(array, shared_array(tensor))


def test_what_comes_out_shares_nothing_with_what_went_in():
    """One tensor of a multiple of 16: joining it would give that tensor itself."""
    vector = aligned_zeros(16, np.float32)
    variables, _ = make_variables([(16,)])
    layout = vector_layout(variables)
    assign(variables, shared_tensor(vector), layout)
    out = shared_array(tf.function(lambda: flatten([variables[0].value], layout, tf.float32))())
    vector[:] = 3.0
    assert not out.any()


@pytest.mark.parametrize("kind", ["unaligned", "read-only", "strided"])
def test_a_vector_that_would_kill_the_process_is_refused(kind):
    vector = aligned_zeros(64, np.float32)
    if kind == "unaligned":
        vector = vector[1:]
    elif kind == "strided":
        vector = vector[::2]
    else:
        vector.flags.writeable = False
    with pytest.raises(LocalProtocolError, match="cannot be shared"):
        shared_tensor(vector)


# ---------------------------------------------------------------- models


HEAD = """
import keras
import tensorflow as tf
L = keras.layers

def loss(labels, predictions):
    return tf.reduce_mean(tf.square(tf.cast(predictions, tf.float32) - labels))

def optimizer():
    return keras.optimizers.SGD(0.1)

def feed(dataset, mode, metadata):
    return dataset

"""
SPEC = ({"x": tf.TensorSpec([None, 4])}, tf.TensorSpec([None, 1]))


def build(folder, source, spec=SPEC, *, head=HEAD, seed=0, batch=8):
    path = folder / "model.py"
    path.write_text(head + textwrap.dedent(source))
    contract = load_contract(JobConfig(model_file=str(path)))
    start_from(seed)
    return build_model(contract, spec, batch, lambda: None)


def paths(layout):
    return [variable.path for variable in layout.variables]


EVERYTHING = """
class CustomModel(keras.Model):
    def __init__(self):
        super().__init__(name="all")
        self.first = L.Dense(3)
        self.norm = L.BatchNormalization()
        self.frozen = L.Dense(2, trainable=False)
        self.frozen_norm = L.BatchNormalization(trainable=False)
        self.scale = L.Normalization(mean=0.0, variance=1.0)
        self.drop = L.Dropout(0.5)
        self.steps = self.add_weight(shape=(), dtype="int32", trainable=False, name="steps", initializer="zeros")
        self.seen = self.add_weight(shape=(2,), dtype="bool", trainable=False, name="seen", initializer="zeros")
        self.peak = self.add_weight(shape=(), trainable=False, name="peak", initializer="zeros")

    def call(self, inputs, training=False):
        x = self.norm(self.drop(self.first(self.scale(inputs["x"])), training=training), training=training)
        x = self.frozen_norm(self.frozen(x), training=training)
        if training:
            self.steps.assign_add(1)
            self.seen.assign([True, False])
            top = tf.reduce_max(x)
            tf.cond(top > 0, lambda: self.peak.value.assign(top), lambda: self.peak.value.assign(0.0))
        return x[:, :1]
"""


def test_variables_are_sorted_by_what_a_step_does_to_them(tmp_path):
    built = build(tmp_path, EVERYTHING)
    assert paths(built.layout.dense) == [
        "all/dense/kernel",
        "all/dense/bias",
        "all/batch_normalization/gamma",
        "all/batch_normalization/beta",
    ]
    assert paths(built.layout.state) == [
        "all/peak",
        "all/batch_normalization/moving_mean",
        "all/batch_normalization/moving_variance",
    ]
    assert paths(built.layout.counters) == ["all/steps", "all/seen"]
    assert len(built.seeds) == 1
    dense, state, counters = built.initial_vectors()
    assert state[32:35].tolist() == [1.0, 1.0, 1.0]  # a new moving variance
    assert (dense.dtype, state.dtype, counters.dtype) == (np.float32, np.float32, np.int64)


def test_the_initial_values_follow_from_the_seed_alone(tmp_path):
    first = build(tmp_path, EVERYTHING, seed=3).initial_vectors()[0]
    build(tmp_path, EVERYTHING, seed=4)
    np.random.default_rng().random()
    again = build(tmp_path, EVERYTHING, seed=3)
    assert np.array_equal(first, again.initial_vectors()[0])
    assert paths(again.layout.dense)[0] == "all/dense/kernel"  # numbers in names begin anew as well
    assert not np.array_equal(first, build(tmp_path, EVERYTHING, seed=4).initial_vectors()[0])


def test_initial_values_are_those_of_plain_keras(tmp_path):
    source = "def custom_model():\n    return keras.Sequential([keras.Input((4,), name='x'), L.Dense(1)])\n"
    spec = (tf.TensorSpec([None, 4]), SPEC[1])
    dense = build(tmp_path, source, spec, seed=11).initial_vectors()[0]
    keras.utils.set_random_seed(11)
    plain = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    assert np.array_equal(dense[:4], plain.get_weights()[0].ravel())


@pytest.mark.parametrize(
    "source",
    [
        """
        def custom_model():
            x = keras.Input((4,), name="x")
            return keras.Model({"x": x}, L.Dense(1)(x))
        """,
        "def custom_model():\n    return keras.Sequential([L.Dense(1)])\n",
        """
        class CustomModel(keras.Model):
            def __init__(self):
                super().__init__()
                self.parts = {"a": [L.Dense(2)], "b": (L.Dense(1),)}
            def call(self, inputs):
                return self.parts["b"][0](self.parts["a"][0](inputs["x"]))
        """,
    ],
)
def test_functional_sequential_and_subclassed_models_get_their_variables(tmp_path, source):
    spec = SPEC if "Sequential" not in source else (tf.TensorSpec([None, 4]), SPEC[1])
    built = build(tmp_path, source, spec)
    assert built.layout.dense.element_count in (5, 13)


def test_a_model_of_sparse_features_is_built_on_a_minibatch(tmp_path):
    source = """
    class CustomModel(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = L.Dense(1)
        def call(self, inputs):
            return self.dense(tf.sparse.to_dense(inputs["x"]))
    """
    path = tmp_path / "model.py"
    path.write_text(HEAD + textwrap.dedent(source))
    contract = load_contract(JobConfig(model_file=str(path)))
    spec = ({"x": tf.SparseTensorSpec([None, 4], tf.float32)}, tf.TensorSpec([None, 1]))
    sample = ({"x": tf.sparse.from_dense([[1.0, 0, 0, 2.0]])}, tf.constant([[1.0]]))
    assert build_model(contract, spec, 8, lambda: sample).layout.dense.element_count == 5


FUNCTIONAL = """
def custom_model():
    x = keras.Input((4,), name="x")
    return keras.Model({{"x": x}}, {layer}(x))
"""


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("L.Dense(1, kernel_constraint='non_neg')", "kernel has the constraint NonNeg"),
        ("L.Dense(1, dtype='float64')", "kernel is float64: trained variables must be float32"),
        ("L.Dense(1, trainable=False)", "no trainable variables"),
        ("L.SpectralNormalization(L.Dense(1))", "assigns its trainable variable .*kernel in a step"),
        ("L.BatchNormalization(dtype='float64')", "float64"),
    ],
)
def test_models_that_cannot_be_trained_here_are_named(tmp_path, layer, message):
    with pytest.raises(ModelError, match=message):
        build(tmp_path, FUNCTIONAL.format(layer=layer))


def test_mixed_precision_keeps_variables_in_float32(tmp_path):
    built = build(tmp_path, FUNCTIONAL.format(layer="L.Dense(1, dtype='mixed_bfloat16')"))
    assert built.layout.dense.element_count == 5


def test_a_policy_that_the_module_sets_stays(tmp_path):
    source = """
    keras.config.set_dtype_policy("mixed_bfloat16")

    def custom_model():
        x = keras.Input((4,), name="x")
        return keras.Model({"x": x}, L.Dense(1, name="only")(x))
    """
    try:
        built = build(tmp_path, source)
        assert built.model.get_layer("only").compute_dtype == "bfloat16"
    finally:
        keras.config.set_dtype_policy("float32")


def test_an_assigned_variable_that_is_not_the_models_is_warned_of(tmp_path, caplog):
    source = """
    own = tf.Variable(0.0, trainable=False, name="own")

    class Count(L.Layer):
        def call(self, x):
            own.assign_add(1.0)
            return x

    def custom_model():
        x = keras.Input((4,), name="x")
        return keras.Model({"x": x}, L.Dense(1)(Count()(x)))
    """
    with caplog.at_level(logging.WARNING):
        build(tmp_path, source)
    assert "variable=own:0 is assigned in a step but is not the model's" in caplog.text


# ---------------------------------------------------------------- the first minibatch


CLASSES = """
import keras
import tensorflow as tf
L = keras.layers

def custom_model():
    x = keras.Input((4,), name="x")
    return keras.Model({{"x": x}}, L.Dense(10)(x))

def optimizer():
    return keras.optimizers.SGD(0.1)

def feed(dataset, mode, metadata):
    return dataset

def loss(labels, predictions):
    {loss}
"""


def test_a_dense_loss_on_class_numbers_says_so(tmp_path):
    head = CLASSES.format(loss="return keras.losses.CategoricalCrossentropy()(labels, predictions)")
    spec = (SPEC[0], tf.TensorSpec([None], tf.int64))
    with pytest.raises(UserCodeError) as error:
        build(tmp_path, "", spec, head=head, batch=100)
    assert error.value.message.startswith(
        "loss() raised ValueError on the first minibatch: labels (100,) int64, predictions (100, 10) float32"
    )
    assert error.value.help == "integer labels need a sparse categorical loss"
    assert error.value.where.endswith("model.py:17 in loss")


def test_shapes_that_cannot_meet_are_found_before_the_first_minibatch(tmp_path):
    head = CLASSES.format(loss="return tf.reduce_mean(tf.square(predictions - labels))")
    spec = (SPEC[0], tf.TensorSpec([None]))
    with pytest.raises(UserCodeError, match=r"labels \(8,\) float32, predictions \(8, 10\) float32"):
        build(tmp_path, "", spec, head=head, batch=8)


@pytest.mark.filterwarnings("ignore:.*unbuilt state:UserWarning")
def test_an_error_in_call_has_its_frame(tmp_path):
    source = """
    class CustomModel(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = L.Dense(1)
        def call(self, inputs):
            return self.dense(inputs["y"])
    """
    with pytest.raises(UserCodeError, match=r"the model's call\(\) raised KeyError: 'y' \(") as error:
        build(tmp_path, source)
    assert error.value.where.endswith("model.py:21 in call")
