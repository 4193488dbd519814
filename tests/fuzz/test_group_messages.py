"""Arbitrary well-formed messages to the cores of an all-reduce job, by a member, a master or anybody who holds the keys."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from edlz.services.master.core.groups import events
from edlz.services.master.core.groups.rendezvous import Rendezvous
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    FetchState,
    GroupOrders,
    GroupRefused,
    Member,
    MemberStatus,
    Reduce,
    Reduced,
    StatePiece,
)
from edlz.services.worker.core.groups import inputs
from edlz.services.worker.core.groups.instructions import DigestState, Reply
from edlz.services.worker.core.groups.reduction import Reduction
from edlz.services.worker.core.groups.replica import Replica
from edlz.services.worker.core.groups.state_transfer import state_digest
from tests.fuzz.fuzzing import cases, every_case, refusals
from tests.fuzz.message_writer import MessageWriter, made
from tests.simulation.groups.job import GroupJob
from tests.simulation.groups.schedule import GroupSchedule

pytestmark = pytest.mark.fuzz

A_JOB = 40  # messages that one job is given
Give = Callable[[GroupJob, MessageWriter, random.Random], None]


def job_under_way(rng: random.Random) -> GroupJob:
    """A job in the middle of its training."""
    schedule = GroupSchedule(
        seed=rng.randrange(2**31),
        slots=rng.randint(1, 4),
        epochs=1,
        lengths=(3, 2, 4, 1, 3, 2),
        workers=rng.randint(1, 3),
        checkpoint_steps=rng.choice((0, 3)),
        evaluation_steps=rng.choice((0, 0, 4)),
    )
    job = GroupJob(schedule)
    job.run_until(rng.uniform(0, 20))
    return job


def fuzz(give: Give) -> None:
    """Give a core messages, a few to each of many jobs; what it raises is declared, and it can be spoken to on."""

    def play(rng: random.Random) -> None:
        job = job_under_way(rng)
        for _ in range(A_JOB):
            if not job.workers:
                return
            with refusals():
                give(job, MessageWriter(rng), rng)

    every_case(cases(few=15, full=100_000 // A_JOB), play)


def under_way(job: GroupJob) -> list[Any]:
    """What members have asked each other, and have no answer to."""
    return [asked for process in job.workers for asked in process.asked.values() if asked.to > 0]


def replica_of(job: GroupJob, rng: random.Random) -> Replica:
    core = rng.choice(job.workers).core
    assert isinstance(core, Replica)
    return core


def status_to_master(job: GroupJob, writer: MessageWriter, rng: random.Random) -> None:
    core = job.master.core
    assert isinstance(core, Rendezvous)
    known = [process.core.status(job.now) for process in job.workers]
    status = writer.changed(rng.choice(known)) if rng.random() < 0.8 else writer.message(MemberStatus)
    who = (1, rng.choice((*(process.number for process in job.workers), 99)))
    core.check(status)
    core.feed(events.Heard(Member(incarnation=who, worker=str(who[1])), status), job.now)
    core.feed(events.Tick(), job.now + rng.choice((0, 0, 5)))
    for process in job.workers:
        core.orders(process.core.me)


def orders_to_member(job: GroupJob, writer: MessageWriter, rng: random.Random) -> None:
    """Orders of somebody who takes himself for the master."""
    core = replica_of(job, rng)
    orders = job.master.core.orders(core.me) if rng.random() < 0.5 else writer.message(GroupOrders)
    orders = msgspec.structs.replace(writer.changed(orders), term=core.term)
    core.feed(inputs.MemberOrdered(orders), job.now)
    core.feed(inputs.Tick(), job.now)
    core.status(job.now)


def request_to_member(job: GroupJob, writer: MessageWriter, rng: random.Random) -> None:
    core = replica_of(job, rng)
    body = made([asked.body for asked in under_way(job)], (Reduce, FetchState), writer, rng)
    if rng.random() < 0.8:
        body = msgspec.structs.replace(body, generation=core.generation)
    if isinstance(body, FetchState) and rng.random() < 0.8:
        body = msgspec.structs.replace(body, name=core.name)
    core.feed(inputs.Request(rng.randrange(5), body), job.now)
    core.status(job.now)


def answer_to_member(job: GroupJob, writer: MessageWriter, rng: random.Random) -> None:
    """Another member's answer to what this one has asked."""
    core = replica_of(job, rng)
    asked = [each for process in job.workers if process.core is core for each in process.asked.values()]
    asked = [each for each in asked if each.to > 0]
    if not asked:
        return
    question = rng.choice(asked)
    known = _honest_answers(question.body, core)
    body = made(known, (Reduced, StatePiece, GroupRefused), writer, rng)
    if rng.random() < 0.8:
        body = msgspec.structs.replace(body, generation=core.generation)
    core.feed(inputs.Answered((1, question.to), question.key, body), job.now)
    core.status(job.now)


def _honest_answers(question: Any, core: Replica) -> list[Message]:
    """What might have been answered."""
    if isinstance(question, Reduce):
        alone = Reduction()
        alone.begin(question.generation)
        dense, state = (len(vectors[0]) if vectors else 0 for vectors in (question.dense, question.state))
        alone.form(1, [slice(0, dense)] * (question.bucket + 1), state)
        (reply,) = alone.take(0, msgspec.structs.replace(question, rank=0), question.version)
        return [reply.body]
    name = core.name
    question = msgspec.structs.replace(question, generation=core.generation, name=name)
    found = core.feed(inputs.Request(0, question), 0.0)
    for one in found:
        if isinstance(one, DigestState):
            found = core.feed(inputs.Digested(one.key, state_digest(one.state)), 0.0)
    return [reply.body for reply in found if isinstance(reply, Reply) and reply.to == 0]


@pytest.mark.parametrize(
    "give",
    [status_to_master, orders_to_member, request_to_member, answer_to_member],
    ids=lambda give: give.__name__,
)
def test_any_message_is_taken_or_refused(give: Give) -> None:
    fuzz(give)
