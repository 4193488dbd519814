"""The export of the finished model that a worker has in hand, and what it has to report of it."""

from edlz.services.protocol.messages import (
    ExportLease,
    ExportReport,
    ExportWish,
    FailedExport,
    Failure,
    WorkerOrders,
)
from edlz.services.worker.core.instructions import ExportModel, Instruction

__all__ = ["Exports"]


class Exports:
    """One export at a time.

    Attributes
    ----------
    wish : ExportWish, or None
        Of the model's callbacks(), as soon as it is built.
    report, failed : ExportReport, FailedExport, or None
        What came of it, until the master has noted it.
    """

    def __init__(self) -> None:
        self.wish: ExportWish | None = None
        self._in_hand: ExportLease | None = None
        self.report: ExportReport | None = None
        self.failed: FailedExport | None = None

    @property
    def holding(self) -> str:
        """The digest of the model that is exported, or nothing."""
        return "" if self._in_hand is None else self._in_hand.digest

    @property
    def is_busy(self) -> bool:
        return self._in_hand is not None

    def on_orders(self, orders: WorkerOrders) -> list[Instruction]:
        """Forget what the master has noted; take a lease."""
        if orders.noted_export and orders.noted_export == self.holding and self._has_ended:
            self._in_hand = self.report = self.failed = None
        if orders.export is None or self._in_hand is not None:
            return []
        self._in_hand = orders.export
        return [ExportModel(orders.export)]

    @property
    def _has_ended(self) -> bool:
        return self.report is not None or self.failed is not None

    def on_exported(self, report: ExportReport) -> None:
        """It is whole, and in its place."""
        self.report = report

    def on_failed(self, failure: Failure) -> None:
        """It cannot be made."""
        self.failed = FailedExport(digest=self.holding, failure=failure)
