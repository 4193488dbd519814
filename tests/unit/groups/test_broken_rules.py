"""Each rule of all-reduce is there for a reason: without it, the simulation finds a broken promise.

The same schedule must hold with the rule: else it shows a fault of something else.  Looking for a schedule begins where
one is known, so that it takes no time.  `test_what_rules_save` has the rules that only save something.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from edlz.services.errors import EdlzError
from edlz.services.master.core.groups import evictions, links, rendezvous
from edlz.services.master.core.groups.events import Complete, Instruction
from edlz.services.master.core.groups.rendezvous import Rendezvous
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import Identity, MemberStatus, Reduce, Reduced, SnapshotName
from edlz.services.storage.state import State
from edlz.services.worker.core.groups import node_sums, replica
from edlz.services.worker.core.groups.instructions import Reply
from edlz.services.worker.core.groups.milestones import Milestones
from edlz.services.worker.core.groups.node_sums import NodeSums
from edlz.services.worker.core.groups.reduction import Reduction
from edlz.services.worker.core.groups.replica import Replica
from tests.simulation.groups.job import GroupJob
from tests.simulation.groups.schedule import random_group_schedule
from tests.simulation.processes import Violation

SCHEDULES = 400  # looked through, from where one is known
Patch = tuple[Any, str, Any]

take, begin, take_over, feed = Reduction.take, Reduction.begin, Replica._take_over, Rendezvous.feed
on_orders, on_advanced = Replica._on_orders, Replica._on_advanced


def breaks(seed: int, *, is_function: bool = True) -> bool:
    try:
        GroupJob(random_group_schedule(seed, is_function=is_function)).run()
    except (Violation, AssertionError, EdlzError, ValueError, KeyError, StopIteration):
        return True
    return False


def takes_any_generation(self: Reduction, to: Any, part: Reduce, version: int | None) -> list[Reply]:
    return take(self, to, msgspec.structs.replace(part, generation=self.generation), version)


def believes_any_mean(self: Replica, owner: int, mean: Reduced) -> list[Any]:
    if self.phase is not replica.Phase.STAGED or mean.version != self._whole.version:
        return []
    step_ = self._exchange.take(owner, mean)
    return [] if step_ is None else self._commit(step_)


def forgets_nothing(self: Reduction, generation: Identity) -> list[Reply]:
    """What was staged by version stays, as if it were of the new group."""
    staged, means = self._staged, self._means
    out = begin(self, generation)
    self._means = {key: msgspec.structs.replace(mean, generation=generation) for key, mean in means.items()}
    for each in staged.values():
        parts = each.parts.items()
        each.parts = {rank: msgspec.structs.replace(part, generation=generation) for rank, part in parts}
        each.waiting.clear()
    self._staged = staged
    return out


def names_by_version(self: Replica, now: float) -> list[Any]:
    self._exchange.in_work.take(self._whole)
    self.name = (0, 0), self._whole.version
    self._exchange.end_step()
    if self._pending is not None:
        return self._promise(self._pending)
    return self._begin_step()


def promises_in_the_midst(self: Replica, orders: Any, now: float) -> list[Any]:
    if self.phase is replica.Phase.ADVANCING and orders.generation > self.generation:
        self.phase = replica.Phase.STAGED
    return on_orders(self, orders, now)


def forgets_the_step(self: Replica, now: float) -> list[Any]:
    return on_advanced(self, now) if self.phase is replica.Phase.ADVANCING else []


def keeps_its_ledger(self: Replica, state: State) -> None:
    own = self._whole.view(self.name[0])
    take_over(self, msgspec.structs.replace(state, ledger=own.ledger, counts=own.counts))


def one_after_another(self: NodeSums, _: int | None) -> None:
    while len(self._sums) > 1:
        [left, right], self._sums[-2:] = self._sums[-2:], []
        self._sums.append(dataclasses.replace(left, dense=left.dense + right.dense))


def whole_block(block: range, slots: int) -> list[range]:
    return [block] if block else []


def counts_what_was_reported(self: Rendezvous, event: Any, now: float) -> list[Instruction]:
    out = feed(self, event, now)
    seen = self.__dict__.setdefault("seen", TaskSet())
    for status in self._statuses.values():
        for task in TaskSet(status.finished):
            seen.add(task)
    members = [self._statuses[who] for who in self._group if who in self._statuses]
    if len(seen) >= self._plan.task_count and members and self.stage.value == "formed":
        out.append(Complete(max(status.name for status in members), len(members)))
    return out


def any_has_sealed(self: Rendezvous, statuses: dict[Identity, MemberStatus]) -> list[Instruction]:
    for status in statuses.values():
        if len(TaskSet(status.finished)) >= self._plan.task_count:
            self._enter(rendezvous.Stage.COMPLETE)
            return [Complete(status.name, len(statuses))]
    return []


def no_answers(who: Identity, status: MemberStatus, statuses: Any, generation: Identity) -> Any:
    yield from LINKS(who, msgspec.structs.replace(status, unanswered=()), statuses, generation)


def only_in_a_step(who: Identity, status: MemberStatus, statuses: Any, generation: Identity) -> Any:
    if status.members:
        yield from LINKS(who, status, statuses, generation)


def bars_by_version(self: Milestones, name: SnapshotName) -> bool:
    every, version = self._evaluation_steps, name[1]
    is_barrier = every > 0 and version > 0 and version % every == 0
    return is_barrier and version > self._released[1]


LINKS: Callable[..., Any] = links._broken_links

RULES: dict[str, tuple[int, bool, tuple[Patch, ...]]] = {
    "generation": (
        5,
        True,
        ((Reduction, "take", takes_any_generation), (Replica, "_on_mean", believes_any_mean)),
    ),
    "staged-by-generation": (3, True, ((Reduction, "begin", forgets_nothing),)),
    "name-has-generation": (0, False, ((Replica, "_on_advanced", names_by_version),)),
    "fetch-whole": (0, True, ((Replica, "_take_over", keeps_its_ledger),)),
    "fixed-tree": (0, True, ((node_sums, "nodes_of", whole_block), (NodeSums, "_add_up", one_after_another))),
    "ledger-truth": (0, True, ((Rendezvous, "feed", counts_what_was_reported),)),
    "seal": (0, True, ((Rendezvous, "_conclude", any_has_sealed),)),
    "broken-link": (3, True, ((evictions, "cut_off", lambda *_: None),)),
    "means that have not come": (11, True, ((links, "_broken_links", no_answers),)),
    "who cannot fetch leaves": (30, True, ((links, "_broken_links", only_in_a_step),)),
    "evaluation holds the next step": (0, True, ((Milestones, "bars", lambda self, name: False),)),
    "what is evaluated is a state, no version": (
        0,
        False,
        ((Milestones, "bars", bars_by_version),),
    ),
    "what is begun is taken before a promise": (
        0,
        True,
        ((Replica, "_on_orders", promises_in_the_midst), (Replica, "_on_advanced", forgets_the_step)),
    ),
    "a join waits for no lost step": (19, True, ((rendezvous, "JOIN_WAIT_S", 1e9),)),
}


@pytest.mark.parametrize("rule", RULES)
def test_without_the_rule_a_promise_breaks(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, is_function, patches = RULES[rule]
    with monkeypatch.context() as without:
        for owner, name, broken in patches:
            without.setattr(owner, name, broken)
        seeds = range(first, first + SCHEDULES)
        found = next((seed for seed in seeds if breaks(seed, is_function=is_function)), None)
    assert found is not None, "every promise holds without the rule"
    assert not breaks(found, is_function=is_function), f"a promise breaks with the rule, too: {found}"
