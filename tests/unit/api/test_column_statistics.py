"""What a model learns of its data's columns: from the job's file, ElasticDL's variables, or its own defaults."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from edlz.api import statistics
from edlz.api.column_statistics import use_statistics
from edlz.services.errors import ConfigError
from edlz.services.statistics.kept import pack, unpack
from tests.analyses import encoded


@pytest.fixture(autouse=True)
def _no_statistics() -> Iterator[None]:
    use_statistics({})
    yield
    use_statistics({})


@pytest.fixture
def known(tmp_path: Path) -> Path:
    data = tmp_path / "people.csv"
    rows = [f"{age},{('Lima', 'Kyoto', 'Lima')[age % 3]}" for age in range(20, 41)]
    data.write_text("\n".join(["age,city", *rows, ",Oslo"]) + "\n")
    path = tmp_path / "statistics.json"
    path.write_bytes(encoded(tmp_path, data))
    use_statistics(unpack(pack(path)))
    return path


@pytest.mark.usefixtures("known")
def test_figures_of_the_file() -> None:
    age, city = statistics("age", mean=1.0), statistics("city")
    assert (age.count, age.missing, age.min, age.max, age.mean, age.distinct) == (21, 1, 20, 40, 30.0, 21)
    assert age.variance == pytest.approx(38.5)
    assert age.stddev == math.sqrt(age.variance)
    assert age.boundaries(4) == [25, 30, 35]
    assert age.quantile(0.5) == 30
    assert city.vocabulary == ["Lima", "Kyoto", "Oslo"]
    assert city.frequent(2) == ["Lima", "Kyoto"]


def test_variables_of_elasticdl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("a\nb\n")
    variables = {"min": "1", "max": "9", "avg": "4.5", "stddev": "2", "distinct_count": "7"}
    for name, text in {**variables, "boundaries": "1,2.5,3", "vocab": "a, b"}.items():
        monkeypatch.setenv(f"_age_{name}", text)
    age = statistics("age", mean=1.0)
    assert (age.min, age.max, age.mean, age.stddev, age.variance, age.distinct) == (1, 9, 4.5, 2, 4, 7)
    assert (age.boundaries(), age.vocabulary) == ([1, 2.5, 3], ["a", "b"])
    monkeypatch.setenv("_age_vocab", str(words))
    assert statistics("age").vocabulary == ["a", "b"]
    many = [f"word-{number}" for number in range(1000)]  # more letters than a path may have
    monkeypatch.setenv("_age_vocab", ",".join(many))
    assert statistics("age").vocabulary == many
    monkeypatch.setenv("_age_avg", "old")
    with pytest.raises(ValueError, match="_age_avg='old': could not convert"):
        _ = statistics("age").mean


@pytest.mark.usefixtures("known")
def test_the_file_counts_before_variables_and_they_before_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_age_avg", "1.5")
    monkeypatch.setenv("_height_avg", "1.5")
    assert statistics("age", mean=2.0).mean == 30.0
    assert statistics("height", mean=2.0, stddev=3.0).mean == 1.5
    assert statistics("height", mean=2.0, stddev=3.0).stddev == 3.0
    assert statistics("height", vocabulary=["x"]).vocabulary == ["x"]


@pytest.mark.usefixtures("known")
def test_a_default_of_variance_or_stddev_is_one_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    assert statistics("height", stddev=3.0).variance == 9.0
    assert statistics("height", variance=9.0).stddev == 3.0
    assert statistics("age", stddev=3.0).variance == statistics("age").variance
    monkeypatch.setenv("_height_stddev", "2")
    assert statistics("height", stddev=3.0).variance == 4.0


@pytest.mark.usefixtures("known")
def test_what_is_known_nowhere_is_named() -> None:
    with pytest.raises(
        LookupError, match=r'no statistics of a column "agee"; did you mean "age"\?: edlz analyze'
    ):
        _ = statistics("agee").mean
    with pytest.raises(
        LookupError, match=r'of column "city" have no mean: .*, or set _city_avg, or statistics\("city"'
    ):
        _ = statistics("city").mean
    with pytest.raises(TypeError, match="takes no default of avg"):
        statistics("age", avg=1)
    use_statistics({})
    with pytest.raises(LookupError, match="there are no statistics, of which"):
        _ = statistics("age").mean


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist") as raised:
        pack(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="is a folder") as refused:
        pack(tmp_path)
    assert "edlz analyze" in refused.value.help
    (tmp_path / "statistics.json").touch()
    with pytest.raises(ConfigError, match="is a folder") as refused:
        pack(tmp_path)
    assert refused.value.help == f"--statistics={tmp_path}/statistics.json"
    assert "edlz analyze" in raised.value.help
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(ConfigError, match=r'other\.json" is no file of statistics'):
        pack(tmp_path / "other.json")


def test_pieces_fit_a_message(known: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edlz.services.statistics.kept._PIECE", 100)
    pieces = pack(known)
    assert {len(piece) for piece in pieces[:-1]} == {100}
    assert unpack(pieces)["age"]["mean"] == 30.0
    monkeypatch.setattr("edlz.services.statistics.kept.MOST_BYTES", 100)
    with pytest.raises(ConfigError, match="more than the"):
        pack(known)
