"""The figures of columns: those of all records at once, however the records are cut into tasks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edlz.services.errors import DataError
from edlz.services.statistics.columns import TextState, make_state
from edlz.services.statistics.figures import ColumnFigures, encode, figures_of, merged
from edlz.services.statistics.parts import TaskStatistics, opened_part, write_statistics


def number_figures(values: Any, kind: str = "float64") -> ColumnFigures:
    state = make_state(kind)  # type: ignore[arg-type]
    array = values if isinstance(values, np.ndarray) else np.array(values, kind)
    state.add(array)
    return figures_of(state, len(array), 10)


def test_numbers() -> None:
    found = number_figures([3.0, 1.0, np.nan, 2.0, 2.0])
    assert (found.count, found.missing, found.distinct, found.is_exact) == (4, 1, 3, True)
    assert (found.min, found.max, found.mean) == (1.0, 3.0, 2.0)
    assert found.variance == pytest.approx(np.var([3, 1, 2, 2], ddof=1), rel=1e-15)
    assert found.quantiles == pytest.approx(np.quantile([3, 1, 2, 2], np.arange(101) / 100), rel=1e-15)
    assert found.vocabulary == ()


def test_infinite_numbers_are_counted_and_take_no_part() -> None:
    found = number_figures([np.inf, 1.0, -np.inf, 3.0])
    assert (found.count, found.infinite, found.mean, found.max) == (4, 2, 2.0, 3.0)


def test_whole_numbers_have_a_vocabulary_and_may_be_masked() -> None:
    big = 2**60 + 1
    values = np.ma.MaskedArray([big, 5, 5, 0], [False, False, False, True])
    found = number_figures(values, "int64")
    assert (found.count, found.missing, found.max) == (3, 1, big)
    assert (found.vocabulary, found.frequencies) == ((5, big), (2, 1))


def test_a_column_without_values_has_no_figures_of_numbers() -> None:
    found = number_figures([np.nan, np.nan])
    assert (found.count, found.missing, found.min, found.mean, found.variance) == (0, 2, None, None, None)
    assert found.quantiles == ()
    assert number_figures([4.0]).variance is None


def test_texts_by_how_often_they_occur_then_by_value() -> None:
    state = TextState()
    state.add(np.array([b"b", b"", b"a", b"c", b"c"], object))
    found = figures_of(state, 5, 2)
    assert (found.count, found.missing, found.distinct) == (4, 1, 3)
    assert (found.vocabulary, found.frequencies) == (("c", "a"), (2, 1))


def test_vectors_count_each_value_and_miss_rows_without_any() -> None:
    found = number_figures(np.array([[1.0, np.nan], [np.nan, np.nan], [2.0, 3.0]]))
    assert (found.count, found.missing, found.mean) == (3, 1, 2.0)


def part_files(folder: Path, cuts: list[int]) -> list[Path]:
    """Write the files of tasks that end at these records."""
    draw = np.random.default_rng(1)
    count = cuts[-1]
    numbers = draw.normal(0, 1e6, count)
    whole = draw.integers(-50, 50, count)
    texts = np.array([b"word %d" % n for n in draw.integers(0, 40, count)], object)
    paths = []
    for first, end in zip([0, *cuts[:-1]], cuts, strict=True):
        states = {"x": make_state("float64"), "n": make_state("int64"), "t": make_state("string")}
        for name, values in (("x", numbers), ("n", whole), ("t", texts)):
            states[name].add(values[first:end])
        paths.append(folder / f"{first}-{end}-of-{len(cuts)}.statistics")
        write_statistics(paths[-1], TaskStatistics(end - first, states))
    return paths


def test_the_same_bits_however_the_records_are_cut(tmp_path: Path) -> None:
    whole = encode(merged(part_files(tmp_path, [1000]), 20))
    assert encode(merged(part_files(tmp_path, [10, 400, 401, 1000]), 20)) == whole
    assert encode(merged(part_files(tmp_path, [10, 400, 401, 1000])[::-1], 20)) == whole


@pytest.mark.parametrize("kind", ["float64", "int64", "string"])
def test_beyond_the_limit_figures_are_near_and_say_so(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edlz.services.statistics.tallies.NumberTally.__init__.__defaults__", (200,))
    monkeypatch.setattr("edlz.services.statistics.tallies.TextTally.__init__.__defaults__", (200,))
    values: Any = (
        np.random.default_rng(1).normal(1e4, 1e3, 5000).astype("int64" if kind == "string" else kind)
    )
    exact = len(np.unique(values))
    texts = np.array([b"%d" % value for value in values], object)
    found = []
    for cuts in ([5000], [40, 3000, 5000]):
        paths = []
        for first, end in zip([0, *cuts[:-1]], cuts, strict=True):
            state = make_state(kind)  # type: ignore[arg-type]
            state.add((texts if kind == "string" else values)[first:end])
            paths.append(tmp_path / f"{first}-{end}")
            write_statistics(paths[-1], TaskStatistics(end - first, {"c": state}))
        found.append(merged(paths, 10))
    assert encode(found[0]) == encode(found[1])
    figures = found[0].columns["c"]
    assert not figures.is_exact
    assert figures.vocabulary == ()
    assert abs(figures.distinct / exact - 1) < 0.35
    if kind != "string":
        np.testing.assert_allclose(figures.quantiles, np.quantile(values, np.arange(101) / 100), rtol=1e-3)
        assert (figures.min, figures.max) == (values.min(), values.max())


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (path,) = part_files(tmp_path, [10])
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(DataError, match=r"10-of-1\.statistics is damaged"), opened_part(path):
        pass
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="is damaged"):
        merged([path], 10)


def test_tasks_that_differ_in_what_a_column_is(tmp_path: Path) -> None:
    for name, kind in (("a", "int64"), ("b", "string")):
        state = make_state(kind)  # type: ignore[arg-type]
        state.add(np.array([1] if kind == "int64" else [b"x"], "int64" if kind == "int64" else object))
        write_statistics(tmp_path / name, TaskStatistics(1, {"c": state}))
    with pytest.raises(DataError, match='column "c" is int64 in some records, and string in others'):
        merged([tmp_path / "a", tmp_path / "b"], 10)
