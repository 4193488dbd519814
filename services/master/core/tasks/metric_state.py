"""Adding the states of metrics: what the master does with what workers report, without TensorFlow."""

from collections.abc import Sequence

import numpy as np

from edlz.services.protocol.messages import MetricState

__all__ = ["merge_states"]


def merge_states(states: Sequence[MetricState]) -> MetricState:
    """Add metric states array by array, in the given order.

    Float addition is not associative, so a fixed order keeps the sum's bits whoever reported first.

    Returns
    -------
    dict of lists of ndarray, float64

    Raises
    ------
    ValueError
        If the states are not of the same metrics and shapes.
    """
    if not states:
        return {}
    total = {name: [np.array(part, np.float64) for part in parts] for name, parts in states[0].items()}
    for state in states[1:]:
        if state.keys() != total.keys():
            raise ValueError(f"metric states of {sorted(state)} and {sorted(total)} cannot be added")
        for name, parts in state.items():
            if [part.shape for part in parts] != [part.shape for part in total[name]]:
                raise ValueError(f"states of metric {name!r} differ in shape")
            for into, part in zip(total[name], parts, strict=True):
                into += part
    return total
