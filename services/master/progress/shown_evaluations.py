"""The evaluations of a job as screens are told of them: not more than a curve has room for, however many there are.

Theory of operation.  A job that is evaluated every few seconds for days has ten thousands of results, and whoever asks for
its status would be told of all of them each time.  When there are MOST, every second one is left out, and from then on
of the new ones too.  The newest stays, and of each metric the least and the greatest: one of them is its best.
"""

import math
from collections.abc import Sequence

from edlz.services.protocol.job_status import EvaluationView

__all__ = ["MOST", "ShownEvaluations"]

MOST = 600  # beside the newest, and the best of each metric

_Results = Sequence[tuple[int, dict[str, float]]]


class ShownEvaluations:
    """Those of one job.

    Parameters
    ----------
    results : sequence of (int, dict)
        All of them, by version; it only becomes longer.
    """

    def __init__(self, results: _Results) -> None:
        self._results = results
        self._seen = 0
        self._every = 1
        self._kept: list[int] = []  # places in `results`, each a multiple of `every`
        self._least: dict[str, int] = {}
        self._greatest: dict[str, int] = {}
        self._views: tuple[EvaluationView, ...] = ()

    @property
    def views(self) -> tuple[EvaluationView, ...]:
        """Return those that are shown, in their order."""
        if self._seen < len(self._results):
            for place in range(self._seen, len(self._results)):
                self._note(place)
            self._seen = len(self._results)
            places = {*self._kept, *self._least.values(), *self._greatest.values(), self._seen - 1}
            self._views = tuple(
                EvaluationView(version=version, metrics=metrics)
                for version, metrics in (self._results[place] for place in sorted(places))
            )
        return self._views

    def _note(self, place: int) -> None:
        if place % self._every == 0:
            self._kept.append(place)
        if len(self._kept) > MOST:
            self._every *= 2
            self._kept = self._kept[::2]
        for name, value in self._results[place][1].items():
            if math.isnan(value):
                continue
            if name not in self._least or value < self._results[self._least[name]][1][name]:
                self._least[name] = place
            if name not in self._greatest or value > self._results[self._greatest[name]][1][name]:
                self._greatest[name] = place
