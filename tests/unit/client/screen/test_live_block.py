"""The block that is redrawn while a job runs, at every width, coloured, plain and in ASCII."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.client.screen.live import live_block
from edlz.client.screen.spans import ASCII, paint, plain, width_of
from edlz.services.protocol.job_status import (
    EvaluationView,
    PartitionView,
    WorkerView,
)
from tests.shown_jobs import STATUS, WORKERS, block, changed


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


def test_the_live_block_of_a_group_of_workers() -> None:
    members = tuple(msgspec.structs.replace(worker, rank=1 - rank) for rank, worker in enumerate(WORKERS[:2]))
    saved = {"checkpoint": 300, "checkpoint_age_s": 4.0}
    text = block(changed(is_allreduce=True, workers=members, **saved))
    assert " group   2 members   checkpoint v300, 4s ago\n" in text
    assert " ps 0" not in text
    assert "ms per step: read compute send  sum wait" in text
    assert "pull" not in text
    starts = block(changed(is_allreduce=True, state="Starting", workers=(WORKERS[0],), partitions=()))
    assert " ps, " not in starts


def test_the_live_block_at_120_columns() -> None:
    assert block(STATUS, 120).splitlines()[:2] == [
        " mnist   epoch 2/2 ━━━━━━━━━━━━━━━━━━━━━━━╸────────────────  59 %  70,800/120,000  ETA 12s",
        " v354    loss 0.083   accuracy 0.964 (v350; best 0.965 v300)   4,260 records/s",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_job_without_an_end_has_no_bar_but_a_count(width: int) -> None:
    waits = block(changed(is_endless=True, ratio=1.0, eta_s=None, waits_for_data_s=61.2), width)
    assert waits.splitlines()[0] == " mnist   epoch 2  70,800 records  waits for data 1m 1s"
    assert " %" not in waits.splitlines()[0]
    one = block(changed(is_endless=True, ratio=1.0, eta_s=None, records=1), width)
    assert one.splitlines()[0] == " mnist   epoch 2  1 record"


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


def test_many_workers_and_parameter_servers_fit_a_small_terminal() -> None:
    workers = tuple(WorkerView(id=str(i), state="training" if i < 20 else "starting") for i in range(23))
    servers = tuple(PartitionView(id=str(i), state="serving", version=354) for i in range(20))
    lines = block(changed(workers=workers, partitions=servers)).splitlines()
    assert len(lines) <= 24
    assert lines[-2:] == [" + 14 more ps serving", " Ctrl-C: stop, can go on later"]


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
    assert text.splitlines()[0] == " mnist   starting: 0 ps, 1 of 2 workers there, building the model"
    text = block(changed(state="Starting", workers=(awaited,), partitions=()))
    assert text.splitlines()[0] == " mnist   starting: 0 ps, 0 of 2 workers there"


def test_what_a_worker_waits_for_stands_in_place_of_its_times() -> None:
    note = "no room on the disk for /x/out"
    waiting = WorkerView(id="0", state="waiting", task=3, compute_ms=7.0, note=note)
    text = block(changed(state="Predicting", workers=(waiting,), partitions=()))
    assert next(line for line in text.splitlines() if "waiting" in line).endswith(note)
    busy = msgspec.structs.replace(waiting, state="predicting")
    assert note not in block(changed(state="Predicting", workers=(busy,), partitions=()))


def test_a_rough_eta_is_marked() -> None:
    assert "ETA ~12s" in block(STATUS, is_eta_rough=True)


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
