"""Adult, MovieLens, Criteo, heart disease, Iris and Frappe to RecordIO or CSV: what is in a record, and what is refused."""

import csv
import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest

from edlz.api.example import encode_example
from edlz.api.recordio import Reader
from edlz.model_zoo.criteo.layout import CATEGORICAL, MISSING, NUMERIC, PRESENT, encode_clicks
from edlz.model_zoo.datasets import SAMPLE_FOLDER, DatasetError, convert

PERSON = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, United-States, <=50K"
OTHER = "25, ?, 226802, 11th, 7, Never-married, ?, Own-child, Black, Male, 0, 0, 40, ?, >50K"
MOVIES = 'movieId,title,genres\n1,Toy Story (1995),Adventure|Comedy\n7,"American President, The (1995)",Drama\n9,Untitled,(no genres listed)\n'
CLICK = "\t".join(["1", *map(str, range(NUMERIC)), *(f"{i + 0xABCDEF00:08x}" for i in range(CATEGORICAL))])
FLOWER, OTHER_FLOWER = "5.1,3.5,1.4,0.2,Iris-setosa", "6.3,3.3,6.0,2.5,Iris-virginica"
FEATURES = (451, 4149, 5041, 5046, 5053, 5055, 5058, 5060, 5069, 5149)
USE, NO_USE = (f"{label} {' '.join(f'{n}:1' for n in FEATURES)} \n" for label in (1, -1))
PATIENT = "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,?,6.0,2"


def default_ratings(count=60):
    lines = [
        f"{n % 12 + 1},{(1, 7, 9)[n // 12 % 3]},{(n % 10 + 1) / 2},{964982703 + n}" for n in range(count)
    ]
    return "userId,movieId,rating,timestamp\n" + "\n".join(lines) + "\n"


def write(folder, is_gzipped=False, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        path = folder / (name.replace("__", ".") + (".gz" if is_gzipped else ""))
        content = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(gzip.compress(content) if is_gzipped else content)
    return folder


def adult(
    folder,
    data=(PERSON + "\n" + OTHER + "\n") * 3 + "\n",
    test="|1x3 Cross validator\n" + PERSON + ".\n",
    **more,
):
    return write(folder, adult__data=data, adult__test=test, **more)


def movielens(folder, ratings=None, movies=MOVIES, **more):
    return write(folder, ratings__csv=ratings or default_ratings(), movies__csv=movies, **more)


def criteo(folder, lines=(CLICK,) * 20, **more):
    return write(folder, train__txt="".join(line + "\n" for line in lines), **more)


def heart(folder, lines=(PATIENT,) * 10, **more):
    return write(folder, processed__cleveland__data="\n".join(lines), **more)


def iris(folder, lines=(FLOWER, OTHER_FLOWER) * 5, **more):
    return write(folder, iris__data="\n".join(lines) + "\n\n", **more)


def frappe(folder, train=USE * 6, test=NO_USE * 2, **more):
    return write(folder, frappe__train__libfm=train, frappe__test__libfm=test, **more)


WRITERS = {
    "adult": adult,
    "movielens": movielens,
    "criteo": criteo,
    "heart": heart,
    "iris": iris,
    "frappe": frappe,
    "adult-csv": adult,
}


def records_of(done, part):
    records = []
    for path in done.paths:
        if path.parent.name != part:
            continue
        if path.suffix == ".csv":
            records += path.read_bytes().splitlines()[1:]
            continue
        with Reader(path) as reader:
            records += reader.read(0, len(reader))
    return records


def decoded(record):
    """Return the values of an Example, as TensorFlow reads it: {name: list}."""
    import tensorflow as tf

    features = tf.train.Example.FromString(record).features.feature
    return {name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()}


# --- all of them ---


@pytest.mark.parametrize("name", WRITERS)
def test_plain_and_gzipped_files_give_the_same(tmp_path, name):
    plain = convert(name, WRITERS[name](tmp_path / "plain"), tmp_path / "a")
    zipped = convert(name, WRITERS[name](tmp_path / "zipped", is_gzipped=True), tmp_path / "b")
    for part in ("train", "test"):
        assert records_of(plain, part) == records_of(zipped, part) != []
    assert (plain.train_records, plain.test_records) == (
        len(records_of(plain, "train")),
        len(records_of(plain, "test")),
    )
    assert plain.origin == str(tmp_path / "plain")


@pytest.mark.parametrize("name", WRITERS)
def test_second_run_finds_it_done_and_other_data_is_kept(tmp_path, name):
    source = WRITERS[name](tmp_path / "source")
    first = convert(name, source, tmp_path / "out", records_per_shard=3)
    second = convert(name, source, tmp_path / "out", records_per_shard=3)
    assert (first.was_there, second.was_there) == (False, True)
    assert second.paths == first.paths
    content = {path: path.read_bytes() for path in first.paths}
    for other in (4, 2):
        with pytest.raises(DatasetError, match="already has other content"):
            convert(name, source, tmp_path / "out", records_per_shard=other)
    assert {path: path.read_bytes() for path in first.paths} == content
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["test", "train"]


@pytest.mark.parametrize("name", ["movielens", "criteo", "heart", "iris", "frappe"])
def test_a_source_is_needed(tmp_path, name):
    with pytest.raises(DatasetError, match=f"{name} comes from .*--source"):
        convert(name, None, tmp_path / "out")


@pytest.mark.parametrize(("name", "file"), [
    ("adult", "adult.test"),
    ("movielens", "movies.csv"),
    ("criteo", "train.txt"),
    ("heart", "processed.cleveland.data"),
    ("iris", "iris.data"),
    ("frappe", "frappe.test.libfm"),
])  # fmt: skip
def test_missing_and_empty_files(tmp_path, name, file):
    with pytest.raises(DatasetError, match=r"nowhere does not exist; .*--source"):
        convert(name, tmp_path / "nowhere", tmp_path / "out")
    source = WRITERS[name](tmp_path / "source")
    with pytest.raises(DatasetError, match="is not a folder"):
        convert(name, source / file, tmp_path / "out")
    (source / file).write_bytes(b"")
    with pytest.raises(DatasetError, match=f"{re.escape(file)} is empty"):
        convert(name, source, tmp_path / "out")
    (source / file).unlink()
    with pytest.raises(DatasetError, match=f"has no {re.escape(file)} or {re.escape(file)}.gz; put the file"):
        convert(name, source, tmp_path / "out")


@pytest.mark.parametrize("name", WRITERS)
def test_file_that_is_cut_off(tmp_path, name):
    source = WRITERS[name](tmp_path / "source", is_gzipped=True)
    path = next(path for path in source.iterdir() if "test" not in path.name)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DatasetError, match=f"{path.name} cannot be read"):
        convert(name, source, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


def test_options_of_others_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"fraction=0\.5 is for images, not for adult"):
        convert("adult", None, tmp_path / "out", fraction=0.5)
    with pytest.raises(DatasetError, match="records=5 is for criteo-generated, not for criteo"):
        convert("criteo", None, tmp_path / "out", records=5)
    with pytest.raises(DatasetError, match="seed=5 is for criteo-generated, not for mnist"):
        convert("mnist", None, tmp_path / "out", seed=5)


# --- Adult ---


def test_a_person(tmp_path):
    done = convert("adult", adult(tmp_path / "source"), tmp_path / "out")
    first, second = map(decoded, records_of(done, "train")[:2])
    assert first.pop("label") == [0]
    numbers = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")
    assert [first.pop(name)[0] for name in numbers] == [39, 77516, 13, 2174, 0, 40]
    assert first == {
        "workclass": [b"State-gov"],
        "education": [b"Bachelors"],
        "marital_status": [b"Never-married"],
        "occupation": [b"Adm-clerical"],
        "relationship": [b"Not-in-family"],
        "race": [b"White"],
        "sex": [b"Male"],
        "native_country": [b"United-States"],
    }
    assert (second["label"], second["workclass"], second["native_country"]) == ([1], [b""], [b""])
    assert [decoded(record)["label"] for record in records_of(done, "test")] == [[0]]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (PERSON.removesuffix(", <=50K"), "line 2 has 14 columns, not 15"),
        (PERSON + ", x", "line 2 has 16 columns, not 15"),
        (PERSON.replace("39", "old"), 'line 2 has age "old", which is no number'),
        (PERSON.replace("<=50K", "50K"), 'line 2 has income "50K", which is neither'),
        (PERSON.replace("White", "Wh\xe9").encode("latin-1").decode("utf-8", "surrogateescape"), "not UTF-8"),
    ],
)
def test_bad_persons(tmp_path, line, said):
    data = (OTHER + "\n" + line + "\n").encode("utf-8", "surrogateescape")
    with pytest.raises(DatasetError, match=rf"adult\.data, .*{re.escape(said)}"):
        convert("adult", adult(tmp_path / "source", data=data), tmp_path / "out")


def test_blank_file(tmp_path):
    with pytest.raises(DatasetError, match=r"adult\.data has no rows"):
        convert("adult", adult(tmp_path / "source", data="\n\n"), tmp_path / "out")


def test_sample_of_adult(tmp_path):
    done = convert("adult", None, tmp_path / "out")
    assert (done.train_records, done.test_records) == (8_000, 4_000)
    assert "built-in sample" in done.origin
    labels = [decoded(record)["label"][0] for record in records_of(done, "train")]
    assert 0.22 < np.mean(labels) < 0.26  # as in the whole set: 24 %
    assert (SAMPLE_FOLDER / "ADULT_LICENSE.md").is_file()


# --- MovieLens ---


def test_a_rating(tmp_path):
    done = convert("movielens", movielens(tmp_path / "source"), tmp_path / "out")
    records = [decoded(record) for part in ("train", "test") for record in records_of(done, part)]
    by_time = sorted(records, key=lambda record: record["timestamp"])
    assert len(records) == 60
    assert by_time[0] == {
        "user": [1],
        "movie": [1],
        "year": [1995],
        "timestamp": [964982703],
        "label": [0],
        "genres": [b"Adventure", b"Comedy"],
    }
    assert by_time[7]["label"] == [1]  # 4.0 stars
    assert by_time[6]["label"] == [0]  # 3.5 stars
    assert (by_time[24]["movie"], by_time[24]["year"]) == ([9], [0])
    assert "genres" not in by_time[24]


def test_split_depends_on_user_and_movie_alone(tmp_path):
    whole = convert("movielens", movielens(tmp_path / "source"), tmp_path / "a")
    head, *lines = default_ratings().splitlines()
    shuffled = "\n".join([head, *reversed(lines[:30])])
    half = convert("movielens", movielens(tmp_path / "half", shuffled), tmp_path / "b")
    for part in ("train", "test"):
        assert set(records_of(half, part)) <= set(records_of(whole, part))
    users = [decoded(record)["user"][0] for record in records_of(whole, "train")]
    assert users != sorted(users)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"ratings": default_ratings(1) + "1,1,five,9\n"},
            'ratings.csv, line 3 has rating "five", which is no number',
        ),
        ({"ratings": default_ratings(1) + "1,1,5\n"}, "ratings.csv, line 3 has 3 columns, not 4"),
        ({"ratings": default_ratings(1) + "1,8,5,9\n"}, "line 3 has movieId 8, which is not in movies.csv"),
        ({"ratings": "user,movie,rating,time\n1,1,1,1\n"}, "line 1 is not the header userId,movieId"),
        ({"ratings": "userId,movieId,rating,timestamp\n"}, "ratings.csv has no rows"),
        ({"movies": MOVIES + "11,Heat (1995)\n"}, "movies.csv, line 5 has 2 columns, not 3"),
        ({"ratings": default_ratings(1)}, "part would have no records"),
    ],
)
def test_bad_movielens(tmp_path, files, said):
    with pytest.raises(DatasetError, match=re.escape(said)):
        convert("movielens", movielens(tmp_path / "source", **files), tmp_path / "out")


# --- Criteo ---


def test_a_click(tmp_path):
    cells = CLICK.split("\t")
    cells[0], cells[3], cells[2], cells[20] = "0", "", "-2", ""
    done = convert("criteo", criteo(tmp_path / "source", [CLICK] * 9 + ["\t".join(cells)]), tmp_path / "out")
    click, missing = decoded(records_of(done, "train")[0]), decoded(records_of(done, "test")[0])
    assert (done.train_records, done.test_records) == (9, 1)
    assert click["label"] == [1]
    assert click["numeric"] == list(range(NUMERIC))
    assert click["categorical"] == [PRESENT + 0xABCDEF00 + i for i in range(CATEGORICAL)]
    assert missing["label"] == [0]
    assert missing["numeric"][1] == -2
    assert np.flatnonzero(np.isnan(missing["numeric"])).tolist() == [2]
    assert missing["categorical"][20 - 1 - NUMERIC] == MISSING


def test_clicks_are_canonical_examples():
    rng = np.random.default_rng(0)
    labels = np.array([0, 1, 1])
    numeric = rng.random((3, NUMERIC)).astype(np.float32)
    numeric[1, 4] = np.nan
    categorical = rng.integers(PRESENT, 2 * PRESENT, (3, CATEGORICAL))
    categorical[2, 7], categorical[0, 0], categorical[0, 1] = MISSING, PRESENT, 2 * PRESENT - 1
    assert encode_clicks(labels, numeric, categorical) == [
        encode_example({"label": label, "numeric": numbers, "categorical": ids})
        for label, numbers, ids in zip(labels, numeric, categorical, strict=True)
    ]


@pytest.mark.parametrize(
    ("place", "cell", "said"),
    [
        (None, "", "line 12 has 39 columns split by tabs, not 40"),
        (0, "2", 'line 12 has label "2", not 0 or 1'),
        (0, "", 'line 12 has label "", not 0 or 1'),
        (5, "x", 'line 12 has I5 "x", which is no number'),
        (15, "abc", 'line 12 has C2 "abc", which is not 8 hexadecimal digits'),
        (15, "0000000g", 'line 12 has C2 "0000000g"'),
        (39, "123456789", 'line 12 has C26 "123456789"'),
    ],
)
def test_bad_clicks(tmp_path, place, cell, said):
    cells = CLICK.split("\t")
    if place is None:
        cells.pop()
    else:
        cells[place] = cell
    source = criteo(tmp_path / "source", [CLICK] * 11 + ["\t".join(cells)] + [CLICK] * 3)
    with pytest.raises(DatasetError, match=rf"train\.txt, {re.escape(said)}"):
        convert("criteo", source, tmp_path / "out")


def test_long_logs_are_read_piece_by_piece(tmp_path):
    lines = [CLICK.replace("abcdef00", f"{n:08x}") for n in range(6_000)]  # over a megabyte
    done = convert("criteo", criteo(tmp_path / "source", lines), tmp_path / "out", records_per_shard=1000)
    first = [decoded(record)["categorical"][0] - PRESENT for record in records_of(done, "train")]
    assert first == [n for n in range(6_000) if n % 10 != 9]
    lines[5_000] += "\t"
    with pytest.raises(DatasetError, match="line 5001 has 41 columns"):
        convert("criteo", criteo(tmp_path / "bad", lines), tmp_path / "other")


def test_too_short_log(tmp_path):
    with pytest.raises(DatasetError, match="test part would have no records"):
        convert("criteo", criteo(tmp_path / "source", [CLICK] * 9), tmp_path / "out")


# --- heart disease ---


def test_a_patient(tmp_path):
    done = convert("heart", heart(tmp_path / "source", [PATIENT, PATIENT[:-1] + "0"] * 5), tmp_path / "out")
    assert (done.train_records, done.test_records) == (8, 2)
    ill, well = (decoded(record) for record in records_of(done, "train")[:2])
    assert (ill["label"], well["label"]) == ([1], [0])
    assert (ill["age"], ill["chol"], ill["thal"]) == ([63], [233], [6])
    assert np.isnan(ill["ca"][0])


def test_bad_patients(tmp_path):
    with pytest.raises(DatasetError, match=r'line 2 has num "\?", which is no number'):
        convert("heart", heart(tmp_path / "source", [PATIENT, PATIENT[:-1] + "?"]), tmp_path / "out")


# --- iris ---


def test_flowers(tmp_path):
    done = convert("iris", iris(tmp_path / "source"), tmp_path / "out")
    assert (done.train_records, done.test_records) == (8, 2)
    assert [path.name for path in done.paths] == ["data-00000.csv"] * 2
    lines = done.paths[0].read_text().splitlines()
    assert lines[:3] == ["sepal_length,sepal_width,petal_length,petal_width,species", FLOWER, OTHER_FLOWER]


def test_bad_flowers(tmp_path):
    for line, said in ((FLOWER + "x", 'species "Iris-setosax"'), ("a" + FLOWER, 'sepal_length "a5.1"')):
        with pytest.raises(DatasetError, match=f"line 2 has {said}"):
            convert("iris", iris(tmp_path / "source", [FLOWER, line]), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("change", [b"another,header\n", b""])
def test_another_csv_is_never_touched(tmp_path, change):
    source = iris(tmp_path / "source")
    path = convert("iris", source, tmp_path / "out").paths[0]
    other = change + path.read_bytes()[len(change) :] if change else path.read_bytes()[:-3]
    path.write_bytes(other)
    with pytest.raises(DatasetError, match="train already has other content"):
        convert("iris", source, tmp_path / "out")
    assert path.read_bytes() == other


# --- frappe ---


def test_a_use_of_an_app(tmp_path):
    done = convert("frappe", frappe(tmp_path / "source"), tmp_path / "out")
    assert (done.train_records, done.test_records) == (6, 2)
    assert decoded(records_of(done, "train")[0]) == {"features": list(FEATURES), "label": [1]}
    assert decoded(records_of(done, "test")[0])["label"] == [0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (USE.replace("451:1 ", ""), "has not 10 numbers"),
        (USE.replace("451:1", "451:0.5"), "has not 10 numbers"),
        (USE.replace("1 ", "2 ", 1), 'label "2"'),
        ("\u00e4 " + USE, "label"),
    ],
)
def test_bad_uses(tmp_path, line, said):
    with pytest.raises(
        DatasetError, match=rf"frappe\.train\.libfm, line 2 has .*{said.removeprefix('has ')}"
    ):
        convert("frappe", frappe(tmp_path / "source", USE + line), tmp_path / "out")


# --- adult as CSV ---


def test_persons_as_csv_are_those_of_the_records(tmp_path):
    source = adult(tmp_path / "source")
    plain = convert("adult", source, tmp_path / "records")
    done = convert("adult-csv", source, tmp_path / "csv")
    assert (done.train_records, done.test_records) == (plain.train_records, plain.test_records)
    rows = list(csv.DictReader(done.paths[0].read_text().splitlines()))
    for row, record in zip(rows, records_of(plain, "train"), strict=True):
        for name, (value,) in decoded(record).items():
            assert row[name] == value.decode() if isinstance(value, bytes) else float(row[name]) == value


# --- the published files themselves ---

DATA = os.environ.get("EDLZ_TEST_DATA", "")


@pytest.mark.skipif(not DATA, reason="EDLZ_TEST_DATA names no folder with the published files")
@pytest.mark.parametrize(("name", "folder", "counts", "positive"), [
    ("adult", "adult", (32_561, 16_281), 7_841 + 3_846),
    ("movielens", "movielens-latest-small", (80_697, 20_139), 48_580),
    ("heart", "heart-cleveland", (243, 60), 139),
])  # fmt: skip
def test_published_files(tmp_path, name, folder, counts, positive):
    done = convert(name, Path(DATA) / folder, tmp_path / "out")
    assert (done.train_records, done.test_records) == counts
    records = records_of(done, "train") + records_of(done, "test")
    assert sum(decoded(record)["label"][0] for record in records) == positive
