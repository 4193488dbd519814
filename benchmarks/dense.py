"""Dense kernels against NumPy that works in place and against one memcpy of the same traffic.

Counted is the CPU time of this thread, since other processes may share the machine.  The contestants take
turns; a turn makes several calls and does not count the first, which finds the other's data in the caches.
"""

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from benchmarks.rows import Row
from edlz.core_ext import dense
from edlz.core_ext.memory import Float32Array, aligned_empty, aligned_zeros
from edlz.core_ext.optimizers import SGD, Adam

__all__ = ["measure"]

_COUNTS = (1_000_000, 10_000_000)
_ELEMENTS_PER_TURN = 10_000_000
_TURNS = 7

_LEARNING_RATE = 0.001

# 4-byte elements read and written: Adam w, m, v, g and w, m, v; SGD w, g and w.
_ADAM_TRAFFIC, _SGD_TRAFFIC = 7, 3

_Kernel = Callable[[], None]


def measure() -> list[Row]:
    """Measure Adam and SGD for one and ten million elements.

    Returns
    -------
    list of Row
        Four for each number of elements.
    """
    rows: list[Row] = []
    for count in _COUNTS:
        ours, numpy_in_place = _adam(count)
        rows += _compare("Adam", count, ours, numpy_in_place, _ADAM_TRAFFIC, 5.0, 2.0)
        ours, numpy_in_place = _sgd(count)
        rows += _compare("SGD", count, ours, numpy_in_place, _SGD_TRAFFIC, 1.5, 2.0)
    return rows


def _compare(
    name: str,
    count: int,
    ours: _Kernel,
    numpy_in_place: _Kernel,
    traffic: int,
    numpy_target: float,
    memcpy_target: float,
) -> list[Row]:
    # A copy reads and writes each element once, so half as many elements make the same traffic.
    source = aligned_zeros(count * traffic // 2, np.float32)
    source.fill(1)  # zeros that nobody wrote all lie in one page
    target = np.empty_like(source)
    calls = max(2, _ELEMENTS_PER_TURN // count)
    times = _medians_s((ours, numpy_in_place, lambda: dense.copy(target, source)), calls)
    our_s, numpy_s, memcpy_s = times
    title = f"{name}, {count // 1_000_000}M float32"
    return [
        Row(
            f"{title}: NumPy's time / ours",
            _ms(our_s),
            f"NumPy {_ms(numpy_s)}",
            numpy_s / our_s,
            numpy_target,
            True,
        ),
        Row(
            f"{title}: our time / memcpy's",
            _ms(our_s),
            f"memcpy {_ms(memcpy_s)}",
            our_s / memcpy_s,
            memcpy_target,
            False,
        ),
    ]


def _medians_s(contestants: tuple[_Kernel, ...], calls: int) -> list[float]:
    """Return each contestant's median CPU time of one call in seconds."""
    turns: list[list[float]] = [[] for _ in contestants]
    for _ in range(_TURNS):
        for kernel, times_s in zip(contestants, turns, strict=True):
            kernel()
            start_s = time.thread_time()
            for _ in range(calls):
                kernel()
            times_s.append((time.thread_time() - start_s) / calls)
    return [median(times_s) for times_s in turns]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _random(count: int) -> Float32Array:
    values: Float32Array = aligned_empty(count, np.float32)
    values[:] = np.random.default_rng(7).standard_normal(count, np.float32)
    return values


def _sgd(count: int) -> tuple[_Kernel, _Kernel]:
    values, gradient, scratch = _random(count), _random(count), aligned_zeros(count, np.float32)
    sgd = SGD()
    rate = np.float32(_LEARNING_RATE)

    def numpy_in_place() -> None:
        np.multiply(gradient, rate, out=scratch)
        np.subtract(values, scratch, out=values)

    return lambda: sgd.apply(values, values, {}, gradient, _LEARNING_RATE, 0), numpy_in_place


def _adam(count: int) -> tuple[_Kernel, _Kernel]:
    values, gradient = _random(count), _random(count)
    adam = Adam()
    slots = adam.initial_slots(count)
    m, v = slots["m"], slots["v"]
    scratch, move = aligned_zeros(count, np.float32), aligned_zeros(count, np.float32)
    alpha, epsilon = np.float32(_LEARNING_RATE), np.float32(adam.epsilon)
    rest_1, rest_2 = np.float32(1 - adam.beta_1), np.float32(1 - adam.beta_2)

    def ours() -> None:
        adam.apply(values, values, slots, gradient, _LEARNING_RATE, 0)

    def numpy_in_place() -> None:
        np.subtract(gradient, m, out=scratch)
        np.multiply(scratch, rest_1, out=scratch)
        np.add(m, scratch, out=m)
        np.multiply(gradient, gradient, out=scratch)
        np.subtract(scratch, v, out=scratch)
        np.multiply(scratch, rest_2, out=scratch)
        np.add(v, scratch, out=v)
        np.sqrt(v, out=scratch)
        np.add(scratch, epsilon, out=scratch)
        np.multiply(m, alpha, out=move)
        np.divide(move, scratch, out=move)
        np.subtract(values, move, out=values)

    return ours, numpy_in_place
