"""The evaluations that screens are told of: some hundreds of however many, and the best of them always."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.services.master.progress import shown_evaluations as module
from edlz.services.master.progress.shown_evaluations import MOST, ShownEvaluations

Results = list[tuple[int, dict[str, float]]]


def test_few_are_all_shown_and_the_same_object_until_there_is_another() -> None:
    results: Results = [(10, {"accuracy": 0.5}), (20, {"accuracy": 0.7})]
    shown = ShownEvaluations(results)
    first = shown.views
    assert [(view.version, view.metrics) for view in first] == results
    assert shown.views is first
    results.append((15, {"accuracy": 0.6}))  # of the weights that callbacks have put back
    assert [view.version for view in shown.views] == [10, 20, 15]


def test_of_many_some_hundreds_are_shown_evenly() -> None:
    results: Results = [(version, {"accuracy": 0.5}) for version in range(20_000)]
    versions = [view.version for view in ShownEvaluations(results).views]
    assert MOST / 2 <= len(versions) <= MOST + 2
    steps = {later - version for version, later in pairwise(versions[:-1])}
    assert steps == {64}
    assert (versions[0], versions[-1]) == (0, 19_999)


@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), st.floats(allow_infinity=True)), max_size=80),
    st.integers(0, 80),
)
def test_the_best_of_each_metric_and_the_newest_stay_whenever_they_are_looked_at(
    metrics: list[dict[str, float]], early: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST", 8)
        results: Results = []
        shown, once = ShownEvaluations(results), ShownEvaluations(results)
        for version, each in enumerate(metrics):
            results.append((version, each))
            if version == early:
                assert shown.views
        views = shown.views
        assert views == once.views
    assert len(views) <= 8 + 1 + 4
    assert not metrics or views[-1].version == len(metrics) - 1
    for name in "ab":
        values = [each[name] for each in metrics if name in each and not math.isnan(each[name])]
        kept = [view.metrics[name] for view in views if name in view.metrics]
        for best in (min, max):
            assert not values or best(values) in kept
