"""DCN-v2 for Criteo's click logs: cross layers and a perceptron side by side.

Records: `criteo.layout`.

References
----------
Wang et al., DCN V2, WWW 2021 (the parallel structure).
"""

from collections.abc import Sequence

import keras
from keras import layers

from edlz.model_zoo.blocks.binary_label import eval_metrics_fn, loss
from edlz.model_zoo.blocks.interactions import CrossNetwork
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.criteo.inputs import Inputs, embed, feed, optimizer

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]


def custom_model(
    dim: int = 16,
    hidden: Sequence[int] = (256, 64),
    cross_layers: int = 2,
    rank: int | None = 64,
    dropout: float = 0.0,
) -> keras.Model:
    """Return the model: {"numeric": (n, 13), "ids": (n, 26)} to logits (n,).

    Parameters
    ----------
    dim : int
        Length of an id's vector.
    hidden : sequence of int
        Sizes of the perceptron's layers.
    cross_layers : int
        How many there are: the highest degree is one more.
    rank : int or None
        Of the cross layers' matrices; None: full matrices.
    dropout : float
        After each of the perceptron's layers.
    """
    inputs = Inputs()
    x = layers.Concatenate()([layers.Flatten()(embed(inputs, dim)), inputs.numeric])
    crossed = CrossNetwork(cross_layers, rank, name="cross")(x)
    both = layers.Concatenate()([crossed, perceptron(x, hidden, dropout)])
    return inputs.model(layers.Dense(1, name="logit")(both)[:, 0], "dcn")
