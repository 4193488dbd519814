"""What the user sees: snapshots of every block at 80 and 120 columns, coloured, plain and ASCII."""

import io
import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.client.local.verdict import Evidence, conclude, written_status
from edlz.client.screen.columns import wrapped
from edlz.client.screen.json_objects import status_object
from edlz.client.screen.live import live_block
from edlz.client.screen.plain import due_again_s, progress_line
from edlz.client.screen.screens import JsonScreen, LiveScreen, PlainScreen, QuietScreen
from edlz.client.screen.spans import ASCII, UNICODE, Line, Span, paint, plain, width_of
from edlz.client.screen.terminal import glyphs_for, has_colour, look_for, print_text
from edlz.client.screen.verdict_text import Ending, failure_block, stopped_block, success_block
from edlz.client.screen.wording import best_evaluation, count_of, duration, metric, percent
from edlz.services.configuration.problems import Problem, print_problems
from edlz.services.protocol.job_status import (
    EvaluationView,
    EventView,
    ExportView,
    FailureView,
    JobStatus,
    PartitionView,
    WorkerView,
)
from edlz.services.protocol.messages import ProcessExit
from edlz.services.supervision.post_mortem import last_words

WORKERS = tuple(
    WorkerView(
        id=str(i),
        state="training",
        task=237 + i,
        records_per_s=2130.0,
        read_ms=1.0,
        pull_ms=2.0,
        compute_ms=40.0 + i,
        push_ms=2.0,
        wait_ms=2.0 - i,
    )
    for i in range(2)
)
STATUS = JobStatus(
    name="mnist",
    state="Training",
    mode="sync",
    slots=2,
    started_at=100.0,
    now=122.0,
    ratio=0.59,
    epoch=2,
    epochs=2,
    records=70_800,
    records_total=120_000,
    minibatches=708,
    minibatches_total=1_200,
    version=354,
    records_per_s=4260.0,
    eta_s=12.0,
    loss=0.083,
    tasks_done=236,
    tasks_total=400,
    evaluations=(
        EvaluationView(version=300, metrics={"accuracy": 0.965}),
        EvaluationView(version=350, metrics={"accuracy": 0.964}),
    ),
    workers=WORKERS,
    partitions=(PartitionView(id="0", state="serving", version=354, memory_bytes=10**8, cpu_share=0.28),),
)
DONE = msgspec.structs.replace(
    STATUS,
    state="Succeeded",
    ratio=1.0,
    minibatches=1200,
    version=600,
    loss=0.061,
    evaluations=(EvaluationView(version=600, metrics={"accuracy": 0.971}),),
    digest="3f9ac41e" + "0" * 56,
    lost_workers=1,
)
ENDING = Ending(34.2, Path("/jobs/mnist/logs"))


def changed(**fields: object) -> JobStatus:
    return msgspec.structs.replace(STATUS, **fields)


def block(status: JobStatus, width: int = 80, **more: object) -> str:
    return plain(live_block(status, width, asked_workers=2, **more))  # type: ignore[arg-type]


# ---------------------------------------------------------------- the live block


def test_the_live_block_at_80_columns() -> None:
    assert block(STATUS) == (
        " mnist   epoch 2/2 ━━━━━━━━━━━━━━━━━────────────  59 %  70,800/120,000  ETA 12s\n"
        " v354    loss 0.083   accuracy 0.964 (v350; best 0.965 v300)   4,260 records/s\n"
        " worker  state       task  rec/s    ms per step: read pull compute push wait\n"
        " 0       ● training   237  2,130                    1    2      40    2    2\n"
        " 1       ● training   238  2,130                    1    2      41    2    1\n"
        " ps 0    ● serving    28 % of a core, 0.1 GB\n"
        " Ctrl-C: stop, can go on later\n"
    )


def test_the_live_block_at_120_columns() -> None:
    assert block(STATUS, 120).splitlines()[:2] == [
        " mnist   epoch 2/2 ━━━━━━━━━━━━━━━━━━━━━━━╸────────────────  59 %  70,800/120,000  ETA 12s",
        " v354    loss 0.083   accuracy 0.964 (v350; best 0.965 v300)   4,260 records/s",
    ]


def test_the_live_block_in_ascii() -> None:
    text = block(STATUS, glyphs=ASCII)
    assert text.isascii()
    assert " mnist   epoch 2/2 #################------------  59 %" in text
    assert " 0       * training   237" in text


def test_the_live_block_in_colour() -> None:
    text = paint(live_block(STATUS, 80, asked_workers=2))
    assert "\x1b[32m● training\x1b[0m" in text
    assert "\x1b[1m mnist   \x1b[0m" in text


def test_columns_are_left_out_from_the_right() -> None:
    assert block(STATUS, 60) == (
        " mnist   epoch 2/2 ━━━━━╸───  59 %  70,800/120,000  ETA 12s\n"
        " v354    loss 0.083   4,260 records/s\n"
        " worker  state       task  rec/s    ms per step: read pull\n"
        " 0       ● training   237  2,130                    1    2\n"
        " 1       ● training   238  2,130                    1    2\n"
        " ps 0    ● serving    28 % of a core, 0.1 GB\n"
        " Ctrl-C: stop, can go on later\n"
    )


def test_on_a_narrow_terminal_the_bar_stays() -> None:
    assert block(STATUS, 40).splitlines()[:2] == [
        " mnist   epoch 2/2 ━━━━━━━━╸─────  59 %",
        " v354    loss 0.083   4,260 records/s",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_a_stop_that_is_under_way_is_offered_no_more(width: int) -> None:
    stopping = changed(state="Stopping")
    assert plain([live_block(stopping, width, asked_workers=2)[-1]]) == " Ctrl-C: kill at once\n"
    left = live_block(stopping, width, asked_workers=2, footer=" Ctrl-C: leave the view")
    assert plain([left[-1]]) == " Ctrl-C: leave the view\n"


names = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=50)
states = st.sampled_from(["starting", "training", "waiting", "evaluating", "lost", "done"])
sizes = st.integers(0, 10**12)
job_states = st.sampled_from(
    ["Pending", "Starting", "Training", "Evaluating", "Stopping", "Succeeded", "Failed"]
)


@given(
    width=st.integers(1, 200),
    name=names,
    state=job_states,
    ratio=st.floats(0, 1),
    numbers=sizes,
    seconds=st.none() | st.floats(0, 1e7),
    stalled=st.none() | st.floats(0, 1e7),
    loss=st.none() | st.floats(),
    worker_states=st.lists(states, max_size=20),
    metrics=st.dictionaries(names, st.floats(), max_size=4),
)
def test_no_line_is_ever_wider_than_the_terminal(
    width: int,
    name: str,
    state: str,
    ratio: float,
    numbers: int,
    seconds: float | None,
    stalled: float | None,
    loss: float | None,
    worker_states: list[str],
    metrics: dict[str, float],
) -> None:
    workers = tuple(
        WorkerView(id=str(i), state=s, task=numbers, records_per_s=numbers, compute_ms=numbers, note=name)
        for i, s in enumerate(worker_states)
    )
    status = changed(
        name=name,
        state=state,
        ratio=ratio,
        records=numbers,
        records_total=numbers,
        version=numbers,
        eta_s=seconds,
        stalled_s=stalled,
        loss=loss,
        workers=workers,
        evaluations=(EvaluationView(version=numbers, metrics=metrics),),
    )
    for line in live_block(status, width, asked_workers=3):
        assert width_of(line) <= width


def test_many_workers_are_counted_by_state() -> None:
    workers = tuple(WorkerView(id=str(i), state="training" if i < 20 else "starting") for i in range(23))
    lines = block(changed(workers=workers)).splitlines()
    assert lines[3 + 8 : 3 + 10] == [" + 12 more training", " + 3 more starting"]


def test_a_long_state_takes_from_the_tasks_column() -> None:
    worker = msgspec.structs.replace(WORKERS[0], state="evaluating")
    assert " 0       ● evaluating 237  2,130" in block(changed(workers=(worker,)))


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"eta_s": None}, "70,800/120,000"),
        ({"eta_s": 250.0}, "ETA 4m 10s"),
        ({"stalled_s": 42.0, "workers": ()}, "stalled 42s"),
        ({"state": "Evaluating"}, "evaluating"),
        ({"state": "Stopping"}, "stopping"),
    ],
)
def test_what_stands_at_the_end_of_the_first_line(fields: dict[str, object], end: str) -> None:
    assert block(changed(**fields)).splitlines()[0].endswith(end)


def test_a_stall_names_the_last_task() -> None:
    first = block(changed(stalled_s=42.0), 120).splitlines()[0]
    assert first.endswith("stalled 42s, last: task 237 on worker-0")


def test_before_training_there_is_no_bar() -> None:
    text = block(changed(state="Starting", workers=(WORKERS[0],), partitions=()))
    assert text.splitlines()[0] == " mnist   starting: 0 ps, 1 of 2 workers there"
    assert "v354" not in text


def test_a_worker_that_has_joined_is_there_before_it_works() -> None:
    starts = WorkerView(id="0", state="starting")
    awaited = WorkerView(id="1", state="starting", note="Pending: no room")
    text = block(changed(state="Starting", workers=(starts, awaited), partitions=()))
    assert text.splitlines()[0] == " mnist   starting: 0 ps, 1 of 2 workers there"


def test_what_a_worker_waits_for_stands_in_place_of_its_times() -> None:
    note = "no room on the disk for /x/out"
    waiting = WorkerView(id="0", state="waiting", task=3, compute_ms=7.0, note=note)
    text = block(changed(state="Predicting", workers=(waiting,), partitions=()))
    assert next(line for line in text.splitlines() if "waiting" in line).endswith(note)
    busy = msgspec.structs.replace(waiting, state="predicting")
    assert note not in block(changed(state="Predicting", workers=(busy,), partitions=()))


def test_a_rough_eta_is_marked() -> None:
    assert "ETA ~12s" in block(STATUS, is_eta_rough=True)


# ---------------------------------------------------------------- lines and objects


def test_the_progress_line() -> None:
    assert progress_line(STATUS, 2) == (
        "progress=0.59 epoch=2/2 version=354 loss=0.083 records_per_s=4260 workers=2/2 eta_s=12"
    )
    bare = changed(loss=None, eta_s=None, records_per_s=0.0, stalled_s=11.7)
    assert progress_line(bare, 3) == "progress=0.59 epoch=2/2 version=354 workers=2/3 stalled_s=12"


def test_progress_lines_become_rare() -> None:
    assert (due_again_s(0), due_again_s(59), due_again_s(61)) == (10, 10, 60)


def test_the_json_object_has_the_fields_that_scripts_read() -> None:
    found = status_object(changed(events=(EventView(seq=811, at=1.0, kind="ps", text="x"),)))
    assert list(found) == [
        "api",
        "seq",
        "job",
        "progress",
        "loss",
        "evaluations",
        "tasks",
        "workers",
        "ps",
        "tables",
        "checkpoint",
        "events",
        "nonfinite_losses",
        "exported",
        "predictions",
    ]
    assert (found["api"], found["seq"]) == (1, 811)
    assert found["job"] == {
        "name": "mnist",
        "state": "Training",
        "reason": None,
        "where": "local",
        "strategy": "ParameterServerStrategy",
        "mode": "sync",
        "started_at": 100.0,
        "digest": None,
        "worker_threads": None,
    }
    assert found["tasks"] == {"todo": 162, "leased": 2, "done": 236, "skipped": 0}
    assert found["workers"][0]["step_s"] == {
        "read": 0.001,
        "pull": 0.002,
        "compute": 0.04,
        "push": 0.002,
        "wait": 0.002,
    }
    json.dumps(found)


# ---------------------------------------------------------------- the end


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
    ],
)
def test_a_stop_says_what_it_has_kept(fields: dict[str, object], said: str) -> None:
    text = plain(stopped_block(changed(**fields), "mnist", ENDING))
    assert said in " ".join(text.split())


# ---------------------------------------------------------------- conclusions


def concluded(tmp_path: Path, **fields: object) -> tuple[str, bool, int]:
    evidence = Evidence("mnist", tmp_path, **fields)  # type: ignore[arg-type]
    lines, is_error, code = conclude(evidence, UNICODE, is_full=False)
    return plain(lines), is_error, code


def ended(name: str, code: int | None = 1, reason: str = "exit code 1") -> ProcessExit:
    return ProcessExit(name=name, code=code, reason=reason)


def test_success_needs_the_status_and_the_exit_code(tmp_path: Path) -> None:
    assert concluded(tmp_path, status=DONE, master=ended("master", 0))[1:] == (False, 0)
    assert concluded(tmp_path, status=DONE, master=ended("master", 1))[1:] == (True, 1)
    assert concluded(tmp_path, status=STATUS, master=ended("master", 0))[1:] == (True, 1)
    assert concluded(tmp_path, status=DONE)[1:] == (False, 0)


@pytest.mark.parametrize(("signal", "code"), [(2, 130), (15, 143)])
def test_a_signal_decides_the_code(signal: int, code: int, tmp_path: Path) -> None:
    text, _, found = concluded(tmp_path, status=STATUS, signal=signal, master=ended("master", 0))
    assert found == code
    assert "Stopped" in text


def test_the_masters_reason_is_shown_and_its_traceback_kept(tmp_path: Path) -> None:
    failure = FailureView(text="task 1 failed", error="ValueError: x", traceback="Traceback …", exit_code=3)
    text, is_error, code = concluded(tmp_path, status=changed(state="Failed", failure=failure))
    assert (is_error, code) == (True, 3)
    assert "ValueError: x" in text
    assert (tmp_path / "failure.txt").read_text() == "Traceback …\n"


def test_a_master_that_says_why_it_cannot_begin_is_quoted(tmp_path: Path) -> None:
    tails = {"master": ["error: the disk is full", "help: make room"]}
    text, _, code = concluded(tmp_path, master=ended("master", 2, "exit code 2"), tails=tails)
    assert code == 2
    assert text.splitlines()[0] == 'error: job "mnist" failed: the disk is full'
    assert text.splitlines()[-1] == "help: make room"


def test_the_first_process_that_crashed_gives_the_reason_the_master_does_not_know(tmp_path: Path) -> None:
    tails = {
        "worker-0": [
            "Traceback (most recent call last):",
            '  File "/models/model.py", line 7, in custom_model',
            '  File "/x/site-packages/keras/layers.py", line 99, in call',
            "RuntimeError: no such layer",
        ]
    }
    status = changed(state="Failed", failure=FailureView(text="no worker is left", process="worker-0"))
    text, _, _ = concluded(
        tmp_path, status=status, master=ended("master"), first_crash=ended("worker-0"), tails=tails
    )
    assert 'error: job "mnist" failed: no worker is left\n' in text
    assert "/models/model.py:7 in custom_model" in text
    assert "RuntimeError: no such layer" in text
    assert f"{tmp_path}/worker-0.log" in text


def test_a_log_without_a_reason_is_not_offered_as_one(tmp_path: Path) -> None:
    tails = {"worker-0": ["[2026-11-28 20:55:04,295] [INFO] [service.py:299:_build] building the model"]}
    failure = FailureView(text="no worker is left: worker-0 exit code 0", process="worker-0")
    text, _, _ = concluded(tmp_path, status=changed(state="Failed", failure=failure), tails=tails)
    assert text.splitlines()[-1] == f"help: it left no reason in its log: {tmp_path}/worker-0.log"


def test_what_the_master_knows_of_a_failure_is_not_said_again_by_a_log(tmp_path: Path) -> None:
    tails = {"worker-0": ["Traceback (most recent call last):", "ValueError: x"]}
    failure = FailureView(text="loss() raised ValueError: x", where="/models/model.py:3 in loss")
    status = changed(state="Failed", failure=failure)
    text, _, _ = concluded(
        tmp_path, status=status, master=ended("master"), first_crash=ended("worker-0"), tails=tails
    )
    assert text.count("ValueError: x") == 1
    assert "worker-0" not in text


def test_a_killed_master(tmp_path: Path) -> None:
    killed = ended("master", None, "killed by signal 9 (SIGKILL)")
    text, _, code = concluded(tmp_path, status=STATUS, master=killed)
    assert code == 1
    assert 'error: job "mnist" failed: master ended: killed by signal 9 (SIGKILL)' in text


def test_last_words() -> None:
    assert last_words([]).error == ""
    assert last_words(["a", "b", "--- ended after 1s: exit code 1"]).error == "b"
    assert last_words(["x", "error: y", "help: z"])[:] == ("y", "", "z")
    autograph = [
        "Traceback (most recent call last):",
        "TypeError: in user code:",
        "",
        "    ValueError: bad shape",
    ]
    assert last_words(autograph).error == "ValueError: bad shape"


def test_the_written_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert written_status(tmp_path) is None
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(DONE))
    assert written_status(tmp_path) == DONE
    (tmp_path / "status.json").write_text("[")
    assert written_status(tmp_path) is None
    assert "warning: " in capsys.readouterr().err


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (45.4, "45s"),
        (60, "1m"),
        (250, "4m 10s"),
        (4800, "1h 20m"),
        (183_600, "2d 3h"),
        (3599.6, "1h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.083, "0.083"),
        (0, "0.000"),
        (1234.5, "1,234"),
        (0.00012, "1.20e-04"),
        (3e9, "3.00e+09"),
        (float("nan"), "nan"),
    ],
)
def test_metrics(value: float, text: str) -> None:
    assert metric(value) == text


def test_other_words() -> None:
    assert [percent(ratio) for ratio in (0, 0.599, 0.9999, 1)] == ["0 %", "59 %", "99 %", "100 %"]
    assert [count_of(1, "batch"), count_of(1200, "batch"), count_of(2, "worker")] == [
        "1 batch",
        "1,200 batches",
        "2 workers",
    ]


def test_the_best_of_a_loss_is_the_smallest() -> None:
    views = tuple(
        EvaluationView(version=v, metrics={"val_loss": x, "auc": x})
        for v, x in ((1, 3.0), (2, 1.0), (3, 1.0))
    )
    status = changed(evaluations=views)
    loss, auc = best_evaluation(status, "val_loss"), best_evaluation(status, "auc")
    assert loss is not None
    assert auc is not None
    assert (loss.version, auc.version) == (2, 1)
    assert best_evaluation(status, "other") is None
    odd = [
        EvaluationView(version=v, metrics={"loss": m}) for v, m in ((1, math.nan), (2, 0.5), (3, math.nan))
    ]
    assert best_evaluation(changed(evaluations=tuple(odd)), "loss") == odd[1]
    assert best_evaluation(changed(evaluations=(odd[0],)), "loss") == odd[0]


# ---------------------------------------------------------------- terminals and screens


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_live_only_where_it_can_be_redrawn() -> None:
    assert look_for("auto", Terminal(), {}) == "live"
    assert look_for("auto", io.StringIO(), {}) == "plain"
    assert look_for("auto", Terminal(), {"CI": "true"}) == "plain"
    assert look_for("auto", Terminal(), {"TTY_INTERACTIVE": "0"}) == "plain"
    assert look_for("auto", Terminal(), {"TERM": "dumb"}) == "plain"
    assert look_for("live", Terminal(), {"CI": "true"}) == "live"
    assert look_for("live", io.StringIO(), {"FORCE_COLOR": "1"}) == "plain"
    words = ["plain", "quiet", "json"]
    assert [look_for(word, Terminal(), {}) for word in words] == words


def test_no_color_wins() -> None:
    assert has_colour(Terminal(), {})
    assert not has_colour(Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"})
    assert has_colour(Terminal(), {"NO_COLOR": ""})
    assert not has_colour(io.StringIO(), {})
    assert has_colour(io.StringIO(), {"FORCE_COLOR": "1"})


@pytest.mark.parametrize(("encoding", "is_unicode"), [("utf-8", True), ("ascii", False), ("latin-1", False)])
def test_letters_follow_the_encoding(encoding: str, is_unicode: bool) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert glyphs_for(stream) == (UNICODE if is_unicode else ASCII)


LONG = [
    [Span("error: ", "bad"), Span("the loss of the first minibatches is nan, before anything")],
    [Span("           4 | "), Span("def loss(labels, predictions): return 0 * predictions")],
    [Span("help: ", "bold"), Span("every parameter would become NaN: look for log(0), 0/0")],
]


def test_text_is_fitted_to_a_terminal_and_left_alone_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    shown, piped = Terminal(), io.StringIO()
    print_text(LONG, shown)
    print_text(LONG, piped)
    assert shown.getvalue().splitlines() == [
        "error: the loss of the first minibatches",
        "       is nan, before anything",
        "           4 | def loss(labels, predi...",
        "help: every parameter would become NaN:",
        "      look for log(0), 0/0",
    ]
    assert piped.getvalue() == plain(LONG)


LOG_LINE = "[2026-05-04 09:12:14,170] [INFO] [worker.py:201:log_loss] Loss = 0.08, steps = 100"
WARNING_LINE = "[2026-05-04 09:12:14,170] [WARNING] [worker.py:201:push] slow"


@pytest.fixture
def logged() -> Iterator[list[str]]:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    log, keep = logging.getLogger("edlz.client.screen.screens"), Keep()
    level = log.level
    log.addHandler(keep)
    log.setLevel(logging.INFO)
    yield lines
    log.removeHandler(keep)
    log.setLevel(level)


def test_a_pipe_gets_our_log_lines_and_progress_now_and_then(logged: list[str]) -> None:
    out = io.StringIO()
    screen = PlainScreen(out, 2)
    screen.open()
    screen.log_line("worker-0", LOG_LINE)
    screen.log_line("worker-0", "2026-05-04 tensorflow says something\r")
    screen.log_line("worker-0", '{"ts": 1.0, "event": "x"}')
    screen.log_line("worker-0", '{"ts": broken')
    for second in range(100):
        screen.update(changed(started_at=0.0, now=float(second)))
    screen.say("worker-1 lost: killed by signal 9 (SIGKILL).")
    screen.close(success_block(DONE, ENDING), is_error=False)
    assert out.getvalue().splitlines()[:2] == [f"worker-0 │ {LOG_LINE}", '{"ts": 1.0, "event": "x"}']
    assert out.getvalue().splitlines()[2].startswith("Succeeded  mnist")
    assert not set(out.getvalue()) & set("\r\x1b")
    progress = [line for line in logged if line.startswith("progress=")]
    assert len(progress) == 6  # at 10, 20, … 60 s, then each minute
    assert logged[-1] == "worker-1 lost: killed by signal 9 (SIGKILL)."


def test_errors_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    for screen in (PlainScreen(io.StringIO(), 2), QuietScreen(io.StringIO()), JsonScreen(io.StringIO())):
        screen.close(failure_block(FailureView(text="x"), "a", ENDING), is_error=True)
        assert capsys.readouterr().err.startswith('error: job "a" failed: x\n')


def test_quiet_says_how_it_ended_and_nothing_else() -> None:
    out = io.StringIO()
    screen = QuietScreen(out)
    screen.open()
    screen.log_line("worker-0", WARNING_LINE)
    screen.say("x")
    screen.update(STATUS)
    assert out.getvalue() == ""
    screen.close(success_block(DONE, ENDING), is_error=False)
    assert out.getvalue().startswith("Succeeded")


def test_json_lines_are_objects_and_the_last_one_has_the_digest() -> None:
    out = io.StringIO()
    screen = JsonScreen(out)
    screen.open()
    screen.log_line("worker-0", LOG_LINE)
    for tenth in range(30):
        screen.update(changed(now=100.0 + tenth / 10))
    screen.update(msgspec.structs.replace(DONE, now=103.0))
    screen.close(success_block(DONE, ENDING), is_error=False)
    objects = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(objects) == 4
    assert objects[-1]["job"]["digest"] == DONE.digest


def test_a_terminal_gets_a_block_with_events_and_warnings_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    screen = LiveScreen(out, 2, UNICODE, is_coloured=True)
    screen.open()
    assert "starting …" in out.getvalue()
    screen.log_line("worker-0", LOG_LINE)
    screen.log_line("worker-0", WARNING_LINE)
    event = EventView(seq=1, at=1.0, kind="worker", text="worker-1 lost: killed [by] signal 9.")
    screen.update(changed(events=(event,)))
    screen.update(changed(now=123.0, workers=WORKERS[:1], is_eta_rough=True))
    screen.log_stream().write("from the supervisor\n")
    screen.close(success_block(DONE, ENDING), is_error=False)
    text = out.getvalue()
    assert "Loss = 0.08" not in text
    assert "worker-0: slow\n" in text.replace("\r", "")
    assert "worker-1 lost: killed [by] signal 9." in text
    assert "from the supervisor" in text
    assert "ETA 12s" in text
    assert "ETA ~12s" in text
    assert text.rstrip().endswith("/jobs/mnist/logs")
    assert "\x1b[?25h" in text  # the cursor is there again


def test_what_a_live_view_tells_goes_on_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    screen = LiveScreen(out, 2, UNICODE, is_coloured=False)
    screen.say(
        "worker-1 lost: killed by signal 9 (SIGKILL). Task 238 goes on elsewhere: no minibatch is lost, none counts twice."
    )
    assert out.getvalue() == (
        "worker-1 lost: killed by signal 9 (SIGKILL). Task 238 goes on elsewhere: no\n"
        "  minibatch is lost, none counts twice.\n"
    )


def log_line(level: str, text: str) -> str:
    return f"[2026-05-04 09:12:14,170] [{level}] [service.py:201:push] {text}"


def test_a_live_view_says_once_what_several_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    screen = LiveScreen(out, 2, UNICODE, is_coloured=False)
    screen.open()
    for worker in (0, 1, 0):
        screen.log_line(f"worker-{worker}", log_line("WARNING", "task 5, minibatch 2: ValueError: bad"))
    screen.log_line("master", log_line("WARNING", "task 5 is skipped"))
    told = [("skip", "task 5 is skipped"), ("ps", "ps-0 lost: killed."), ("failed", "it raised 3 times")]
    screen.update(changed(events=[EventView(seq=1, at=1.0, kind=kind, text=text) for kind, text in told]))
    screen.update(changed(events=[EventView(seq=2, at=9.0, kind="ps", text="ps-0 lost: killed.")]))
    screen.log_line("master", log_line("ERROR", 'job "mnist" failed: it raised 3 times'))
    screen.close((), is_error=False)
    text = out.getvalue()
    assert text.count("task 5, minibatch 2: ValueError: bad") == 1
    assert text.count("task 5 is skipped") == 1
    assert text.count("ps-0 lost: killed.") == 2, "it was lost twice"
    assert "it raised" not in text, "that is for the end"


def test_no_rate_is_shown_of_what_is_over() -> None:
    over = changed(state="Evaluating")
    assert "records/s" not in block(over)
    assert "records_per_s" not in progress_line(over, 2)
    for alone in (changed(state="Evaluating", epochs=0), changed(state="Predicting", epochs=0)):
        assert "4,260 records/s" in block(alone)
        assert "records_per_s=4260" in progress_line(alone, 2)


# ---------------------------------------------------------------- the screens of UX, at both widths


def shown(lines: list[Line], columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a screen leaves on a terminal at the end."""
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal()
    QuietScreen(terminal).close(lines, is_error=False)
    return terminal.getvalue().splitlines()


LIVE = changed(checkpoint=300, checkpoint_age_s=2.0)


@pytest.mark.parametrize(("width", "bar"), [(80, "━" * 17 + "─" * 12), (120, "━" * 23 + "╸" + "─" * 16)])
def test_the_whole_live_view(width: int, bar: str) -> None:
    assert block(LIVE, width) == (
        f" mnist   epoch 2/2 {bar}  59 %  70,800/120,000  ETA 12s\n"
        " v354    loss 0.083   accuracy 0.964 (v350; best 0.965 v300)   4,260 records/s\n"
        " worker  state       task  rec/s    ms per step: read pull compute push wait\n"
        " 0       ● training   237  2,130                    1    2      40    2    2\n"
        " 1       ● training   238  2,130                    1    2      41    2    1\n"
        " ps 0    ● serving    28 % of a core, 0.1 GB        checkpoint v300, 2s ago\n"
        " Ctrl-C: stop, can go on later\n"
    )


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


def test_prose_about_edlz_is_no_command() -> None:
    text = (
        "the model is compiled, but edlz would ignore what its compile() sets: optimizer, loss, metrics, jit"
    )
    lines = wrapped([[Span("error: ", "bad"), Span(text)]], 80)
    assert max(map(len, plain(lines).splitlines())) <= 80


@pytest.mark.parametrize("columns", [80, 120])
def test_an_error_goes_on_below_itself(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal()
    message = "num_workers=8 exceeds " + "and so on " * 20 + "max_workers=4"
    print_problems([Problem(message, "--num_workers=4 " * 12)], stream=terminal)
    text = terminal.getvalue()
    lines, help_lines = text[: text.index("help:")].splitlines(), text[text.index("help:") :].splitlines()
    assert lines[0].startswith("error: num_workers=8 exceeds and")
    assert all(len(line) <= columns for line in (*lines, *help_lines))
    assert all(line.startswith(" " * 7) and line[7] != " " for line in lines[1:])
    assert help_lines[0].startswith("help: --num_workers=4 --num_workers=4")
    assert all(line.startswith(" " * 6) and line[6] != " " for line in help_lines[1:])
    pipe = io.StringIO()
    print_problems([Problem(message)], stream=pipe)
    assert pipe.getvalue() == f"error: {message}\n"
