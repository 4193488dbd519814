"""Curves in event files: TensorBoard's own reader returns them, once each, whatever ends in between."""

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from edlz.services.master.progress.curves import Figures
from edlz.services.master.service import MasterService, serve_master
from edlz.services.master.tensorboard.curve_files import TRAIN, VALIDATION, CurveFiles, Point
from edlz.services.master.tensorboard.event_file import last_step
from edlz.services.master.tensorboard.points import Board
from edlz.services.process.runtime import Stop
from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.messages import WorkerTelemetry
from tests.builders import settings_in
from tests.progresses import core_of, progress_of

BEGAN = 1_777_885_900.25


def points(versions: Iterator[int] | range, **values: float) -> list[Point]:
    return [Point(BEGAN + v, v, {"loss": 1.0 / (v + 1), **values}) for v in versions]


def write(folder: Path, *batches: list[Point], run: str = TRAIN, began: float = BEGAN) -> None:
    files = CurveFiles(folder, "mnist", began)
    for batch in batches:
        files.add(run, batch)
    files.close()


def read(folder: Path, run: str, tag: str) -> list[tuple[int, float]]:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = event_accumulator.EventAccumulator(str(folder / run))
    found.Reload()
    return [(event.step, event.value) for event in found.Scalars(tag)]


def test_tensorboards_reader_returns_the_points(tmp_path: Path) -> None:
    write(tmp_path, points(range(0, 300, 7), **{"edlz/step_seconds/compute": 0.04, "learning_rate": 0.1}))
    write(tmp_path, [Point(BEGAN, 50, {"accuracy": 0.9, "auc": 0.8})], run=VALIDATION)
    losses = read(tmp_path, TRAIN, "loss")
    assert [step for step, _ in losses] == list(range(0, 300, 7))
    assert [value for _, value in losses] == pytest.approx([1 / (v + 1) for v in range(0, 300, 7)])
    assert len(read(tmp_path, TRAIN, "edlz/step_seconds/compute")) == len(losses)
    assert read(tmp_path, VALIDATION, "accuracy") == [(50, pytest.approx(0.9))]


@pytest.mark.parametrize(
    ("strategy", "sending"), [("ParameterServerStrategy", "push"), ("AllreduceStrategy", "send")]
)
def test_the_parts_of_a_step_are_called_as_on_the_page(strategy: str, sending: str, tmp_path: Path) -> None:
    core = core_of(strategy)
    progress = progress_of(strategy, core)
    board = Board(CurveFiles(tmp_path, "mnist", BEGAN), core, progress)
    progress.measures.on_worker(WorkerTelemetry(minibatches=2, push_s=3.0))
    for second in range(2):
        progress.curves.note(Figures(records=10 * second, version=second), BEGAN + second)
    board.take(BEGAN + 2)
    board.close()
    assert read(tmp_path, TRAIN, f"edlz/step_seconds/{sending}") == [(1, 1.5)]


def test_a_version_is_written_once_by_whichever_master(tmp_path: Path) -> None:
    write(tmp_path, points(range(10)), points(range(5, 15)))
    write(tmp_path, points(range(12, 20)))  # another master, which has gone back
    write(tmp_path, points(range(3)), began=BEGAN + 1)  # another job of that name
    steps = [step for step, _ in read(tmp_path, TRAIN, "loss")]
    assert sorted(steps) == sorted([*range(20), *range(3)])


def test_a_file_that_was_cut_off_is_gone_on_with_behind_what_is_whole(tmp_path: Path) -> None:
    write(tmp_path, points(range(5)))
    (file,) = (tmp_path / TRAIN).iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    assert last_step(file) == 3
    old = file.with_name(file.name.replace("tfevents.", "tfevents.0"))
    file.rename(old)  # of an earlier time
    write(tmp_path, points(range(8)))
    assert [step for step, _ in read(tmp_path, TRAIN, "loss")] == list(range(8))


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"\xff" * 200, b"text"])
def test_what_is_no_event_file_has_no_step(tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "events.out.tfevents.1"
    file.write_bytes(damage)
    assert last_step(file) == -1
    assert last_step(tmp_path / "none") == -1


def test_large_steps_and_odd_values(tmp_path: Path) -> None:
    write(tmp_path, [Point(BEGAN, 2**40, {"loss": math.nan, "big": math.inf, "läuft": 2.5})])
    (file,) = (tmp_path / TRAIN).iterdir()
    assert last_step(file) == 2**40
    assert read(tmp_path, TRAIN, "läuft") == [(2**40, 2.5)]
    ((_, loss),) = read(tmp_path, TRAIN, "loss")
    assert math.isnan(loss)


def test_a_folder_that_cannot_be_written_costs_a_warning_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / TRAIN).write_text("in the way")
    files = CurveFiles(tmp_path, "mnist", BEGAN)
    files.add(TRAIN, points(range(3)))
    files._writing.result()  # type: ignore[union-attr]
    assert "curves cannot be written" in caplog.text
    (tmp_path / TRAIN).unlink()
    files.add(TRAIN, points(range(3, 5)))
    files.close()
    assert [step for step, _ in read(tmp_path, TRAIN, "loss")] == list(range(5))


# ---------------------------------------------------------------- of a job


def test_a_job_under_way_and_its_next_master_draw_one_curve(tmp_path: Path) -> None:
    config = settings_in(tmp_path, status_port="none", tensorboard_log_dir=str(tmp_path / "tb"))

    def life(first: int, count: int, result: int) -> None:
        async def attend(service: MasterService) -> None:
            progress, core = service._progress, service._core
            at = progress.curves.rows[-1].at if progress.curves.rows else BEGAN
            for version in range(first, first + count):
                losses = LossSum(total=2.0 * version, count=version)
                at += 1.0
                progress.curves.note(Figures(records=10 * version, version=version, losses=losses), at)
                service._board.take(at)  # type: ignore[union-attr]
            core.work.results.append((result, {"accuracy": 0.5 + result / 100}))
            stop.set(0, "the test is over")

        stop = Stop()
        assert asyncio.run(serve_master(config, stop, attend)) == 0

    life(0, 8, 5)
    life(5, 9, 10)  # the partitions went back to version 5
    losses = read(tmp_path / "tb", TRAIN, "loss")
    steps = [step for step, _ in losses]
    assert steps == sorted(set(steps))
    assert {value for _, value in losses} == {2.0}
    assert steps[-1] == 13
    assert [step for step, _ in read(tmp_path / "tb", TRAIN, "edlz/records_per_second")] == list(range(1, 14))
    assert read(tmp_path / "tb", VALIDATION, "accuracy") == [
        (5, pytest.approx(0.55)),
        (10, pytest.approx(0.6)),
    ]
