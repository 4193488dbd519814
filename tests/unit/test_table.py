"""The compiled embedding table against its twin, a dict of rows: same bits whatever happens to it, in any order."""

import importlib.machinery
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edlz.core_ext import _table, table, table_numpy
from edlz.core_ext.initializers import DISTRIBUTIONS, Initializer
from edlz.core_ext.initializers_numpy import mix64
from edlz.core_ext.steps import Kind, Step
from edlz.core_ext.table import EmbeddingTable

MODULE_FILE = Path(_table.__file__)
SMALLEST, LARGEST = -(2**63), 2**63 - 1
NORMAL = Initializer("normal", 0.0, 1.0)

# Elements of each slot in units of the row's dimension; 0: one element a row.
SLOTS = {
    Kind.SGD: (),
    Kind.MOMENTUM: (1,),
    Kind.NESTEROV: (1,),
    Kind.ADAM: (1, 1),
    Kind.AMSGRAD: (1, 1, 1),
    Kind.ADAGRAD: (1,),
    Kind.ROWWISE_ADAGRAD: (0,),
    Kind.RMSPROP: (1,),
    Kind.RMSPROP_MOMENTUM: (1, 1),
    Kind.RMSPROP_CENTERED: (1, 1),
    Kind.RMSPROP_CENTERED_MOMENTUM: (1, 1, 1),
    Kind.ADADELTA: (1, 1),
    Kind.ADAMAX: (1, 1),
    Kind.NADAM: (1, 1),
    Kind.FTRL: (1, 1),
    Kind.LION: (1,),
}
SCALARS = (0.125, 0.9, 0.1, 0.2, 0.75, 0.6, 0.3, 0.7, 0.4)


def packed(kind, decay=0.0):
    return Step(kind=kind, decay=decay, scalars=SCALARS).packed


def slots_of(kind, dim):
    return [(max(1, size * dim), 0.5 * place) for place, size in enumerate(SLOTS[kind], 1)]


def twins(kind=Kind.SGD, dim=4, initializer=NORMAL, seed=1):
    arguments = (dim, slots_of(kind, dim), initializer, seed)
    return EmbeddingTable(*arguments), table_numpy.EmbeddingTable(*arguments)


def int64s(ids):
    return np.array(ids, np.int64)


def bits(array):
    return array.view(np.uint32).tolist()


def gradients_for(ids, dim, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((len(ids), dim)).astype(np.float32)


def rows_of(source):
    """Return all rows of an image by id, as bits."""
    rows = np.empty((source.row_count, source.width), np.float32)
    source.read(0, source.row_count, rows.reshape(-1))
    return dict(zip(source.ids.tolist(), bits(rows), strict=True))


def unmix64(value):
    """Return what `mix64` turns into `value`."""
    mask = 2**64 - 1
    z = value ^ (value >> 31) ^ (value >> 62)
    z = z * pow(0x94D049BB133111EB, -1, 2**64) & mask
    z ^= (z >> 27) ^ (z >> 54)
    z = z * pow(0xBF58476D1CE4E5B9, -1, 2**64) & mask
    z ^= (z >> 30) ^ (z >> 60)
    return (z - 0x9E3779B97F4A7C15) & mask


def id_with_hash(value):
    row_id = unmix64(value)
    return row_id - 2**64 if row_id >= 2**63 else row_id


# Ids that all want the first, and the last, bucket, whatever the size of the index: it is full and overflows, at
# the end into the first again.  Beside them those at the ends of the range and small ones, 0 included.
CROWDED = [id_with_hash(hash_) for n in range(60) for hash_ in (n, 2**64 - 1 - n)]
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
        rows = gradients_for(ids, self.ours.width, len(ids))
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
            assert self.ours.digest() == self.twin.digest()


TableMachine.TestCase.settings = settings(
    deadline=None,
    max_examples=100,
    stateful_step_count=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestAgainstTwin = TableMachine.TestCase


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("dim", [1, 5, 8, 16, 32, 64, 130])
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


class TestImages:
    def test_several_at_once(self):
        ours, _ = twins(Kind.ADAGRAD, dim=3)
        step, images = packed(Kind.ADAGRAD), []
        for call in range(5):
            ids = np.arange(call * 100, 1000)
            ours.apply(step, ids, gradients_for(ids, 3, call))
            with ours.freeze() as fresh:
                images.append((ours.freeze(), rows_of(fresh)))
        for image, rows in images[::2] + images[1::2]:
            assert rows_of(image) == rows
            image.close()
        assert len({str(rows) for _, rows in images}) == 5

    def test_outlives_its_table(self):
        ours, _ = twins()
        ours.apply(packed(Kind.SGD), int64s([1]), np.ones(4, np.float32))
        image = ours.freeze()
        rows = rows_of(image)
        del ours
        assert rows_of(image) == rows

    def test_empty(self):
        ours, _ = twins()
        with ours.freeze() as image:
            ours.apply(packed(Kind.SGD), int64s([1]), np.ones(4, np.float32))
            assert (image.row_count, image.width, len(image.ids)) == (0, 4, 0)
            image.read(0, 0, np.empty(0, np.float32))

    def test_closed(self):
        ours, _ = twins()
        ours.apply(packed(Kind.SGD), int64s([1]), np.ones(4, np.float32))
        image = ours.freeze()
        image.close()
        image.close()
        with pytest.raises(ValueError, match="image was closed"):
            image.read(0, 1, np.empty(4, np.float32))

    def test_ranges(self):
        ours, _ = twins()
        ours.apply(packed(Kind.SGD), int64s([1, 2, 3]), np.ones(12, np.float32))
        image = ours.freeze()
        for first, count in ((-1, 1), (4, 0), (0, 4), (2, 2), (0, -1)):
            with pytest.raises(ValueError, match="is not within"):
                image.read(first, count, np.empty(max(0, count) * 4, np.float32))
        for size in (0, 7, 9):
            with pytest.raises(ValueError, match=f"out has {size} elements for 2 rows of 4; give 8"):
                image.read(0, 2, np.empty(size, np.float32))

    def test_release(self):
        """Released rows cannot be read; the others stay as they were, and their log entries are used again."""
        ours, _ = twins(dim=2)
        step, ids = packed(Kind.SGD), np.arange(2000)
        ours.apply(step, ids, gradients_for(ids, 2))
        image = ours.freeze()
        out, wanted = np.empty((2000, 2), np.float32), np.empty((2000, 2), np.float32)
        image.read(0, 2000, wanted)
        for stop in range(0, 2000, 100):
            some = np.random.default_rng(stop).permutation(2000)[:300]
            ours.apply(step, some, gradients_for(some, 2, stop))
            image.release_below(stop)
            image.read(stop, 2000 - stop, out[stop:])
            assert np.array_equal(out[stop:], wanted[stop:])
        with pytest.raises(ValueError, match="were released"):
            image.read(100, 10, out[:10])
        image.release_below(5)
        with pytest.raises(ValueError, match="is not within"):
            image.release_below(2001)


class TestThreads:
    def run(self, *functions):
        errors = []

        def call(function):
            try:
                function()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=call, args=(function,)) for function in functions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors

    def test_images_while_others_apply(self):
        """Two writers never rest; each image must be one state of the table, and stay it."""
        ours = EmbeddingTable(16, [(16, 1.0)], NORMAL, 0)
        step, ids = packed(Kind.ADAGRAD), np.arange(20_000)
        ours.apply(step, ids, gradients_for(ids, 16))
        is_over = threading.Event()

        def write(seed):
            rng = np.random.default_rng(seed)
            while not is_over.is_set():
                some = rng.permutation(25_000)[:2000]
                ours.apply(step, some, gradients_for(some, 16, seed))

        def read():
            try:
                for _ in range(8):
                    image, earlier = ours.freeze(), ours.freeze()
                    rows, again = (np.empty((image.row_count, 32), np.float32) for _ in range(2))
                    image.read(0, image.row_count, rows)
                    earlier.close()
                    for first in range(0, image.row_count, 999):
                        part = again[first : first + 999]
                        image.read(first, len(part), part)
                    assert np.array_equal(rows, again)
                    image.close()
            finally:
                is_over.set()

        self.run(lambda: write(1), lambda: write(2), read)

    def test_a_row_is_never_seen_half_stepped(self):
        """All elements of a row go the same way, so that a gather in the middle of a step would show."""
        ours = EmbeddingTable(64, [], Initializer("constant", 0.0), 0)
        step, ids = packed(Kind.SGD), np.arange(4000)
        ours.apply(step, ids, np.zeros((4000, 64), np.float32))
        is_over = threading.Event()

        def write():
            while not is_over.is_set():
                ours.apply(step, ids, np.ones((4000, 64), np.float32))

        def read():
            out = np.empty((4000, 64), np.float32)
            try:
                for _ in range(100):
                    ours.gather(ids, out)
                    assert (out == out[0, 0]).all()
            finally:
                is_over.set()

        self.run(write, read, read)

    def test_growth_while_others_read(self):
        ours = EmbeddingTable(8, [], Initializer("uniform", -1.0, 1.0), 0)
        expected = np.empty((500, 8), np.float32)
        ours.gather(np.arange(500), expected)
        is_over = threading.Event()

        def write():
            try:
                for first in range(0, 400_000, 1000):
                    ours.apply(
                        packed(Kind.SGD), np.arange(first, first + 1000), np.zeros((1000, 8), np.float32)
                    )
            finally:
                is_over.set()

        def read():
            out = np.empty((500, 8), np.float32)
            while not is_over.is_set():
                ours.gather(np.arange(500), out)
                assert np.array_equal(out, expected)
                assert ours.row_count <= 400_000

        self.run(write, read)

    def test_gil_is_released(self):
        """With switches at voluntary releases only, a thread advances during a call if that lets the GIL go."""
        ours = EmbeddingTable(16, [], NORMAL, 0)
        ids, rows = np.arange(100_000), np.zeros((100_000, 16), np.float32)
        calls = {
            "apply": lambda: ours.apply(packed(Kind.SGD), ids, rows),
            "gather": lambda: ours.gather(ids, rows),
            "digest": ours.digest,
        }
        turns, is_over = [0], threading.Event()

        def count_turns():
            while not is_over.is_set():
                turns[0] += 1
                time.sleep(0)  # gives the GIL away, waits for nothing

        counter = threading.Thread(target=count_turns)
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(60)
        advanced = set()
        try:
            counter.start()
            for _ in range(200):
                for name, call in calls.items():
                    before = turns[0]
                    call()
                    if turns[0] > before:
                        advanced.add(name)
                if advanced == set(calls):
                    break
        finally:
            is_over.set()
            sys.setswitchinterval(interval_s)
            counter.join()
        assert advanced == set(calls)


class TestRefusals:
    @pytest.fixture
    def ours(self):
        ours = EmbeddingTable(4, [(4, 0.0)], NORMAL, 0)
        ours.apply(packed(Kind.ADAGRAD), int64s([1, 2]), np.ones((2, 4), np.float32))
        digest = ours.digest()
        yield ours
        assert (ours.row_count, ours.digest()) == (2, digest)

    @pytest.mark.parametrize(
        ("arguments", "match", "error"),
        [
            ((0, []), "dim=0 is not within 1 and 4096", ValueError),
            ((4097, []), "dim=4097 is not within 1 and 4096", ValueError),
            ((1.5, []), "float", TypeError),
            ((4, [(4, 0.0)] * 4), "4 slots; no optimizer has more than 3", ValueError),
            ((4, [(0, 0.0)]), "size of slot 0=0 is not within 1 and 4096", ValueError),
            ((4, [(4, float("nan"))]), "initial value nan of slot 0 is not finite", ValueError),
            ((4, [], NORMAL, -1), "seed=-1 is not within", ValueError),
            ((4, [], NORMAL, 2**64), "seed=18446744073709551616 is not within", ValueError),
            ((4, [], NORMAL, 0, 0), "row_limit=0 is not within", ValueError),
        ],
    )
    def test_construction(self, arguments, match, error):
        arguments += (NORMAL, 0)[max(0, len(arguments) - 2) :]
        with pytest.raises(error, match=match):
            EmbeddingTable(*arguments)

    @pytest.mark.parametrize(
        ("step", "match"),
        [
            (b"", "step has 0 bytes instead of 64"),
            (packed(Kind.ADAGRAD)[:-1], "step has 63 bytes"),
            (packed(Kind.SGD), "kind 0 needs 0 slots, the table has 1"),
            (packed(Kind.ADAM), "kind 3 needs 2 slots, the table has 1"),
            (packed(Kind.ROWWISE_ADAGRAD), "kind 6 needs 1 elements in slot 0, the table has 4"),
            (np.int32(len(Kind)).tobytes() + bytes(60), f"step is of kind {len(Kind)}; there are kinds 0 to"),
            (np.int32(-1).tobytes() + bytes(60), "step is of kind -1"),
        ],
    )
    def test_step(self, ours, step, match):
        with pytest.raises(ValueError, match=match):
            ours.apply(step, int64s([1]), np.ones(4, np.float32))

    def test_step_that_is_no_bytes(self, ours):
        for step in (None, bytearray(64), "x" * 64):
            with pytest.raises(TypeError):
                ours.apply(step, int64s([1]), np.ones(4, np.float32))

    @pytest.mark.parametrize(
        ("ids", "match"),
        [
            (np.ones(2, np.int32), "ids has elements of format 'i'; give int64"),
            (np.ones(2, np.uint64), "ids has elements of format 'L'; give int64"),
            (np.ones(2, ">i8"), "ids has elements of format '>q'; give int64"),
            (np.ones(2, np.float64), "ids has elements of format 'd'; give int64"),
            (np.ones((2, 1), np.int64), "ids has 2 dimensions; give one"),
            (np.ones(4, np.int64)[::2], "ids must be C-contiguous"),
            (np.zeros(24, np.uint8)[1:17].view(np.int64), "ids is not aligned to 8 bytes"),
        ],
    )
    def test_ids(self, ours, ids, match):
        rows = np.ones((2, 4), np.float32)
        for call in (lambda: ours.gather(ids, rows), lambda: ours.apply(packed(Kind.ADAGRAD), ids, rows)):
            with pytest.raises(ValueError, match=match):
                call()
        with pytest.raises(ValueError, match=match):
            ours.index(ids)

    @pytest.mark.parametrize(
        ("rows", "match"),
        [
            (np.ones(7, np.float32), r"has shape \(7,\) for 2 ids of dim 4; give \(2, 4\) or \(8,\)"),
            (np.ones(9, np.float32), r"has shape \(9,\)"),
            (np.ones((4, 2), np.float32), r"has shape \(4, 2\)"),
            (np.ones((2, 2, 2), np.float32), r"has shape \(2, 2, 2\)"),
            (np.ones(0, np.float32), r"has shape \(0,\)"),
            (np.ones(8, np.float64), "has elements of format 'd'; give float32"),
            (np.ones((4, 4), np.float32)[::2], "must be (writable and )?C-contiguous"),
            (np.zeros(48, np.uint8)[2:34].view(np.float32), "is not aligned to 4 bytes"),
        ],
    )
    def test_rows(self, ours, rows, match):
        step, ids, good = packed(Kind.ADAGRAD), int64s([1, 2]), np.ones((2, 4), np.float32)
        for name, call in (
            ("out", lambda: ours.gather(ids, rows)),
            ("gradients", lambda: ours.apply(step, ids, rows)),
            ("before", lambda: ours.apply(step, ids, good, rows)),
        ):
            with pytest.raises(ValueError, match=f"^{name} {match}"):
                call()

    def test_read_only_where_written(self, ours):
        rows = np.ones((2, 4), np.float32)
        rows.flags.writeable = False
        with pytest.raises(ValueError, match="out must be writable"):
            ours.gather(int64s([1, 2]), rows)
        with pytest.raises(ValueError, match="before must be writable"):
            ours.apply(packed(Kind.ADAGRAD), int64s([1, 2]), np.ones((2, 4), np.float32), rows)

    def test_no_array(self, ours):
        for call in (
            lambda: ours.gather([1], np.ones(4, np.float32)),
            lambda: ours.gather(int64s([1]), None),
            lambda: ours.apply(packed(Kind.ADAGRAD), None, np.ones(4, np.float32)),
            lambda: ours.index(None),
            lambda: ours.extend("x"),
        ):
            with pytest.raises(TypeError):
                call()

    def test_overlap(self, ours):
        block = np.ones(16, np.float32)
        ids = block[:4].view(np.int64)
        with pytest.raises(ValueError, match="ids and out overlap"):
            ours.gather(ids, block[3:11])
        with pytest.raises(ValueError, match="gradients and before overlap"):
            ours.apply(packed(Kind.ADAGRAD), int64s([1, 2]), block[0:8], block[7:15])
        ours.gather(ids, block[4:12])

    def test_foreign_buffers(self, ours):
        """What came from the network is bytes, read only."""
        out, wanted = np.empty(8, np.float32), np.empty(8, np.float32)
        ids = int64s([1, 9])
        ours.gather(ids, wanted)
        ours.gather(memoryview(ids.tobytes()).cast("q"), out)
        assert np.array_equal(out, wanted)


class TestMemory:
    def test_row_limit(self):
        ours = EmbeddingTable(4, [], NORMAL, 0, row_limit=10)
        step = packed(Kind.SGD)
        ours.apply(step, np.arange(8), np.ones((8, 4), np.float32))
        digest = ours.digest()
        with pytest.raises(MemoryError, match="12 more rows after 8 exceed the 10 of 24 bytes"):
            ours.apply(step, np.arange(12), np.ones((12, 4), np.float32))
        with pytest.raises(MemoryError, match="3 more rows after 8 exceed the 10"):
            ours.extend(3)
        assert (ours.row_count, ours.digest()) == (8, digest)
        assert ours.apply(step, np.arange(10), np.ones((10, 4), np.float32)) == 2
        assert ours.apply(step, np.arange(10), np.ones((10, 4), np.float32)) == 0

    def test_address_space_runs_out(self):
        """Tables share what there is; the one too many is refused, the others go on."""
        script = """
import resource
import numpy as np
from edlz.core_ext.steps import Kind, Step
from edlz.core_ext.table import EmbeddingTable, Initializer
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), used + (256 << 20)))
tables = []
try:
    while len(tables) < 100:
        tables.append(EmbeddingTable(16, [], Initializer("constant", 1.0), 0))
except MemoryError as error:
    print(len(tables) > 0, error)
step, ids = Step(kind=Kind.SGD, decay=0, scalars=(1.0,)).packed, np.arange(1000)
for table in tables:
    assert table.apply(step, ids, np.ones((1000, 16), np.float32)) == 1000
try:
    tables[0].extend(tables[0].row_limit + 1)
except MemoryError as error:
    print(error)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert re.match(r"True no address space for an embedding table with rows of 64 bytes", lines[0])
        assert re.match(r"up to \d+ more rows after 1000 exceed the \d+ of 72 bytes", lines[1])

    def test_a_table_costs_what_is_in_it(self):
        """Reserved address space is no memory, and a thousand small tables are small."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        tables = [EmbeddingTable(16, [], NORMAL, seed) for seed in range(100)]
        for one in tables:
            one.apply(packed(Kind.SGD), np.arange(10), np.ones((10, 16), np.float32))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10  # KiB


class TestCompiledModule:
    def test_loaded_is_compiled(self):
        assert MODULE_FILE.name.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
        assert table.EmbeddingTable is _table.EmbeddingTable
        assert table.TableImage is _table.TableImage

    @pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
    @pytest.mark.skipif(os.uname().machine != "x86_64", reason="looks for x86-64 instructions")
    def test_no_instruction_rounds_otherwise(self):
        """A fused multiply-add or an approximate reciprocal would make the bits depend on the processor."""
        listing = subprocess.run(
            ["objdump", "--disassemble", "--no-show-raw-insn", str(MODULE_FILE)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        instructions = set(re.findall(r"^\s*[0-9a-f]+:\s+(\w+)", listing, re.MULTILINE))
        assert instructions & {"sqrtps", "vsqrtps"}, "the disassembly shows no vector square root"
        assert not {name for name in instructions if re.match(r"vfn?m(add|sub)|v?rsqrt|v?rcp", name)}


RUN_TABLES = """
import numpy as np
from edlz.core_ext.steps import Kind, Step
from edlz.core_ext.table import EmbeddingTable, Initializer

scalars = (0.125, 0.9, 0.1, 0.2, 0.75, 0.6, 0.3, 0.7, 0.4)
for kind, slots in ((Kind.SGD, 0), (Kind.ADAGRAD, 1), (Kind.ADAM, 2)):
    for distribution in ("uniform", "normal", "truncated_normal"):
        for dim in (16, 100):
            table = EmbeddingTable(dim, [(dim, 0.5)] * slots, Initializer(distribution, -0.5, 1.0), 3)
            ids = np.arange(200) * 12345678901234567
            gradients = (np.arange(200 * dim, dtype=np.float32) % 17 - 8) / 3
            for _ in range(2):
                table.apply(Step(kind=kind, decay=0.01, scalars=scalars).packed, ids, gradients)
            print(table.digest())
"""


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-x86_64")
def test_variants_give_the_same_bits():
    """The processor at hand against the oldest one that the wheel supports."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def run(*prefix):
        command = [*prefix, sys.executable, "-c", RUN_TABLES]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    digests = run()
    assert len(set(digests.split())) == 18
    assert run("qemu-x86_64", "-cpu", "Nehalem") == digests


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
