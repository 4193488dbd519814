"""Minibatches: the same for (task, index) whatever came before, in any lane, in any form of feed."""

import queue
import random

import numpy as np
import pytest

from edlz.api.feeds import Mode
from edlz.services.protocol.plan import TaskRange
from edlz.services.protocol.seeds import permutation
from edlz.services.worker.engine.feed.batch_structure import record_count
from edlz.services.worker.engine.feed.task_reader import Assignment
from edlz.services.worker.engine.user_code.user_code import TaskError
from tests.unit.engine.feed.feeds import (
    CHUNKED,
    FORMS,
    NOISY,
    PLAIN,
    TASK,
    begin,
    bits,
    feed_that,
    joined,
    read,
    record,
    run,
    values,
)

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")


def test_a_task_gives_its_records_in_its_order_and_marks_the_last_minibatch(make):
    lanes = make(PLAIN)
    begin(lanes, 3)
    minibatches = [lanes.minibatch(3, index) for index in range(3)]
    assert [m.is_last for m in minibatches] == [False, False, True]
    assert [record_count(m.element) for m in minibatches] == [4, 4, 2]
    labels = np.concatenate([m.element[1].numpy() for m in minibatches])
    assert labels.tolist() == [300.0 + place for place in permutation(TASK, 5, 1, 3)]


def test_a_full_last_minibatch_is_the_last(make):
    lanes = make(PLAIN)
    begin(lanes, 0, count=8)
    assert [lanes.minibatch(0, index).is_last for index in range(2)] == [False, True]


@pytest.mark.parametrize(
    "chunks",
    [
        "batch(3)",
        "batch(2, drop_remainder=True)",  # of one known length, which divides a minibatch's
        "batch(3).map(lambda records: records[:0]).concatenate(dataset.batch(7))",
        "batch(100)",
    ],
)
def test_a_feed_that_decodes_in_chunks_gives_what_one_by_one_gives(make, chunks):
    plain, chunked = make(PLAIN), make(CHUNKED.replace("batch(3)", chunks))
    for lanes in (plain, chunked):
        begin(lanes, 3)
    assert run(chunked, 3) == run(plain, 3)


@pytest.mark.parametrize(("after", "is_whole"), [("", True), (".prefetch(1)", False)])
def test_chunks_at_the_end_of_a_feed_are_not_taken_apart_record_by_record(make, after, is_whole):
    """Reading each value of each record by itself would cost as much as a small model's step."""
    lanes = make(CHUNKED.replace(".unbatch()", f".unbatch(){after}"))
    graph = lanes._feed._minibatches.get_concrete_function().graph
    assert ("RebatchDatasetV2" in {op.type for op in graph.get_operations()}) == is_whole


def test_feeds_that_drop_or_repeat_records(make):
    filtered = make(feed_that("dataset.map(parse).filter(lambda x, y: x[1] < 5)"))
    begin(filtered, 1)
    assert sorted(joined(values(filtered, 1))) == [100.0, 101.0, 102.0, 103.0, 104.0]
    repeated = make(feed_that("dataset.map(parse).repeat(2)"))
    begin(repeated, 1)
    assert [len(v) for v in values(repeated, 1)] == [4, 4, 4, 4, 4]


def test_a_task_without_minibatches_has_an_empty_last_one(make):
    lanes = make(feed_that("dataset.map(parse).filter(lambda x, y: x[0] != 2.0)"))
    for task in (1, 2, 3):
        begin(lanes, task)
    assert len(run(lanes, 1)) == 3
    empty = lanes.minibatch(2, 0)
    assert (empty.index, empty.is_last, empty.element) == (0, True, None)
    assert lanes.minibatch(2, 0) == empty
    lanes.drop(2)
    assert len(run(lanes, 3)) == 3


@pytest.mark.parametrize("form", FORMS)
def test_minibatches_follow_from_task_and_index_alone(make, form):
    lanes = make(FORMS[form])
    first = {}
    for task in (4, 0, 7):
        begin(lanes, task)
        first[task] = run(lanes, task)
    assert len({str(minibatches) for minibatches in first.values()}) == 3
    other = make(FORMS[form])
    for task, lane in ((7, 2), (4, 0), (0, 1)):
        begin(other, task, lane)
    found = {task: [] for task in first}
    for index in range(3):  # in turns, as a worker fills several slots
        for task in (0, 4, 7):
            found[task].append(bits(other.minibatch(task, index)))
    assert found == first


@pytest.mark.parametrize("form", FORMS)
def test_a_task_can_be_resumed_and_begun_again(make, form):
    lanes = make(FORMS[form])
    begin(lanes, 1)
    whole = run(lanes, 1)
    begin(lanes, 1, first=2)
    assert run(lanes, 1, 2) == whole[2:]
    begin(lanes, 1)
    lanes.minibatch(1, 0)
    lanes.drop(1)
    begin(lanes, 1)
    assert run(lanes, 1) == whole
    begin(lanes, 1)
    assert bits(lanes.minibatch(1, 2)) == whole[2]  # skips ahead
    assert bits(lanes.minibatch(1, 2)) == whole[2]  # again, for older parameters
    assert bits(lanes.minibatch(1, 1)) == whole[1]  # back: a partition lost it
    assert run(lanes, 1, 2) == whole[2:]


def test_the_users_shuffle_shuffles(make):
    lanes = make(FORMS["shuffled"])
    begin(lanes, 1)
    shuffled = joined(values(lanes, 1))
    assert shuffled != [100.0 + place for place in permutation(TASK, 5, 1, 1)]
    assert sorted(shuffled) == [100.0 + place for place in range(TASK)]


def test_random_ops_differ_from_task_to_task(make):
    lanes = make(NOISY)
    noise = []
    for task in (1, 2):
        begin(lanes, task)
        noise.append([label % 1 for label in joined(values(lanes, task))])
    assert len(set(np.round(noise[0] + noise[1], 5))) > 15


def test_tasks_in_any_order_of_calls(make):
    """A lane's second task before its first, back and forth, dropped and begun: always the same bits."""
    lanes, chooser = make(FORMS["shuffled"]), random.Random(1)
    whole = {}
    for task in range(4):
        begin(lanes, task)
        whole[task] = run(lanes, task)
    in_hand = set()
    for _ in range(60):
        task = chooser.randrange(4)
        if task not in in_hand:
            begin(lanes, task, lane=chooser.randrange(2))
            in_hand.add(task)
        elif chooser.random() < 0.2:
            lanes.drop(task)
            in_hand.remove(task)
        else:
            index = chooser.randrange(3)
            minibatch = lanes.minibatch(task, index)
            assert bits(minibatch) == whole[task][index]
            assert minibatch.is_last is (index == 2)


@pytest.mark.parametrize("form", ["plain", "listed", "oldest"])
def test_dropping_one_task_leaves_the_others_in_its_lane(make, form):
    lanes = make(FORMS[form])
    begin(lanes, 5)
    whole = run(lanes, 5)
    for task in (4, 5, 6):
        begin(lanes, task)
    lanes.minibatch(4, 0)
    lanes.drop(4)
    lanes.drop(6)
    lanes.drop(99)
    assert run(lanes, 5) == whole


@pytest.mark.parametrize("form", ["plain", "shuffled"])
def test_reading_ahead_crosses_tasks(make, form):
    asked = queue.SimpleQueue()

    def noted(assignment):
        asked.put(assignment.task)
        return read(assignment)

    lanes = make(FORMS[form], read=noted)
    begin(lanes, 0, count=4)
    assert asked.get(timeout=10) == 0  # before anybody wants a minibatch
    begin(lanes, 1, count=4)
    lanes.minibatch(0, 0)
    assert asked.get(timeout=10) == 1


def test_evaluation_has_no_training_shuffle(make):
    source = feed_that("dataset.map(parse).shuffle(99) if mode == 'training' else dataset.map(parse)")
    lanes = make(source, mode=Mode.EVALUATION, read=lambda a: [record(a.task, i) for i in range(TASK)])
    begin(lanes, 0)
    assert joined(values(lanes, 0)) == list(range(TASK))


@pytest.mark.parametrize(
    ("feed", "flags"),
    [
        ("dataset.map(parse)", [False, False, True]),
        ("dataset.map(parse).shuffle(9).repeat(2).prefetch(1)", [False, False, False, False, True]),
        ("dataset.map(parse).filter(lambda x, y: True)", [False, False, False, None]),
        ("dataset.map(parse).take_while(lambda x, y: True)", [False, False, False, None]),
        ("dataset.map(parse).ignore_errors()", [False, False, False, None]),
    ],
)
def test_the_last_minibatch_is_known_where_the_length_is(make, feed, flags):
    """Without one more element behind it, which tells the end."""
    stream = make(feed_that(feed))._feed.open()
    found = []
    for number in (1, 2):
        assignment = Assignment(number, 0, TaskRange(name="", first=0, count=TASK), first=number - 1)
        stream.start(assignment)
        for place, _ in enumerate(flags[number - 1 :], number - 1):
            got = stream.next(assignment)
            assert got is None or got[0] == place
            found.append(got and got[2])
    stream.close()
    assert found == flags + flags[1:]


def test_a_length_that_a_feed_claims_is_looked_at(make):
    lanes = make(feed_that("dataset.map(parse).apply(tf.data.experimental.assert_cardinality(8))"))
    begin(lanes, 1)
    with pytest.raises(TaskError):
        values(lanes, 1)
