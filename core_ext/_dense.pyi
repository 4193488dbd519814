import numpy as np
import numpy.typing as npt

_Float32Array = npt.NDArray[np.float32]

def copy(out: _Float32Array, values: _Float32Array) -> None: ...
def add(accumulator: _Float32Array, gradient: _Float32Array) -> None: ...
def divide(accumulator: _Float32Array, divisor: float) -> None: ...
def apply_sgd(
    out: _Float32Array, values: _Float32Array, gradient: _Float32Array, learning_rate: float
) -> None: ...
def apply_momentum(
    out: _Float32Array,
    values: _Float32Array,
    momentum_slot: _Float32Array,
    gradient: _Float32Array,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
) -> None: ...
def apply_adam(
    out: _Float32Array,
    values: _Float32Array,
    m: _Float32Array,
    v: _Float32Array,
    gradient: _Float32Array,
    alpha: float,
    beta_1: float,
    beta_2: float,
    epsilon: float,
) -> None: ...
def instruction_set() -> str: ...
