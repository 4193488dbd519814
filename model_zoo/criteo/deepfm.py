"""DeepFM for Criteo's click logs: a factorization machine and a perceptron on the same vectors.

Records: `criteo.layout`.

References
----------
Guo et al., DeepFM, IJCAI 2017.
"""

from collections.abc import Sequence

import keras
from keras import layers

from edlz.model_zoo.blocks.binary_label import eval_metrics_fn, loss
from edlz.model_zoo.blocks.interactions import FactorizationMachine
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.criteo.inputs import Inputs, embed, feed, linear_part, optimizer

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]


def custom_model(dim: int = 16, hidden: Sequence[int] = (256, 64), dropout: float = 0.0) -> keras.Model:
    """Return the model: {"numeric": (n, 13), "ids": (n, 26)} to logits (n,).

    Parameters
    ----------
    dim : int
        Length of an id's vector.
    hidden : sequence of int
        Sizes of the perceptron's layers.
    dropout : float
        After each of them.
    """
    inputs = Inputs()
    vectors = embed(inputs, dim)
    x = layers.Concatenate()([layers.Flatten()(vectors), inputs.numeric])
    deep = layers.Dense(1, name="deep")(perceptron(x, hidden, dropout))
    pairs = FactorizationMachine(name="pairs")(vectors)
    return inputs.model(linear_part(inputs) + pairs + deep[:, 0], "deepfm")
