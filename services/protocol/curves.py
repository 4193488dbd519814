"""A job's figures over time, as the journal keeps them and pages draw them."""

from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.message_types import Finite, Record

__all__ = ["CurveEnd", "CurveRow"]


class CurveRow(Record, frozen=True, kw_only=True):
    """What happened in the `span_s` seconds before `at` (seconds since the epoch), and how things stood meanwhile.

    `records`: applied.  `loss_total`, `loss_count`, `nonfinite`: of minibatches that lead to a version above all earlier
    ones; what is computed again is not counted again.  `training`, `starting`, `missing`: workers, on average.
    `wait`: the share of a step that workers spend waiting.  `staleness`: the median and the 95th percentile.
    """

    at: Finite
    span_s: Finite
    version: int
    records: int = 0
    loss_total: float = 0.0
    loss_count: int = 0
    nonfinite: int = 0
    training: Finite = 0.0
    starting: Finite = 0.0
    missing: Finite = 0.0
    wait: Finite | None = None
    staleness: tuple[Finite, Finite] | None = None

    @property
    def loss(self) -> float | None:
        """The mean; None where there is none that can be drawn."""
        return self.loss_total / self.loss_count if self.loss_count and not self.nonfinite else None

    @property
    def records_per_s(self) -> float:
        return self.records / self.span_s if self.span_s > 0 else 0.0


class CurveEnd(Record, frozen=True, kw_only=True):
    """Where the curves go on: the totals up to which rows have counted.

    `top`: the highest version so far.  `is_again`: the job is below it, and what it computes was counted before.
    `width_s`: seconds between two rows.
    """

    at: Finite
    records: int
    version: int
    top: int
    losses: LossSum
    width_s: Finite
    is_again: bool = False
