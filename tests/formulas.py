"""The optimizers' formulas in float64, with the bounds of float32 runs: the measure for Keras and for the kernels."""

import numpy as np

from edlz.core_ext.optimizers import Adam, Adamax, Ftrl
from edlz.core_ext.steps import Step
from edlz.core_ext.steps_numpy import FORMULAS
from tests.rounding import Analysis

__all__ = ["Formula"]


class Formula:
    """A run of an optimizer's formula in float64, and how far one of float32 operations may be from it.

    Scalars that both sides round to the same float32 number are as the step has them; those of powers and
    quotients are computed here.
    """

    def __init__(self, optimizer, start):
        self._optimizer, self._analysis = optimizer, Analysis()
        self.values = self._exact(start)
        self.slots = [self._exact(slot) for slot in optimizer.initial_slots(len(start)).values()]
        self._product = self._exact(1)  # of Nadam's momenta

    def step(self, gradient, rate, iteration):
        step = Step.unpack(self._optimizer.packed_step(rate, iteration))
        scalars = [self._exact(scalar) for scalar in step.scalars]
        for place, scalar in self._computed(scalars[0], iteration + 1).items():
            scalars[place] = scalar
        values = self.values
        if step.decay:
            values = values - values * self._exact(step.decay) * scalars[0]
        self.values = FORMULAS[step.kind](values, self.slots, self._exact(gradient), scalars)

    def _exact(self, numbers):
        return self._analysis.exact(np.float32(numbers))

    def _computed(self, rate, t):
        optimizer = self._optimizer
        if isinstance(optimizer, Ftrl):
            regularization = self._exact(optimizer.l2_regularization_strength)
            return {2: (regularization + self._exact(optimizer.beta) / (rate * 2)) * 2}
        if not optimizer.counts_steps:
            return {}
        first, second = self._exact(optimizer.beta_1), self._exact(optimizer.beta_2)
        if isinstance(optimizer, Adam):
            return {1: rate * (1 - second.power(t)).sqrt() / (1 - first.power(t))}
        if isinstance(optimizer, Adamax):
            return {4: 1 - first.power(t)}
        momentum, following = self._warming(first, t), self._warming(first, t + 1)
        self._product = self._product * first * (1 - self._exact(0.96).power(t) * 0.5)
        corrections = 1 - self._product * following, 1 - momentum, 1 - self._product, 1 - second.power(t)
        return dict(enumerate((following, *corrections), 4))

    def _warming(self, first, t):
        return first * (1 - self._exact(0.96).power(t) * 0.5)
