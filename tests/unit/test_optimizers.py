"""The dense optimizers: equal to Keras', exact in their scalars, and what they refuse."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.core_ext.memory import ALIGNMENT_BYTES
from edlz.core_ext.optimizers import SGD, Adam, _power, make_optimizer

ADAM = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
COUNT, STEPS = 50, 50


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


CASES = {
    "SGD": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "Nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "Nesterov without momentum": ("SGD", {"momentum": 0.0, "nesterov": True}),
    "Adam": ("Adam", ADAM),
    "other Adam": ("Adam", {"beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-3}),
}


@pytest.mark.parametrize("case", CASES)
def test_equal_to_keras(keras, case):
    name, chosen = CASES[case]
    rng = np.random.default_rng(11)
    start = rng.standard_normal(COUNT).astype(np.float32)
    variable = keras.Variable(start)
    peer = getattr(keras.optimizers, name)(learning_rate=0.5, **chosen)
    peer.build([variable])
    ours, values = make_optimizer(name, chosen), start.copy()
    slots, distance = ours.initial_slots(COUNT), np.zeros(COUNT, np.float32)
    for iteration in range(STEPS):
        rate = 0.02 / (1 + iteration)
        gradient = (rng.standard_normal(COUNT) * 10 ** rng.uniform(-3, 1, COUNT)).astype(np.float32)
        peer.learning_rate = rate
        peer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
        before = values.copy()
        ours.apply(values, values, slots, gradient, rate, iteration)
        distance += np.abs(values - before)
        expected = np.asarray(variable)
        allowed = 1e-6 * np.abs(expected) + 1e-7 * distance
        assert np.all(np.abs(values - expected) <= allowed), iteration
    assert np.all(distance > 0)


class TestSlots:
    def test_names_and_zeros(self):
        expected = {SGD(): (), SGD(momentum=0.9): ("momentum",), Adam(**ADAM): ("m", "v")}
        for optimizer, names in expected.items():
            slots = optimizer.initial_slots(17)
            assert optimizer.slots == names == tuple(slots)
            for slot in slots.values():
                assert (slot.shape, slot.dtype, slot.any()) == ((17,), np.float32, False)
                assert slot.ctypes.data % ALIGNMENT_BYTES == 0

    def test_missing_slot(self):
        values = np.ones(3, np.float32)
        with pytest.raises(KeyError, match="v"):
            Adam(**ADAM).apply(values, values, {"m": np.zeros(3, np.float32)}, values.copy(), 0.1, 0)
        assert values.tolist() == [1, 1, 1]

    def test_other_out_leaves_values(self):
        values, out = np.ones(3, np.float32), np.zeros(3, np.float32)
        SGD().apply(out, values, {}, np.ones(3, np.float32), 0.5, 0)
        assert (values.tolist(), out.tolist()) == ([1, 1, 1], [0.5, 0.5, 0.5])


class TestMake:
    @pytest.mark.parametrize("name", ["SGD", "sgd", "Adam", "adam"])
    def test_settings_come_back(self, name):
        chosen = {"momentum": 0.5, "nesterov": True} if name.lower() == "sgd" else ADAM
        optimizer = make_optimizer(name, chosen)
        assert (optimizer.name.lower(), optimizer.settings) == (name.lower(), chosen)
        assert make_optimizer(optimizer.name, optimizer.settings) == optimizer

    def test_sgd_has_defaults(self):
        assert make_optimizer("SGD", {}).settings == {"momentum": 0.0, "nesterov": False}

    @pytest.mark.parametrize(
        ("name", "chosen", "match"),
        [
            ("Adafactor", {}, '"Adafactor" is not supported; use one of SGD, Adam'),
            ("SGD", {"decay": 0.1}, '"decay" of optimizer "SGD" is unknown; it takes momentum, nesterov'),
            ("Adam", {**ADAM, "amsgrad": True}, '"amsgrad" of optimizer "Adam" is unknown'),
            ("Adam", {"beta_1": 0.9, "beta_2": 0.999}, '"epsilon" of optimizer "Adam" is missing'),
            ("Adam", {**ADAM, "epsilon": 0.0}, "epsilon=0.0 is not above 0"),
            ("Adam", {**ADAM, "epsilon": 1e-60}, "epsilon=1e-60 is not above 0"),
            ("Adam", {**ADAM, "epsilon": math.inf}, "epsilon=inf"),
            ("Adam", {**ADAM, "epsilon": math.nan}, "epsilon=nan"),
            ("Adam", {**ADAM, "beta_1": 1.0}, "beta_1=1.0 is not within"),
            ("Adam", {**ADAM, "beta_2": 1 - 1e-12}, "beta_2=0.99.* is not within"),
            ("Adam", {**ADAM, "beta_2": -0.1}, "beta_2=-0.1 is not within"),
            ("Adam", {**ADAM, "beta_2": math.nan}, "beta_2=nan is not within"),
            ("Adam", {**ADAM, "beta_1": "0.9"}, "beta_1='0.9' is not a number"),
            ("SGD", {"momentum": 1.5}, "momentum=1.5 is not within"),
            ("SGD", {"momentum": math.nan}, "momentum=nan is not within"),
            ("SGD", {"momentum": True}, "momentum=True is not a number"),
            ("SGD", {"nesterov": 1.0}, "nesterov=1.0 is neither True nor False"),
        ],
    )
    def test_refusals(self, name, chosen, match):
        with pytest.raises(ValueError, match=match):
            make_optimizer(name, chosen)

    def test_all_of_adam_must_be_given(self):
        with pytest.raises(TypeError, match="epsilon"):
            Adam(beta_1=0.9, beta_2=0.999)


@pytest.mark.parametrize("optimizer", [SGD(), SGD(momentum=0.9), Adam(**ADAM)])
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
    values, slots = np.ones(3, np.float32), optimizer.initial_slots(3)
    with pytest.raises(ValueError, match=match):
        optimizer.apply(values, values, slots, np.ones(3, np.float32), rate, iteration)
    assert values.tolist() == [1, 1, 1]
    assert not any(slot.any() for slot in slots.values())


class TestScalars:
    @given(st.floats(min_value=0.5, max_value=1, exclude_max=True, width=32), st.integers(0, 300))
    def test_power_is_near_the_exact_one(self, base, exponent):
        exact = float(Fraction(base) ** exponent)
        assert _power(base, exponent) == pytest.approx(exact, rel=1e-13, abs=1e-300)

    def test_late_steps_use_the_plain_rate(self):
        """After 10 million steps the correction has vanished, and nothing over- or underflows."""
        values, gradient = np.zeros(1, np.float32), np.ones(1, np.float32)
        slots = {"m": np.ones(1, np.float32), "v": np.ones(1, np.float32)}
        Adam(**ADAM).apply(values, values, slots, gradient, 0.25, 10_000_000)
        assert values[0] == pytest.approx(-0.25, rel=1e-6)

    def test_first_step_is_rounded_as_keras_does(self):
        """1 - float32(0.999) is 0.000999987: a rate without that rounding would be 6e-6 of itself off."""
        values, gradient = np.zeros(1, np.float32), np.ones(1, np.float32)
        Adam(**ADAM).apply(values, values, Adam(**ADAM).initial_slots(1), gradient, 0.1, 0)
        rate = 0.1 * math.sqrt(1 - float(np.float32(0.999))) / (1 - float(np.float32(0.9)))
        assert values[0] == pytest.approx(-rate * 0.1 / (math.sqrt(0.001) + 1e-7), rel=1e-6)
