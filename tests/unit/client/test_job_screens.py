"""Snapshots of what the commands on jobs show: plain, at 80 columns, and in colour and ASCII."""

import json
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edlz.client.job_files.job_index import LocalJob
from edlz.client.local.job_lock import LockHolder
from edlz.client.local.job_view import LocalJobView
from edlz.client.screen.columns import aligned, cut
from edlz.client.screen.jobs import job_object, jobs_object, jobs_table, scaled_lines
from edlz.client.screen.json_objects import object_text
from edlz.client.screen.spans import ASCII, Span, paint, plain, width_of
from edlz.client.screen.status import status_screen
from edlz.services.protocol.job_status import (
    EvaluationView,
    EventView,
    FailureView,
    JobStatus,
    PartitionView,
    TableView,
    WorkerView,
)
from edlz.services.protocol.messages import Scaled

NOW = 100_000.0
HOLDER = LockHolder(4242, Path("/tmp/edlz-abcdefgh"))
WORKERS = (
    WorkerView(id="0", state="training", task=4061, records_per_s=18_210.0, compute_ms=40.0, wait_ms=1.5),
    WorkerView(id="5", state="starting", note="Training goes on with 3."),
)
STATUS = JobStatus(
    name="mnist",
    state="Training",
    mode="sync",
    slots=2,
    started_at=NOW - 23,
    now=NOW,
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
    evaluations=(EvaluationView(version=350, metrics={"accuracy": 0.964}),),
    workers=WORKERS,
    partitions=(
        PartitionView(
            id="0", state="serving", version=354, memory_bytes=9 * 10**8, cpu_share=0.61, rows=4_100_000
        ),
    ),
    events=tuple(
        EventView(seq=i, at=NOW - 720 + 180 * i, kind="worker", text=text)
        for i, text in enumerate(
            ("training begins.", "worker-1 lost: preempted", "worker-5 created", "checkpoint v300", "x" * 90)
        )
    ),
    checkpoint=300,
    checkpoint_age_s=180.0,
    tables=(TableView(path="words", rows=4_100_000, memory_bytes=9 * 10**8, hit_rate=0.91),),
)
FAILED = msgspec.structs.replace(
    STATUS,
    state="Failed",
    ratio=0.31,
    started_at=NOW - 90_000,
    workers=(),
    partitions=(),
    events=(),
    evaluations=(),
    failure=FailureView(
        text="task 63 raised the same error 3 times (workers 0, 1, 0)",
        data="census-train-04, records 8064..8191, epoch 1, minibatch 1",
        where="/zoo/census.py:41 in feed",
        error='ValueError: could not parse "?" as a number',
        help="correct feed(), then: edlz resume census",
    ),
)


def view(
    status: JobStatus = STATUS,
    name: str = "mnist",
    *,
    is_live: bool = False,
    note: str = "",
    has_figures: bool = True,
    word: str = "",
    is_earlier: bool = False,
    by_hand: str | None = None,
) -> LocalJobView:
    job = LocalJob(name, Path(f"/home/jobs/{name}"), word or name, is_earlier)
    return LocalJobView(job, HOLDER if is_live else None, status, 2, note, has_figures, by_hand)


def ended(state: str, **fields: object) -> JobStatus:
    return msgspec.structs.replace(STATUS, state=state, **fields)


LIVE = view(is_live=True)
SIGHTS = [
    view(FAILED, "census"),
    LIVE,
    view(ended("Stopped", started_at=NOW - 7300), "ctr-wide"),
    view(
        ended("Stopped", started_at=NOW - 7400, evaluations=(), loss=None),
        "killed",
        note="interrupted",
        has_figures=False,
    ),
    view(ended("Succeeded", ratio=1.0, started_at=NOW - 200_000), "done"),
]


# ---------------------------------------------------------------- ls


def test_ls() -> None:
    assert plain(jobs_table(SIGHTS, NOW, width=80)) == (
        "NAME      STATE      DONE   WORKERS  WHERE  AGE  LAST\n"
        "mnist     Training    59 %  1/2      local  23s  accuracy 0.964\n"
        "ctr-wide  Stopped     59 %  0/2      local  2h   edlz resume ctr-wide\n"
        "killed    Stopped        -  0/2      local  2h   edlz resume killed   interrupt…\n"
        "census    Failed      31 %  0/2      local  1d   edlz status census   task 63 r…\n"
        "done      Succeeded  100 %  0/2      local  2d   accuracy 0.964\n"
        "next: edlz status mnist    edlz logs -f mnist\n"
    )


def test_a_job_without_an_end_is_shown_with_a_count() -> None:
    watching = view(msgspec.structs.replace(STATUS, is_endless=True, ratio=1.0, eta_s=None), is_live=True)
    assert plain(jobs_table([watching], NOW)).splitlines()[1].split("  ")[2:4] == [
        "70,800 records",
        "1/2",
    ]
    first = plain(status_screen(watching, NOW)).splitlines()[0]
    assert first.startswith("mnist  Training  70,800 records  epoch 2  v354  accuracy 0.964 (v350)")
    wide = plain(status_screen(watching, NOW, is_wide=True))
    assert wide.splitlines()[0] == first
    assert job_object(watching)["progress"]["ratio"] is None


def test_ls_in_a_pipe_cuts_nothing_off() -> None:
    assert "edlz status census   task 63 raised the same error 3 times (workers 0, 1, 0)\n" in plain(
        jobs_table(SIGHTS, NOW)
    )


def test_ls_has_one_line_for_a_job_however_much_its_failure_has_to_say() -> None:
    failure = FailureView(text="ValueError: in user code:\n\n  File x.py, line 3\n" + "and so on " * 90)
    talkative = view(msgspec.structs.replace(FAILED, failure=failure), "census")
    header, line, _ = plain(jobs_table([talkative], NOW)).splitlines()
    assert len(line) == header.index("LAST") + 100
    assert line.endswith("…")
    assert "edlz status census   ValueError: in user code: File x.py, line 3 and" in line
    wide = plain(jobs_table([talkative], NOW, is_wide=True)).splitlines()
    assert len(wide) == 3
    assert "and so on and so on " * 40 in wide[1]


def test_ls_without_jobs_and_without_live_ones() -> None:
    assert plain(jobs_table([], NOW)) == "No job has been run here yet.\nnext: edlz train --help\n"
    assert plain(jobs_table(SIGHTS[:1], NOW)).splitlines()[-1] == "next: edlz status census"


def test_ls_wide_in_ascii_and_in_colour() -> None:
    wide = plain(jobs_table([LIVE], NOW, is_wide=True)).splitlines()
    assert wide[0].endswith("LAST            VERSION  PID   PAGE  FOLDER")
    assert wide[1].endswith("accuracy 0.964  v354     4242  -     /home/jobs/mnist")
    paged = view(msgspec.structs.replace(STATUS, page="http://localhost:50002"), is_live=True)
    assert "  http://localhost:50002  " in plain(jobs_table([paged], NOW, is_wide=True))
    assert plain(jobs_table(SIGHTS, NOW, width=80, glyphs=ASCII)).isascii()
    painted = paint(jobs_table(SIGHTS, NOW))
    assert "\x1b[31mFailed   \x1b[0m" in painted
    assert "\x1b[1medlz status mnist    edlz logs -f mnist\x1b[0m" in painted


def test_a_job_by_hand_has_no_log_here_and_nobody_said_how_many_workers() -> None:
    by_hand = LocalJobView(LIVE.job, None, STATUS, 0, by_hand="77")
    lines = plain(jobs_table([by_hand], NOW, is_wide=True)).splitlines()
    assert lines[1].split()[:5] == ["mnist", "Training", "59", "%", "1"]
    assert " 77 " in lines[1]
    assert lines[-1] == "next: edlz status mnist    edlz wait mnist"


def test_earlier_runs_are_not_to_be_resumed() -> None:
    line = plain(jobs_table([view(ended("Stopped"), "mnist.1", is_earlier=True)], NOW)).splitlines()[1]
    assert "resume" not in line


def test_a_job_that_another_one_has_taken_the_name_of_is_named_by_its_folder() -> None:
    text = plain(jobs_table([view(ended("Stopped"), word="/disk/mnist")], NOW))
    assert "edlz resume /disk/mnist" in text
    assert text.endswith("next: edlz status /disk/mnist\n")


# ---------------------------------------------------------------- status


def test_status() -> None:
    assert plain(status_screen(LIVE, NOW, width=80)) == (
        "mnist  Training  59 %  epoch 2/2  v354  accuracy 0.964 (v350)  ETA 12s\n"
        "   local, 23s\n"
        "WORKER    STATE     TASK   REC/S   NOTE\n"
        "worker-0  training  4,061  18,210\n"
        "worker-5  starting      -       -  Training goes on with 3.\n"
        "PS    STATE    ROWS   MEMORY  CPU   CHECKPOINT\n"
        "ps-0  serving  4.1 M  0.9 GB  61 %  v300, 3m ago\n"
        "EVENTS    9m   worker-1 lost: preempted\n"
        "          6m   worker-5 created\n"
        "          3m   checkpoint v300\n"
        "          0s   " + 64 * "x" + "…\n"
        "next: edlz logs -f mnist    edlz stop mnist\n"
    )


def test_status_of_a_group_shows_members_and_no_server() -> None:
    workers = (
        msgspec.structs.replace(WORKERS[0], rank=1),
        msgspec.structs.replace(WORKERS[0], id="2", rank=0),
        WORKERS[1],
    )
    status = msgspec.structs.replace(STATUS, workers=workers, is_allreduce=True)
    lines = plain(status_screen(view(status, is_live=True), NOW)).splitlines()
    assert lines[1].split() == ["WORKER", "STATE", "TASK", "REC/S", "RANK", "NOTE"]
    assert [line.split()[4] for line in lines[2:5]] == ["1", "0", "-"]
    assert lines[5] == "GROUP  2 members, checkpoint v300, 3m ago"
    formed = msgspec.structs.replace(status, generation=(2, 7))
    for is_wide, text in ((True, "GROUP  2 members, generation 2.7, checkpoint"), (False, lines[5])):
        assert text in plain(status_screen(view(formed, is_live=True), NOW, is_wide=is_wide))
    assert "ps-0" not in "".join(lines)


def test_status_wide() -> None:
    lines = plain(status_screen(LIVE, NOW, is_wide=True)).splitlines()
    assert lines[0].endswith("ETA 12s   local, 23s")
    assert lines[1].split() == [
        "WORKER",
        "STATE",
        "TASK",
        "REC/S",
        "READ",
        "PULL",
        "COMPUTE",
        "PUSH",
        "WAIT",
        "MEMORY",
        "NOTE",
    ]
    assert lines[2].split()[4:] == [
        "0.0",
        "ms",
        "0.0",
        "ms",
        "40.0",
        "ms",
        "0.0",
        "ms",
        "1.5",
        "ms",
        "0.0",
        "GB",
    ]
    assert "words  4.1 M  0.9 GB  91 %   0" in lines
    assert "FOLDER    /home/jobs/mnist" in lines


def test_status_of_a_failed_job() -> None:
    assert plain(status_screen(view(FAILED, "census"), NOW, width=80, has_checkpoints=True)) == (
        "census  Failed  31 %  epoch 2/2  v354  loss 0.083   local, 1d\n"
        'error: job "mnist" failed: task 63 raised the same error 3 times (workers 0, 1,\n'
        "       0)\n"
        "  data    census-train-04, records 8064..8191, epoch 1, minibatch 1\n"
        "  code    /zoo/census.py:41 in feed\n"
        '          ValueError: could not parse "?" as a number\n'
        "  logs    /home/jobs/census/logs\n"
        "help: correct feed(), then: edlz resume census\n"
        "next: edlz resume census    edlz checkpoint ls census    edlz rm census\n"
    )


def test_status_of_a_failed_job_says_what_is_kept_and_how_old_it_is_by_now() -> None:
    failed = msgspec.structs.replace(FAILED, snapshot=300, snapshot_ratio=0.25, snapshot_age_s=12.0)
    screen = plain(status_screen(view(failed, "census"), failed.now + 48, width=80))
    assert "  kept    v300 (25 %), snapshot of 1m ago\n" in screen


def test_status_of_a_job_that_has_ended_shows_no_process() -> None:
    status = ended("Stopped", events=())
    assert plain(status_screen(view(status), NOW, width=80)) == (
        "mnist  Stopped  59 %  epoch 2/2  v354  accuracy 0.964 (v350)   local, 23s\n"
        "next: edlz resume mnist    edlz rm mnist\n"
    )


@pytest.mark.parametrize(
    ("seen", "lines"),
    [
        (
            view(ended("Stopped", events=()), note="interrupted", has_figures=False),
            [
                "mnist  Stopped   local, 23s",
                "  interrupted before it could save; it goes on from its last snapshots",
                "next: edlz resume mnist    edlz rm mnist",
            ],
        ),
        (
            view(
                ended("Starting", events=(), workers=(), partitions=()),
                is_live=True,
                note="the master restarts",
            ),
            [
                "mnist  Starting  59 %  epoch 2/2  v354  accuracy 0.964 (v350)   local, 23s",
                "  the master restarts: no answer yet; ask again in a few seconds",
                "next: edlz logs -f mnist --master    edlz stop mnist",
            ],
        ),
        (
            view(
                ended("Failed", events=(), failure=FailureView(text="no data", help="look")),
                note="never began",
                has_figures=False,
            ),
            [
                "mnist  Failed   local, 23s",
                'error: job "mnist" failed: no data',
                "  logs    /home/jobs/mnist/logs",
                "help: look",
                "next: edlz logs mnist --master    edlz rm mnist",
            ],
        ),
        (
            view(ended("Training", events=(), workers=(), partitions=()), by_hand="77"),
            [
                "mnist  Training  59 %  epoch 2/2  v354  accuracy 0.964 (v350)  ETA 12s",
                "   local, 23s",
                "next: edlz wait mnist",
            ],
        ),
    ],
    ids=["interrupted", "restarts", "never began", "by hand"],
)
def test_what_the_state_does_not_say(seen: LocalJobView, lines: list[str]) -> None:
    assert plain(status_screen(seen, NOW, width=80)).splitlines() == lines


def test_a_stall_and_a_rough_eta() -> None:
    stalled = view(ended("Training", stalled_s=42.0), is_live=True)
    assert "stalled 42s" in plain(status_screen(stalled, NOW))
    rough = view(ended("Training", is_eta_rough=True), is_live=True)
    assert "ETA ~12s" in plain(status_screen(rough, NOW))


# ---------------------------------------------------------------- objects


def test_objects() -> None:
    found = job_object(LIVE)
    assert found["api"] == 1
    assert found["job"] == {
        "name": "mnist",
        "state": "Training",
        "reason": None,
        "where": "local",
        "strategy": "ParameterServerStrategy",
        "mode": "sync",
        "started_at": NOW - 23,
        "digest": None,
        "worker_threads": None,
        "folder": "/home/jobs/mnist",
        "pid": 4242,
        "asked_workers": 2,
    }
    assert found["progress"]["minibatches_total"] == 1200
    assert jobs_object([LIVE])["jobs"] == [found]
    assert json.loads(object_text(found, "json")) == found
    assert yaml.safe_load(object_text(found, "yaml")) == found
    assert job_object(view(note="interrupted"))["job"]["reason"] == "interrupted"
    assert job_object(view(FAILED))["job"]["reason"].startswith("task 63 raised")


def test_the_object_of_a_group_has_ranks_and_no_server() -> None:
    worker = msgspec.structs.replace(WORKERS[0], rank=0)
    found = job_object(view(msgspec.structs.replace(STATUS, workers=(worker,), is_allreduce=True)))
    assert (found["job"]["strategy"], found["ps"]) == ("AllreduceStrategy", [])
    assert found["workers"][0]["rank"] == 0
    assert job_object(LIVE)["workers"][0]["rank"] is None


def test_every_field_of_a_partition_is_passed_on() -> None:
    (partition,) = job_object(LIVE)["ps"]
    assert set(partition) == {*PartitionView.__struct_fields__, "checkpoint_version"}
    assert (partition["rows"], partition["checkpoint_version"]) == (4_100_000, 300)


# ---------------------------------------------------------------- scale, columns


@pytest.mark.parametrize(
    ("scaled", "line"),
    [
        (Scaled(before=2, after=4), "mnist: 2 -> 4 workers."),
        (Scaled(before=2, after=1), "mnist: 2 -> 1 workers."),
        (Scaled(before=4, after=4), "mnist: 4 workers, as before."),
        (
            Scaled(before=2, after=4, warning="grads_to_wait=2, so 2 workers would wait"),
            "mnist: 2 -> 4 workers.  warning: grads_to_wait=2, so 2 workers would wait",
        ),
    ],
)
def test_scaled(scaled: Scaled, line: str) -> None:
    assert plain(scaled_lines("mnist", scaled)) == f"{line}\nnext: edlz status mnist\n"


@given(
    texts=st.lists(st.tuples(*[st.text("ab c", max_size=30)] * 3), max_size=5),
    width=st.integers(3, 60),
)
def test_columns_are_aligned_and_cut(texts: list[tuple[str, str, str]], width: int) -> None:
    lines = aligned(["A", "BB", "C"], texts, right={"BB"})
    assert len({width_of(line[:-1]) for line in lines}) == 1
    for line, row in zip(lines[1:], texts, strict=True):
        assert [line[place].text.strip() for place in (0, 2, 4)] == [text.strip() for text in row]
        assert width_of(cut(line, width)) <= width
        assert cut(line, None) == line
    assert cut([Span("abc")], 3) == [Span("abc")]
