"""Images of embedding tables, and tables under several threads."""

import sys
import threading
import time

import numpy as np
import pytest

from edlz.core_ext.initializers import Initializer
from edlz.core_ext.steps import Kind
from edlz.core_ext.table import EmbeddingTable
from tests.unit.core_ext.embedding_tables import NORMAL, gradients_for, int64s, packed, rows_of, twins


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
