"""Adult: the figures of an analysis are those of pandas, which has made the constants here.

rows = pandas.read_csv(path, keep_default_na=False, na_values=[""]); .count() .nunique() .mean() .var() .quantile()
"""

import csv
import gzip
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from tests.analyses import analyzed, encoded

COLUMNS = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
]
NUMBERS = {
    "age": (8000, 70, 17, 90, 38.46075, 183.9872078384798, [17.0, 28.0, 37.0, 47.0, 74.0]),
    "fnlwgt": (
        8000,
        6975,
        19302,
        1184622,
        190720.836,
        11227051810.160126,
        [27036.95, 117963.0, 178967.0, 240036.0, 510084.59],
    ),
    "education_num": (8000, 16, 1, 16, 10.069625, 6.4545841823978005, [3.0, 9.0, 10.0, 12.0, 16.0]),
    "capital_gain": (8000, 95, 0, 99999, 1066.340875, 53579648.47898913, [0.0, 0.0, 0.0, 0.0, 15024.0]),
    "capital_loss": (8000, 65, 0, 3004, 89.418125, 162665.9792938961, [0.0, 0.0, 0.0, 0.0, 1977.0]),
    "hours_per_week": (8000, 81, 1, 99, 40.488625, 149.58506874296788, [8.0, 40.0, 40.0, 45.0, 75.0]),
}
TEXTS = {
    "workclass": (7523, 477, 8, {"Private": 5553, "Self-emp-not-inc": 641, "Local-gov": 513}),
    "education": (8000, 0, 16, {"HS-grad": 2577, "Some-college": 1849, "Bachelors": 1295}),
    "marital_status": (8000, 0, 7, {"Married-civ-spouse": 3665, "Never-married": 2633, "Divorced": 1100}),
    "occupation": (7522, 478, 14, {"Prof-specialty": 1014, "Craft-repair": 981, "Exec-managerial": 963}),
    "relationship": (8000, 0, 6, {"Husband": 3214, "Not-in-family": 2049, "Own-child": 1255}),
    "race": (8000, 0, 5, {"White": 6841, "Black": 780, "Asian-Pac-Islander": 241}),
    "sex": (8000, 0, 2, {"Male": 5366, "Female": 2634}),
    "native_country": (7847, 153, 39, {"United-States": 7141, "Mexico": 169, "Canada": 41}),
    "income": (8000, 0, 2, {"<=50K": 6088, ">50K": 1912}),
}


@pytest.fixture(scope="module")
def adult(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("adult") / "adult.csv"
    sample = files("edlz.model_zoo") / "data" / "adult.data.gz"
    with as_file(sample) as packed, gzip.open(packed, "rt") as lines, path.open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(COLUMNS)
        for line in lines:
            row = [value.strip() for value in line.split(",")]
            if len(row) == len(COLUMNS):
                table.writerow(["" if value == "?" else value for value in row])
    return path


def test_the_figures_are_those_of_pandas(adult: Path, tmp_path: Path) -> None:
    found = analyzed(tmp_path, adult, records_per_task=1000)
    assert found.records == 8000
    assert set(found.columns) == NUMBERS.keys() | TEXTS.keys()
    for name, (count, distinct, low, high, mean, variance, quantiles) in NUMBERS.items():
        column = found.columns[name]
        assert (column.kind, column.count, column.missing) == ("int64", count, 0)
        assert (column.distinct, column.min, column.max, column.is_exact) == (distinct, low, high, True)
        assert column.mean == mean
        assert column.variance == pytest.approx(variance, rel=1e-14)
        places = (1, 25, 50, 75, 99)
        assert [column.quantiles[place] for place in places] == pytest.approx(quantiles, rel=1e-14)
    for name, (count, missing, distinct, most_frequent) in TEXTS.items():
        column = found.columns[name]
        assert (column.kind, column.count, column.missing) == ("string", count, missing)
        assert (column.distinct, len(column.vocabulary)) == (distinct, distinct)
        first = dict(zip(column.vocabulary, column.frequencies, strict=True))
        assert dict(list(first.items())[:3]) == most_frequent


def test_any_cut_into_tasks_gives_the_same_bits(adult: Path, tmp_path: Path) -> None:
    assert encoded(tmp_path, adult, records_per_task=999) == encoded(tmp_path, adult)
