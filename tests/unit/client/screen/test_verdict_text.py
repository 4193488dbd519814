"""How a job has ended, as the user reads it."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edlz.client.screen.json_objects import status_object
from edlz.client.screen.live import live_block
from edlz.client.screen.spans import ASCII, Line, paint, plain
from edlz.client.screen.verdict_text import Ending, failure_block, stopped_block, success_block
from edlz.services.protocol.job_status import (
    EvaluationView,
    ExportView,
    FailureView,
    PartitionView,
)
from tests.shown_jobs import DONE, ENDING, changed, shown


def test_success() -> None:
    assert plain(success_block(DONE, ENDING)) == (
        "Succeeded  mnist in 34s: 600 steps, 1,200 minibatches, each in the model exactly once\n"
        "  accuracy 0.971 (v600)   loss 0.061   1 worker lost\n"
        "  digest   sha256 3f9ac41e… (the same on any number of workers and ps\n"
        "           at --grads_to_wait=2)\n"
        "  logs     /jobs/mnist/logs\n"
    )


def test_the_digest_is_shown_with_the_threads_that_it_depends_on() -> None:
    lines = plain(success_block(msgspec.structs.replace(DONE, threads=2), ENDING)).splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("  digest")]
    assert lines[at + 1] == "           at --grads_to_wait=2 --worker_threads=2 and on CPUs of one type)"
    assert max(len(line) for line in lines[at : at + 2]) <= 80


def test_success_is_not_called_exactly_once_against_the_partitions_counts() -> None:
    wrong = PartitionView(
        id="1", state="sealed", version=600, expected=1200, applied=1199, missing=2, doubled=1
    )
    text = plain(success_block(msgspec.structs.replace(DONE, partitions=(wrong,)), ENDING))
    assert "1,200 minibatches; ps-1 has 2 missing, 1 doubled\n" in text


def test_success_in_ascii_in_a_file_and_in_colour() -> None:
    assert "sha256 3f9ac41e... (the" in plain(success_block(DONE, ENDING, ASCII))
    undisturbed = msgspec.structs.replace(DONE, lost_workers=0)
    whole = plain(success_block(undisturbed, Ending(34.2, Path("l"), is_full=True)))
    assert f"sha256 {DONE.digest} (" in whole
    assert "worker lost" not in whole
    assert paint(success_block(DONE, ENDING)).startswith("\x1b[32mSucceeded\x1b[0m  mnist")


def test_success_says_where_the_model_lies() -> None:
    exported = ExportView(place="/data/out/2", size_bytes=297_400, formats=("saved_model",))
    job = msgspec.structs.replace(DONE, exported=exported)
    assert "\n  exported /data/out/2  297.4 KB\n" in plain(success_block(job, ENDING))
    assert status_object(job)["exported"]["place"] == "/data/out/2"
    assert "exporting" in plain(
        live_block(msgspec.structs.replace(DONE, state="Exporting"), asked_workers=2, width=80)
    )


def test_success_without_order_promises_no_bits() -> None:
    text = plain(success_block(msgspec.structs.replace(DONE, mode="async"), ENDING))
    assert "sha256 3f9ac41e…\n" in text


def test_success_of_a_model_that_diverged_says_so() -> None:
    last = EvaluationView(version=600, metrics={"accuracy": 0.1, "loss": math.nan, "mape": math.inf})
    job = msgspec.structs.replace(
        DONE, loss=math.nan, nonfinite_losses=1180, first_nonfinite=(3, 2), evaluations=(last,)
    )
    text = plain(success_block(job, ENDING))
    assert "  accuracy 0.100 (v600)   loss nan (v600)   mape inf (v600)" in text
    assert (
        "  1,180 minibatches had a loss that is NaN or infinite, the first: task 3, minibatch 2\n"
        "  the finished model's loss, mape are NaN or infinite; --stop_on_nan ends a job there\n"
    ) in text
    unnoticed = msgspec.structs.replace(DONE, loss=math.inf, evaluations=())
    assert "  the last loss is NaN or infinite; --stop_on_nan" in plain(success_block(unnoticed, ENDING))


def test_failure(tmp_path: Path) -> None:
    model = tmp_path / "census_wide.py"
    model.write_text("\n" * 40 + '    age = tf.strings.to_number(row["age"])\n')
    failure = FailureView(
        text="task 63 raised the same error 3 times (workers 0, 1, 0)",
        data="census-train-04, records 8064..8191, epoch 1, minibatch 1",
        where=f"{model}:41 in feed",
        error='ValueError: could not parse "?" as a number',
        help="correct feed(), then: edlz resume census\n"
        "or leave these records out: edlz resume census --skip_bad_tasks",
        traceback="Traceback (most recent call last):\n",
        task=63,
    )
    kept = changed(snapshot=412, snapshot_ratio=0.313, snapshot_age_s=12.2)
    assert plain(failure_block(failure, "census", ENDING, kept)) == (
        'error: job "census" failed: task 63 raised the same error 3 times (workers 0, 1, 0)\n'
        "  data    census-train-04, records 8064..8191, epoch 1, minibatch 1\n"
        f"  code    {model}:41 in feed\n"
        '            41 |     age = tf.strings.to_number(row["age"])\n'
        '          ValueError: could not parse "?" as a number\n'
        "  kept    v412 (31 %), snapshot of 12s ago\n"
        "  log     edlz logs census --task 63       full traceback\n"
        "help: correct feed(), then: edlz resume census\n"
        "      or leave these records out: edlz resume census --skip_bad_tasks\n"
    )


def test_no_traceback_is_promised_of_workers_that_were_killed() -> None:
    killed = FailureView(text="x", error="its worker ended: killed by signal 9 (SIGKILL)", task=5)
    assert "\n  log     edlz logs a --task 5\n" in plain(failure_block(killed, "a", ENDING))


def test_a_failed_job_goes_on_from_a_checkpoint_that_is_newer_than_its_snapshot() -> None:
    kept = changed(snapshot=412, snapshot_age_s=12.2, checkpoint=450, checkpoint_age_s=3.1)
    text = plain(failure_block(FailureView(text="x", help="y"), "a", ENDING, kept))
    assert "  kept    v450, checkpoint of 3s ago\n" in text


def test_a_failure_before_the_first_snapshot_keeps_nothing() -> None:
    text = plain(failure_block(FailureView(text="x", help="y"), "a", ENDING, changed(snapshot=0)))
    assert text.endswith(
        "  kept    nothing yet: it goes on from the beginning\n  logs    /jobs/mnist/logs\nhelp: y\n"
    )


def test_what_was_skipped_is_said() -> None:
    status = msgspec.structs.replace(
        DONE, skipped_tasks=3, skipped_minibatches=41, skipped_evaluation_tasks=1
    )
    text = plain(success_block(status, ENDING))
    assert "  3 tasks skipped after errors: 41 minibatches left out\n" in text
    assert "  1 evaluation task skipped after errors: the metrics are without their records\n" in text
    assert "skipped" not in plain(success_block(DONE, ENDING))


def test_failure_on_another_machine_names_the_place_only() -> None:
    text = plain(failure_block(FailureView(text="x", where="/nowhere/m.py:3 in feed"), "a", ENDING))
    assert "  code    /nowhere/m.py:3 in feed\n  logs" in text


def test_stopped() -> None:
    saved = changed(checkpoint=354, target_workers=2)
    assert plain(stopped_block(saved, "mnist", ENDING)) == (
        "Stopped  mnist at 59 %, epoch 2 of 2, v354. Nothing is lost.\n"
        "  go on   edlz resume mnist (or with fewer: edlz resume mnist --num_workers=1)\n"
        "  forget  edlz rm mnist\n"
        "  logs    /jobs/mnist/logs\n"
    )
    assert plain(stopped_block(None, "mnist", ENDING)).startswith("Stopped  mnist before it began.\n")
    alone = plain(stopped_block(changed(checkpoint=354, target_workers=1), "mnist", ENDING))
    assert "fewer" not in alone, "one worker is the fewest"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"checkpoint": 352, "snapshot": 354}, "v354. Nothing is lost."),
        ({"checkpoint": 352, "snapshot": 300}, "v354. Saved is v352: what came after it is trained again."),
        ({"snapshot": 300}, "v354. Saved is v300: what came after it is trained again."),
        ({"snapshot": 0}, "v354. Nothing could be saved: it begins again when it is resumed."),
        ({}, "v354. Nothing could be saved: it begins again when it is resumed."),
        ({"version": 0}, "v0. Nothing was trained yet."),
        ({"epochs": 0}, "at 59 %, v354. It begins again when it is resumed."),
        ({"epochs": 0, "is_prediction": True}, "at 59 %, v354. Nothing is lost."),
        ({"epochs": 0, "is_analysis": True}, "at 59 %. Nothing is lost."),
    ],
)
def test_a_stop_says_what_it_has_kept(fields: dict[str, object], said: str) -> None:
    text = plain(stopped_block(changed(**fields), "mnist", ENDING))
    assert said in " ".join(text.split())


def test_where_a_job_without_an_end_was_stopped_is_a_count() -> None:
    text = plain(stopped_block(changed(is_endless=True, ratio=1.0, checkpoint=354), "mnist", ENDING))
    assert text.startswith("Stopped  mnist at 70,800 records, epoch 2, v354. Nothing is lost.\n")
    kept = changed(is_endless=True, snapshot=412, snapshot_age_s=12.0, snapshot_ratio=1.0)
    lines = plain(failure_block(FailureView(text="x"), "mnist", ENDING, kept)).splitlines()
    assert "  kept    v412, snapshot of 12s ago" in lines


def test_every_end_says_what_shows_its_report() -> None:
    ending = Ending(34.2, ENDING.logs, report="edlz open mnist")
    assert plain(success_block(DONE, ending)).splitlines()[-2:] == [
        "  report   edlz open mnist",
        "  logs     /jobs/mnist/logs",
    ]
    for lines in (
        stopped_block(changed(), "mnist", ending),
        failure_block(FailureView(text="x"), "mnist", ending),
    ):
        assert plain(lines).splitlines()[-2:] == ["  report  edlz open mnist", "  logs    /jobs/mnist/logs"]


@pytest.mark.parametrize("columns", [80, 120])
def test_a_stop_at_both_widths(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = stopped_block(changed(checkpoint=300, target_workers=2), "mnist", ENDING)
    first = "Stopped  mnist at 59 %, epoch 2 of 2, v354. Saved is v300: what came after it is"
    at_80 = [first, "         trained again."]
    assert shown(lines, columns, monkeypatch) == [
        *(at_80 if columns == 80 else [f"{first} trained again."]),
        "  go on   edlz resume mnist (or with fewer: edlz resume mnist --num_workers=1)",
        "  forget  edlz rm mnist",
        "  logs    /jobs/mnist/logs",
    ]


def test_the_end_at_120_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    job = msgspec.structs.replace(DONE, threads=2)
    assert shown(success_block(job, ENDING), 120, monkeypatch) == [
        "Succeeded  mnist in 34s: 600 steps, 1,200 minibatches, each in the model exactly once",
        "  accuracy 0.971 (v600)   loss 0.061   1 worker lost",
        "  digest   sha256 3f9ac41e… (the same on any number of workers and ps",
        "           at --grads_to_wait=2 --worker_threads=2 and on CPUs of one type)",
        "  logs     /jobs/mnist/logs",
    ]


def test_the_end_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(success_block(DONE, ENDING), 80, monkeypatch)[:3] == [
        "Succeeded  mnist in 34s: 600 steps, 1,200 minibatches, each in the model exactly",
        "           once",
        "  accuracy 0.971 (v600)   loss 0.061   1 worker lost",
    ]


CENSUS = FailureView(
    text="task 63 raised the same error 3 times (workers 0, 1, 0)",
    data="census-train-04, records 8064..8191, epoch 1, minibatch 1",
    where="model_zoo/census/census_wide.py:3 in feed",
    error='ValueError: could not parse "?" as a number',
    help="correct feed(), then: edlz resume census\n"
    "or leave these records out: edlz resume census --skip_bad_tasks",
    traceback="Traceback (most recent call last):\n",
    task=63,
)
KEPT = changed(snapshot=412, snapshot_age_s=12.0, snapshot_ratio=0.31)


def failed(folder: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> list[Line]:
    module = folder / "model_zoo" / "census" / "census_wide.py"
    module.parent.mkdir(parents=True)
    long = "    " + " + ".join(f'row["age{number}"]' for number in range(9))
    module.write_text(f'\n\n    age = tf.strings.to_number(row["age"])\n{long}\n')
    monkeypatch.chdir(folder)
    return failure_block(msgspec.structs.replace(CENSUS, **fields), "census", ENDING, KEPT)


BELOW = [
    "  data    census-train-04, records 8064..8191, epoch 1, minibatch 1",
    "  code    model_zoo/census/census_wide.py:3 in feed",
    '            3 |     age = tf.strings.to_number(row["age"])',
    '          ValueError: could not parse "?" as a number',
    "  kept    v412 (31 %), snapshot of 12s ago",
    "  log     edlz logs census --task 63       full traceback",
    "help: correct feed(), then: edlz resume census",
    "      or leave these records out: edlz resume census --skip_bad_tasks",
]


def test_a_failure_at_120_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(failed(tmp_path, monkeypatch), 120, monkeypatch) == [
        'error: job "census" failed: task 63 raised the same error 3 times (workers 0, 1, 0)',
        *BELOW,
    ]


def test_a_failure_at_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(failed(tmp_path, monkeypatch), 80, monkeypatch) == [
        'error: job "census" failed: task 63 raised the same error 3 times (workers 0, 1,',
        "       0)",
        *BELOW,
    ]


def test_a_line_of_code_is_cut_and_no_word_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/data/" + "a" * 90
    lines = failed(tmp_path, monkeypatch, where="model_zoo/census/census_wide.py:4 in feed", data=path)
    text = shown(lines, 80, monkeypatch)
    (code,) = [line for line in text if " | " in line]
    assert len(code) == 80
    assert code.endswith("…")
    assert any(path in line for line in text)


def test_a_command_is_not_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"edlz resume {'a' * 30} --num_workers=1 --skip_bad_tasks"
    advice = f"correct feed() in model_zoo/census/census_wide.py, then: {command}"
    text = shown(failed(tmp_path, monkeypatch, help=advice), 80, monkeypatch)
    assert text[-2:] == [
        "help: correct feed() in model_zoo/census/census_wide.py, then:",
        f"      {command}",
    ]
