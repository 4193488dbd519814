"""Optimizers as partitions take them, learning rates by version, and clipping, each against Keras itself."""

from pathlib import Path

import numpy as np
import pytest

from edlz.core_ext.dense import squared_norm
from edlz.core_ext.optimizers import make_optimizer
from edlz.services.errors import ModelError
from edlz.services.protocol.messages import OptimizerSpec
from edlz.services.protocol.plan import Shard
from edlz.services.worker.engine.contract import gradient_clipping
from edlz.services.worker.engine.contract.gradient_clipping import Clip, GradientClipping
from edlz.services.worker.engine.contract.learning_rates import Epochs, LearningRate, scheduled_rate
from edlz.services.worker.engine.contract.optimizer import ModelOptimizer
from edlz.services.worker.engine.model.vectors import initial_vector, vector_layout
from edlz.services.worker.engine.tensorflow.backend import keras, tf
from edlz.services.worker.engine.user_code.user_code import UserCode, UserCodeError
from tests.formulas import Formula
from tests.rounding import IEEE, TENSORFLOW, near

# After Keras' backend is chosen.
from edlz.api import LearningRateScheduler, RowwiseAdagrad  # isort: skip
from tests import builders

O = keras.optimizers  # noqa: E741
CODE = UserCode(Path(__file__).parent)
RNG = np.random.default_rng(3)

OPTIMIZERS = [
    O.SGD(0.1),
    O.SGD(0.1, momentum=0.9),
    O.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.05),
    O.Adam(0.1, epsilon=1e-6),
    O.Adam(0.1, amsgrad=True),
    O.AdamW(0.1),
    O.Adagrad(0.1, initial_accumulator_value=0.2),
    RowwiseAdagrad(0.1),
    O.RMSprop(0.1),
    O.RMSprop(0.1, momentum=0.5, centered=True),
    O.Adadelta(0.5),
    O.Adamax(0.1),
    O.Nadam(0.1),
    O.Ftrl(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02, beta=0.1),
    O.Lion(0.1, weight_decay=0.1),
]


def plan(mode="sync", slots=2, epochs=3, records=(35, 12)):
    shards = tuple(Shard(name=str(i), first=0, count=count) for i, count in enumerate(records))
    return builders.plan(
        mode=mode, seed=1, shards=shards, records_per_task=10, minibatch_size=4, epochs=epochs, slots=slots
    )


def make_variables(*shapes, names=None):
    names = names or [f"v{i}" for i in range(len(shapes))]
    return [
        keras.Variable(RNG.normal(size=shape).astype(np.float32), name=name)
        for shape, name in zip(shapes, names, strict=True)
    ]


# ---------------------------------------------------------------- optimizers


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.name)
def test_partitions_update_as_keras_does(optimizer):
    """Every setting has arrived, under its right name."""
    optimizer = type(optimizer).from_config(optimizer.get_config())
    (variable,) = make_variables((16,))
    values = variable.numpy().copy()
    spec = ModelOptimizer(optimizer).spec
    compiled = make_optimizer(spec.name, spec.settings)
    slots = compiled.initial_slots(16)
    rate, formula = LearningRate(optimizer).at(0), Formula(compiled, values)
    for iteration in range(4):
        gradient = RNG.normal(size=16).astype(np.float32)
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        compiled.apply(values, values, slots, gradient, rate, iteration)
        formula.step(gradient, rate, iteration)
    assert np.all(formula.values.allows(values, IEEE))
    assert np.all(formula.values.allows(variable.numpy(), TENSORFLOW))


def test_row_wise_adagrad_is_that_of_the_tables():
    (table,) = make_variables((5, 3), names=["embeddings"])
    row = table.numpy()[2].astype(np.float64)
    optimizer, total = RowwiseAdagrad(0.5, initial_accumulator_value=0.2), 0.2
    moved = np.abs(row).max()
    for _ in range(3):
        gradient = np.zeros((5, 3), np.float32)
        gradient[2] = RNG.normal(size=3)
        optimizer.apply([tf.constant(gradient)], [table])
        total += np.mean(np.square(gradient[2].astype(np.float64)))
        step = 0.5 * gradient[2] / np.sqrt(total + 1e-7)
        row, moved = row - step, moved + np.abs(step).max()
    # Of each of three steps: mean of squares (6), sum (1), epsilon (1), root and quotient, product, difference.
    assert table.numpy()[2] == near(row, 3 * (10 + TENSORFLOW.root + TENSORFLOW.quotient), size=moved)
    assert optimizer.variables[-1].shape == (5, 1)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.get_config() == optimizer.get_config()


@pytest.mark.parametrize(
    ("options", "advice"),
    [({"use_ema": True}, "leave use_ema out"), ({"gradient_accumulation_steps": 2}, "--grads_to_wait")],
)
def test_options_that_partitions_do_not_have_are_named(options, advice):
    (name,) = options
    with pytest.raises(ModelError, match=rf"Adam\({name}=.*\): this option has no compiled form") as error:
        ModelOptimizer(O.Adam(**options))
    assert advice in error.value.help


def test_optimizers_that_partitions_do_not_have_are_named():
    class Adam(O.Adam):
        """A subclass may do anything."""

    for optimizer in (O.Adafactor(), Adam(), O.LossScaleOptimizer(O.Adafactor())):
        with pytest.raises(ModelError, match="has no compiled form") as error:
            ModelOptimizer(optimizer)
        assert error.value.help.startswith("use one of SGD, Adam, AdamW")
    with pytest.raises(ModelError, match=r"optimizer\(\) returned float"):
        ModelOptimizer(0.1)
    with pytest.raises(ModelError, match="epsilon=0"):
        ModelOptimizer(O.Adam(epsilon=0.0))
    with pytest.raises(ModelError, match=r"layer users: Ftrl: learning_rate_power=-0.3"):
        ModelOptimizer(O.Ftrl(learning_rate_power=-0.3), "layer users")


def test_a_factor_of_the_loss_cancels_out():
    """Keras multiplies the loss by it and divides the gradient; the worker's loss is not multiplied."""
    plain = ModelOptimizer(O.SGD(0.1))
    scaled = ModelOptimizer(O.SGD(0.1, loss_scale_factor=8.0))
    assert (scaled.spec, scaled.loss_scale) == (plain.spec, 8.0)
    wrapped = ModelOptimizer(O.LossScaleOptimizer(O.SGD(0.1, clipnorm=2.0), initial_scale=64.0))
    assert (wrapped.spec, wrapped.loss_scale, wrapped.clip.norm) == (plain.spec, 64.0, 2.0)
    assert plain.loss_scale is None


def test_variables_without_weight_decay():
    variables = make_variables((2, 3), (3,), (3, 1), names=["kernel", "bias", "embeddings"])
    optimizer = O.AdamW()
    assert ModelOptimizer(optimizer).dense_spec(variables).undecayed == ()
    optimizer.exclude_from_weight_decay(var_list=[variables[0]], var_names=["bias", "users/emb"])
    read = ModelOptimizer(optimizer)
    assert read.dense_spec(variables).undecayed == (0, 1)
    assert read.table_spec("net/users/embeddings") == OptimizerSpec(
        name="AdamW", settings={k: v for k, v in read.spec.settings.items() if k != "weight_decay"}
    )
    assert read.table_spec("net/items/embeddings").settings["weight_decay"] == 0.004
    assert ModelOptimizer(O.SGD()).dense_spec(variables).undecayed == ()


# ---------------------------------------------------------------- learning rates


def test_learning_rates_are_constant_or_follow_the_version():
    assert LearningRate(O.SGD(0.1)).at(7) == float(np.float32(0.1))
    schedule = O.schedules.PiecewiseConstantDecay([2, 5], [1.0, 0.5, 0.25])
    rate = LearningRate(O.SGD(schedule))
    assert [rate.at(v) for v in (0, 2, 3, 5, 6)] == [1.0, 1.0, 0.5, 0.5, 0.25]
    assert LearningRate(O.SGD(lambda: 0.5)).at(3) == 0.5


def scheduled(callback, optimizer=None, **of_plan):
    optimizer = optimizer or O.SGD(1.0)
    rate = scheduled_rate([keras.callbacks.TerminateOnNaN(), callback], optimizer, plan(**of_plan), CODE)
    return LearningRate(optimizer, rate)


def test_a_schedule_by_version():
    rate = scheduled(LearningRateScheduler(lambda version: 1.0 / (1 + version)))
    assert [rate.at(v) for v in (0, 3, 1)] == [1.0, 0.25, 0.5]
    assert scheduled_rate([], O.SGD(), plan(), CODE) is None


def test_keras_scheduler_goes_by_epochs_and_may_ask_for_the_rate_before():
    """35 and 12 records in tasks of 10 are minibatches of 3, 3, 3, 2, 3 and 1."""
    scheduler = keras.callbacks.LearningRateScheduler
    rate = scheduled(scheduler(lambda epoch, rate: rate * 0.5), mode="async", slots=1)
    assert [rate.at(v) for v in (40, 0, 14, 15, 30, 1000)] == [0.125, 0.5, 0.5, 0.25, 0.125, 0.125]
    rate = scheduled(scheduler(lambda epoch: float(epoch)), mode="async", slots=1)
    assert [rate.at(v) for v in (0, 15, 44)] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_epochs_in_sync_mode_count_steps_of_rounds(slots):
    job = plan(slots=slots)
    steps = [
        (epoch, index)
        for epoch in range(job.epochs)
        for first in range(epoch * job.tasks_per_epoch, (epoch + 1) * job.tasks_per_epoch, slots)
        for index in range(max(-(-job.task_records(task) // 4) for task in job.round_tasks(first)))
    ]
    epochs = Epochs(job)
    assert [epochs.at(version) for version in range(len(steps))] == [epoch for epoch, _ in steps]
    assert Epochs(job).at(10**6) == job.epochs - 1


def test_two_schedules_at_once_are_refused():
    decay = O.schedules.ExponentialDecay(0.1, 10, 0.9)
    with pytest.raises(
        ModelError, match=r"callbacks\(\) schedules the learning rate, and so does the optimizer"
    ):
        scheduled(LearningRateScheduler(lambda version: 0.1), O.SGD(decay))


def test_an_error_in_a_schedule_is_the_users():
    with pytest.raises(UserCodeError, match="schedule raised ZeroDivisionError"):
        scheduled(LearningRateScheduler(lambda version: 1 / version)).at(0)


# ---------------------------------------------------------------- clipping


def clipped(clip, gradients, rows=(), ids=(), table_clips=()):
    layout = vector_layout([keras.Variable(g) for g in gradients])
    vector = initial_vector([keras.Variable(g) for g in gradients], layout, np.float32)
    given = vector.copy()
    rows = [r.copy() for r in rows]
    out = GradientClipping(layout, clip, table_clips or [None] * len(rows))(vector, rows, ids)
    assert np.array_equal(vector, given)
    parts = zip(layout.offsets, layout.variables, strict=False)
    return [out[o : o + v.size].reshape(v.shape) for o, v in parts], rows


@pytest.mark.parametrize("option", ["clipvalue", "clipnorm", "global_clipnorm"])
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_gradients_are_clipped_as_by_keras(option, scale):
    gradients = [(RNG.normal(size=shape) * scale).astype(np.float32) for shape in ((3, 5), (7,))]
    rows = (RNG.normal(size=(4, 3)) * scale).astype(np.float32)
    optimizer = O.SGD(0.1, **{option: 0.5})
    expected = optimizer._clip_gradients([tf.constant(g) for g in [*gradients, rows]])
    ours, (of_rows,) = clipped(Clip.of(optimizer), gradients, [rows], [np.array([4, 2, 9, -1])])
    for mine, keras_own in zip([*ours, of_rows], expected, strict=True):
        # A norm of 34 numbers: 34 squares and sums; then root, quotient and product.
        assert mine == near(keras_own.numpy(), 70 + TENSORFLOW.root + TENSORFLOW.quotient)


def test_the_order_of_rows_does_not_change_a_bit():
    ids, rows = RNG.permutation(500), RNG.normal(size=(500, 7)).astype(np.float32)
    orders = [RNG.permutation(500) for _ in range(9)]
    assert (
        len({squared_norm(rows[order].ravel()) for order in orders}) > 1
    )  # in the order of the rows it would
    assert (
        len({gradient_clipping._Part(rows[order].ravel(), ids[order]).squared_norm() for order in orders})
        == 1
    )
    _, (first,) = clipped(Clip(norm=1.0), [], [rows], [ids])
    _, (other,) = clipped(Clip(norm=1.0), [], [rows[orders[0]]], [ids[orders[0]]])
    assert np.array_equal(other, first[orders[0]])


def test_a_table_with_an_optimizer_of_its_own_is_clipped_by_that():
    gradient, rows = np.full(4, 3.0, np.float32), np.full((2, 2), 2.0, np.float32)
    ids = [np.arange(2), np.arange(2)]
    clips = [Clip(value=0.5), None]
    (ours,), (first, second) = clipped(Clip(global_norm=1.0), [gradient], [rows, rows], ids, clips)
    assert np.all(first == 0.5)
    # Norm, root, quotient and product, then 8 squares and sums here.
    assert np.sum(ours**2) + np.sum(second**2) == near(1.0, 40)


def test_without_clipping_nothing_is_copied():
    vector = np.ones(16, np.float32)
    assert GradientClipping(vector_layout([]), Clip(), [None])(vector, [vector], [vector]) is vector


def test_a_gradient_that_is_not_finite_spoils_all_as_in_keras():
    gradients = [np.array([np.inf, 1.0], np.float32), np.ones(2, np.float32)]
    ours, _ = clipped(Clip(global_norm=1.0), gradients)
    assert np.isnan(ours[1]).all()
