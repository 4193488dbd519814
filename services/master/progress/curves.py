"""The curves of a job: how its figures have gone, in memory that is bounded however long it runs.

Theory of operation.  The truth about work lies in the partitions' states, as totals: records, losses and how many.  A
row of the curves is what these have risen by since the row before, so nothing of it is missing after a time in which
nobody looked (a master that was killed and started again), and nothing counts twice: the journal keeps the rows with the
totals up to which they count.  A total that falls (a partition went back to a snapshot) begins anew from there; losses
count again only once the version is above all earlier ones.  When there are MOST rows, each two neighbours become one,
whose counts are the sums of theirs, and from then on a row spans twice the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from edlz.services.master.core.vocabulary.records import Added
from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.curves import CurveEnd, CurveRow

__all__ = ["CHUNK", "MOST", "Curves", "Figures", "KeptCurves"]

MOST = 600  # rows
CHUNK = 50  # rows in one entry of the journal, which is written anew while they come
WIDTH_S = 1.0  # of the first rows
KEEP_S, KEEP_AGAIN_S = 5.0, 30.0  # between two entries of the journal; and where its disk is full

NONE = LossSum()

_Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Figures:
    """How a job stands at one moment.

    Attributes
    ----------
    records, version, losses : int, int, LossSum
        Totals, of the partitions' states.
    training, starting, missing : int
        Workers.
    loss : float, optional
        The newest that workers tell, where partitions add up none.
    wait : float, optional
        The share of a step that workers spend waiting.
    staleness : (float, float), optional
        The median and the 95th percentile.
    """

    records: int
    version: int
    losses: LossSum = NONE
    training: int = 0
    starting: int = 0
    missing: int = 0
    loss: float | None = None
    wait: float | None = None
    staleness: _Pair | None = None


@dataclass(frozen=True, slots=True)
class KeptCurves:
    """What the journal should have of the curves: where they go on, and the chunks of rows that are new or others."""

    end: CurveEnd
    added: Added
    row_count: int


@dataclass(slots=True)
class _Open:
    """The row that is being measured."""

    since_s: float
    records: int = 0
    loss_total: float = 0.0
    loss_count: int = 0
    nonfinite: int = 0
    looks: int = 0
    workers: list[int] = field(default_factory=lambda: [0, 0, 0])
    waits: list[float] = field(default_factory=list)
    staleness: list[_Pair] = field(default_factory=list)


class Curves:
    """The rows of a job, with those of earlier masters.

    Parameters
    ----------
    chunks : sequence of sequences of CurveRow
        Those that the journal has.
    end : CurveEnd, optional
        Where they go on.

    Attributes
    ----------
    rows : list of CurveRow
        In the order of time; each begins where the one before ends.
    width_s : float
        Seconds between two rows.
    """

    def __init__(self, chunks: Sequence[Sequence[CurveRow]] = (), end: CurveEnd | None = None) -> None:
        self.rows = [row for chunk in chunks for row in chunk] if end is not None else []
        self.width_s = end.width_s if end is not None else WIDTH_S
        self._end = self._row_end = end  # the totals now, and at the end of the last row
        self._open: _Open | None = None if end is None else _Open(end.at)
        self._shift_s: float | None = (
            0.0 if end is None else None
        )  # of a clock that was set back; not known yet
        self._kept_chunks = len(chunks)
        self._first_new = len(self.rows)  # rows from here on are not in the journal
        self._due_s = 0.0

    def note(self, now: Figures, at: float) -> CurveRow | None:
        """Take the figures of a moment, in seconds since the epoch; return the row that ends with it, if one does."""
        at = self._continued(at)
        if self._end is None or self._open is None:
            self._open = _Open(at)
            self._end = self._reached(now, at, top=now.version, losses=now.losses)
            return None
        self._take(self._end, now, at)
        return self._close(at) if at - self._open.since_s >= self.width_s else None

    def finish(self, now: Figures, at: float) -> CurveRow | None:
        """Take the figures of the last moment; return the row that ends with it, however short that is."""
        row = self.note(now, at)
        if (
            row is None
            and self._end is not None
            and self._open is not None
            and self._end.at > self._open.since_s
        ):
            row = self._close(self._end.at)
        return row

    def _continued(self, at: float) -> float:
        """Return a time that is never before an earlier one."""
        if self._shift_s is None:
            assert self._end is not None
            self._shift_s = max(0.0, self._end.at - at)
        at += self._shift_s
        return max(at, self._end.at) if self._end is not None else at

    def _reached(
        self, now: Figures, at: float, *, top: int, losses: LossSum, is_again: bool = False
    ) -> CurveEnd:
        return CurveEnd(
            at=at,
            records=now.records,
            version=now.version,
            top=top,
            losses=losses,
            width_s=self.width_s,
            is_again=is_again,
        )

    def _take(self, before: CurveEnd, now: Figures, at: float) -> None:
        """Add what has risen."""
        row = self._open
        assert row is not None
        has_fallen = (
            now.records < before.records
            or now.version < before.version
            or now.losses.count < before.losses.count
        )
        if not has_fallen:
            row.records += now.records - before.records
        is_again = (before.is_again or has_fallen) and now.version <= before.top
        if not (has_fallen or before.is_again):
            self._add_losses(row, before, now)
        top = max(before.top, now.version)
        self._end = self._reached(now, at, top=top, losses=now.losses, is_again=is_again)
        row.looks += 1
        for place, count in enumerate((now.training, now.starting, now.missing)):
            row.workers[place] += count
        row.waits += [] if now.wait is None else [now.wait]
        row.staleness += [] if now.staleness is None else [now.staleness]

    @staticmethod
    def _add_losses(row: _Open, before: CurveEnd, now: Figures) -> None:
        if now.losses.count:
            row.loss_total += now.losses.total - before.losses.total
            row.loss_count += now.losses.count - before.losses.count
            row.nonfinite += now.losses.nonfinite - before.losses.nonfinite
        elif now.loss is not None and now.version > before.version:
            is_finite = abs(now.loss) < float("inf")
            row.loss_total += now.loss if is_finite else 0.0
            row.loss_count, row.nonfinite = row.loss_count + 1, row.nonfinite + (not is_finite)

    def _close(self, at: float) -> CurveRow:
        opened = self._open
        assert opened is not None
        assert self._end is not None
        training, starting, missing = (count / max(opened.looks, 1) for count in opened.workers)
        row = CurveRow(
            at=at,
            span_s=at - opened.since_s,
            version=self._end.version,
            records=opened.records,
            loss_total=opened.loss_total,
            loss_count=opened.loss_count,
            nonfinite=opened.nonfinite,
            training=training,
            starting=starting,
            missing=missing,
            wait=_mean(opened.waits),
            staleness=_mean_pair(opened.staleness),
        )
        self.rows.append(row)
        self._open = _Open(at)
        if len(self.rows) >= MOST:
            self.rows = [_joined(*pair) for pair in zip(self.rows[::2], self.rows[1::2], strict=True)]
            self.width_s *= 2
            self._first_new = 0
        self._row_end = msgspec.structs.replace(self._end, width_s=self.width_s)
        return row

    # -- journalling

    @property
    def to_keep(self) -> KeptCurves | None:
        """What the journal should have of them; None if it has it."""
        if self._row_end is None or len(self.rows) == self._first_new:
            return None
        first = self._first_new // CHUNK
        last = max(self._kept_chunks, -(-len(self.rows) // CHUNK))
        chunks = tuple(
            tuple(self.rows[number * CHUNK : (number + 1) * CHUNK]) for number in range(first, last)
        )
        return KeptCurves(self._row_end, Added(first, chunks), len(self.rows))

    def due(self, now: float) -> KeptCurves | None:
        """Return what should be journalled now."""
        return self.to_keep if now >= self._due_s else None

    def on_kept(self, kept: KeptCurves, now: float) -> None:
        """The journal has this."""
        self._kept_chunks = max(self._kept_chunks, kept.added.first + len(kept.added.values))
        self._first_new, self._due_s = kept.row_count, now + KEEP_S

    def put_off(self, now: float) -> None:
        """The journal has no room for it."""
        self._due_s = now + KEEP_AGAIN_S


def _joined(first: CurveRow, second: CurveRow) -> CurveRow:
    """Return two neighbouring rows as one."""
    span_s = first.span_s + second.span_s
    share = second.span_s / span_s if span_s > 0 else 0.5

    def between(a: float, b: float) -> float:
        return a + share * (b - a)

    pairs = [pair for pair in (first.staleness, second.staleness) if pair is not None]
    waits = [wait for wait in (first.wait, second.wait) if wait is not None]
    return CurveRow(
        at=second.at,
        span_s=span_s,
        version=second.version,
        records=first.records + second.records,
        loss_total=first.loss_total + second.loss_total,
        loss_count=first.loss_count + second.loss_count,
        nonfinite=first.nonfinite + second.nonfinite,
        training=between(first.training, second.training),
        starting=between(first.starting, second.starting),
        missing=between(first.missing, second.missing),
        wait=_mean(waits),
        staleness=_mean_pair(pairs),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _mean_pair(pairs: Sequence[_Pair]) -> _Pair | None:
    if not pairs:
        return None
    return sum(low for low, _ in pairs) / len(pairs), sum(high for _, high in pairs) / len(pairs)
