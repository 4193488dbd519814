"""A step by a gradient in parts is the step by the whole one, whatever decays."""

import numpy as np
import pytest

from edlz.core_ext.optimizers import OPTIMIZERS, RowwiseAdagrad
from edlz.services.parameters.dense_optimizer import DenseOptimizer
from edlz.services.protocol.layout import Variable, VectorLayout
from edlz.services.protocol.messages import OptimizerSpec

LAYOUT = VectorLayout(variables=tuple(Variable(path=str(size), shape=(size,)) for size in (20, 16, 40, 3)))
KINDS: list[tuple[str, dict[str, float | bool]]] = [
    *((optimizer.name, {}) for optimizer in OPTIMIZERS if optimizer is not RowwiseAdagrad),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {"amsgrad": True}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
]


@pytest.mark.parametrize("undecayed", [(), (1,), (0, 3)])
@pytest.mark.parametrize("cuts", [(), (32,), (16, 16, 48, 112)])
@pytest.mark.parametrize(("name", "settings"), KINDS)
def test_parts_make_no_difference(
    name: str, settings: dict[str, float | bool], cuts: tuple[int, ...], undecayed: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(3)
    decay = {"weight_decay": 0.1} if undecayed else {}
    spec = OptimizerSpec(name=name, settings={**settings, **decay}, undecayed=undecayed)
    whole, parted = (DenseOptimizer(spec, LAYOUT, 0, LAYOUT.size) for _ in range(2))
    one = rng.standard_normal(LAYOUT.size, np.float32)
    other = one.copy()
    for iteration in range(3):
        gradient = rng.standard_normal(LAYOUT.size, np.float32)
        whole.apply(whole.steps(0.01, iteration), one, one, gradient)
        parted.apply_in_parts(parted.steps(0.01, iteration), other, other, np.split(gradient, cuts))
    np.testing.assert_array_equal(one, other)
    for slot, values in whole.slots.items():
        np.testing.assert_array_equal(values, parted.slots[slot])
