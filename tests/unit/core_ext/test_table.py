"""The compiled embedding table against its twin, a dict of rows: same bits whatever happens, in any order."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edlz.core_ext import table
from edlz.core_ext.initializers import DISTRIBUTIONS, Initializer
from edlz.core_ext.initializers_numpy import mix64
from edlz.core_ext.steps import Kind
from edlz.core_ext.table import EmbeddingTable
from tests.unit.core_ext.embedding_tables import (
    CROWDED,
    LARGEST,
    NORMAL,
    SMALLEST,
    bits,
    gradients_for,
    id_with_hash,
    int64s,
    packed,
    rows_of,
    twins,
)

IDS = st.one_of(
    st.sampled_from(CROWDED), st.integers(-40, 40), st.sampled_from((SMALLEST, LARGEST, SMALLEST + 1))
)
ID_LISTS = st.lists(IDS, max_size=40)
DISTINCT_IDS = st.lists(IDS, max_size=40, unique=True)


class TableMachine(RuleBasedStateMachine):
    """Drives both tables through the same calls; their images stay open for a while."""

    @initialize(
        kind=st.sampled_from(Kind),
        dim=st.sampled_from((1, 2, 3, 8, 16, 17, 32, 40)),
        distribution=st.sampled_from(DISTRIBUTIONS),
        seed=st.integers(0, 2**64 - 1),
    )
    def make(self, kind, dim, distribution, seed):
        self.kind, self.dim, self.calls, self.images = kind, dim, 0, []
        self.ours, self.twin = twins(kind, dim, Initializer(distribution, -0.5, 0.75), seed)

    @rule(ids=ID_LISTS, is_flat=st.booleans())
    def gather(self, ids, is_flat):
        shape = (len(ids) * self.dim,) if is_flat else (len(ids), self.dim)
        row_count = self.ours.row_count
        ours, twin = np.empty(shape, np.float32), np.empty(shape, np.float32)
        assert self.ours.gather(int64s(ids), ours) == self.twin.gather(int64s(ids), twin)
        assert bits(ours) == bits(twin)
        assert self.ours.row_count == row_count

    @rule(ids=DISTINCT_IDS, decay=st.sampled_from((0, 0.5)))
    def apply(self, ids, decay):
        self.calls += 1
        gradients, step = gradients_for(ids, self.dim, self.calls), packed(self.kind, decay)
        ours, twin = np.empty_like(gradients), np.empty_like(gradients)
        created = self.ours.apply(step, int64s(ids), gradients, ours)
        assert created == self.twin.apply(step, int64s(ids), gradients, twin)
        assert bits(ours) == bits(twin)

    @rule(ids=ID_LISTS)
    def apply_with_repeats(self, ids):
        self.calls += 1
        gradients, step = gradients_for(ids, self.dim, self.calls), packed(self.kind)
        created = self.ours.apply(step, int64s(ids), gradients)
        assert created == self.twin.apply(step, int64s(ids), gradients)

    @rule(ids=ID_LISTS)
    def extend_and_index(self, ids):
        rows = np.random.default_rng(len(ids)).random((len(ids), self.ours.width), np.float32)
        rows[:, self.dim : 2 * self.dim] += 1  # as in slots_of
        is_refused = len(set(ids)) < len(ids) or not set(ids).isdisjoint(self.twin.ids().tolist())
        for one in (self.ours, self.twin):
            one.extend(len(ids))[:] = rows
            with pytest.raises(ValueError, match="already or comes twice") if is_refused else nullcontext():
                one.index(int64s(ids))

    @precondition(lambda self: len(self.images) < 3)
    @rule()
    def freeze(self):
        self.images.append((self.ours.freeze(), rows_of(self.twin.freeze())))

    @precondition(lambda self: self.images)
    @rule(data=st.data())
    def read_a_part(self, data):
        image, rows = data.draw(st.sampled_from(self.images))
        first = data.draw(st.integers(0, image.row_count))
        count = data.draw(st.integers(0, image.row_count - first))
        out = np.empty((count, image.width), np.float32)
        image.read(first, count, out.reshape(-1))
        assert bits(out) == [rows[row_id] for row_id in image.ids[first : first + count].tolist()]

    @precondition(lambda self: self.images)
    @rule(data=st.data())
    def close(self, data):
        image, rows = self.images.pop(data.draw(st.integers(0, len(self.images) - 1)))
        assert rows_of(image) == rows
        image.close()

    @invariant()
    def same_rows(self):
        if hasattr(self, "ours"):
            assert self.ours.row_count == self.twin.row_count
            assert set(self.ours.ids().tolist()) == set(self.twin.ids().tolist())

    def teardown(self):
        if hasattr(self, "ours"):
            assert self.ours.digest() == self.twin.digest()


TableMachine.TestCase.settings = settings(
    deadline=None,
    max_examples=120,
    stateful_step_count=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestAgainstTwin = TableMachine.TestCase


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("dim", [1, 8, 16, 64, 130])
def test_every_step_at_every_width(kind, dim):
    ours, twin = twins(kind, dim)
    for call, ids in enumerate(([3, 1, 2], range(200), range(100, 300, 3))):
        gradients = gradients_for(ids, dim, call)
        assert ours.apply(packed(kind), int64s(ids), gradients) == twin.apply(
            packed(kind), int64s(ids), gradients
        )
    assert rows_of(ours.freeze()) == rows_of(twin.freeze())
    assert ours.digest() == twin.digest()


class TestRows:
    def test_a_pull_creates_nothing(self):
        ours, _ = twins()
        out = np.empty((3, 4), np.float32)
        assert ours.gather(int64s([5, 6, 5]), out) == 3
        assert (ours.row_count, ours.digest(), len(ours.ids())) == (0, 0, 0)
        assert ours.apply(packed(Kind.SGD), int64s([5]), np.zeros(4, np.float32)) == 1
        again = np.empty((3, 4), np.float32)
        assert ours.gather(int64s([5, 6, 5]), again) == 1
        assert bits(again) == bits(out)

    def test_extreme_ids(self):
        ids = int64s([SMALLEST, LARGEST, 0, -1, 1])
        ours, _ = twins(dim=1, initializer=Initializer("constant", 0.0))
        ours.apply(packed(Kind.SGD), ids, np.arange(5, dtype=np.float32))
        out = np.empty(6, np.float32)
        assert ours.gather(int64s([2, *ids]), out) == 1
        assert out.tolist() == [0, *(-0.125 * np.arange(5))]
        assert set(ours.ids().tolist()) == set(ids.tolist())

    def test_an_id_that_repeats_takes_its_steps_in_order(self):
        ours, twin = twins(Kind.ADAM)
        ids, gradients = int64s([7] * 50 + [8] + [7] * 50), gradients_for(range(101), 4)
        assert ours.apply(packed(Kind.ADAM), ids, gradients) == 2
        assert twin.apply(packed(Kind.ADAM), ids, gradients) == 2
        assert ours.digest() == twin.digest()

    def test_many_ids_with_one_home(self):
        """A batch whose ids all overflow, also from the last bucket to the first, through several growths."""
        ids = int64s([id_with_hash(hash_) for n in range(200) for hash_ in (n, 2**64 - 1 - n, 2**63 + n)])
        ours, twin = twins(Kind.ADAGRAD, dim=2)
        for first in range(0, len(ids), 100):
            for one in (ours, twin):
                some = ids[: first + 100]
                one.apply(packed(Kind.ADAGRAD), some, gradients_for(some, 2))
        assert ours.digest() == twin.digest()
        out = np.empty((len(ids), 2), np.float32)
        assert ours.gather(ids, out) == 0

    def test_growth_past_a_million_places(self):
        count = 700_000
        ids = np.arange(count, dtype=np.int64) * 7 - count
        ours, _ = twins(dim=1, initializer=Initializer("constant", 0.0))
        gradients = np.arange(count, dtype=np.float32)
        for first in range(0, count, 50_000):
            part = slice(first, first + 50_000)
            assert ours.apply(packed(Kind.SGD), ids[part], gradients[part]) == 50_000
        out = np.empty(count, np.float32)
        assert ours.gather(ids[::-1].copy(), out) == 0
        assert np.array_equal(out[::-1], -0.125 * gradients)
        assert 0.4 < count / ours.capacity < 0.7
        assert ours.memory_bytes < count * (4 + 8 + 40)

    def test_digest_does_not_depend_on_history(self):
        forwards, backwards = (EmbeddingTable(3, [(3, 0.5)], NORMAL, 4) for _ in range(2))
        ids = np.arange(1000)
        gradients = gradients_for(ids, 3)
        forwards.apply(packed(Kind.ADAGRAD), ids, gradients)
        for place in reversed(range(1000)):
            one = slice(place, place + 1)
            backwards.apply(packed(Kind.ADAGRAD), ids[one], gradients[one])
        assert forwards.ids().tolist() != backwards.ids().tolist()
        assert forwards.digest() == backwards.digest() != 0

    def test_digest_sees_every_bit_of_a_row(self):
        def digest(row_id, row):
            ours = EmbeddingTable(3, [(2, 0.0)], NORMAL, 0)
            ours.extend(1)[:] = row
            ours.index(int64s([row_id]))
            return ours.digest()

        row = np.array([1, -2, 0, 3, 4], np.float32)
        seen = {digest(1, row), digest(2, row), digest(-1, row)}
        for place in range(5):
            for bit in range(32):
                changed = row.copy()
                changed.view(np.uint32)[place] ^= 1 << bit
                seen.add(digest(1, changed))
        assert len(seen) == 3 + 5 * 32
        assert all(0 <= value < 2**128 for value in seen)

    def test_widths_and_sizes(self):
        ours = EmbeddingTable(16, [(16, 0.0), (1, 0.0)], NORMAL, 0)
        assert (ours.dim, ours.width, ours.row_count) == (16, 33, 0)
        assert ours.row_limit > 1_000_000
        assert table.MAX_DIM == 4096
        wide = EmbeddingTable(4096, [(4096, 0.0)] * 3, NORMAL, 0)
        wide.apply(packed(Kind.AMSGRAD), int64s([1, 2]), np.ones(2 * 4096, np.float32))
        assert (wide.width, wide.row_count) == (4 * 4096, 2)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(SMALLEST, LARGEST), min_size=1, max_size=300, unique=True), st.randoms())
def test_creation_in_any_order_gives_one_state(ids, random):
    shuffled = random.sample(ids, len(ids))
    digests = set()
    for order in (ids, shuffled):
        ours = EmbeddingTable(2, [(1, 0.5)], NORMAL, 6)
        gradients = np.array([[mix64(row_id) % 100, mix64(row_id) % 7] for row_id in order], np.float32)
        ours.apply(packed(Kind.ROWWISE_ADAGRAD), int64s(order), gradients)
        digests.add(ours.digest())
    assert len(digests) == 1


class TestImport:
    def filled(self, width, ids):
        ours = EmbeddingTable(width, [], NORMAL, 0)
        ours.extend(len(ids))[:] = np.arange(len(ids), dtype=np.float32)[:, None]
        ours.index(int64s(ids))
        return ours

    def test_state_goes_from_table_to_table(self):
        """Out through an image, in through extend and index, on with the same bits."""
        first, second = (EmbeddingTable(5, [(5, 0.5), (5, 1.0)], NORMAL, 8) for _ in range(2))
        ids, step = np.arange(-300, 300), packed(Kind.ADAM)
        first.apply(step, ids, gradients_for(ids, 5))
        with first.freeze() as image:
            rows = second.extend(image.row_count)
            for begin in range(0, image.row_count, 7):
                part = np.empty(min(7, image.row_count - begin) * 15, np.float32)
                image.read(begin, len(part) // 15, part)
                rows[begin : begin + 7] = part.reshape(-1, 15)
            second.index(image.ids)
        assert second.digest() == first.digest()
        more = np.arange(-400, 400, 3)
        for one in (first, second):
            assert one.apply(step, more, gradients_for(more, 5, 1)) == 67
        assert second.digest() == first.digest()

    @pytest.mark.parametrize("width", [1, 3, 8, 15, 16, 17, 32, 100])
    def test_view_of_the_rows(self, width):
        ids = list(range(40))
        ours = self.filled(width, ids)
        view = ours.extend(3)
        assert (view.shape, view.dtype) == ((3, width), np.float32)
        assert view.flags.writeable
        assert view.strides[0] >= 4 * width
        assert view.ctypes.data % min(64, view.strides[0]) == 0
        out = np.empty((40, width), np.float32)
        assert ours.gather(int64s(ids), out) == 0
        assert (out == np.arange(40)[:, None]).all()

    def test_not_findable_before_index(self):
        ours = self.filled(4, [1])
        ours.extend(2)[:] = 5
        assert ours.row_count == 1
        assert ours.ids().tolist() == [1]
        assert ours.gather(int64s([2]), np.empty(4, np.float32)) == 1
        with ours.freeze() as image:
            assert image.row_count == 1

    def test_apply_waits_for_index(self):
        ours = self.filled(4, [1])
        ours.extend(2)
        digest = ours.digest()
        with pytest.raises(ValueError, match="2 rows of extend\\(\\) wait"):
            ours.apply(packed(Kind.SGD), int64s([1]), np.ones(4, np.float32))
        ours.extend(0)
        ours.index(int64s([]))
        assert ours.digest() == digest
        ours.apply(packed(Kind.SGD), int64s([1]), np.ones(4, np.float32))

    @pytest.mark.parametrize("bad", [[10, 11, 12, 10], [10, 11, 12, 3], [3, 10, 11, 12], [10, 10, 11, 12]])
    def test_ids_that_exist_or_repeat(self, bad):
        ours = self.filled(4, [1, 2, 3])
        digest = ours.digest()
        ours.extend(4)[:] = 9
        with pytest.raises(
            ValueError, match=r"id (10|3) at place [013] is in the table already or comes twice"
        ):
            ours.index(int64s(bad))
        assert (ours.row_count, ours.digest()) == (3, digest)
        assert ours.gather(int64s([10, 11, 12]), np.empty((3, 4), np.float32)) == 3
        ours.extend(3)[:] = 9
        ours.index(int64s([12, 11, 10]))
        assert ours.gather(int64s([10, 11, 12]), np.empty((3, 4), np.float32)) == 0

    def test_many_taken_back(self):
        """The last id of a crowd is a known one: all others leave the index as it was."""
        ours = self.filled(2, CROWDED[:20])
        ours.extend(100)[:] = 9
        with pytest.raises(ValueError, match="at place 99"):
            ours.index(int64s([*CROWDED[20:119], CROWDED[3]]))
        assert ours.gather(int64s(CROWDED), np.empty((120, 2), np.float32)) == 100
        ours.extend(100)[:] = 8
        ours.index(int64s(CROWDED[20:]))
        out = np.empty((120, 2), np.float32)
        assert ours.gather(int64s(CROWDED), out) == 0
        assert (out[20:] == 8).all()

    def test_wrong_number_of_ids(self):
        ours = self.filled(4, [1])
        ours.extend(2)[:] = 3
        with pytest.raises(ValueError, match="3 ids for 2 rows"):
            ours.index(int64s([4, 5, 6]))
        ours.index(int64s([4, 5]))
        assert ours.row_count == 3

    def test_ids_are_a_read_only_view(self):
        ours = self.filled(4, [5, 6])
        ids = ours.ids()
        with pytest.raises(ValueError, match="read-only"):
            ids[0] = 1
        ours.apply(packed(Kind.SGD), int64s([7]), np.ones(4, np.float32))
        del ours
        assert ids.tolist() == [5, 6]
