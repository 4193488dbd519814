"""xDeepFM for Criteo's click logs: linear part, compressed interaction network and perceptron.

Records: `criteo.layout`.

References
----------
Lian et al., xDeepFM, KDD 2018.
"""

from collections.abc import Sequence

import keras
from keras import layers

from edlz.model_zoo.blocks.binary_label import eval_metrics_fn, loss
from edlz.model_zoo.blocks.interactions import InteractionNetwork
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.criteo.inputs import Inputs, embed, feed, linear_part, optimizer

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]


def custom_model(
    dim: int = 16,
    hidden: Sequence[int] = (256, 64),
    maps: Sequence[int] = (16, 16),
    dropout: float = 0.0,
) -> keras.Model:
    """Return the model: {"numeric": (n, 13), "ids": (n, 26)} to logits (n,).

    Parameters
    ----------
    dim : int
        Length of an id's vector.
    hidden : sequence of int
        Sizes of the perceptron's layers.
    maps : sequence of int
        Feature maps of the interaction network's layers.
    dropout : float
        After each of the perceptron's layers.
    """
    inputs = Inputs()
    vectors = embed(inputs, dim)
    x = layers.Concatenate()([layers.Flatten()(vectors), inputs.numeric])
    interactions = InteractionNetwork(maps, name="interactions")(vectors)
    both = layers.Concatenate()([interactions, perceptron(x, hidden, dropout)])
    deep = layers.Dense(1, name="logit")(both)
    return inputs.model(linear_part(inputs) + deep[:, 0], "xdeepfm")
