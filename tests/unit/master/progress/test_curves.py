"""The curves of a job: nothing missing, nothing twice, whatever falls, however long it runs, and whoever looks."""

import asyncio
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.core.vocabulary.records import Added
from edlz.services.master.journal.journal import Journal
from edlz.services.master.progress.curves import CHUNK, MOST, WIDTH_S, Curves, Figures
from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.curves import CurveEnd, CurveRow
from tests.builders import settings_in

RECORDS = 10  # of a minibatch, which makes a version


class Job:
    """A job whose loss at version v is v, and what its curves are told of it."""

    def __init__(self) -> None:
        self.version, self.top, self.at = 0, 0, 1000.0
        self.applied = 0  # records, also those that are applied again
        self.kept: tuple[list[tuple[CurveRow, ...]], CurveEnd | None] = ([], None)
        self.curves = Curves()
        self.look()

    def look(self) -> None:
        losses = LossSum(total=float(self.version * (self.version + 1) // 2), count=self.version)
        self.curves.note(
            Figures(records=self.version * RECORDS, version=self.version, losses=losses, training=2), self.at
        )

    def train(self, versions: int, seconds: float) -> None:
        self.version, self.at = self.version + versions, self.at + seconds
        self.top, self.applied = max(self.top, self.version), self.applied + versions * RECORDS
        self.look()

    def fall(self, versions: int) -> None:
        self.version = max(0, self.version - versions)
        self.look()

    def keep(self) -> None:
        """Let the journal have what is new, chunk by chunk, as it writes them."""
        kept = self.curves.to_keep
        if kept is None:
            return
        chunks = list(self.kept[0])
        assert kept.added.first <= len(chunks)
        chunks[kept.added.first : kept.added.first + len(kept.added.values)] = kept.added.values  # type: ignore[assignment]
        self.kept = (chunks, kept.end)
        self.curves.on_kept(kept, self.at)

    def restart(self) -> None:
        """Let another master go on from the journal."""
        self.curves = Curves(*self.kept)


def check(curves: Curves) -> None:
    rows = curves.rows
    assert len(rows) < MOST
    for before, row in itertools.pairwise(rows):
        assert row.at - row.span_s == pytest.approx(before.at)
        assert row.span_s > 0
        assert row.records >= 0
        assert row.loss_count >= 0


steps = st.one_of(
    st.tuples(st.just("train"), st.integers(0, 50), st.floats(0.25, 40.0)),
    st.tuples(st.just("fall"), st.integers(1, 60)),
    st.tuples(st.just("keep")),
    st.tuples(st.just("restart")),
)


@given(st.lists(steps, max_size=60))
def test_rows_follow_each_other_and_no_loss_counts_twice(happenings: list[tuple]) -> None:  # type: ignore[type-arg]
    job = Job()
    for name, *about in happenings:
        getattr(job, name)(*about)
        check(job.curves)
    rows = job.curves.rows
    assert sum(row.loss_count for row in rows) <= job.top
    assert sum(row.loss_total for row in rows) <= job.top * (job.top + 1) / 2
    assert sum(row.records for row in rows) <= job.applied


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(1.0, 500.0), st.booleans()), max_size=80))
def test_a_master_that_was_killed_leaves_no_gap_and_nothing_twice(
    lives: list[tuple[int, float, bool]],
) -> None:
    job = Job()
    job.train(1, 2.0)
    job.keep()
    for versions, seconds, is_killed in lives:
        job.train(versions, seconds)
        if is_killed:  # with what it had not journalled yet
            job.restart()
        else:
            job.keep()
        check(job.curves)
    job.train(3, 500.0)  # a row's time has passed
    job.train(0, job.curves.width_s)
    rows = job.curves.rows
    assert sum(row.records for row in rows) == job.version * RECORDS
    assert sum(row.loss_count for row in rows) == job.version
    assert sum(row.loss_total for row in rows) == job.version * (job.version + 1) / 2


def test_what_is_computed_again_is_not_counted_again() -> None:
    job = Job()
    for _ in range(10):
        job.train(10, WIDTH_S)
    job.fall(40)
    for _ in range(4):
        job.train(10, WIDTH_S)
    again = job.curves.rows[10:]
    assert [row.loss for row in again] == [None] * 4
    assert all(row.records == 10 * RECORDS for row in again)
    job.train(10, WIDTH_S)
    job.train(10, WIDTH_S)
    assert job.curves.rows[-1].loss == pytest.approx(sum(range(111, 121)) / 10)


def test_a_day_takes_no_more_room_than_an_hour_and_its_sums_stay() -> None:
    job, written = Job(), 0
    for second in range(86_400):
        job.train(1, 1.0)
        if second % 5 == 0 and (kept := job.curves.due(float(second))) is not None:
            written += sum(len(chunk) for chunk in kept.added.values)  # type: ignore[arg-type]
            job.keep()
    check(job.curves)
    assert len(job.kept[0]) <= MOST // CHUNK
    assert written < 86_400, "the journal is not written whole again and again"
    rows = job.curves.rows
    assert sum(row.loss_count for row in rows) == pytest.approx(86_400, rel=0.01)
    assert {row.training for row in rows} == {2.0}
    job.keep()
    assert [row for chunk in job.kept[0] for row in chunk] == rows


def test_a_clock_that_was_set_back_does_not_stop_the_curves() -> None:
    job = Job()
    for _ in range(5):
        job.train(1, 1.0)
    job.keep()
    job.restart()
    job.at -= 3600.0
    for _ in range(5):
        job.train(1, 1.0)
    assert len(job.curves.rows) == 10 - 1
    check(job.curves)


def test_what_happens_in_the_last_second_is_a_row_too() -> None:
    job = Job()
    job.train(3, 1.0)
    job.train(2, 0.25)
    figures = Figures(records=60, version=6, losses=LossSum(total=21.0, count=6))
    last = job.curves.finish(figures, job.at + 0.25)
    assert last is not None
    assert (last.version, last.records, last.loss_count, last.span_s) == (6, 30, 3, pytest.approx(0.5))
    job.keep()
    check(job.curves)
    job.restart()
    assert job.curves.finish(figures, job.at) is None, "nothing has happened since"
    assert Curves().finish(figures, job.at) is None
    check(job.curves)


def test_without_sums_the_workers_newest_loss_is_taken_once_a_version() -> None:
    curves, told = Curves(), ((0, 9.0), (1, 1.0), (2, 3.0), (2, 3.0), (3, 2.0), (4, float("nan")))
    for number, (version, loss) in enumerate(told):
        curves.note(Figures(records=0, version=version, loss=loss), 1000.0 + number)
    assert [row.loss for row in curves.rows] == [1.0, 3.0, None, 2.0, None]
    assert [row.nonfinite for row in curves.rows] == [0, 0, 0, 0, 1]


def life(config: JobConfig, figures: list[Figures]) -> list[CurveRow]:
    """Let a master's curves take these, wait until the journal has their rows, and kill it."""
    seen: list[CurveRow] = []

    async def attend(service: MasterService) -> None:
        curves = service._progress.curves
        at = curves.rows[-1].at if curves.rows else 1000.0
        for each in figures:
            curves.note(each, at := at + 1.0)
        while curves.to_keep is not None:  # noqa: ASYNC110  a file's content
            await asyncio.sleep(0.01)
        seen.extend(curves.rows)
        killed.cancel()

    async def both() -> None:
        nonlocal killed
        killed = asyncio.create_task(serve(), name="master")
        async with asyncio.timeout(60):
            await asyncio.gather(killed, return_exceptions=True)

    async def serve() -> None:
        await serve_master(config, Stop(), attend)

    killed: asyncio.Task[None]
    asyncio.run(both())
    return seen


def test_the_next_master_goes_on_with_the_curves(tmp_path: Path) -> None:
    config = settings_in(tmp_path)
    first = life(config, [Figures(records=10 * n, version=n) for n in range(CHUNK + 5)])
    second = life(config, [Figures(records=10 * n, version=n) for n in range(CHUNK + 9, CHUNK + 12)])
    assert first == second[: len(first)]
    assert len(first) == CHUNK + 4
    assert sum(row.records for row in second) == 10 * (CHUNK + 11)


def test_the_journal_does_not_grow_with_the_curves(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.write(1, {"term": 1})
        job = Job()
        for _ in range(5 * MOST):
            job.train(1, job.curves.width_s)
            kept = job.curves.to_keep
            if kept is not None and len(job.curves.rows) % 10 == 0:
                journal.write(
                    1, {"curve_end": kept.end}, {"curves": Added(kept.added.first, kept.added.values)}
                )
                job.curves.on_kept(kept, 0.0)
        state = journal.state()
    assert len(state.curves) <= MOST // CHUNK
    assert len(Curves(state.curves, state.curve_end).rows) < MOST
