"""Contenders that take turns, so that what else happens on the machine happens to all of them."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Figures", "process_cpu_s", "take_turns"]

FEWEST_ROUNDS, MOST_ROUNDS = 5, 15
STEADY = 0.05  # the quartiles of a contender's figures lie within this share of its median


@dataclass(frozen=True)
class Figures:
    """What each contender's turns gave, round by round."""

    by_name: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.by_name[name])

    def ratio(self, name: str, other: str) -> float:
        """Return the median over the rounds of one's figure divided by the other's in the same round."""
        pairs = zip(self.by_name[name], self.by_name[other], strict=True)
        return statistics.median(figure / others for figure, others in pairs)


def take_turns(
    contenders: Mapping[str, Callable[[], float]],
    *,
    fewest: int = FEWEST_ROUNDS,
    most: int = MOST_ROUNDS,
) -> Figures:
    """Let the contenders take turns until their figures are steady.

    Parameters
    ----------
    contenders : mapping of str to callable
        Each call is one turn and returns its figure.
    fewest, most : int
        Rounds that count; one before them warms up.

    Returns
    -------
    Figures
    """
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in contenders.values():
        turn()
    while True:
        for name, turn in contenders.items():
            figures[name].append(turn())
        rounds = len(next(iter(figures.values())))
        if rounds >= most or (rounds >= fewest and all(map(_is_steady, figures.values()))):
            return Figures(figures)


def process_cpu_s(call: Callable[[int], object], calls: int) -> float:
    """Return the CPU time of one call, over all threads of this process.

    Parameters
    ----------
    call : callable (int)
        Given 0, 1, 2, ... in turn; a first call, which finds another contender's data in the caches, does
        not count.
    calls : int
        How many count.
    """
    call(0)
    began_s = time.process_time()
    for number in range(calls):
        call(number)
    return (time.process_time() - began_s) / calls


def _is_steady(figures: list[float]) -> bool:
    lower, middle, upper = statistics.quantiles(figures, n=4)
    return upper - lower <= 2 * STEADY * middle
