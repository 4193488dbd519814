"""The rate core on a clock of the test's: within 10 % of what has risen, divided by the time, from the 10th second on."""

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.services.master.progress.rates import Rate

LOOK_S = 0.25  # how often the master looks at the count
FIRST_S = 10.0


@dataclass(frozen=True)
class Life:
    """What happens from one start to the next: nothing at first, then steps at a steady pace."""

    silent_s: float
    step_s: float
    records: int  # a step
    heard_s: float  # between two statuses
    lasts_s: float


lives = st.builds(
    Life,
    silent_s=st.floats(0.0, 40.0),
    step_s=st.floats(0.002, 1.5),
    records=st.integers(1, 5000),
    heard_s=st.floats(0.02, 1.0),
    lasts_s=st.floats(15.0, 50.0),
)


def play(rate: Rate, life: Life, count: float, began_s: float) -> float:
    """Let a life pass, and check the rate all the while; return the count at its end."""
    first, heard, due_s = count, count, 0.0
    for look in range(int((life.silent_s + life.lasts_s) / LOOK_S)):
        passed = look * LOOK_S - life.silent_s
        if look * LOOK_S >= due_s:
            due_s += life.heard_s
            heard = first + max(0, int(passed / life.step_s)) * life.records
        rate.note(heard, began_s + look * LOOK_S)
        if passed >= FIRST_S + life.step_s + life.heard_s:
            assert rate.per_s(began_s + look * LOOK_S) == pytest.approx(life.records / life.step_s, rel=0.1)
        elif passed < 0:
            assert rate.per_s(began_s + look * LOOK_S) == 0.0
    return heard


@settings(deadline=None)
@given(st.lists(lives, min_size=1, max_size=3), st.integers(0, 10**9))
def test_a_rate_is_right_from_the_tenth_second_on_also_after_restarts(lives: list[Life], count: int) -> None:
    rate, now = Rate(30.0), 100.0
    for life in lives:
        rate.restart()
        count = int(play(rate, life, count, now)) // 2  # it goes back to a snapshot
        now += life.silent_s + life.lasts_s


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_a_rate_is_what_has_risen_lately_whatever_the_steps(seed: int) -> None:
    random, rate = Random(seed), Rate(FIRST_S)
    now, count, counts = 0.0, 0, [(0.0, 0)]
    while now < 60:
        now += random.uniform(0.02, 0.3)
        count += random.randrange(100, 900) if now < 30 else random.randrange(10, 90)
        rate.note(count, now)
        counts.append((now, count))
        if now >= FIRST_S and not 30 <= now < 31 + FIRST_S:
            at, before = next((at, so_far) for at, so_far in counts if at >= now - FIRST_S)
            assert rate.per_s(now) == pytest.approx((count - before) / (now - at), rel=0.1)


def test_one_that_stands_still_sinks_and_is_none_at_last() -> None:
    rate = Rate(30.0)
    for second in range(20):
        rate.note(100 * second, float(second))
    assert rate.per_s(19.5) == pytest.approx(100)
    assert rate.per_s(37.0) == pytest.approx(100 * 19 / 36, rel=0.02)
    assert rate.per_s(50.0) == 0.0


def test_steps_that_are_slower_than_the_window_have_a_rate() -> None:
    rate = Rate(30.0)
    for step in range(10):
        rate.note(4096 * step, 50.0 * step)
    assert rate.per_s(460.0) == pytest.approx(4096 / 50)


def test_a_count_that_falls_a_little_does_not_matter() -> None:
    """A task that was counted by whole minibatches ends with a short one."""
    rate = Rate(30.0)
    for second in range(20):
        rate.note(100 * second - (12 if second % 5 == 4 else 0), float(second))
    assert rate.per_s(19.0) == pytest.approx(100, rel=0.05)
