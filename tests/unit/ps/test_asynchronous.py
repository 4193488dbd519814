"""Pushes in asynchronous mode: what is applied, refused, added up, and held for a cut."""

from typing import Any

import numpy as np
import pytest

from edlz.services.parameters.store import Store
from edlz.services.protocol.layout import Layout, Variable, VectorLayout
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import Exchange, Exchanged, OptimizerSpec, Push, Refused
from edlz.services.ps.core.asynchronous import HOLD_S, Asynchronous, AsyncSettings
from tests import builders

LIFE = (1, 1)
SGD = OptimizerSpec(name="SGD", settings={})


def make(settings: AsyncSettings | None = None, slots: int = 1) -> Asynchronous:
    plan = builders.plan(16, mode="async", records_per_task=4, slots=slots)
    state = Store.initial(
        plan_hash=plan.hash,
        task_count=plan.task_count,
        partition=0,
        partitions=1,
        layout=Layout(dense=VectorLayout(variables=(Variable(path="w", shape=(16,)),))),
        optimizer=SGD,
        dense=np.zeros(16, np.float32),
        state=np.zeros(0, np.float32),
        counters=np.zeros(0, np.int64),
    )
    return Asynchronous(plan, Store(state, 0), LIFE, settings)


def push(
    exchanges: Asynchronous, task: int, index: int, *, version: int = 0, to: str = "w", **more: Any
) -> Any:
    """Push a gradient of ones at rate 1; return the answer, or None while it is held."""
    body = Push(
        task=task,
        index=index,
        is_last=more.get("is_last", False),
        learning_rate=1.0,
        gradient=np.ones(16, np.float32),
        state=None,
        counters=None,
    )
    exchange = Exchange(era=(0, 0), incarnation=more.get("life", LIFE), version=version, push=body)
    replies = exchanges.exchange(to, exchange, more.get("now", 0.0))
    return replies[0].body if replies else None


def test_only_the_next_minibatch_is_applied() -> None:
    exchanges = make()
    assert push(exchanges, 0, 1) == Refused(reason="gap")
    assert push(exchanges, 0, 0, life=(9, 9)) == Refused(reason="incarnation")
    assert push(exchanges, 0, 0).mark == 1
    assert push(exchanges, 0, 0).mark == 1
    assert exchanges.store.version == 1
    assert push(exchanges, 0, 1, is_last=True).finished
    assert push(exchanges, 0, 1).finished


@pytest.mark.parametrize(("age", "moved"), [(0, 1.0), (1, 1.0), (2, 0.5), (4, 0.25)])
def test_a_rate_is_divided_by_the_gradients_age(age: int, moved: float) -> None:
    exchanges = make(AsyncSettings(modulates_rate=True))
    for index in range(4):
        push(exchanges, 0, index, version=index)
    before = exchanges.store.values().dense[0]
    push(exchanges, 1, 0, version=4 - age)
    assert before - exchanges.store.values().dense[0] == np.float32(moved)


def test_a_tolerance_adds_gradients_up_and_sends_old_ones_back() -> None:
    exchanges = make(AsyncSettings(tolerance=1), slots=2)
    assert push(exchanges, 0, 0).mark == 1
    assert exchanges.store.version == 0
    push(exchanges, 1, 0)
    assert exchanges.store.version == 1
    assert exchanges.store.values().dense[0] == -1.0, "the mean of two"
    push(exchanges, 2, 0, version=1)
    push(exchanges, 3, 0, version=1)
    assert push(exchanges, 0, 1, version=0) == Refused(reason="stale")
    assert isinstance(push(exchanges, 0, 1, version=1), Exchanged)


def test_the_last_gradients_are_applied_though_there_are_too_few() -> None:
    exchanges = make(AsyncSettings(tolerance=9), slots=3)
    for task in range(4):
        push(exchanges, task, 0, is_last=True)
    assert exchanges.store.ledger.minibatches == 4
    assert exchanges.store.version == 2


def test_a_held_push_is_taken_when_the_ceiling_rises() -> None:
    exchanges = make()
    push(exchanges, 0, 0)
    assert exchanges.freeze(5)
    assert not exchanges.freeze(5)
    assert push(exchanges, 0, 1, to="a") is None
    assert push(exchanges, 1, 0, to="b") is None
    replies = exchanges.level(5, LedgerRecord(marks=((0, 2),)))
    assert [reply.to for reply in replies] == ["a"]
    assert exchanges.is_level
    assert exchanges.store.ledger.mark(1) == 0
    assert [reply.to for reply in exchanges.lift(1.0)] == ["b"]
    assert exchanges.store.ledger.mark(1) == 1


def test_what_is_held_for_long_is_sent_back() -> None:
    exchanges = make()
    exchanges.freeze(5)
    push(exchanges, 0, 0, to="a", now=1.0)
    assert exchanges.refuse_waiting(1.0 + HOLD_S / 2) == []
    (reply,) = exchanges.refuse_waiting(1.1 + HOLD_S)
    assert (reply.to, reply.body) == ("a", Refused(reason="held"))
    assert exchanges.store.version == 0
