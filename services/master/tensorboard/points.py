"""What of a job goes to TensorBoard: which figures, under which tags, and when."""

from collections.abc import Sequence

from edlz.services.master.core.master import MasterCore
from edlz.services.master.progress.measures import Measures
from edlz.services.master.progress.progress import Progress
from edlz.services.master.tensorboard.curve_files import TRAIN, VALIDATION, CurveFiles, Point
from edlz.services.protocol.curves import CurveRow

__all__ = ["Board"]


class Board:
    """Passes each new row of the curves on, and each evaluation.

    Parameters
    ----------
    files : CurveFiles
        Where to.
    core, progress : MasterCore, Progress
        Read, never changed.
    """

    def __init__(self, files: CurveFiles, core: MasterCore, progress: Progress) -> None:
        self._files, self._core, self._progress = files, core, progress
        self._seen_at, self._evaluation_count = float("-inf"), 0
        self._steps = _StepTimes(progress.measures)

    def take(self, at: float) -> None:
        """See what is new; `at`: now, in seconds since the epoch."""
        rows = self._progress.curves.rows
        if rows and rows[-1].at > self._seen_at:
            new = [row for row in rows if row.at > self._seen_at]
            self._seen_at = new[-1].at
            self._files.add(TRAIN, [*(_of_row(row) for row in new[:-1]), self._newest(new[-1])])
        results = self._core.work.results
        if len(results) > self._evaluation_count:
            new_results: Sequence[tuple[int, dict[str, float]]] = results[self._evaluation_count :]
            self._evaluation_count = len(results)
            self._files.add(VALIDATION, [Point(at, version, metrics) for version, metrics in new_results])

    def close(self) -> None:
        """Write what is left."""
        self._files.close()

    def _newest(self, row: CurveRow) -> Point:
        """Return the point of the row that has just ended, with what is known of now."""
        point, rate = _of_row(row), self._progress.learning_rate
        values = dict(point.values)
        if rate is not None:
            values["learning_rate"] = rate
        mean = self._progress.measures.mean_staleness
        if mean is not None:
            values["edlz/staleness_mean"] = mean
        values |= {f"edlz/step_seconds/{phase}": seconds for phase, seconds in self._steps.take().items()}
        return Point(point.at, point.version, values)


class _StepTimes:
    """The parts of a step, on average over the steps since they were asked for last."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._steps, self._seconds = 0, dict.fromkeys(measures.step_s, 0.0)

    def take(self) -> dict[str, float]:
        measures = self._measures
        steps = measures.steps - self._steps
        means = {
            phase: (seconds - self._seconds[phase]) / steps
            for phase, seconds in measures.step_s.items()
            if steps and seconds  # workers with parameter servers add up nothing
        }
        self._steps, self._seconds = measures.steps, dict(measures.step_s)
        return means


def _of_row(row: CurveRow) -> Point:
    values = {"edlz/records_per_second": row.records_per_s, "edlz/workers": row.training}
    if row.loss is not None:
        values["loss"] = row.loss
    return Point(row.at, row.version, values)
