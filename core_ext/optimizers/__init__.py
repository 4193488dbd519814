"""The optimizers of dense parameters and embedding rows, by the names and with the formulas of Keras 3.

Each is a frozen dataclass of its settings; `make_optimizer` builds one from what travels in a message.
"""

from collections.abc import Mapping
from dataclasses import fields

from edlz.core_ext.optimizers.adagrad import Adagrad, Ftrl, RowwiseAdagrad
from edlz.core_ext.optimizers.adam import Adam, Adamax, AdamW, Nadam
from edlz.core_ext.optimizers.base import Optimizer
from edlz.core_ext.optimizers.momentum import SGD, Lion
from edlz.core_ext.optimizers.rmsprop import Adadelta, RMSprop

__all__ = [
    "OPTIMIZERS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lion",
    "Nadam",
    "Optimizer",
    "RMSprop",
    "RowwiseAdagrad",
    "make_optimizer",
]

OPTIMIZERS: tuple[type[Optimizer], ...] = (
    SGD,
    Adam,
    AdamW,
    Adagrad,
    RowwiseAdagrad,
    RMSprop,
    Adadelta,
    Adamax,
    Nadam,
    Ftrl,
    Lion,
)
"""All optimizers; `name` is what `make_optimizer` takes."""

_BY_NAME = {optimizer.name.lower(): optimizer for optimizer in OPTIMIZERS}


def make_optimizer(name: str, settings: Mapping[str, float | bool]) -> Optimizer:
    """Build an optimizer from what travels in a message.

    Parameters
    ----------
    name : str
        The name of one of `OPTIMIZERS`, in upper or lower case.
    settings : mapping of str to float or bool
        The class's parameters by name, without the learning rate; those left out have Keras' defaults.

    Returns
    -------
    Optimizer

    Raises
    ------
    ValueError
        If there is no such optimizer, or a setting is unknown or out of its range.
    """
    optimizer = _BY_NAME.get(name.lower())
    if optimizer is None:
        names = ", ".join(known.name for known in OPTIMIZERS)
        raise ValueError(f'optimizer "{name}" is not supported; use one of {names}')
    known = [field.name for field in fields(optimizer)]
    for setting in settings:
        if setting not in known:
            raise ValueError(
                f'setting "{setting}" of optimizer "{name}" is unknown; it takes {", ".join(known)}'
            )
    return optimizer(**settings)
