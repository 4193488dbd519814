"""Parameter servers that say nothing: told soon, given up when nothing more is to be expected of them."""

import pytest

from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.processes.live_workers import SILENCE_S
from edlz.services.master.core.processes.silent_servers import HANG_PERIODS, SilentServers
from edlz.services.master.core.vocabulary.inputs import Request, Start, Tick
from edlz.services.master.core.vocabulary.instructions import Announce
from edlz.services.master.core.vocabulary.records import GivenUp, JournalState
from tests import builders
from tests.statuses import partition_status

HANG_S = 20.0
FOR_EVER_S = HANG_PERIODS * HANG_S


def said(silence: SilentServers, now: float) -> list[str]:
    return [
        instruction.text if isinstance(instruction, Announce) else f"retire {instruction.index}"
        for instruction in silence.on_tick(now)
    ]


def test_silence_is_told_once_and_its_end_too() -> None:
    silence = SilentServers(HANG_S)
    assert silence.on_heard(0, 0.0) == []
    assert said(silence, SILENCE_S) == []
    assert said(silence, SILENCE_S + 1) == ["ps-0 is silent: nothing heard for 11s; requests to it wait."]
    assert silence.is_silent(0)
    assert said(silence, SILENCE_S + 2) == []
    assert silence.on_heard(0, SILENCE_S + 3) == [Announce("ps", "ps-0 is heard again.")]
    assert not silence.is_silent(0)


def test_a_silent_server_is_given_up_once_after_a_long_time() -> None:
    silence = SilentServers(HANG_S)
    silence.on_heard(1, 0.0)
    said(silence, FOR_EVER_S)
    assert silence.on_tick(FOR_EVER_S + 1) == [GivenUp("ps-1", "nothing heard for 101s")]
    assert said(silence, 10 * FOR_EVER_S) == []
    assert silence.is_silent(1)  # nobody may be there who could start it anew
    silence.on_gone(1)
    assert not silence.is_silent(1)


def test_one_whose_node_does_not_answer_is_given_up_as_soon_as_it_is_silent() -> None:
    silence = SilentServers(HANG_S)
    silence.on_heard(0, 0.0)
    silence.unreachable = {0}
    assert said(silence, SILENCE_S) == []  # it speaks still: who says that knows less than we do
    reason = "its node does not answer, nothing heard for 11s"
    assert silence.on_tick(SILENCE_S + 1) == [GivenUp("ps-0", reason, is_unreachable=True)]


def test_nothing_is_expected_of_one_that_has_ended_until_its_next_life() -> None:
    silence = SilentServers(HANG_S)
    silence.on_heard(0, 0.0)
    silence.on_gone(0)
    assert said(silence, 10 * FOR_EVER_S) == []
    silence.on_heard(0, 1000.0)
    assert said(silence, 1000.0 + SILENCE_S + 1) != []


@pytest.mark.parametrize("is_zombie", [False, True])
def test_only_the_current_life_of_a_partition_is_listened_to(is_zombie: bool) -> None:
    plan = builders.plan(4, mode="async")
    core = MasterCore(builders.job(plan), JournalState())
    core.feed(Start(), 0.0)
    core.feed(Request(0, partition_status(0, incarnation=(1, 2))), 0.0)
    core.feed(Request(0, partition_status(0, incarnation=(1, 1 if is_zombie else 2), seq=2)), SILENCE_S)
    told = [one.text for one in core.feed(Tick(), SILENCE_S + 1) if isinstance(one, Announce)]
    assert any("ps-0 is silent" in text for text in told) is is_zombie
