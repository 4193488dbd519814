"""Jobs from Python: the flags as keyword arguments, a handle on a job, errors with their help."""

import asyncio
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edlz import client
from edlz.client.commands.wait import StillRunning
from edlz.client.local.job_directory import open_job_directory
from edlz.client.python.arguments import LEFT_OUT, arguments_of
from edlz.client.python.background import begin_in_background
from edlz.client.python.elsewhere import apart
from edlz.client.python.html import html_of
from edlz.client.python.records import status_of
from edlz.services.configuration.flags import COMMANDS
from edlz.services.configuration.job_config import flags
from edlz.services.configuration.problems import InvalidConfigError
from edlz.services.errors import ConfigError, EdlzError, LaunchError
from edlz.services.protocol.job_status import EvaluationView, ExportView, FailureView, JobStatus
from tests.unit.client.job_homes import RUNNING, config, ended, master, training

ROOT = Path(__file__).parents[3]
DONE = msgspec.structs.replace(
    RUNNING,
    state="Succeeded",
    ratio=1.0,
    loss=0.25,
    digest="abc",
    evaluations=(EvaluationView(version=354, metrics={"accuracy": 0.96}),),
    exported=ExportView(place="out/1", size_bytes=3),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def job(home: Path, status: JobStatus) -> client.Job:
    ended(home, status)
    return client.get("mnist")


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


# ---------------------------------------------------------------- flags


@pytest.mark.parametrize("command", COMMANDS.values())
def test_a_function_takes_what_its_command_takes(command: str) -> None:
    found = inspect.signature(getattr(client, command)).parameters
    known = {about.name: about for about in flags() if command in about.readers and not about.hidden}
    assert set(found) == known.keys() - {*LEFT_OUT, "config"}
    assert all(each.default == known[name].default_for(command) for name, each in found.items())  # type: ignore[arg-type]
    assert all(f"{name} : " in str(getattr(client, command).__doc__) for name in found)


def test_the_stub_is_as_the_flags_are() -> None:
    spec = importlib.util.spec_from_file_location("make_stubs", ROOT / "scripts" / "make_stubs.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.STUB.read_text() == generator.made(), (
        "the flags have changed: python scripts/make_stubs.py"
    )


def test_values_are_written_as_on_a_command_line(tmp_path: Path) -> None:
    given = {"use_async": True, "num_epochs": 2, "seed": None, "training_data": tmp_path, "max_workers": 3}
    assert arguments_of("train", given) == [
        "--use_async=yes",
        "--num_epochs=2",
        f"--training_data={tmp_path}",
        "--max_workers=3",
    ]


def test_a_mistake_is_an_error_with_its_help() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        client.train(model_def="mnist.mnist_functional_api.custom_model", num_worker=2)  # type: ignore[call-arg]
    told = "\n".join((str(caught.value), *notes(caught.value)))
    assert "num_worker" in told
    assert "help: " in told
    assert any("num_workers" in note for note in notes(caught.value))


def test_all_mistakes_are_told() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        client.train(
            model_def="mnist.mnist_functional_api.custom_model", training_data="no/such", num_epochs=-1
        )
    assert len(caught.value.problems) > 1 or "num_epochs" in str(caught.value)


def test_data_that_is_not_there_is_told_before_anything_runs(home: Path) -> None:
    with pytest.raises(InvalidConfigError, match="no/such"):
        client.train(model_def="mnist.mnist_functional_api.custom_model", training_data="no/such")
    assert not (home / "jobs").exists()


def test_a_model_of_a_cell_is_told_what_to_do() -> None:
    with pytest.raises(ConfigError) as caught:
        client.train(model_def=lambda: None, training_data="x")  # type: ignore[arg-type]
    assert "model_def is a function" in str(caught.value)
    assert "%%writefile" in caught.value.help


def test_what_a_terminal_shows_is_not_for_python() -> None:
    with pytest.raises(ConfigError, match="dry_run= shows something on a terminal"):
        client.train(dry_run="client")  # type: ignore[call-arg]


# ---------------------------------------------------------------- a job


def test_a_job_tells_how_it_fares(home: Path) -> None:
    status = job(home, DONE).status()
    assert (status.job.state, status.progress.ratio, status.progress.version) == ("Succeeded", 1.0, 354)
    assert status.workers[0].task == 7
    assert status.evaluations[0].metrics == {"accuracy": 0.96}


def test_a_job_looks_like_itself(home: Path) -> None:
    found = job(home, DONE)
    assert repr(found) == "<Job mnist: Succeeded 100 %, v354, loss 0.25, 1/2 workers>"
    page = found._repr_html_()
    assert "accuracy 0.96" in page
    assert "<script" not in page


def test_a_job_without_an_end_counts_its_records(home: Path) -> None:
    found = job(home, msgspec.structs.replace(RUNNING, is_endless=True, ratio=1.0, records=70_800))
    assert "70,800 records, v354" in repr(found)
    page = found._repr_html_()
    assert "70,800 records &middot; v354" in page
    assert "%" not in page
    assert found.status().progress.ratio is None


def test_a_job_that_runs_says_where_its_page_is(home: Path) -> None:
    paged = msgspec.structs.replace(RUNNING, page="http://localhost:50002")
    with open_job_directory(config()) as folder, master(folder, lambda _: paged):
        found = client.get("mnist")
        assert repr(found).endswith(", http://localhost:50002>")
        assert '<a href="http://localhost:50002">' in found._repr_html_()
    for page, where, shown in (
        ("javascript:alert(1)", "local", None),
        ("http://localhost:50002", "k8s/research", "edlz open mnist -n research"),
    ):
        status = status_of(job(home, DONE)._found.view())
        facts = msgspec.structs.replace(status.job, where=where)
        html = html_of(msgspec.structs.replace(status, page=page, job=facts))
        assert "<a " not in html
        assert shown is None or shown in html


def test_nothing_of_a_job_is_taken_for_html(home: Path) -> None:
    failure = FailureView(text="<script>alert(1)</script>")
    page = job(home, msgspec.structs.replace(RUNNING, state="Failed", failure=failure))._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_who_waits_gets_what_the_job_ended_with(home: Path) -> None:
    result = job(home, DONE).wait(timeout=5)
    assert (result.metrics, result.version) == ({"accuracy": 0.96}, 354)
    assert (result.output, result.digest) == ("out/1", "abc")


def test_a_job_that_has_failed_is_an_error_with_the_first_cause(home: Path) -> None:
    failure = FailureView(text="task 3 raised 3 times", where="model.py:3 in loss", help="mend it")
    failed = job(home, msgspec.structs.replace(RUNNING, state="Failed", failure=failure))
    with pytest.raises(client.JobFailed, match=r"task 3 raised 3 times\nmodel.py:3") as caught:
        failed.wait()
    assert caught.value.failure == failure
    assert notes(caught.value) == ["help: mend it"]


def test_a_job_that_was_stopped_is_no_result(home: Path) -> None:
    with pytest.raises(client.JobStopped) as caught:
        job(home, msgspec.structs.replace(RUNNING, state="Stopped")).wait()
    assert caught.value.help == "edlz resume mnist"


def test_a_job_that_runs_is_asked_also_where_a_loop_runs() -> None:
    """A notebook's cells run inside one."""

    async def cell() -> tuple[Any, int]:
        found = client.get("mnist")
        return found.status(), found.scale(3)

    with open_job_directory(config()) as folder, master(folder, training):
        status, workers = asyncio.run(cell())
        assert (status.job.state, workers) == ("Training", 3)


def test_waiting_ends_with_its_time() -> None:
    with (
        open_job_directory(config()) as folder,
        master(folder, training),
        pytest.raises(StillRunning, match=r"still runs after 0\.1s"),
    ):
        client.get("mnist").wait(timeout=0.1)


def test_the_loop_goes_on_while_it_is_waited_for(home: Path) -> None:
    found = job(home, DONE)

    async def main() -> Any:
        return await asyncio.gather(found.wait_async(5), found.status_async())

    result, status = asyncio.run(main())
    assert result.version == status.progress.version == 354


def test_metrics_are_rows_by_version(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert job(home, DONE).metrics() == [{"version": 354, "accuracy": 0.96}]


def test_logs_are_lines(home: Path) -> None:
    found = job(home, DONE)
    logs = home / "jobs" / "mnist" / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "worker-0.log").write_text(
        "[2026-01-01 00:00:00,000] [INFO] one\n[2026-01-01 00:00:01,000] [INFO] two\n"
    )
    assert list(found.logs(worker=0, tail=1)) == ["[2026-01-01 00:00:01,000] [INFO] two"]
    with pytest.raises(EdlzError, match="no log of worker-7"):
        list(found.logs(worker=7))


def test_jobs_are_listed(home: Path) -> None:
    ended(home, DONE)
    assert [each.name for each in client.jobs()] == ["mnist"]


def test_an_unknown_job_is_told_with_its_help() -> None:
    with pytest.raises(EdlzError) as caught:
        client.get("nobody")
    assert "nobody" in str(caught.value)


# ---------------------------------------------------------------- what it stands on


def test_a_command_that_fails_at_once_says_why() -> None:
    with pytest.raises(LaunchError) as caught:
        begin_in_background(["status", "nobody"], lambda pid: False)
    assert "nobody" in caught.value.message
    assert "error: " not in caught.value.message


def test_an_error_of_another_thread_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 // 0)


def test_nothing_of_it_is_imported_for_the_command_line() -> None:
    code = "import sys, edlz.client.cli; sys.exit('edlz.client.python' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
