"""RecordIO: both formats' bytes, damage of every kind, and reads against a plain list."""

import gzip
import json
import os
import struct
import sys
import threading
import zipfile
import zlib
from pathlib import Path

import cramjam
import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.api.recordio import Reader, RecordIOError, Writer, count_records

MAGIC = 0x01020304
GOLDEN_RECORDS = [b"a", b"", b"bc" * 20]
# Written by pyrecordio 0.0.7 (Snappy, framed) and 0.0.4 (Snappy, raw block).
GOLDEN_CURRENT = bytes.fromhex(
    "04030201470ac66f010000002600000003000000ff060000734e6150705900180000964b1be9"
    "3538010000006100000000280000006263960200"
)
GOLDEN_LEGACY = bytes.fromhex(
    "04030201030000007c28c57e02000000140000003538010000006100000000280000006263960200"
)

records_lists = st.lists(st.binary(max_size=40), max_size=60)
same_length_lists = st.integers(0, 20).flatmap(
    lambda n: st.lists(st.binary(min_size=n, max_size=n), max_size=60)
)


def plain_body(records):
    return b"".join(struct.pack("<I", len(r)) + r for r in records)


def current_chunk(records, compressor=0, *, body=None, count=None):
    pack = {0: bytes, 1: lambda b: bytes(cramjam.snappy.compress(b)), 2: gzip.compress}[compressor]
    body = pack(plain_body(records)) if body is None else body
    count = len(records) if count is None else count
    return struct.pack("<5I", MAGIC, zlib.crc32(body), compressor, len(body), count) + body


def legacy_chunk(records, compressor=1, *, count=None):
    pack = {1: bytes, 2: lambda b: bytes(cramjam.snappy.compress_raw(b)), 3: gzip.compress}[compressor]
    body = pack(plain_body(records))
    count = len(records) if count is None else count
    return struct.pack("<5I", MAGIC, count, crc32c(body), compressor, len(body)) + body


def write(path, records, **options):
    with Writer(path, **options) as writer:
        for record in records:
            writer.write(record)
    return path


def read_all(path):
    with Reader(path) as reader:
        return reader.read(0, len(reader))


@pytest.fixture
def make(tmp_path):
    def make_file(content):
        path = tmp_path / "data-00000"
        path.write_bytes(content)
        return path

    return make_file


# --- the bytes ---


@pytest.mark.parametrize("content", [GOLDEN_CURRENT, GOLDEN_LEGACY], ids=["current", "legacy"])
def test_golden_files_are_read(make, content):
    path = make(content)
    assert count_records(path) == 3
    assert read_all(path) == GOLDEN_RECORDS


def test_writer_makes_the_documented_bytes(tmp_path):
    path = write(tmp_path / "f", [b"ab", b""])
    body = b"\x02\x00\x00\x00ab\x00\x00\x00\x00"
    assert path.read_bytes() == struct.pack("<5I", MAGIC, zlib.crc32(body), 0, 10, 2) + body


def test_gzip_files_are_the_same_bytes_every_time(tmp_path):
    first = write(tmp_path / "a", [b"x" * 500] * 9, compressor="gzip").read_bytes()
    assert write(tmp_path / "b", [b"x" * 500] * 9, compressor="gzip").read_bytes() == first
    assert len(first) < 200


@pytest.mark.parametrize("compressor", [0, 1, 2])
def test_all_compressors_of_the_current_format(make, compressor):
    records = [bytes([i]) * (i % 7) for i in range(200)]
    path = make(current_chunk(records[:120], compressor) + current_chunk(records[120:], compressor))
    assert read_all(path) == records


@pytest.mark.parametrize("compressor", [1, 2, 3])
def test_all_compressors_of_the_old_format(make, compressor):
    records = [bytes([i]) * (i % 7) for i in range(200)]
    path = make(legacy_chunk(records[:120], compressor) + legacy_chunk(records[120:], compressor))
    assert read_all(path) == records


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_files_of_the_old_package_are_read(tmp_path):
    import recordio

    records = [bytes([i]) * i for i in range(250)]
    path = str(tmp_path / "old")
    with recordio.File(path, "w") as file:
        for record in records:
            file.write(record)
    assert count_records(path) == 250
    with Reader(path) as reader:
        assert reader.read(100, 50) == records[100:150]
        assert reader.take(np.array([249, 0, 249])) == [records[249], records[0], records[249]]


# --- reads against a list ---


@settings(deadline=None)
@given(
    records=st.one_of(records_lists, same_length_lists),
    chunk_bytes=st.integers(1, 400),
    compressor=st.sampled_from(["none", "gzip"]),
    data=st.data(),
)
def test_reads_equal_a_list(tmp_path_factory, records, chunk_bytes, compressor, data):
    path = tmp_path_factory.mktemp("r") / "f"
    write(path, records, chunk_bytes=chunk_bytes, compressor=compressor)
    n = len(records)
    first = data.draw(st.integers(0, n))
    count = data.draw(st.integers(0, n - first))
    numbers = data.draw(st.lists(st.integers(0, n - 1), max_size=80)) if n else []
    assert count_records(path) == n
    for cache_bytes in (0, 1 << 20):
        with Reader(path, cache_bytes=cache_bytes) as reader:
            assert len(reader) == n
            assert reader.take(np.array(numbers, np.int64)) == [records[i] for i in numbers]
            assert reader.read(first, count) == records[first : first + count]


def test_empty_file_of_records_is_not_an_empty_file(tmp_path):
    path = write(tmp_path / "f", [])
    assert path.stat().st_size == 20
    assert read_all(path) == []


def test_empty_chunks_in_between_are_stepped_over(make):
    path = make(current_chunk([]) + current_chunk([b"x"]) + current_chunk([]) + current_chunk([b"y"]))
    with Reader(path) as reader:
        assert reader.read(0, 2) == [b"x", b"y"]
        assert reader.take(np.array([1, 0])) == [b"y", b"x"]


def test_records_that_end_in_nul_bytes_keep_them(tmp_path):
    records = [b"ab\0\0", b"\0\0\0\0"]
    assert read_all(write(tmp_path / "f", records)) == records


def test_first_length_times_count_may_mislead(tmp_path):
    records = [b"ab", b"a", b"abc"]
    assert read_all(write(tmp_path / "f", records)) == records


def test_numbers_out_of_range(tmp_path):
    with Reader(write(tmp_path / "f", [b"x"] * 5)) as reader:
        for first, count in [(0, 6), (5, 1), (-1, 1), (0, -1)]:
            with pytest.raises(IndexError, match="5 records"):
                reader.read(first, count)
        for numbers in ([5], [-1], [0, 99]):
            with pytest.raises(IndexError, match="5 records"):
                reader.take(np.array(numbers))


def test_threads_read_the_same_records(make):
    records = [bytes([i % 251]) * (i % 90) for i in range(2_000)]
    chunks = [current_chunk(records[i : i + 100], (i // 100) % 3) for i in range(0, 2_000, 100)]
    errors = []
    with Reader(make(b"".join(chunks)), cache_bytes=3_000) as reader:

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(40):
                numbers = rng.integers(0, 2_000, 50)
                if reader.take(numbers) != [records[i] for i in numbers]:
                    errors.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []


def test_cache_of_decompressed_chunks_is_bounded(make):
    records = [bytes([i]) * 1_000 for i in range(100)]
    chunks = [current_chunk(records[i : i + 10], 2) for i in range(0, 100, 10)]
    with Reader(make(b"".join(chunks)), cache_bytes=25_000) as reader:
        assert reader.read(0, 100) == records
        assert reader._cached_bytes <= 25_000
        assert len(reader._cache) == 2
        assert sum(r.nbytes for r in reader._cache.values()) == reader._cached_bytes


def test_closed_reader_says_so(tmp_path):
    reader = Reader(write(tmp_path / "f", [b"x"]))
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read(0, 1)


def test_read_under_way_survives_close(tmp_path):
    path = write(tmp_path / "f", [b"x" * 100] * 50)
    reader = Reader(path)
    records = reader._records(0)
    reader.close()
    Path(path).unlink()
    assert records.slice(0, 50) == [b"x" * 100] * 50


# --- the writer ---


def test_file_appears_only_when_it_is_whole(tmp_path):
    writer = Writer(tmp_path / "f")
    writer.write(b"x")
    assert not (tmp_path / "f").exists()
    writer.close()
    writer.close()
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = write(tmp_path / "f", [b"old"])

    def fail():
        with Writer(path) as writer:
            writer.write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert os.listdir(tmp_path) == ["f"]
    assert read_all(path) == [b"old"]


def test_full_disk_leaves_nothing(tmp_path, monkeypatch):
    writer = Writer(tmp_path / "f")
    writer.write(b"x")

    def no_space(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        writer.close()
    assert os.listdir(tmp_path) == []


def test_writing_after_close_is_an_error(tmp_path):
    writer = Writer(tmp_path / "f")
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"x")


def test_forgotten_writer_warns_and_cleans_up(tmp_path):
    writer = Writer(tmp_path / "f")
    with pytest.warns(ResourceWarning, match="never closed"):
        writer.__del__()
    assert os.listdir(tmp_path) == []


def test_bytes_like_records_are_copied(tmp_path):
    buffer = bytearray(b"abc")
    with Writer(tmp_path / "f") as writer:
        writer.write(buffer)
        buffer[:] = b"xyz"
        writer.write(memoryview(buffer)[::2])
        writer.write(memoryview(np.arange(2, dtype=np.float32)))
    assert read_all(tmp_path / "f") == [b"abc", b"xz", np.arange(2, dtype=np.float32).tobytes()]


def test_writer_refuses_what_it_cannot_write(tmp_path):
    with pytest.raises(ValueError, match="chunk_bytes=0"):
        Writer(tmp_path / "f", chunk_bytes=0)
    with pytest.raises(ValueError, match="snappy"):
        Writer(tmp_path / "f", compressor="snappy")
    with Writer(tmp_path / "f") as writer, pytest.raises(TypeError, match="not str"):
        writer.write("text")
    with pytest.raises(FileNotFoundError):
        Writer(tmp_path / "missing" / "f")


@pytest.mark.parametrize(
    ("chunk_bytes", "sizes"), [(300, [300, 300, 300, 100]), (299, [200] * 5), (1, [100] * 10)]
)
def test_chunks_are_closed_before_they_grow_too_large(tmp_path, chunk_bytes, sizes):
    content = write(tmp_path / "f", [b"x" * 96] * 10, chunk_bytes=chunk_bytes).read_bytes()
    found, offset = [], 0
    while offset < len(content):
        _, _, _, size, _ = struct.unpack_from("<5I", content, offset)
        found.append(size)
        offset += 20 + size
    assert found == sizes


# --- damage ---

UNIFORM = [b"12345678"] * 5
MIXED = [b"1", b"", b"333", b"1" * 30]


def damaged_files():
    for name, chunk in [("current", current_chunk), ("legacy", legacy_chunk)]:
        for compressor in (0, 1, 2) if name == "current" else (1, 2, 3):
            for kind, records in [("uniform", UNIFORM), ("mixed", MIXED)]:
                yield pytest.param(
                    chunk(records, compressor) + chunk(records, compressor), id=f"{name}-{compressor}-{kind}"
                )


@pytest.mark.parametrize("content", list(damaged_files()))
def test_cut_off_anywhere(make, content):
    half = len(content) // 2  # between the chunks nothing shows that more should follow
    for size in set(range(len(content))) - {half}:
        path = make(content[:size])
        with pytest.raises(RecordIOError) as error:
            count_records(path)
        assert str(path) in error.value.message
        assert error.value.path == str(path)
        assert error.value.offset == (half if size > half else 0)
        assert error.value.help


@pytest.mark.parametrize("content", list(damaged_files()))
def test_any_changed_byte_is_found(make, content):
    for position in range(len(content)):
        for change in (0x01, 0x80, 0xFF):
            wrong = bytearray(content)
            wrong[position] ^= change
            with pytest.raises(RecordIOError, match=r"data-00000"):
                read_all(make(bytes(wrong)))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("r") / "f"
    path.write_bytes(content)
    with pytest.raises(RecordIOError):
        read_all(path)


@settings(deadline=None, max_examples=300)
@given(
    body=st.binary(max_size=60),
    count=st.integers(0, 2**32 - 1),
    compressor=st.integers(0, 3),
    is_legacy=st.booleans(),
)
def test_bodies_with_a_good_checksum_are_still_checked(tmp_path_factory, body, count, compressor, is_legacy):
    path = tmp_path_factory.mktemp("r") / "f"
    if is_legacy:
        header = struct.pack("<5I", MAGIC, count, crc32c(body), compressor, len(body))
    else:
        header = struct.pack("<5I", MAGIC, zlib.crc32(body), compressor, len(body), count)
    path.write_bytes(header + body)
    try:
        records = read_all(path)
    except RecordIOError:
        return
    assert len(records) == count
    assert compressor != (1 if is_legacy else 0) or plain_body(records) == body


@pytest.mark.parametrize("compressor", [0, 1, 2])
@pytest.mark.parametrize("count", [0, 1, 3, 5, 6, 100])
def test_wrong_record_counts_are_found(make, compressor, count):
    with pytest.raises(RecordIOError, match="offset 0"):
        read_all(make(current_chunk(MIXED, compressor, count=count)))


@pytest.mark.parametrize("compressor", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 3, 5, 6, 100])
def test_wrong_record_counts_in_old_files_are_found(make, compressor, count):
    with pytest.raises(RecordIOError, match="offset 0"):
        read_all(make(legacy_chunk(MIXED, compressor, count=count)))


def test_checksum_is_checked_when_a_chunk_is_first_touched(make):
    good, bad = current_chunk(UNIFORM), bytearray(current_chunk(UNIFORM))
    bad[-1] ^= 1
    path = make(good + bytes(bad))
    assert count_records(path) == 10
    with Reader(path) as reader:
        assert reader.read(0, 5) == UNIFORM
        with pytest.raises(RecordIOError, match=f"checksum of the chunk at offset {len(good)}") as error:
            reader.read(4, 2)
        assert error.value.offset == len(good)
        with pytest.raises(RecordIOError):
            reader.take(np.array([9]))


def test_padding_behind_the_chunks_is_found(make):
    content = current_chunk(UNIFORM)
    with pytest.raises(RecordIOError, match=f"should begin at offset {len(content)}"):
        count_records(make(content + bytes(64)))


def test_empty_file(make):
    with pytest.raises(RecordIOError, match="is empty"):
        Reader(make(b""))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        Reader(tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        count_records(tmp_path)


def _tfrecord():
    return b"".join(struct.pack("<Q", 5) + b"crc." + b"data!" + b"crc." for _ in range(6))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04" + bytes(50), r'\(starts with "PK": a zip file\)'),
        (gzip.compress(b"x", mtime=0), "a gzip file"),
        (b"PAR1" + bytes(20), "a Parquet file"),
        (b"age,workclass\n39, State-gov\n" * 100, r'starts with "age,workclas": a text file'),
        (json.dumps({"größe": 1}, ensure_ascii=False).encode(), "a text file"),
        (("é" * 400).encode(), "a text file"),
        (("a" + "é" * 400).encode(), "a text file"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"\x00\x00\x08\x03\x00\x00\xea\x60", "IDX images"),
        (b"\x93NUMPY\x01\x00", "a NumPy array"),
        (_tfrecord(), "a TFRecord file"),
        (b"\x7fELF\x02\x01\x01\x00", "starts with 7f 45 4c 46 02 01 01 00: an unknown format"),
        (bytes(64), "an unknown format"),
        (b"\x01\x02\x03\x04" + bytes(40), "an unknown format"),
    ],
)
def test_foreign_files_are_named(make, content, said):
    path = make(content)
    for function in (count_records, Reader):
        with pytest.raises(RecordIOError, match=said) as error:
            function(path)
        assert error.value.message.startswith(f"{path} is not RecordIO (starts with ")
        is_packed = "a zip file" in said or "a gzip file" in said or "zstd" in said
        types = {"Parquet": "Parquet", "TFRecord": "TFRecord", "age,": "CSV", "text": "Text"}
        named = next((kind for word, kind in types.items() if word in said), "")
        expected = (
            f'say what it is: --data_reader_params="reader_type={named}"' if named else "what can be read"
        )
        assert error.value.help.startswith("unpack it" if is_packed else expected)
        assert is_packed or "edlz data --help" in error.value.help
        assert str(error.value) == f"{error.value.message}; {error.value.help}"


def test_npz_is_a_zip_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "f", "w") as file:
        file.writestr("a", "b")
    with pytest.raises(RecordIOError, match="a zip file"):
        Reader(tmp_path / "f")


@pytest.mark.parametrize("package", ["cramjam", "crc32c"])
def test_missing_packages_are_named(make, monkeypatch, package):
    path = make(GOLDEN_CURRENT if package == "cramjam" else GOLDEN_LEGACY)
    monkeypatch.setitem(sys.modules, package, None)
    assert count_records(path) == 3
    with pytest.raises(
        RecordIOError, match=rf"without the package {package}: .*pip install pyrecordio==0\.0\.4"
    ):
        read_all(path)
