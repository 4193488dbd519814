"""IDX to RecordIO: what is read, what is refused, what is never overwritten."""

import gzip
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edlz.api.example import encode_example
from edlz.api.recordio import Reader, count_records
from edlz.model_zoo import datasets
from edlz.model_zoo.conversion import images
from edlz.model_zoo.conversion.idx import read_idx_folder
from edlz.model_zoo.datasets import SAMPLE_FOLDER, DatasetError, built_in_sample, convert

TRAIN, TEST = 21, 9


def idx_bytes(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def make_arrays(seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, 256, (count, 28, 28), np.uint8)
        if kind == "images"
        else rng.integers(0, 10, count, np.uint8)
        for prefix, count in (("train", TRAIN), ("t10k", TEST))
        for kind in ("images", "labels")
        for name in [f"{prefix}-{kind}"]
    }


def write_source(folder, arrays, dash="-", is_gzipped=False):
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        content = idx_bytes(array)
        path = folder / f"{name}{dash}idx{array.ndim}-ubyte{'.gz' if is_gzipped else ''}"
        path.write_bytes(gzip.compress(content) if is_gzipped else content)
    return folder


@pytest.fixture
def arrays():
    return make_arrays()


@pytest.fixture
def source(tmp_path, arrays):
    return write_source(tmp_path / "source", arrays)


def records_of(paths):
    records = []
    for path in paths:
        with Reader(path) as reader:
            records += reader.read(0, len(reader))
    return records


def expected_records(images, labels):
    return [
        encode_example({"image": image.ravel().astype(np.float32), "label": int(label)})
        for image, label in zip(images, labels, strict=True)
    ]


# --- conversion ---


def test_records_are_the_images_in_order(tmp_path, source, arrays):
    output = tmp_path / "out"
    done = convert("mnist", source, output, records_per_shard=8)
    assert [path.relative_to(output).as_posix() for path in done.paths] == [
        "train/data-00000",
        "train/data-00001",
        "train/data-00002",
        "test/data-00000",
        "test/data-00001",
    ]
    assert [count_records(path) for path in done.paths] == [8, 8, 5, 8, 1]
    assert sorted(path.name for path in output.iterdir()) == ["test", "train"]
    train = expected_records(arrays["train-images"], arrays["train-labels"])
    test = expected_records(arrays["t10k-images"], arrays["t10k-labels"])
    assert records_of(done.paths) == train + test
    assert (done.train_records, done.test_records, done.was_there) == (TRAIN, TEST, False)
    assert done.origin == str(source)


@pytest.mark.parametrize("dash", ["-", "."])
@pytest.mark.parametrize("is_gzipped", [False, True])
def test_all_usual_names(tmp_path, arrays, dash, is_gzipped):
    source = write_source(tmp_path / "source", arrays, dash, is_gzipped)
    splits = read_idx_folder(source)
    assert np.array_equal(splits.train.images, arrays["train-images"])
    assert np.array_equal(splits.test.labels, arrays["t10k-labels"])


def test_fraction_takes_the_first_part(tmp_path, source, arrays):
    done = convert("mnist", source, tmp_path / "out", fraction=0.5)
    assert (done.train_records, done.test_records) == (10, 4)
    assert records_of(done.paths[:1]) == expected_records(arrays["train-images"], arrays["train-labels"])[:10]
    tiny = convert("mnist", source, tmp_path / "tiny", fraction=0.001)
    assert (tiny.train_records, tiny.test_records) == (1, 1)


@pytest.mark.parametrize("fraction", [0, -1, 1.01, float("nan")])
def test_bad_fractions(tmp_path, source, fraction):
    with pytest.raises(DatasetError, match="fraction="):
        convert("mnist", source, tmp_path / "out", fraction=fraction)


def test_bad_arguments(tmp_path, source):
    with pytest.raises(DatasetError, match='no data set "cifar"; use one of mnist, fashion_mnist'):
        convert("cifar", source, tmp_path / "out")
    with pytest.raises(DatasetError, match="records_per_shard=0"):
        convert("mnist", source, tmp_path / "out", records_per_shard=0)


# --- what is already there ---


def test_second_run_finds_it_done(tmp_path, source):
    first = convert("mnist", source, tmp_path / "out")
    times = [path.stat().st_mtime_ns for path in first.paths]
    second = convert("mnist", source, tmp_path / "out")
    assert second.was_there
    assert second.paths == first.paths
    assert [path.stat().st_mtime_ns for path in second.paths] == times


def test_missing_half_is_made_up_for(tmp_path, source):
    first = convert("mnist", source, tmp_path / "out")
    test_shard = tmp_path / "out" / "test" / "data-00000"
    content = test_shard.read_bytes()
    test_shard.unlink()
    test_shard.parent.rmdir()
    second = convert("mnist", source, tmp_path / "out")
    assert not second.was_there
    assert second.paths == first.paths
    assert test_shard.read_bytes() == content


def other_source(tmp_path, source):
    convert("mnist", write_source(tmp_path / "other", make_arrays(1)), tmp_path / "out")


def other_fraction(tmp_path, source):
    convert("mnist", source, tmp_path / "out", fraction=0.5)


def extra_shard(tmp_path, source):
    (convert("mnist", source, tmp_path / "out").paths[0].parent / "data-00001").write_bytes(b"x")


def damaged_shard(tmp_path, source):
    path = convert("mnist", source, tmp_path / "out").paths[0]
    path.write_bytes(path.read_bytes()[:-1])


def something_else(tmp_path, source):
    (tmp_path / "out" / "train").mkdir(parents=True)
    (tmp_path / "out" / "train" / "notes.txt").write_text("mine")


def file_in_place(tmp_path, source):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train").write_text("mine")


@pytest.mark.parametrize(
    "fill", [other_source, other_fraction, extra_shard, damaged_shard, something_else, file_in_place]
)
def test_other_content_is_never_touched(tmp_path, source, fill):
    fill(tmp_path, source)
    before = {path: path.is_file() and path.read_bytes() for path in (tmp_path / "out").rglob("*")}
    with pytest.raises(DatasetError, match=r"train .*; remove it, or choose another --output"):
        convert("mnist", source, tmp_path / "out")
    assert {path: path.is_file() and path.read_bytes() for path in (tmp_path / "out").rglob("*")} == before


def test_other_files_beside_are_left_alone(tmp_path, source):
    (tmp_path / "out" / "train").mkdir(parents=True)  # empty: fine
    (tmp_path / "out" / "notes.txt").write_text("mine")
    convert("mnist", source, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["notes.txt", "test", "train"]


@pytest.mark.parametrize("place", ["source/train-images-idx3-ubyte", "source/train-images-idx3-ubyte/x"])
def test_output_that_cannot_be_written(tmp_path, source, place):
    with pytest.raises(DatasetError, match=r"cannot write .*; choose another --output"):
        convert("mnist", source, tmp_path / place)


def test_error_while_writing_leaves_nothing(tmp_path, source, monkeypatch):
    def full(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DatasetError, match="No space left on device"):
        convert("mnist", source, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


# --- sources that are not as expected ---


def test_missing_folder_and_files(tmp_path, source):
    with pytest.raises(DatasetError, match=r"nowhere does not exist; .*--source"):
        convert("mnist", tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(DatasetError, match="is not a folder"):
        convert("mnist", source / "train-images-idx3-ubyte", tmp_path / "out")
    (source / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DatasetError, match=r"none of t10k-labels-idx1-ubyte, .*t10k-labels\.idx1-ubyte\.gz"):
        convert("mnist", source, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "train-images",
            b"PK\x03\x04",
            r"train-images.* is not an IDX file of 3 dimensions \(starts with 50 4b",
        ),
        ("train-labels", b"", r"train-labels.* is not an IDX file of 1 dimensions \(starts with nothing"),
        ("train-images", idx_bytes(np.zeros(5, np.uint8)), "is not an IDX file of 3 dimensions"),
        ("train-images", b"\0\0\x08\x03\0\0", "is cut off inside of its header"),
        (
            "train-labels",
            idx_bytes(np.zeros(TRAIN, np.uint8))[:-1],
            "has 28 bytes, but for 21 it should have 29",
        ),
        ("train-labels", idx_bytes(np.zeros(TRAIN, np.uint8)) + b"x", "has 30 bytes, but for 21"),
        ("train-labels", idx_bytes(np.zeros(TRAIN + 1, np.uint8)), "has 21 images, but .* has 22 labels"),
        ("t10k-labels", idx_bytes(np.full(TEST, 10, np.uint8)), "label 0 is 10, not 0 to 9"),
        ("t10k-images", idx_bytes(np.zeros((TEST, 8, 8), np.uint8)), r"\(9, 8, 8\), not images of 28 x 28"),
        ("t10k-images", idx_bytes(np.zeros((0, 28, 28), np.uint8)), "not images of 28 x 28"),
        ("train-images", gzip.compress(b"x" * 999, mtime=0)[:-9], "train-images.* cannot be read"),
        ("train-images", b"\x1f\x8b" + bytes(40), "train-images.* cannot be read"),
    ],
)
def test_damaged_files_are_named(tmp_path, source, name, content, said):
    (source / f"{name}-idx{3 if 'images' in name else 1}-ubyte").write_bytes(content)
    with pytest.raises(DatasetError, match=said):
        convert("mnist", source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- without a source ---


def no_network(name):
    raise RuntimeError("URL fetch failure: no network")


@pytest.fixture
def keras_home(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setattr(images, "_download", no_network)
    (tmp_path / "keras" / "datasets").mkdir(parents=True)
    return tmp_path / "keras" / "datasets"


def save_npz(path, arrays, **changes):
    named = {
        "x_train": arrays["train-images"],
        "y_train": arrays["train-labels"],
        "x_test": arrays["t10k-images"],
        "y_test": arrays["t10k-labels"],
    }
    np.savez(path, **(named | changes))


def test_keras_copy_of_mnist_is_taken_first(tmp_path, keras_home, arrays, source):
    save_npz(keras_home / "mnist.npz", arrays)
    done = convert("mnist", None, tmp_path / "out")
    assert "Keras' copy" in done.origin
    assert records_of(done.paths) == records_of(convert("mnist", source, tmp_path / "same").paths)


def test_keras_copy_of_fashion_mnist(tmp_path, keras_home, arrays):
    write_source(keras_home / "fashion-mnist", arrays, is_gzipped=True)
    done = convert("fashion_mnist", None, tmp_path / "out")
    assert done.train_records == TRAIN
    assert "fashion-mnist" in done.origin


@pytest.mark.parametrize(
    "changes",
    [{"x_train": np.zeros((2, 28, 28))}, {"y_test": np.zeros(3, np.uint8)}, {"x_test": np.array([None, {}])}],
)
def test_keras_copy_with_other_content(tmp_path, keras_home, arrays, changes):
    save_npz(keras_home / "mnist.npz", arrays, **changes)
    with pytest.raises(DatasetError, match=r"mnist\.npz"):
        convert("mnist", None, tmp_path / "out")


def test_damaged_keras_copy(tmp_path, keras_home):
    (keras_home / "mnist.npz").write_bytes(b"PK\x03\x04nothing")
    with pytest.raises(DatasetError, match=r"mnist\.npz cannot be read .*; remove it, or give --source"):
        convert("mnist", None, tmp_path / "out")


def test_download_comes_next(tmp_path, keras_home, monkeypatch, source):
    monkeypatch.setattr(images, "_download", lambda name: read_idx_folder(source))
    done = convert("mnist", None, tmp_path / "out")
    assert (done.origin, done.train_records) == ("a download through Keras", TRAIN)


def test_sample_is_taken_last_and_says_so(tmp_path, keras_home):
    done = convert("mnist", None, tmp_path / "out", fraction=0.1)
    assert done.train_records == 600
    assert "built-in sample" in done.origin
    assert "no network" in done.origin
    with pytest.raises(
        DatasetError, match=r"fashion_mnist could not be downloaded: .*no network; .*--source"
    ):
        convert("fashion_mnist", None, tmp_path / "fashion")


# --- the sample ---


def test_sample_has_as_many_of_each_class():
    splits = read_idx_folder(SAMPLE_FOLDER)
    assert np.bincount(splits.train.labels).tolist() == [600] * 10
    assert np.bincount(splits.test.labels).tolist() == [100] * 10
    # Real digits: ink covers about a fifth of an image, and the corners are empty.
    assert 0.15 < (splits.train.images > 0).mean() < 0.25
    assert splits.train.images[:, :2, :2].max() == 0
    assert sum(path.stat().st_size for path in SAMPLE_FOLDER.iterdir()) < 1_500_000


def test_sample_files_carry_no_time_or_name():
    for path in SAMPLE_FOLDER.glob("*.gz"):
        head = path.read_bytes()[:10]
        assert head[3] == 0, path  # no flags: no name
        assert head[4:8] == bytes(4), path  # no time


def test_sample_is_converted_once(tmp_path):
    assert built_in_sample(tmp_path / "mnist") == tmp_path / "mnist"
    shards = sorted((tmp_path / "mnist").glob("*/data-*"))
    times = [path.stat().st_mtime_ns for path in shards]
    assert [count_records(path) for path in shards] == [1_000, 4_096, 1_904]
    built_in_sample(tmp_path / "mnist")
    assert [path.stat().st_mtime_ns for path in shards] == times


def test_sample_made_by_another_process_in_the_meantime(tmp_path, monkeypatch):
    renamed, rename = [], os.rename

    def late_rename(staged, place):
        if not renamed:
            renamed.append(place)
            built_in_sample(tmp_path / "mnist")  # the other process starts and ends just now
        rename(staged, place)

    monkeypatch.setattr(os, "rename", late_rename)
    built_in_sample(tmp_path / "mnist")
    assert renamed
    assert sorted(path.name for path in (tmp_path / "mnist").iterdir()) == ["test", "train"]


def test_other_content_in_the_meantime_is_an_error(tmp_path, source, monkeypatch):
    rename = os.rename

    def late_rename(staged, place):
        Path(place).mkdir()
        (Path(place) / "data-00000").write_bytes(b"other")
        rename(staged, place)

    monkeypatch.setattr(os, "rename", late_rename)
    with pytest.raises(DatasetError, match="in the meantime"):
        convert("mnist", source, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["train"]


def test_two_processes_make_the_sample_at_once(tmp_path):
    code = "import sys; from edlz.model_zoo.datasets import built_in_sample; built_in_sample(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path / "mnist")]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert sorted(path.name for path in (tmp_path / "mnist").iterdir()) == ["test", "train"]
    assert sum(count_records(path) for path in (tmp_path / "mnist" / "train").iterdir()) == 6_000


# --- the command ---


def test_command_says_what_it_did(tmp_path, source, capsys):
    arguments = ["mnist", "--source", str(source), "--output", str(tmp_path / "out")]
    assert datasets.main(arguments) == 0
    assert datasets.main(arguments) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"mnist: 21 training and 9 test records written in {tmp_path}/out (from {source})"
    assert out[1] == f"mnist: 21 training and 9 test records are already in {tmp_path}/out (from {source})"


def test_command_reports_errors(tmp_path, capsys):
    assert datasets.main(["mnist", "--source", str(tmp_path / "no"), "--output", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/no does not exist\nhelp: give the folder that holds the IDX files as --source\n"
    )


def test_command_runs_as_a_module_without_tensorflow(tmp_path, source):
    code = (
        "import runpy, sys\n"
        "sys.argv[1:] = sys.argv[2:]\n"
        "try:\n    runpy.run_module('edlz.model_zoo.datasets', run_name='__main__')\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
    )
    arguments = ["-", "mnist", "--source", str(source), "--output", str(tmp_path / "out")]
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "21 training and 9 test records written" in result.stdout
