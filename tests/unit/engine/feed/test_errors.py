"""Feeds that raise, never end or give something else: which task fails, and what is told."""

import threading
from pathlib import Path

import pytest

from edlz.services.errors import DataError, ModelError
from edlz.services.protocol.seeds import permutation
from edlz.services.worker.engine.user_code.user_code import TaskError, UserCodeError
from tests.unit.engine.feed.feeds import (
    CHUNKED,
    FORMS,
    NOISY,
    OLDEST,
    PLAIN,
    TASK,
    begin,
    bits,
    feed_that,
    read,
    run,
)

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")


def test_a_feed_without_end(make):
    lanes = make(feed_that("dataset.map(parse).repeat()"))
    begin(lanes, 0)
    with pytest.raises(ModelError, match="repeats its records without end"):
        lanes.minibatch(0, 0)
    with pytest.raises(ModelError, match="repeats its records without end"):
        make(NOISY.replace("map(parse)", "map(parse).repeat()"))


def test_chunks_without_end(make):
    lanes = make(CHUNKED.replace(".map(parse)", ".map(parse).repeat()"))
    begin(lanes, 0)
    with pytest.raises(ModelError, match="repeats its records without end"):
        lanes.minibatch(0, 0)


def test_an_input_fn_must_give_the_same_shapes_for_all_records(make):
    lanes = make(OLDEST.replace("v[:2] for", "v[:2] + [0.0] * (len(values) == 2) for"))
    begin(lanes, 0)
    assert lanes.minibatch(0, 0).element[0].shape == (4, 2)
    with pytest.raises(TaskError, match=r"gave \[\(2, 3\) float32, \(2,\) float32\] for these 2 records"):
        lanes.minibatch(0, 2)


def test_a_cache_file_would_mix_tasks_up(make, tmp_path):
    with pytest.raises(ModelError, match="caches records in a file"):
        make(feed_that(f"dataset.map(parse).cache('{tmp_path}/cache')"))
    lanes = make(feed_that("dataset.map(parse).cache()"))
    for task in (0, 1):
        begin(lanes, task)
    assert run(lanes, 0) != run(lanes, 1)


def test_a_feed_that_raises_on_anything_has_its_frame(make):
    with pytest.raises(UserCodeError, match=r"feed\(\) raised AttributeError") as error:
        make("def feed(dataset, mode, metadata):\n    return dataset.no_such_thing()\n")
    assert error.value.where.endswith("model0.py:15 in feed")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (PLAIN.replace("values[:2], values[2]", "values[:2]"), r"feed\(\) yields .*not \(features"),
        (
            "def feed(dataset, mode, metadata):\n    return 3\n",
            r"feed\(\) returned int, not a tf.data.Dataset",
        ),
        ("def input_fn(records):\n    return tf.zeros([2])\n", "gets a list of records; it returned .*, not"),
    ],
)
def test_a_feed_that_yields_something_else(make, source, message):
    with pytest.raises(ModelError, match=message):
        make(source)


@pytest.mark.parametrize("form", ["plain", "noisy", "oldest"])
def test_a_bad_record_fails_its_task_and_no_other(make, form):
    def bad(assignment):
        records = read(assignment)
        return [*records[:5], b"1,2,oops", *records[6:]] if assignment.task == 1 else records

    lanes = make(FORMS[form], read=bad)
    for task in (0, 1, 2):
        begin(lanes, task)
    good = run(lanes, 0)
    with pytest.raises(TaskError, match="oops") as error:
        run(lanes, 1)
    assert (error.value.task, error.value.index) == (1, 1)
    assert "model0.py" in error.value.where
    assert "oops" in error.value.traceback
    assert f"(record {permutation(TASK, 5, 1, 1)[5]} of data)" in error.value.error
    assert len(run(lanes, 2)) == 3
    begin(lanes, 1)  # tried again: the same
    with pytest.raises(TaskError, match="oops"):
        run(lanes, 1)
    begin(lanes, 0)
    assert run(lanes, 0) == good


@pytest.mark.parametrize("form", ["plain", "noisy", "oldest"])
def test_what_is_before_the_end_of_a_bad_task_can_be_had(make, form):
    """The minibatch that raises is not even looked at to see whether the one before is the last."""

    def bad(assignment):
        records = read(assignment)
        return [*records[:5], b"1,2,oops", *records[6:]] if assignment.task == 1 else records

    lanes = make(FORMS[form], read=bad)
    begin(lanes, 0)
    begin(lanes, 1, end=1)
    begin(lanes, 2)
    assert len(run(lanes, 0)) == 3
    found = lanes.minibatch(1, 0)
    assert (found.index, found.is_last) == (0, False)
    assert bits(lanes.minibatch(1, 0)) == bits(found)
    lanes.drop(1)
    assert len(run(lanes, 2)) == 3
    begin(lanes, 1, end=1)
    assert lanes.ahead(1, 0).is_last is False
    assert bits(lanes.minibatch(1, 0)) == bits(found)


@pytest.mark.parametrize(("end", "last"), [(2, None), (3, None), (5, 2)])
def test_a_task_that_is_ended_may_end_by_its_records_before(make, end, last):
    lanes = make(PLAIN)
    begin(lanes, 1, end=end)
    count = min(end, 3)
    assert [lanes.minibatch(1, index).is_last for index in range(count)] == [i == last for i in range(count)]


def test_a_bad_record_is_told_with_its_line(make):
    lanes = make(PLAIN, read=lambda a: [b"x,y,z"] * TASK)
    begin(lanes, 6)
    with pytest.raises(TaskError) as error:
        lanes.minibatch(6, 0)
    place, _, function = error.value.where.partition(" in ")
    path, _, line = place.rpartition(":")
    assert function == "parse"
    assert "to_number" in Path(path).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize("form", ["plain", "noisy", "oldest"])
def test_records_that_cannot_be_read_fail_their_task(make, form):
    def unreadable(assignment):
        if assignment.task == 1:
            raise DataError("part-0 is damaged (records 0 to 9)")
        return read(assignment)

    lanes = make(FORMS[form], read=unreadable)
    for task in (1, 2):
        begin(lanes, task)
    with pytest.raises(TaskError) as error:
        lanes.minibatch(1, 0)
    assert error.value.error == "part-0 is damaged (records 0 to 9)"
    assert len(run(lanes, 2)) == 3


@pytest.mark.parametrize("form", ["plain", "noisy", "oldest"])
def test_fewer_minibatches_than_are_applied(make, form):
    lanes = make(FORMS[form])
    begin(lanes, 1, first=3)
    with pytest.raises(TaskError, match="must be a function of the records alone"):
        lanes.minibatch(1, 3)
    begin(lanes, 1)
    lanes.minibatch(1, 0)
    with pytest.raises(TaskError, match="gave no minibatch 7"):
        lanes.minibatch(1, 7)
    begin(lanes, 1)
    assert len(run(lanes, 1)) == 3


def test_what_the_master_is_told_of_a_failed_task(make):
    lanes = make(PLAIN, read=lambda a: [b"x,y,z"] * TASK)
    begin(lanes, 6)
    with pytest.raises(TaskError) as error:
        lanes.minibatch(6, 0)
    failed = error.value.record("training", attempt=3)
    assert (failed.kind, failed.task, failed.index, failed.attempt) == ("training", 6, 0, 3)
    assert failed.error.startswith(
        "InvalidArgumentError: StringToNumberOp could not correctly convert string"
    )
    assert "\n" not in failed.error


def test_closing_does_not_wait_for_a_read(make):
    reading, go = threading.Event(), threading.Event()

    def slow(assignment):
        reading.set()
        go.wait(10)
        return read(assignment)

    lanes = make(PLAIN, read=slow)
    begin(lanes, 0)
    assert reading.wait(10)
    lanes.close()
    assert not go.is_set()
    go.set()
