"""Made-up clicks: the same for the same seed, in Criteo's layout, and with something to learn."""

from contextlib import contextmanager

import numpy as np
import pytest

from edlz.api.recordio import Reader
from edlz.client.cli import main
from edlz.model_zoo import datasets
from edlz.model_zoo.conversion.mixing import mixed, unit_interval
from edlz.model_zoo.criteo.generator import Generator
from edlz.model_zoo.criteo.layout import MISSING, PRESENT
from edlz.model_zoo.datasets import DatasetError, convert


def auc(labels, scores):
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(1, len(scores) + 1)
    positive = labels.sum()
    wins = ranks[labels == 1].sum() - positive * (positive + 1) / 2
    return wins / (positive * (len(labels) - positive))


def many(seed=0, pieces=4):
    parts = [Generator(seed).clicks(piece, 8192) for piece in range(pieces)]
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


def test_same_seed_same_clicks():
    first, again, other = (Generator(seed).clicks(3, 500) for seed in (7, 7, 8))
    for a, b, c in zip(first, again, other, strict=True):
        assert np.array_equal(a, b, equal_nan=True)
        assert not np.array_equal(a, c, equal_nan=True)
    shorter = Generator(7).clicks(3, 20)
    assert all(np.array_equal(a[:20], b, equal_nan=True) for a, b in zip(first, shorter, strict=True))


def test_whoever_watches_hears_of_each_record(tmp_path):
    expected, told = [], []

    @contextmanager
    def watch(records):
        expected.append(records)
        yield told.append

    for _ in range(2):  # made, then compared
        convert("criteo-generated", None, tmp_path, records=1000, watch=watch)
    assert expected == [1000, 1000]
    assert sum(told) == 2000


def test_pieces_differ_but_obey_the_same_model():
    generator = Generator(7)
    assert not np.array_equal(generator.clicks(0, 50).categorical, generator.clicks(1, 50).categorical)
    rows = generator.clicks(0, 50)
    ids = np.arange(26 * 50).reshape(50, 26) % 90 + 1
    numeric = np.nan_to_num(rows.numeric.astype(float))
    assert np.array_equal(generator._logits(numeric, ids), Generator(7)._logits(numeric, ids))


def test_these_clicks_stay_what_they_are():
    """Data made by another version of edlz is the same: these figures must not change."""
    clicks = Generator(0).clicks(0, 2)
    assert clicks.labels.tolist() == [1, 1]
    assert clicks.categorical[0, :3].tolist() == [4493876168, 6584896754, 7723956891]
    assert clicks.numeric[0, :6].tolist() == pytest.approx([0.0, 0.0, 0.0, 0.0, 2.0, 7.0], nan_ok=True)


def test_values_are_as_in_such_logs():
    labels, numeric, categorical, logits = many()
    assert 0.2 < labels.mean() < 0.4
    assert 0.05 < np.isnan(numeric).mean() < 0.15
    assert np.nanmin(numeric) == 0
    is_missing = categorical == MISSING
    assert 0.02 < is_missing.mean() < 0.08
    values = categorical[~is_missing] - PRESENT
    assert values.min() >= 0
    assert values.max() < 1 << 32
    # Log-uniform up to a million: a sixth of a column's values for each power of ten.
    counts = np.sort(np.unique(categorical[:, 0], return_counts=True)[1])[::-1]
    # Bounds of shares: at least five times what chance makes of so many draws, sqrt(p * (1 - p) / n).
    assert counts[1] / len(labels) == pytest.approx(0.95 * np.log10(2) / 6, abs=0.01)
    assert len(counts) > 0.25 * len(labels)
    assert np.isfinite(logits).all()


def test_labels_follow_the_logits():
    labels, _, _, logits = many()
    assert 0.8 < auc(labels, logits) < 0.9
    assert labels.mean() == pytest.approx((1 / (1 + np.exp(-logits))).mean(), abs=0.01)


def test_interactions_matter():
    """What the best linear model of the frequent ids gets is less than what there is to get."""
    labels, _, categorical, logits = many()
    half = len(labels) // 2
    scores = np.zeros(len(labels) - half)
    base = labels[:half].mean()
    for column in categorical.T:
        ids, places = np.unique(column, return_inverse=True)
        counts = np.bincount(places[:half], minlength=len(ids))
        clicks = np.bincount(places[:half], labels[:half], len(ids))
        scores += np.log((clicks + 20 * base) / (counts - clicks + 20 * (1 - base)))[places[half:]]
    linear = auc(labels[half:], scores)
    assert linear > 0.55
    assert auc(labels[half:], logits[half:]) > linear + 0.1


def test_conversion(tmp_path):
    done = convert("criteo-generated", None, tmp_path / "out", records=1_005, seed=3, records_per_shard=400)
    assert (done.train_records, done.test_records) == (905, 100)
    assert len(done.paths) == 4
    assert "seed 3" in done.origin
    assert "made-up" in done.origin
    assert "not Criteo's data" in done.origin
    again = convert(
        "criteo-generated", None, tmp_path / "again", records=1_005, seed=3, records_per_shard=400
    )
    for a, b in zip(done.paths, again.paths, strict=True):
        with Reader(a) as first, Reader(b) as second:
            assert first.read(0, len(first)) == second.read(0, len(second))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"records": 9}, "records=9 leaves none for the test"),
        ({"records": 100, "seed": -1}, "seed=-1 is not from 0"),
        ({"source": "somewhere"}, "criteo-generated is made up, not read from somewhere"),
    ],
)
def test_bad_options(tmp_path, options, said):
    with pytest.raises(DatasetError, match=said):
        convert("criteo-generated", options.pop("source", None), tmp_path / "out", **options)


def test_commands_say_that_it_is_made_up(tmp_path, capsys, monkeypatch):
    arguments = ["criteo-generated", "--records", "200", "--seed", "1", "--output", str(tmp_path / "a")]
    assert datasets.main(arguments) == 0
    assert "(from a generator (seed 1): made-up clicks" in capsys.readouterr().out
    monkeypatch.setattr("edlz.model_zoo.datasets._GENERATED_RECORDS", 300)
    assert main(["zoo", "data", "criteo-generated", str(tmp_path / "b")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/b/train  270 records written",
        f"{tmp_path}/b/test   30 records written",
        "from a generator (seed 0): made-up clicks in Criteo's layout, not Criteo's data",
    ]


def test_mixing_is_a_bijection_that_spreads():
    numbers = np.arange(10_000, dtype=np.uint64)
    images = mixed(numbers)
    assert len(np.unique(images)) == len(numbers)
    assert numbers[5] == 5  # not in place
    assert unit_interval(images).mean() == pytest.approx(0.5, abs=0.02)
    bits = np.unpackbits(images.view(np.uint8)).mean()
    assert bits == pytest.approx(0.5, abs=0.01)
    # Of SplitMix64 with seed 0, whose first state is the golden ratio.
    assert mixed(np.array([0x9E3779B97F4A7C15], np.uint64)).tolist() == [0xE220A8397B1DCDAF]
