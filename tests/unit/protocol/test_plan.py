"""Plans: every record once an epoch, in an order that follows from the seed alone."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from edlz.services.protocol.plan import Plan, Shard
from edlz.services.protocol.seeds import derive_seed, permutation
from tests import builders

plans = st.builds(
    Plan,
    mode=st.sampled_from(("sync", "async")),
    seed=st.integers(0, 2**63 - 1),
    shards=st.lists(
        st.builds(Shard, name=st.sampled_from("abc"), first=st.integers(0, 5), count=st.integers(0, 30)),
        max_size=4,
        unique_by=lambda shard: shard.name,
    ).map(tuple),
    records_per_task=st.integers(1, 9),
    minibatch_size=st.integers(1, 4),
    epochs=st.integers(1, 3),
    slots=st.integers(1, 4),
)


@given(plans)
def test_every_record_belongs_to_one_task_of_each_epoch(plan: Plan) -> None:
    wanted = Counter((s.name, n) for s in plan.shards for n in range(s.first, s.first + s.count))
    for epoch in range(plan.epochs):
        found: Counter[tuple[str, int]] = Counter()
        for task in range(epoch * plan.tasks_per_epoch, (epoch + 1) * plan.tasks_per_epoch):
            records = plan.task_range(task)
            order = plan.record_order(task)
            assert 0 < records.count <= plan.records_per_task
            assert sorted(order) == list(range(records.count))
            found.update((records.name, records.first + int(n)) for n in order)
        assert found == wanted


@given(plans)
def test_rounds_partition_the_tasks_and_stay_in_an_epoch(plan: Plan) -> None:
    task = 0
    while task < plan.task_count:
        tasks = plan.round_tasks(task)
        assert tasks[0] == task
        assert len(tasks) <= plan.slots
        assert len({plan.epoch(t) for t in tasks}) == 1
        assert all(plan.round_tasks(t) == tasks for t in tasks)
        task = tasks[-1] + 1
    assert task == plan.task_count


def test_the_orders_are_those_of_every_earlier_release() -> None:
    # A change of these numbers would change what every job with the same seed trains on.
    assert permutation(8, 0, 0, 0).tolist() == [1, 0, 4, 6, 7, 2, 3, 5]
    assert derive_seed(1, 2, 3) == 15020427595393229491


def test_epochs_and_seeds_give_different_orders() -> None:
    orders = {tuple(permutation(20, seed, 0, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


@given(plans)
def test_a_slot_is_a_place_in_a_round(plan: Plan) -> None:
    for task in range(plan.task_count):
        assert plan.round_tasks(task)[plan.slot(task)] == task


def test_the_hash_is_that_of_earlier_releases_where_the_sum_of_a_step_is() -> None:
    """They added gradients up one after another; of three, a tree does the same."""
    hashes = [builders.plan(slots=slots).hash[:8] for slots in (3, 4)]
    assert hashes[0] == "38847dde"
    assert hashes[1] != "d0c00b9c"


@given(plans)
def test_the_hash_leaves_out_what_does_not_change_minibatches(plan: Plan) -> None:
    evaluated = msgspec.structs.replace(plan, evaluation_shards=(Shard(name="x", first=0, count=1),))
    assert plan.hash == evaluated.hash
    assert plan.hash != msgspec.structs.replace(plan, slots=plan.slots + 1).hash


@given(plans, st.integers(0, 9))
def test_barriers_stand_behind_rounds_of_tasks(plan: Plan, every: int) -> None:
    tasks, version, wanted = 0, 0, []
    while tasks < plan.task_count:
        round_ = plan.round_tasks(tasks)
        sizes = [int(plan.minibatches[task]) for task in round_]
        before, version = version, version + (max(sizes) if plan.is_sync else sum(sizes))
        tasks = round_[-1] + 1
        is_passed = version // every > before // every if every else tasks % plan.tasks_per_epoch == 0
        if is_passed or tasks == plan.task_count:
            wanted.append(tasks - 1)
    assert (plan.barriers(every).tolist() if plan.task_count else []) == wanted


@given(plans, st.data())
def test_the_size_of_the_first_tasks(plan: Plan, data: st.DataObject) -> None:
    tasks = data.draw(st.integers(0, plan.task_count))
    records = sum(plan.task_records(task) for task in range(tasks))
    assert plan.size_of(tasks) == (records, int(plan.minibatches[:tasks].sum()))
