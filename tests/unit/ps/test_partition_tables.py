"""The embedding tables of a partition: what a pull gives, what a step changes, what an image keeps."""

import numpy as np
import numpy.typing as npt
import pytest

from edlz.services.parameters.tables import Tables, empty_rows
from edlz.services.protocol.messages import InitializerSpec, OptimizerSpec, Push, RowIds, TableSpec
from edlz.services.storage.state import MemoryRows

NORMAL = InitializerSpec(kind="normal", a=0.0, b=1.0)
ZEROS = InitializerSpec(kind="constant", a=0.0)
SGD = OptimizerSpec(name="SGD", settings={})
ADAGRAD = OptimizerSpec(name="Adagrad", settings={})
SPECS = (
    TableSpec(path="users", dim=2, initializer=NORMAL, optimizer=SGD),
    TableSpec(path="items", dim=3, initializer=ZEROS, optimizer=ADAGRAD),
)


def make_tables() -> Tables:
    return Tables(SPECS, 7, [empty_rows(spec) for spec in SPECS])


def rows_of(users: list[int], items: list[int]) -> RowIds:
    return RowIds(counts=(len(users), len(items)), ids=np.array([*users, *items], np.int64))


def make_push(rows: RowIds, gradients: npt.NDArray[np.float32], rates: tuple[float, ...] = ()) -> Push:
    return Push(
        task=0,
        index=0,
        is_last=False,
        learning_rate=0.5,
        gradient=np.zeros(16, np.float32),
        state=None,
        counters=None,
        rows=rows,
        row_gradients=gradients,
        table_rates=rates,
    )


def apply(tables: Tables, push: Push, rate_scale: float = 1.0, iteration: int = 0) -> None:
    tables.apply(push, tables.steps(push, rate_scale, iteration))


def test_a_pull_gives_initial_values_and_makes_no_row() -> None:
    tables, rows = make_tables(), rows_of([5, -5], [9])
    first = tables.gather(rows)
    np.testing.assert_array_equal(first, tables.gather(rows))
    assert first.shape == (2 * 2 + 3,)
    assert first[:4].all()
    assert not first[4:].any()
    users, items = tables.telemetry()
    assert (users.rows, items.rows) == (0, 0)
    assert (users.rows_read, users.rows_unknown) == (4, 4)


def test_the_initial_value_follows_from_seed_table_and_id_alone() -> None:
    one, other = make_tables(), make_tables()
    apply(one, make_push(rows_of([1, 2, 3], []), np.ones(6, np.float32)), 1.0, 0)
    np.testing.assert_array_equal(one.gather(rows_of([77], [])), other.gather(rows_of([77], [])))
    another_seed = Tables(SPECS, 8, [empty_rows(spec) for spec in SPECS])
    assert (another_seed.gather(rows_of([77], [])) != other.gather(rows_of([77], []))).all()


def test_each_table_steps_at_its_own_rate() -> None:
    tables, rows = make_tables(), rows_of([1], [1])
    before = tables.gather(rows)
    apply(tables, make_push(rows, np.ones(5, np.float32), rates=(0.25, 0.0)), 0.5, 0)
    after = tables.gather(rows)
    np.testing.assert_array_equal(after[:2], before[:2] - np.float32(0.125))
    np.testing.assert_array_equal(after[2:], before[2:])


def test_a_step_is_the_mean_over_slots_and_keeps_what_was_before() -> None:
    tables = make_tables()
    begin = tables.gather(rows_of([1, 2, 3], []))
    pushes = [
        make_push(rows_of([1, 2], []), np.array([1, 1, 2, 2], np.float32)),
        make_push(rows_of([2, 3], []), np.array([4, 4, 8, 8], np.float32)),
    ]
    tables.commit(pushes, tables.steps(pushes[0], 1.0, 0))
    # A slot without a row counts: the divisor is the number of slots.
    mean = np.array([0.5, 0.5, 3, 3, 4, 4], np.float32)
    np.testing.assert_array_equal(tables.gather(rows_of([1, 2, 3], [])), begin - np.float32(0.5) * mean)
    np.testing.assert_array_equal(tables.gather_before(rows_of([3, 1, 2], [])), begin[[4, 5, 0, 1, 2, 3]])


def test_what_was_before_includes_rows_that_the_step_did_not_touch() -> None:
    tables = make_tables()
    apply(tables, make_push(rows_of([8], []), np.ones(2, np.float32)), 1.0, 0)
    kept = tables.gather(rows_of([8, 9], []))
    push = make_push(rows_of([9], []), np.ones(2, np.float32))
    tables.commit([push], tables.steps(push, 1.0, 1))
    np.testing.assert_array_equal(tables.gather_before(rows_of([8, 9], [])), kept)
    tables.forget_before()
    newest = rows_of([8, 9], [])
    np.testing.assert_array_equal(tables.gather_before(newest), tables.gather(newest))


def test_an_image_is_not_changed_by_later_steps_and_begins_another_life() -> None:
    tables, rows = make_tables(), rows_of([1, 2], [3])
    apply(tables, make_push(rows, np.ones(7, np.float32)), 1.0, 0)
    images, wanted, digests = tables.freeze(), tables.gather(rows), tables.digests()
    apply(tables, make_push(rows_of([1, 4], [3]), np.ones(7, np.float32)), 1.0, 1)
    second = Tables(SPECS, 7, [MemoryRows.of(image) for image in images])
    for image in images:
        image.close()
    np.testing.assert_array_equal(second.gather(rows), wanted)
    assert second.digests() == digests
    apply(second, make_push(rows_of([1, 4], [3]), np.ones(7, np.float32)), 1.0, 1)
    assert second.digests() == tables.digests()


@pytest.mark.parametrize(
    ("rows", "gradients", "rates", "reason"),
    [
        (RowIds(counts=(1,), ids=np.zeros(1, np.int64)), None, (), "for 2 tables"),
        (RowIds(counts=(2, -1), ids=np.zeros(1, np.int64)), None, (), "for 2 tables"),
        (RowIds(counts=(1, 1), ids=np.zeros(3, np.int64)), None, (), "for 2 rows"),
        (rows_of([1], [1]), np.zeros(4, np.float32), (), "their ids give"),
        (rows_of([1], [1]), np.zeros(5, np.float32), (0.1,), "1 learning rates for 2 tables"),
    ],
)
def test_what_does_not_fit_is_refused(
    rows: RowIds, gradients: npt.NDArray[np.float32] | None, rates: tuple[float, ...], reason: str
) -> None:
    tables = make_tables()
    if gradients is None:
        with pytest.raises(ValueError, match=reason):
            tables.check(rows)
        return
    with pytest.raises(ValueError, match=reason):
        tables.check_push(make_push(rows, gradients, rates))


def test_rows_of_another_width_begin_no_table() -> None:
    rows = MemoryRows(np.array([1]), np.zeros((1, 3), np.float32))
    with pytest.raises(ValueError, match="rows of users have 3 numbers, not 2"):
        Tables(SPECS, 7, [rows, empty_rows(SPECS[1])])
