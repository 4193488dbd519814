"""The finished model is exported once and whole, whoever is killed meanwhile; what cannot be written loses no training."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from edlz.services.export.about import read_about
from tests.fault.tiny_job import FLAGS
from tests.processes import TrainJob, check_exactly_once, services_of, wait_for

pytestmark = pytest.mark.fault

KILLS = 20
EXPORT = ("--output_format=saved_model,safetensors", "--grads_to_wait=2", "--num_ps_pods=2")
BEGINS = "export of v"


def flags(mnist: Path, out: Path) -> tuple[str, ...]:
    return (*FLAGS, *EXPORT, f"--training_data={mnist}/train", f"--output={out}", "--num_workers=2")


def content(folder: Path) -> dict[str, bytes]:
    """Return what must be the same in every export: all files but the graph and what says which run it is of."""
    names = ("saved_model.pb", "fingerprint.pb", "edlz.json")
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in names)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def numbers(out: Path) -> list[str]:
    return (
        sorted(entry.name for entry in out.iterdir() if not entry.name.startswith("."))
        if out.exists()
        else []
    )


def await_export(job: TrainJob) -> None:
    def has_begun() -> bool:
        assert job.process.poll() is None, job.output()
        return BEGINS in job.log("master")

    wait_for(has_begun, f"the export begins\n{job.output()}", 300.0)


def kill(job: TrainJob, who: str) -> bool:
    """Kill a service, if it is there just now; the exporter is who the master takes for it, if the master is there."""
    if who == "exporter":
        try:
            workers = job.status().workers
        except AssertionError:  # the master begins again, or the job has just ended
            workers = ()
        who = next((f"worker-{worker.id}" for worker in workers if worker.state == "exporting"), "worker-0")
    pid = services_of(job.process.pid).get(who)
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, small_mnist: Path
) -> tuple[dict[str, bytes], float]:
    """What is exported, and how long that takes."""
    home = tmp_path_factory.mktemp("undisturbed")
    with TrainJob(home, *flags(small_mnist, home / "out")) as job:
        await_export(job)
        began = time.monotonic()
        wait_for(lambda: numbers(home / "out"), "it is exported")
        took_s = time.monotonic() - began
        status = job.finish()
    assert status.exported is not None
    assert status.exported.place == str(home / "out" / "1")
    assert status.exported.signatures == ("serving_default", "examples")
    assert [(path, dim) for path, _, dim in status.exported.tables] == [
        ("places_table/embeddings", 4),
        ("values_table/embeddings", 3),
    ]
    assert f"  exported {home / 'out' / '1'}" in job.output()
    return content(home / "out" / "1"), took_s


def test_workers_servers_and_the_master_are_killed_while_it_exports(
    tmp_path: Path, small_mnist: Path, undisturbed: tuple[dict[str, bytes], float]
) -> None:
    """At random instants: an export of before stays as it is, the new one is whole, and the only one."""
    wanted, took_s = undisturbed
    draw, killed = random.Random(12), 0
    for number in range(KILLS):  # jobs; most take several kills
        home = tmp_path / str(number)
        out = home / "out"
        (out / "1").mkdir(parents=True)
        (out / "1" / "old").write_text("old")
        with TrainJob(home, *flags(small_mnist, out)) as job:
            await_export(job)
            began = time.monotonic()
            instants = sorted(draw.uniform(0, took_s) for _ in range(3))
            for instant, who in zip(
                instants, draw.sample(("exporter", "ps-0", "ps-1", "master"), 3), strict=True
            ):
                time.sleep(
                    max(0.0, began + instant - time.monotonic())
                )  # nothing is waited for but this instant
                killed += kill(job, who)
                assert numbers(out) in (["1"], ["1", "2"])
            status = job.finish()
        assert numbers(out) == ["1", "2"], "one new export, whatever was tried"
        assert content(out / "1") == {"old": b"old"}
        assert content(out / "2") == wanted
        about = read_about(out / "2")
        assert about is not None
        assert status.exported is not None
        assert (status.exported.place, status.digest in about.export) == (str(out / "2"), True)
        check_exactly_once(job.folder)
        if killed >= KILLS:
            return
    raise AssertionError(f"only {killed} kills fell into the time of an export")


def test_an_export_that_is_not_possible_keeps_what_was_trained(tmp_path: Path, small_mnist: Path) -> None:
    """Its folder has become a file; the job that is resumed exports elsewhere, and trains nothing again."""
    out, better = tmp_path / "there" / "out", tmp_path / "better"
    with TrainJob(tmp_path, *flags(small_mnist, out)) as job:
        wait_for(lambda: "training begins" in job.log("master"), f"it trains\n{job.output()}", 300.0)
        out.parent.write_text("in the way")
        failed = job.finish(code=1)
        assert failed.failure is not None
        assert (
            failed.failure.text
            == f"the model could not be exported: {out} cannot be written: Not a directory"
        )
        assert "nothing is trained again by: edlz resume test --output=DIR" in job.output()
        assert failed.digest == ""
        printed = job.run("resume", "test", f"--output={better}")
        assert f"exported {better}/1" in printed
        assert "Task:" not in printed
        assert numbers(better) == ["1"]
        assert job.run("status", "test").count(f"{better}/1")
        assert "Exported" in job.run("export", "test", str(tmp_path / "by-hand"))
    by_hand, at_end = content(tmp_path / "by-hand" / "1"), content(better / "1")
    assert by_hand == {name: at_end[name] for name in by_hand}
