"""The optimizers: equal to Keras', exact in their scalars, and what they refuse."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.core_ext import dense
from edlz.core_ext.memory import ALIGNMENT_BYTES
from edlz.core_ext.optimizers import (
    OPTIMIZERS,
    SGD,
    Adagrad,
    Adam,
    Ftrl,
    Nadam,
    RMSprop,
    RowwiseAdagrad,
    make_optimizer,
)
from edlz.core_ext.optimizers.checks import is_finite_in_float32
from edlz.core_ext.optimizers.scalars import momentum_product, power, round_32, warming_momentum
from edlz.core_ext.steps import Kind, RowSlot, Step
from tests.formulas import Formula
from tests.rounding import IEEE, TENSORFLOW, near

COUNT, STEPS = 50, 50


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


# One name a line would be long; the settings say what a case is about.
CASES = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("SGD", {"momentum": 0.0, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-3}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "weight_decay": 0.1}),
    ("Adagrad", {}),
    ("Adagrad", {"epsilon": 1e-2, "initial_accumulator_value": 0.0}),
    ("RMSprop", {}),
    ("RMSprop", {"rho": 0.5, "epsilon": 1e-2}),
    ("RMSprop", {"momentum": 0.9, "epsilon": 1e-2}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "rho": 0.8}),
    ("Adadelta", {}),
    ("Adadelta", {"rho": 0.5, "epsilon": 1e-2}),
    ("Adamax", {}),
    ("Adamax", {"beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-2}),
    ("Nadam", {}),
    ("Nadam", {"beta_1": 0.99, "beta_2": 0.9, "epsilon": 1e-2}),
    ("Ftrl", {}),
    ("Ftrl", {"l1_regularization_strength": 0.5, "initial_accumulator_value": 0.5}),
    ("Ftrl", {"l2_regularization_strength": 0.2, "l2_shrinkage_regularization_strength": 0.3, "beta": 0.1}),
    ("Lion", {}),
    ("Lion", {"beta_1": 0.5, "beta_2": 0.5}),
]
NAMES_IN_KERAS = {"m": "momentum", "u": "norm", "v": "velocity", "v_hat": "velocity_hat"}
CASES += [(name, {"weight_decay": 0.5}) for name in dict(CASES)]


def _case_id(case):
    name, chosen = case
    return " ".join([name, *(f"{setting}={value}" for setting, value in chosen.items())])


class _Course:
    """Gradients and rates of some steps, the same for both sides; the rates fall as a schedule's do."""

    def __init__(self):
        rng = np.random.default_rng(11)
        self.start = rng.standard_normal(COUNT).astype(np.float32)
        self.rates = [0.02 / (1 + iteration) for iteration in range(STEPS)]
        self.gradients = [
            (rng.standard_normal(COUNT) * 10 ** rng.uniform(-3, 1, COUNT)).astype(np.float32)
            for _ in range(STEPS)
        ]


@pytest.mark.parametrize("case", CASES, ids=_case_id)
def test_equal_to_keras(keras, case):
    """Both run the same formula: each is as near to it in float64 as its own float32 operations allow."""
    name, chosen = case
    course = _Course()
    variable = keras.Variable(course.start)
    peer = getattr(keras.optimizers, name)(learning_rate=0.5, **chosen)
    peer.build([variable])
    take_step = pytest.importorskip("tensorflow").function(
        lambda gradient: peer.apply([gradient], [variable])
    )
    ours, values = make_optimizer(name, chosen), course.start.copy()
    slots, distance = ours.initial_slots(COUNT), np.zeros(COUNT, np.float32)
    formula = Formula(ours, course.start)
    named = {made.name.removeprefix(f"{variable.name}_"): made for made in peer.variables}
    theirs = [variable, *(named[NAMES_IN_KERAS.get(slot, slot)] for slot in slots)]
    for iteration, (rate, gradient) in enumerate(zip(course.rates, course.gradients, strict=True)):
        peer.learning_rate = rate
        take_step(keras.ops.convert_to_tensor(gradient))
        before = values.copy()
        ours.apply(values, values, slots, gradient, rate, iteration)
        distance += np.abs(values - before)
        formula.step(gradient, rate, iteration)
        for number, mine, its in zip(
            [formula.values, *formula.slots], [values, *slots.values()], theirs, strict=True
        ):
            assert np.all(number.allows(mine, IEEE)), iteration
            assert np.all(number.allows(np.asarray(its), TENSORFLOW)), iteration
    assert np.all(distance > 0)
    # Otherwise the bounds would tell no formula from another.
    assert np.all(formula.values.bounds(TENSORFLOW) < 1e-4 * (np.abs(values) + distance))


@pytest.mark.parametrize(
    "optimizer", [o for o in OPTIMIZERS if o is not RowwiseAdagrad], ids=lambda o: o.name
)
def test_defaults_are_those_of_keras(keras, optimizer):
    theirs = getattr(keras.optimizers, optimizer.name)().get_config()
    ours = optimizer().settings
    assert ours == {setting: theirs[setting] or value * 0 for setting, value in ours.items()}


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.name)
@pytest.mark.parametrize("cut", [1, 30])
def test_goes_on_where_it_stopped(optimizer, cut):
    """An optimizer made anew (as a restored server makes it) takes the remaining steps with the same bits."""
    course, values, others = _Course(), [], []
    for result, cuts in ((values, ()), (others, (cut,))):
        made, current = optimizer(weight_decay=0.1), course.start.copy()
        slots = made.initial_slots(COUNT)
        for iteration, (rate, gradient) in enumerate(zip(course.rates, course.gradients, strict=True)):
            if iteration in cuts:
                made = make_optimizer(made.name, made.settings)
            made.apply(current, current, slots, gradient, rate, iteration)
        result.append(current)
    np.testing.assert_array_equal(values, others)


class TestRows:
    @pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.name)
    def test_step_is_what_dense_values_get(self, optimizer):
        """A table takes the packed step and its slots; but for row-wise Adagrad it does what `apply` does."""
        made, course = optimizer(weight_decay=0.1), _Course()
        values, row, gradient = course.start.copy(), course.start.copy(), course.gradients[0]
        slots = made.initial_slots(COUNT)
        row_slots = [np.full(slot.size, slot.initial, np.float32) for slot in made.row_slots(COUNT)]
        assert [slot.name for slot in made.row_slots(COUNT)] == list(made.slots)
        made.apply(values, values, slots, gradient, 0.1, 3)
        dense.apply(made.step(0.1, 3).packed, row, row, row_slots, gradient)
        assert np.array_equal(row, values) == (optimizer is not RowwiseAdagrad)

    def test_rowwise_adagrad(self):
        optimizer = RowwiseAdagrad(initial_accumulator_value=0.5, epsilon=0.25)
        assert optimizer.row_slots(4) == (RowSlot(name="accumulator", size=1, initial=0.5),)
        assert optimizer.step(0.1, 0).kind == Kind.ROWWISE_ADAGRAD
        row, accumulator = np.zeros(4, np.float32), np.array([0.5], np.float32)
        gradient = np.array([1, 3, 1, 1], np.float32)
        dense.apply(optimizer.step(2, 0).packed, row, row, [accumulator], gradient)
        assert accumulator.tolist() == [0.5 + 12 / 4]
        # Four squares and sums, quotient, sums, root, product, quotient.
        assert row == near(-2 * gradient / math.sqrt(3.75), 15)

    def test_rowwise_adagrad_is_adagrad_for_dense_values(self):
        course = _Course()
        results = []
        for optimizer in (Adagrad(), RowwiseAdagrad()):
            values, slots = course.start.copy(), optimizer.initial_slots(COUNT)
            optimizer.apply(values, values, slots, course.gradients[0], 0.1, 0)
            results += [values, slots["accumulator"]]
        np.testing.assert_array_equal(results[:2], results[2:])

    def test_squares_of_a_row_are_added_in_order(self):
        """1e8 + 1 is 1e8 in float32, 1e8 + 7 is not."""
        row, accumulator = np.zeros(8, np.float32), np.zeros(1, np.float32)
        gradient = np.array([1e4, 1, 1, 1, 1, 1, 1, 1], np.float32)
        step = RowwiseAdagrad().step(0.1, 0).packed
        dense.apply(step, row, row, [accumulator], gradient)
        assert accumulator[0] == np.float32(1e8) / 8
        accumulator[0] = 0
        dense.apply(step, row, row, [accumulator], gradient[::-1].copy())
        assert accumulator[0] > np.float32(1e8) / 8


class TestSlots:
    @pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.name)
    def test_fit_their_kind(self, optimizer):
        for made in (optimizer(), make_optimizer(optimizer.name, _all_options(optimizer))):
            slots = made.initial_slots(17)
            assert (made.slots, len(made.slots)) == (tuple(slots), len(dict(dense.kinds())[made.kind.name]))
            for name, slot in slots.items():
                initial = 0.1 if name == "accumulator" else 0
                assert (slot.shape, slot.dtype) == ((17,), np.float32)
                assert np.all(slot == np.float32(initial))
                assert slot.ctypes.data % ALIGNMENT_BYTES == 0

    def test_names(self):
        assert SGD().slots == ()
        assert SGD(momentum=0.9).slots == ("momentum",)
        assert Adam().slots == ("m", "v")
        assert Adam(amsgrad=True).slots == ("m", "v", "v_hat")
        assert RMSprop(centered=True, momentum=0.5).slots == ("velocity", "average_gradient", "momentum")
        assert Ftrl().slots == ("accumulator", "linear")

    def test_missing_slot(self):
        values = np.ones(3, np.float32)
        with pytest.raises(KeyError, match="v"):
            Adam().apply(values, values, {"m": np.zeros(3, np.float32)}, values.copy(), 0.1, 0)
        assert values.tolist() == [1, 1, 1]

    def test_other_out_leaves_values(self):
        values, out = np.ones(3, np.float32), np.zeros(3, np.float32)
        SGD().apply(out, values, {}, np.ones(3, np.float32), 0.5, 0)
        assert (values.tolist(), out.tolist()) == ([1, 1, 1], [0.5, 0.5, 0.5])


def _all_options(optimizer):
    """Settings that switch everything on that an optimizer has."""
    wanted = {"momentum": 0.5, "nesterov": True, "amsgrad": True, "centered": True, "weight_decay": 0.25}
    return {setting: value for setting, value in wanted.items() if setting in optimizer().settings}


class TestMake:
    @pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.name)
    def test_settings_come_back(self, optimizer):
        chosen = _all_options(optimizer)
        for name in (optimizer.name, optimizer.name.lower(), optimizer.name.upper()):
            made = make_optimizer(name, chosen)
            assert type(made) is optimizer
            assert made.settings == optimizer().settings | chosen
            assert make_optimizer(made.name, made.settings) == made

    def test_settings_have_defaults(self):
        assert make_optimizer("SGD", {}).settings == {"momentum": 0, "nesterov": False, "weight_decay": 0}
        assert make_optimizer("AdamW", {}).settings["weight_decay"] == 0.004

    @pytest.mark.parametrize(
        ("name", "chosen", "match"),
        [
            ("Adafactor", {}, '"Adafactor" is not supported; use one of SGD, Adam, AdamW, Adagrad, Row'),
            (
                "SGD",
                {"decay": 0.1},
                '"decay" of optimizer "SGD" is unknown; it takes weight_decay, momentum, n',
            ),
            ("Adam", {"centered": True}, '"centered" of optimizer "Adam" is unknown'),
            ("Adam", {"epsilon": 0.0}, "epsilon=0.0 is not above 0"),
            ("Adam", {"epsilon": 1e-60}, "epsilon=1e-60 is not above 0"),
            ("Adam", {"epsilon": math.inf}, "epsilon=inf"),
            ("Adam", {"epsilon": math.nan}, "epsilon=nan"),
            ("Adam", {"beta_1": 1.0}, "beta_1=1.0 is not within"),
            ("Adam", {"beta_2": 1 - 1e-12}, r"beta_2=0.99\d* is not within"),
            ("Adam", {"beta_2": -0.1}, "beta_2=-0.1 is not within"),
            ("Adam", {"beta_2": math.nan}, "beta_2=nan is not within"),
            ("Adam", {"beta_1": "0.9"}, "beta_1='0.9' is not a number"),
            ("Adam", {"amsgrad": 1}, "amsgrad=1 is neither True nor False"),
            ("AdamW", {"weight_decay": None}, "weight_decay=None is not a number"),
            ("Adamax", {"beta_1": 1.0}, "beta_1=1.0 is not within"),
            ("Nadam", {"epsilon": 0}, "epsilon=0 is not above 0"),
            ("SGD", {"momentum": 1.5}, "momentum=1.5 is not within"),
            ("SGD", {"momentum": math.nan}, "momentum=nan is not within"),
            ("SGD", {"momentum": True}, "momentum=True is not a number"),
            ("SGD", {"nesterov": 1.0}, "nesterov=1.0 is neither True nor False"),
            ("SGD", {"weight_decay": -0.1}, "weight_decay=-0.1 is not a finite number of 0 or more"),
            ("SGD", {"weight_decay": 1e60}, r"weight_decay=1e\+60 is not a finite number"),
            ("Adagrad", {"initial_accumulator_value": -1}, "initial_accumulator_value=-1 is not a finite"),
            ("Adagrad", {"epsilon": 0}, "epsilon=0 is not above 0"),
            ("RMSprop", {"rho": 1.0}, "rho=1.0 is not within"),
            ("RMSprop", {"momentum": -1}, "momentum=-1 is not within"),
            ("RMSprop", {"centered": 0}, "centered=0 is neither True nor False"),
            ("Adadelta", {"rho": math.inf}, "rho=inf is not within"),
            ("Adadelta", {"epsilon": -1}, "epsilon=-1 is not above 0"),
            (
                "Ftrl",
                {"learning_rate_power": -0.6},
                "learning_rate_power=-0.6 is not supported; leave it at -0.5",
            ),
            ("Ftrl", {"l1_regularization_strength": -1}, "l1_regularization_strength=-1 is not a finite"),
            ("Ftrl", {"beta": math.nan}, "beta=nan is not a finite"),
            ("Ftrl", {"initial_accumulator_value": 0.0}, "initial_accumulator_value=0.0 divides by 0"),
            ("Lion", {"beta_1": 0}, "beta_1=0 leaves only the sign"),
            ("Lion", {"beta_2": 1.1}, "beta_2=1.1 is not within"),
        ],
    )
    def test_refusals(self, name, chosen, match):
        with pytest.raises(ValueError, match=match):
            make_optimizer(name, chosen)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.name)
@pytest.mark.parametrize(
    ("rate", "iteration", "match"),
    [
        (math.nan, 0, "learning_rate=nan is not finite"),
        (math.inf, 0, "learning_rate=inf is not finite"),
        (1e39, 0, r"learning_rate=1e\+39 is not finite"),
        (0.1, -1, "iteration=-1 is negative"),
    ],
)
def test_step_is_refused_whole(optimizer, rate, iteration, match):
    made, values = optimizer(), np.ones(3, np.float32)
    slots = made.initial_slots(3)
    before = {name: slot.copy() for name, slot in slots.items()}
    with pytest.raises(ValueError, match=match):
        made.apply(values, values, slots, np.ones(3, np.float32), rate, iteration)
    with pytest.raises(ValueError, match=match):
        made.step(rate, iteration)
    assert values.tolist() == [1, 1, 1]
    for name, slot in slots.items():
        np.testing.assert_array_equal(slot, before[name])


@pytest.mark.parametrize(("rate", "beta"), [(0.0, 0.0), (-0.1, 0.0), (1e-44, 1.0)])
def test_ftrl_refuses_a_rate_that_divides_to_infinity(rate, beta):
    with pytest.raises(ValueError, match=r"learning_rate=.* divides in Ftrl"):
        Ftrl(beta=beta).step(rate, 0)


@pytest.mark.parametrize("optimizer", [o for o in OPTIMIZERS if o is not Ftrl], ids=lambda o: o.name)
def test_rate_of_zero_changes_no_value(optimizer):
    """A schedule may begin there."""
    made, course = optimizer(weight_decay=0.1), _Course()
    values = course.start.copy()
    made.apply(values, values, made.initial_slots(COUNT), course.gradients[0], 0.0, 0)
    np.testing.assert_array_equal(values, course.start)


class TestPackedSteps:
    @pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.name)
    def test_are_those_of_the_step(self, optimizer):
        """Also when the same one is asked for again, or the other kind in between."""
        made = optimizer(weight_decay=0.1)
        for rate, iteration in [(0.1, 0), (0.1, 0), (0.1, 1), (0.25, 1), (0.1, 0), (0.1, 7)]:
            expected = make_optimizer(made.name, made.settings).step(rate, iteration)
            assert made.packed_row_step(rate, iteration) == expected.packed
            dense_step = Step(kind=made.kind, decay=expected.decay, scalars=expected.scalars)
            assert made.packed_step(rate, iteration) == dense_step.packed

    @pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.name)
    def test_depend_on_the_iteration_where_the_optimizer_counts_steps(self, optimizer):
        made = optimizer()
        steps = {made.step(0.1, iteration).packed for iteration in (0, 1, 50)}
        assert len(steps) == (3 if optimizer.counts_steps else 1)

    def test_tell_zero_from_minus_zero(self):
        made = SGD()
        assert made.packed_step(0.0, 0) != made.packed_step(-0.0, 0)

    def test_an_iteration_below_zero_is_refused_after_others(self):
        made = SGD()
        made.packed_step(0.1, 0)
        with pytest.raises(ValueError, match="iteration=-1"):
            made.packed_step(0.1, -1)

    def test_a_scalar_too_large_for_float32_becomes_infinite(self):
        step = Step(kind=Kind.FTRL, decay=0.0, scalars=(0.1, 0.0, 1e39, -1e300))
        assert Step.unpack(step.packed).scalars[2:4] == (math.inf, -math.inf)


class TestScalars:
    @given(
        st.floats(0, 2.0**100, width=32, allow_subnormal=False),
        st.integers(0, 2_000_000),
        st.floats(0, 1, exclude_max=True, width=32, allow_subnormal=False),
        st.floats(0, 1, exclude_max=True, width=32, allow_subnormal=False),
    )
    def test_adam_rounds_as_float32_arithmetic_does(self, rate, iteration, beta_1, beta_2):
        one, t = np.float32(1), iteration + 1
        with np.errstate(all="ignore"):
            first = one - np.float32(power(beta_1, t))
            second = np.sqrt(one - np.float32(power(beta_2, t)))
            alpha = np.float32(rate) * second / first
        assert Adam(beta_1=beta_1, beta_2=beta_2).step(rate, iteration).scalars[1] == alpha

    @given(st.floats(allow_nan=False, allow_subnormal=False))
    def test_rounding_to_float32_is_that_of_numpy(self, value):
        with np.errstate(all="ignore"):
            expected = np.float32(value)
        assert round_32(value) == expected
        assert is_finite_in_float32(value) == np.isfinite(expected)

    @given(st.floats(min_value=0.5, max_value=1, exclude_max=True, width=32), st.integers(0, 300))
    def test_power_is_near_the_exact_one(self, base, exponent):
        """Nine squares at most, each of which doubles the error before it, and nine products: 1,100 * 2**-53."""
        exact = float(Fraction(base) ** exponent)
        assert power(base, exponent) == pytest.approx(exact, rel=1100 * 2.0**-53, abs=1e-300)

    def test_late_steps_use_the_plain_rate(self):
        """After 10 million steps the correction has vanished, and nothing over- or underflows."""
        values, gradient = np.zeros(1, np.float32), np.ones(1, np.float32)
        slots = {"m": np.ones(1, np.float32), "v": np.ones(1, np.float32)}
        Adam().apply(values, values, slots, gradient, 0.25, 10_000_000)
        assert values[0] == near(-0.25, 10)

    def test_first_step_is_rounded_as_keras_does(self):
        """1 - float32(0.999) is 0.000999987: a rate without that rounding would be 6e-6 of itself off."""
        values, gradient = np.zeros(1, np.float32), np.ones(1, np.float32)
        Adam().apply(values, values, Adam().initial_slots(1), gradient, 0.1, 0)
        rate = 0.1 * math.sqrt(1 - float(np.float32(0.999))) / (1 - float(np.float32(0.9)))
        assert values[0] == near(-rate * 0.1 / (math.sqrt(0.001) + 1e-7), 8)

    @pytest.mark.parametrize("beta_1", [0.0, 0.5, 0.9, 0.99, 0.999])
    def test_momentum_product_is_keras_running_product(self, beta_1):
        """Multiplied up in float32 step by step, in any order of questions, and 0 once nothing depends on it."""
        product, expected = np.float32(1), [np.float32(1)]
        for t in range(1, 2000):
            warmth = np.float32(1) - np.float32(0.5) * np.float32(float(np.float32(0.96)) ** t)
            product = product * np.float32(beta_1) * warmth
            expected.append(product)
        for t in (1999, 0, 1, 3, 255, 256, 257, 100, 511, 512, 513, 1023, 1024):
            got = momentum_product(beta_1, t)
            assert got.dtype == np.float32
            assert got == expected[t] or (got == 0 and expected[t] < 2**-26)
        assert momentum_product(beta_1, 10_000_000) == 0

    def test_momentum_warms_up_to_beta_1(self):
        assert warming_momentum(0.9, 1) == near(0.9 * (1 - 0.48), 4)
        assert warming_momentum(0.9, 10_000) == np.float32(0.9)

    def test_late_steps_of_nadam_are_finite(self):
        step = Nadam().step(0.1, 10_000_000)
        assert np.isfinite(Step.unpack(step.packed).scalars).all()
