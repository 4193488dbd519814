"""Optimizers that Keras does not have."""

from typing import Any

import keras

__all__ = ["RowwiseAdagrad"]


@keras.saving.register_keras_serializable(package="edlz")
class RowwiseAdagrad(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Adagrad with one sum for each row of an embedding table, in place of one for each element.

    For a table of dimension 16 that is a sixteenth of Adagrad's memory.  The mean of the squares of a row's
    gradient is added to the row's sum; then `row -= learning_rate * gradient / sqrt(sum + epsilon)`.
    Variables that are no embedding tables get plain Adagrad.

    Parameters
    ----------
    learning_rate : float or keras.optimizers.schedules.LearningRateSchedule
    initial_accumulator_value : float
        What the sums start at.
    epsilon : float
        Added under the root.
    **options
        As of every Keras optimizer: weight_decay, clipnorm, clipvalue, global_clipnorm, …
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        name: str = "rowwise_adagrad",
        **options: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name, **options)
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon

    def build(self, variables: Any) -> None:
        if self.built:
            return
        super().build(variables)
        initializer = keras.initializers.Constant(self.initial_accumulator_value)
        self._accumulators = [
            self.add_variable(
                shape=(*v.shape[:-1], 1) if _is_table(v) else v.shape,
                initializer=initializer,
                dtype=v.dtype,
                name="accumulator",
            )
            for v in variables
        ]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        ops = keras.ops
        accumulator = self._accumulators[self._get_variable_index(variable)]
        square = ops.square(gradient)
        is_by_row = tuple(accumulator.shape) != tuple(variable.shape)
        self.assign_add(accumulator, ops.mean(square, axis=-1, keepdims=True) if is_by_row else square)
        rate = ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, rate * gradient / ops.sqrt(accumulator + self.epsilon))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "initial_accumulator_value": self.initial_accumulator_value,
            "epsilon": self.epsilon,
        }


def _is_table(variable: Any) -> bool:
    return len(variable.shape) == 2 and variable.path.rpartition("/")[2] == "embeddings"
