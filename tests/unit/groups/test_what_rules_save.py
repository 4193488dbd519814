"""Rules of all-reduce without which every promise still holds: what they save is counted, in the simulation.

Not here is `term`: generations begin with the term, so that orders of an earlier master are too low already, and a member has
one status under way, so that an answer to an earlier one is none to it.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest

from edlz.services.master.core.groups import evictions, links, rendezvous
from edlz.services.master.core.groups.hangs import Hangs
from edlz.services.master.core.groups.rendezvous import Rendezvous
from edlz.services.master.core.groups.sources import Sources
from edlz.services.protocol.messages import GroupRefused, Identity, MemberStatus, Reduce
from edlz.services.worker.core.groups.instructions import Reply
from edlz.services.worker.core.groups.reduction import Reduction
from edlz.services.worker.core.groups.replica import Replica
from tests.simulation.groups.job import GroupJob
from tests.simulation.groups.schedule import GroupFault, GroupSchedule
from tests.simulation.processes import Violation

Patch = tuple[Any, str, Any]

LENGTHS = (2, 3, 0, 1, 4, 2, 2, 1)
LINKS: Callable[..., Any] = links._broken_links
take = Reduction.take


def schedule(seed: int, *faults: GroupFault, **fields: Any) -> GroupSchedule:
    about = {"slots": 4, "epochs": 2, "lengths": LENGTHS, "workers": 3, **fields}
    return GroupSchedule(seed=seed, faults=faults, **about)


def by_dead_line(who: Identity, status: MemberStatus, statuses: Any, generation: Identity) -> Any:
    for other in sorted({*status.lacks, *status.unanswered}):
        if other in statuses:
            yield other, max(who, other), "state"


def the_younger(statuses: Any, generation: Identity, is_old: Any, _: Any) -> tuple[Identity, Identity] | None:
    for who, status in sorted(statuses.items()):
        if status.generation == generation:
            for other, _, claim in LINKS(who, status, statuses, generation):
                if is_old(who, other, claim):
                    return max(who, other), min(who, other)
    return None


def forgets_before(
    statuses: Any, generation: Identity, is_old: Any, _: Any
) -> tuple[Identity, Identity] | None:
    return links.cut_off(statuses, generation, is_old)


def at_once(*_: Any) -> bool:
    return True


def keeps_no_mean(self: Reduction, to: Any, part: Reduce, version: int | None) -> list[Reply]:
    out = take(self, to, part, version)
    self._means = {}
    return out


def asks_again(self: Replica, event: Any, refused: GroupRefused, now: float) -> list[Any]:
    self._exchange.letters.on_refused(event.key, now, is_whole=refused.reason == "not here")
    return []


def seconds(job: GroupJob) -> float:
    return job.ended_s


def figure(name: str) -> Callable[[GroupJob], float]:
    return lambda job: job.figures[name]


island = GroupFault(at=6.0, kind="island", who=0)
RULES: dict[str, tuple[Callable[[GroupJob], float], GroupSchedule, tuple[Patch, ...]]] = {
    "a member's word against another's": (
        figure("evicted"),
        schedule(1, slow=((4, 0, 20.0),)),
        ((links, "_broken_links", by_dead_line),),
    ),
    "what was sent only now is on its way": (
        figure("evicted"),
        schedule(7, slow=((4, 0, 20.0),)),
        ((links.Claims, "is_old", at_once),),
    ),
    "who stood still had nothing to send": (
        figure("evicted"),
        schedule(2, *(GroupFault(0.1, "stall", seconds=9.5, during="staged", nth=nth) for nth in (4, 8))),
        ((links, "GAP_S", math.inf),),
    ),
    "who is in most broken links leaves": (
        figure("evicted"),
        schedule(2, island),
        ((evictions, "cut_off", the_younger),),
    ),
    "links that were broken before": (
        figure("evicted"),
        schedule(2, island),
        ((evictions, "cut_off", forgets_before),),
    ),
    "who hangs leaves": (
        seconds,
        schedule(1, GroupFault(at=0.0, kind="hang", during="computing", nth=9)),
        ((Hangs, "first", lambda *_: None),),
    ),
    "adopt": (
        seconds,
        schedule(2, GroupFault(at=0.1, kind="master", during="staged", nth=9)),
        ((rendezvous, "whole_group", lambda *_: None),),
    ),
    "durable": (
        figure("commits"),
        schedule(
            1,
            GroupFault(at=0.1, kind="all", during="computing", nth=20),
            epochs=1,
            lengths=(12,) * 4,
            checkpoint_steps=2,
        ),
        ((Sources, "_reads", lambda *_: False),),
    ),
    "promise-first": (
        figure("slots computed"),
        schedule(2, GroupFault(at=0.1, kind="kill", during="staged", nth=9)),
        ((Rendezvous, "_have_promised", lambda *_: True),),
    ),
    "keep-mean": (
        seconds,
        schedule(1, noise=0.1),
        ((Reduction, "take", keeps_no_mean),),
    ),
    "late-promise": (
        seconds,
        schedule(2, *(GroupFault(at=at, kind="join") for at in (6.0, 10.0, 14.0)), workers=2),
        ((Replica, "_on_refused", asks_again),),
    ),
}


def run(job: GroupSchedule, counted: Callable[[GroupJob], float]) -> float:
    """Return what a job has cost; all there is if it does not end."""
    try:
        return counted(GroupJob(job).run())
    except Violation:
        return math.inf


@pytest.mark.parametrize("rule", RULES)
def test_without_the_rule_more_is_lost(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, job, patches = RULES[rule]
    with_rule = run(job, counted)
    with monkeypatch.context() as without:
        for owner, name, broken in patches:
            without.setattr(owner, name, broken)
        without_rule = run(job, counted)
    assert with_rule < without_rule
