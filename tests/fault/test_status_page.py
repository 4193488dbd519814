"""The page, the curves and TensorBoard's files of a job that loses a worker, then its master."""

import asyncio
import json
import shutil
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edlz.client.local.job_lock import master_by_hand
from edlz.services.master.journal.journal import Journal
from edlz.services.master.page.left_report import LOST
from tests.fault.tiny_job import FLAGS, MODES
from tests.processes import END_S, MODELS, TrainJob, check_exactly_once, wait_for

pytestmark = [
    pytest.mark.fault,
    # A browser's driver leaves its pipes to the end of the interpreter.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

BROWSER = next((path for path in map(shutil.which, ("chromium", "google-chrome")) if path), None)
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture(params=[20])
def job(tmp_path: Path, small_mnist: Path, request: pytest.FixtureRequest) -> Iterator[TrainJob]:
    flags = (
        *FLAGS,
        f"--num_epochs={request.param}",
        MODES["sync"],
        f"--training_data={small_mnist}/train",
        "--num_workers=2",
    )
    pages = ("--status_port=0", f"--tensorboard_log_dir={tmp_path}/tb", "--recovery_snapshot_secs=0.5")
    job = TrainJob(tmp_path, *flags, *pages)
    yield job
    job.__exit__()


def status_of(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}/api/status", timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def lose_worker_and_master(job: TrainJob) -> None:
    job.kill("worker-0")
    job.wait_for_output("worker-2 starts in its place")
    job.wait_for_output("worker-2 training after")
    job.kill("master")
    job.wait_for_output("term=2")


def test_curves_have_no_gap_and_nothing_twice_and_the_page_is_where_it_was(
    job: TrainJob, tmp_path: Path
) -> None:
    job.wait_for_output("Task:3 completed")
    address = job.status().page
    assert status_of(address)["job"]["state"] == "Training"
    lose_worker_and_master(job)
    wait_for(lambda: job.log("master").count("training begins at") >= 2, "the next master leads the job")
    again = status_of(address)  # at the same port
    assert any("worker-0 lost" in event["text"] for event in again["events"])
    job.finish()
    check_exactly_once(job.folder)
    with Journal(job.folder / "journal.sqlite") as journal:
        state = journal.state()
    rows = [row for chunk in state.curves for row in chunk]
    end = state.curve_end
    assert end is not None
    assert all(row.at - row.span_s == pytest.approx(before.at) for before, row in pairwise(rows))
    assert sum(row.records for row in rows) == end.records
    assert sum(row.loss_count for row in rows) == end.losses.count
    report = (job.folder / "report.html").read_text()
    assert "worker-0 lost" in report
    steps = drawn(tmp_path / "tb" / "train", "loss")
    assert len(steps) > 3
    assert steps == sorted(set(steps))


def test_whoever_notices_that_a_master_was_killed_for_good_leaves_the_report(job: TrainJob) -> None:
    job.wait_for_output("Task:3 completed")
    report = job.folder / "report.html"
    job.process.kill()  # and all others with it
    job.process.wait()
    wait_for(lambda: master_by_hand(job.folder) is None, "the master is gone")
    assert not report.exists()
    assert "interrupted" in job.run("status", job.name)
    assert LOST in report.read_text()
    job.run("resume", job.name)
    assert LOST not in report.read_text(), "it was of another time"
    check_exactly_once(job.folder)


def test_a_supervisor_whose_master_is_not_started_again_leaves_the_report(
    tmp_path: Path, small_mnist: Path
) -> None:
    flags = (*FLAGS, "--num_epochs=20", MODES["sync"], f"--training_data={small_mnist}/train")
    with TrainJob(tmp_path, *flags, "--status_port=none", "--restart_master=no") as job:
        job.wait_for_output("Task:3 completed")
        job.kill("master")
        assert job.process.wait(END_S) != 0
        assert LOST in (job.folder / "report.html").read_text()
        assert "edlz open" in job.output()


STRATEGIES = {
    "servers": (*FLAGS, "--num_epochs=20", MODES["sync"]),
    "group": (
        *(flag for flag in FLAGS if not flag.startswith(("--model_file", "--embedding", "--num_epochs"))),
        f"--model_file={MODELS}/tiny_mlp.py",
        "--grads_to_wait=2",
        "--num_epochs=12",
        "--distribution_strategy=AllreduceStrategy",
    ),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_master_that_is_killed_and_a_job_that_is_resumed_go_on_in_the_same_curves(
    strategy: str, tmp_path: Path, small_mnist: Path
) -> None:
    flags = (*STRATEGIES[strategy], f"--training_data={small_mnist}/train", "--num_workers=2")
    data = (f"--validation_data={small_mnist}/test", "--evaluation_steps=40")
    pages = ("--status_port=0", f"--tensorboard_log_dir={tmp_path}/tb", "--recovery_snapshot_secs=0.5")
    with TrainJob(tmp_path, *flags, *data, *pages) as job:
        job.wait_for_output("Task:3 completed")
        job.kill("worker-0")
        job.wait_for_output("worker-2 training after")
        job.kill("master")
        job.wait_for_output("term=2")
        wait_for(lambda: job.log("master").count("training begins at") >= 2, "the next master leads the job")
        job.run("stop", job.name)
        saved = job.finish(code=143)
        job.run("resume", job.name)
        done = job.finish(code=143)  # as it is told in the job's folder by now
    steps = drawn(tmp_path / "tb" / "train", "loss")
    assert steps == sorted(set(steps))
    assert steps[-1] == done.version > saved.version > steps[0]
    assert drawn(tmp_path / "tb" / "train", "edlz/step_seconds/compute")[-1] == steps[-1]
    metric = next(iter(done.evaluations[-1].metrics))
    evaluated = drawn(tmp_path / "tb" / "validation", metric)
    assert evaluated == [view.version for view in done.evaluations]
    check_exactly_once(job.folder)


def drawn(folder: Path, tag: str) -> list[int]:
    """Return the steps of a curve, as TensorBoard reads them."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return [event.step for event in found.Scalars(tag)]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("job", [1000], indirect=True, ids=["until-it-has-seen-all"])
def test_a_browser_looks_on(job: TrainJob, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.async_api", reason="no playwright")
    axe = pytest.importorskip("axe_playwright_python.async_playwright", reason="no axe-core")

    async def look() -> None:
        async with playwright.async_playwright() as driver:
            rules = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost"
            browser = await driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", rules])
            page = await browser.new_page()
            said: list[str] = []
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("console", lambda message: said.append(message.text))
            await page.goto(address)
            await page.wait_for_selector("#charts svg path")
            job.kill("worker-0")
            await asyncio.to_thread(job.wait_for_output, "worker-2 training after")
            await page.wait_for_selector("#events td:has-text('worker-0 lost')")
            await page.wait_for_selector("line.m-lost", state="attached")
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme=scheme)
                for width in (400, 1000, 1600):
                    await page.set_viewport_size({"width": width, "height": 900})
                    await page.screenshot(path=tmp_path / f"{scheme}-{width}.png", full_page=True)
                    found = await axe.Axe().run(page, options={"runOnly": LEVELS})
                    assert [each["id"] for each in found.response["violations"]] == []
            assert said == []
            await browser.close()

    job.wait_for_output("Task:3 completed")
    address = job.status().page
    asyncio.run(look())
