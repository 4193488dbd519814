"""The core that leads a group, as a part of its master: what workers say of their replicas."""

import itertools
import logging
from collections.abc import Collection, Hashable
from typing import Any

import msgspec
import pytest

from edlz.services.errors import ConfigError, RemoteProtocolError
from edlz.services.master.core import group_course
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.processes.desired_processes import DesiredProcesses
from edlz.services.master.core.vocabulary.inputs import (
    ManifestWritten,
    Request,
    Start,
    StateWritten,
    StopWanted,
    Tick,
)
from edlz.services.master.core.vocabulary.instructions import (
    Announce,
    Instruction,
    Journal,
    Reply,
    WriteManifest,
    WriteState,
)
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.groups import BASE, DurableState
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    ErrorReply,
    GroupOrders,
    Identity,
    MemberStatus,
    NonFiniteLoss,
    PartInfo,
    PartitionStatus,
    ProcessExit,
    Scaled,
    ScaleRequest,
    SnapshotName,
    SupervisorStatus,
    WorkerOrders,
    WorkerStatus,
    WrittenPart,
)
from tests import builders

INFO = PartInfo(partition=0, partitions=2, bytes=1, body_checksum=1, head_checksum=1, rows=())


class Master:
    """The core of an all-reduce job's master, and one worker that has joined."""

    def __init__(
        self,
        durable: Collection[DurableState] = (),
        desired: DesiredProcesses | None = None,
        term: int = 0,
        **fields: Any,
    ) -> None:
        config = builders.settings(distribution_strategy="AllreduceStrategy", **fields).to_record()
        job, journal = builders.job(builders.plan(4), config=config), JournalState(term=term)
        self.core = MasterCore(job, journal, desired=desired, durable=durable)
        self.began = self.core.feed(Start(), 0.0)
        self.seqs = itertools.count(1)
        self.life: Identity | None = None
        self.life = self.answer(self.say()).incarnation

    def say(self, **fields: Any) -> list[Instruction]:
        status = WorkerStatus(
            worker="0",
            boot=1,
            incarnation=self.life,
            seq=next(self.seqs),
            era=NO_IDENTITY,
            run="r",
            **fields,
        )
        return self.core.feed(Request("asker", status), 0.0)

    def answer(self, found: list[Instruction]) -> WorkerOrders:
        [orders] = [each.body for each in found if isinstance(each, Reply)]
        assert isinstance(orders, WorkerOrders)
        return orders


def member(**fields: Any) -> MemberStatus:
    about = {"term": 1, "phase": "waiting", "generation": NO_IDENTITY, "members": (), "name": BASE}
    return MemberStatus(**{**about, "finished": (), **fields})


def test_a_worker_whose_model_is_not_built_is_told_nothing_of_a_group() -> None:
    master = Master()
    assert master.answer(master.say()).group is None
    assert master.answer(master.say(member=member())).group is not None


@pytest.mark.parametrize(
    "odd",
    [
        WrittenPart(name=BASE, rank=0, count=2),
        WrittenPart(name=BASE, rank=1, count=2, info=INFO),
        WrittenPart(name=BASE, rank=0, count=1, is_checkpoint=True, info=INFO),
        WrittenPart(name=((9, 9), 1), rank=0, count=2, info=INFO),
    ],
)
def test_a_member_that_says_what_none_can_say_changes_nothing(odd: WrittenPart) -> None:
    """Not even what the same message says of other things: it is journalled when it is said again."""
    master = Master()
    loss = NonFiniteLoss(task=0, index=0, loss=float("nan"))
    with pytest.raises(RemoteProtocolError, match="a member"):
        master.say(member=member(written=(odd,)), nonfinite_losses=1, nonfinite_loss=loss)
    assert master.core.work.losses.count == 0
    assert master.answer(master.say(member=member())).group is not None


def test_a_parameter_server_is_refused() -> None:
    """Started by hand, it would stand where the members are one partition to the rest of the master."""
    status = PartitionStatus(
        partition=0,
        boot=1,
        incarnation=None,
        seq=1,
        term=0,
        endpoint="e",
        era=None,
        version=0,
        has_base=False,
        ledger=None,
        finished_tasks=0,
        minibatches=0,
        open_minibatches=0,
        snapshots=(),
        is_sealed=False,
    )
    with pytest.raises(ConfigError, match=r"ps-0 .* has no parameter servers") as refused:
        Master().core.feed(Request("ps", status), 0.0)
    assert "--distribution_strategy" in refused.value.help


def test_a_member_that_has_heard_a_later_master_is_looked_up() -> None:
    """The journal knows which of both is outdated; the member is none that says what it cannot."""
    found = Master().say(member=member(term=2, phase="promised", generation=(2, 1)))
    assert found[0] == Journal({})
    [reply] = [each.body for each in found if isinstance(each, Reply)]
    assert isinstance(reply, ErrorReply)


def test_a_checkpoint_that_failed_is_written_when_training_comes_there_again() -> None:
    """The group has gone back behind it, and what it was made of then is nothing to go by."""
    master = Master()

    def step(name: SnapshotName, *, has_part: bool = False) -> list[WriteManifest]:
        info = PartInfo(partition=0, partitions=1, bytes=1, body_checksum=1, head_checksum=1, rows=())
        part = WrittenPart(name=name, rank=0, count=1, is_checkpoint=True, info=info)
        about = member(
            phase="computing",
            generation=name[0],
            members=(master.life,),
            name=name,
            written=(part,) if has_part else (),
        )
        return [each for each in master.say(member=about) if isinstance(each, WriteManifest)]

    master.say(member=member())
    master.say(member=member(phase="promised", generation=(1, 1)))
    assert len(step(((1, 1), 5), has_part=True)) == 1
    master.core.feed(ManifestWritten(5, "no room"), 0.0)
    master.say(member=member(name=((1, 1), 2)))  # nobody has what the group went on from
    master.say(member=member(phase="promised", generation=(1, 2), name=((1, 1), 2)))
    assert step(((1, 2), 3)) == []
    assert len(step(((1, 2), 5), has_part=True)) == 1


def test_a_stop_before_the_first_step_waits_for_two_words_of_each_member_and_no_longer() -> None:
    master = Master()
    master.say(member=member())
    master.say(member=member(phase="promised", generation=(1, 1)))
    about = member(phase="computing", generation=(1, 1), members=(master.life,))
    master.say(member=about)
    master.core.feed(StopWanted(), 0.0)
    for _ in range(2):
        master.core.feed(Tick(), 0.1)
        assert not master.core.verdict.is_over
        master.say(member=about)
    [announced] = [each for each in master.core.feed(Tick(), 0.2) if isinstance(each, Announce)]
    assert announced.text == "stopped; nothing was trained yet."


def test_the_last_worker_is_not_scaled_away() -> None:
    """With parameter servers that is a pause; here nobody would have what was trained."""
    core = Master().core
    core.feed(Request("supervisor", SupervisorStatus(seq=1)), 0.0)
    with pytest.raises(ConfigError, match="workers=0: without any worker nobody holds the model"):
        core.feed(Request("asker", ScaleRequest(workers=0)), 0.0)
    [reply] = [
        each.body
        for each in core.feed(Request("asker", ScaleRequest(workers=1)), 0.0)
        if isinstance(each, Reply)
    ]
    assert isinstance(reply, Scaled)
    assert reply.after == 1


def test_a_checkpoint_that_lies_there_already_is_not_waited_for() -> None:
    """An earlier master has had it completed: members write it again, and nobody completes it again."""
    name = ((1, 0), 5)
    master = Master(durable=[(name, True)])
    master.say(member=member(name=name))
    master.say(member=member(phase="promised", generation=(1, 1), name=name))
    about = {"phase": "computing", "generation": (1, 1), "members": (master.life,), "name": name}
    master.say(member=member(**about))
    master.core.checkpoints.ask(6)
    master.say(member=member(**about))
    assert not master.core.checkpoints.is_answered, "it is an older one"
    master.core.checkpoints.withdraw()
    master.core.checkpoints.ask(5)
    master.say(member=member(**about))
    assert (master.core.checkpoints.is_answered, master.core.checkpoints.newest) == (True, 5)


def test_who_is_in_no_group_any_more_evaluates_nothing() -> None:
    """It has promised the next generation, or missed it: no version that is asked for comes to it."""
    master = Master()
    master.say(member=member())
    master.say(member=member(phase="promised", generation=(1, 1)))
    asked: list[bool] = []
    for generation in ((1, 1), (1, 0)):
        status = WorkerStatus(
            worker="0",
            boot=1,
            incarnation=master.life,
            seq=0,
            era=NO_IDENTITY,
            wants_evaluation=True,
            member=member(generation=generation),
        )
        assert master.core._group is not None
        asked.append(master.core._group.admitted(status).wants_evaluation)
    assert asked == [True, False]


def test_who_could_not_write_its_part_is_named() -> None:
    master = Master()
    master.say(member=member())
    master.say(member=member(phase="promised", generation=(1, 1)))
    name = ((1, 1), 5)
    failed = WrittenPart(name=name, rank=0, count=1, is_checkpoint=True, error="no room", attempt=1)
    about = member(phase="computing", generation=(1, 1), members=(master.life,), name=name, written=(failed,))
    texts = [each.text for each in master.say(member=about) if isinstance(each, Announce)]
    assert "checkpoint v5 fails on worker-0: no room" in texts


def test_who_hangs_shows_where_and_is_not_replaced_where_nobody_may_come() -> None:
    desired = DesiredProcesses(3, 0)
    config = builders.settings(distribution_strategy="AllreduceStrategy").to_record()
    core = MasterCore(builders.job(builders.plan(4), config=config), JournalState(), desired=desired)
    core.feed(Start(), 0.0)
    core.feed(Request("supervisor", SupervisorStatus(seq=1)), 0.0)
    assert desired.names(0.0) == ("worker-0", "worker-1", "worker-2")
    core.processes.evict("1", "it hangs", 0.0, has_hung=True)
    assert core.processes.live.has_hung("1")
    assert desired.names(60.0) == ("worker-0", "worker-2", "worker-3")
    core.processes.evict("2", "it cannot reach worker-0", 0.0, is_replaced=False)
    assert not core.processes.live.has_hung("2")
    assert (desired.target, len(desired.names(60.0))) == (2, 2)


def test_a_spare_is_told_of_a_generation_when_it_is_called() -> None:
    master = Master()
    core = master.core

    def other(life: Identity | None, seq: int, now: float, **fields: Any) -> WorkerOrders:
        status = WorkerStatus(
            worker="1", boot=2, incarnation=life, seq=seq, era=NO_IDENTITY, run="r", **fields
        )
        return master.answer(core.feed(Request("other", status), now))

    life = other(None, 1, 0.0).incarnation
    core.processes.live.supervise(1)
    master.say(member=member())
    first = master.answer(master.say(member=member())).group
    assert first is not None
    promised = {"phase": "promised", "generation": first.generation}
    assert master.answer(master.say(member=member(**promised))).group.members  # type: ignore[union-attr]
    for seq, now in ((2, 0.0), (3, 2.0)):
        told = other(life, seq, now, member=member()).group
        assert told is not None
        assert told.generation == NO_IDENTITY
    core.processes.lose("0", "killed")
    told = other(life, 4, 2.1, member=member()).group
    assert told is not None
    assert told.generation > first.generation


def other(
    core: MasterCore, seq: int, life: Identity | None, now: float, **fields: Any
) -> dict[Hashable, WorkerOrders]:
    """A second worker says something; return who is answered what."""
    status = WorkerStatus(worker="1", boot=2, incarnation=life, seq=seq, era=NO_IDENTITY, run="r", **fields)
    return answers(core.feed(Request("other", status), now))


def answers(found: list[Instruction]) -> dict[Hashable, WorkerOrders]:
    told = {each.to: each.body for each in found if isinstance(each, Reply)}
    return {to: body for to, body in told.items() if isinstance(body, WorkerOrders)}


def test_a_spare_that_waits_hears_of_a_loss_at_once() -> None:
    master = Master(desired=DesiredProcesses(1, 0, spares=1))
    core = master.core
    core.feed(Request("supervisor", SupervisorStatus(seq=1)), 2.0)
    life = other(core, 1, None, 2.0)["other"].incarnation
    master.say(member=member())
    first = master.answer(master.say(member=member())).group
    assert first is not None
    master.say(member=member(phase="promised", generation=first.generation))
    assert "other" in other(core, 2, life, 2.0, member=member())
    assert other(core, 3, life, 2.0, member=member(), can_wait=True) == {}, "there is nothing to say"
    killed = ProcessExit(name="worker-0", code=None, signal=9, reason="killed")
    told = answers(core.feed(Request("supervisor", SupervisorStatus(seq=2, exits=(killed,))), 2.0))
    called = told["other"].group
    assert called is not None
    assert called.generation > first.generation


def test_who_has_promised_hears_who_the_members_are_when_the_last_one_has() -> None:
    master = Master()
    core = master.core
    life = other(core, 1, None, 0.0)["other"].incarnation
    master.say(member=member())
    first = master.answer(master.say(member=member())).group
    assert first is not None
    master.say(member=member(phase="promised", generation=first.generation))
    other(core, 2, life, 0.0, member=member())
    joins = other(core, 3, life, 2.0, member=member())["other"].group
    assert joins is not None
    assert joins.is_join
    promised = member(phase="promised", generation=joins.generation)
    assert other(core, 4, life, 2.0, member=promised, can_wait=True) == {}
    told = answers(master.say(member=promised, can_wait=True))
    for who in ("asker", "other"):
        group = told[who].group
        assert group is not None
        assert len(group.members) == 2


def warnings(found: list[Instruction]) -> list[str]:
    return [each.text for each in found if isinstance(each, Announce) and each.level == logging.WARNING]


def test_a_member_that_does_not_see_the_masters_folder_is_told_of_once() -> None:
    """What it writes to go on from nobody would find when all are lost, and then it is too late to say so."""
    master = Master()
    where = {"member": member(), "member_endpoint": "tcp://node2:2222"}
    assert warnings(master.say(**where)) == []
    [text] = warnings(master.say(**where, sees_job_dir=False))
    assert text.startswith("worker-0 at node2 does not see the master's folder of the job")
    assert "--job_dir" in text
    assert "--private_job_dir" in text
    assert warnings(master.say(**where, sees_job_dir=False)) == []


def test_a_job_without_a_shared_folder_says_so_when_it_begins() -> None:
    for about, then in (
        ({}, "begins anew"),
        ({"checkpoint_dir": "c", "checkpoint_steps": 5}, "newest checkpoint"),
    ):
        for term, count in ((0, 1), (1, 0)):
            master = Master(private_job_dir=True, term=term, **about)
            found = warnings(master.began)
            assert [then in text and "--job_dir" in text for text in found] == [True] * count
            assert warnings(master.say(member=member(term=term + 1), sees_job_dir=False)) == []


def test_a_stop_that_saves_nothing_says_so_where_a_member_does_not_see_the_folder() -> None:
    master = Master()
    master.say(member=member(), sees_job_dir=False)
    master.say(member=member(phase="promised", generation=(1, 1)))
    master.say(member=member(phase="computing", generation=(1, 1), members=(master.life,), name=((1, 1), 3)))
    master.core.feed(StopWanted(), 0.0)
    told = [each.text for each in master.core.feed(Tick(), 60.0) if isinstance(each, Announce)]
    assert "stopped; nothing remains: its processes share no folder." in told


class Pair:
    """The master of a job that evaluates every fourth version, and the two workers of its group."""

    def __init__(self) -> None:
        flags = {"distribution_strategy": "AllreduceStrategy", "validation_data": "y", "evaluation_steps": 4}
        job = builders.job(builders.plan(40, 2), config=builders.settings(**flags).to_record())
        self.core = MasterCore(job, JournalState(), evaluation_steps=4)
        self.core.feed(Start(), 0.0)
        self.seqs, self.now = itertools.count(1), 0.0
        self.told: list[Instruction] = []
        self.generation: Identity = NO_IDENTITY
        self.lives = tuple(self._ask(who, None).incarnation for who in (0, 1))
        self.gather()

    def _ask(self, who: int, life: Identity | None, **fields: Any) -> WorkerOrders:
        about = {"boot": who, "incarnation": life, "seq": next(self.seqs), "era": NO_IDENTITY, "run": "r"}
        self.told = self.core.feed(
            Request("asker", WorkerStatus(worker=str(who), **about, **fields)), self.now
        )
        return answers(self.told)["asker"]

    def say(self, who: int, *, wants_evaluation: bool = False, **fields: Any) -> WorkerOrders:
        about = member(**{"generation": self.generation, **fields})
        return self._ask(who, self.lives[who], member=about, wants_evaluation=wants_evaluation)

    def gather(self, name: SnapshotName = BASE) -> None:
        """Have both promise the next generation with this state."""
        told: GroupOrders | None = None
        while told is None or len(told.members) < 2:
            for who in (0, 1):
                told = self.say(who, phase="promised", name=name).group
                assert told is not None
                self.generation = max(self.generation, told.generation)
            self.now += 0.6

    def come_to(self, version: int, phase: str, *whom: int, **fields: Any) -> WorkerOrders:
        """Have members come to a version, and say it one after the other; return what the last one is told."""
        name = self.generation, version
        about = {"members": self.lives, "phase": phase, "name": name, "finished": (0, version), **fields}
        return [self.say(who, **about) for who in whom or (0, 1)][-1]

    def lose_all(self, name: SnapshotName) -> None:
        """Have nobody who holds what the group has come to, and go on from an earlier state."""
        self.say(0, name=name)
        self.gather(name)


def test_a_group_that_comes_to_an_evaluated_version_before_it_is_seen_to_have_gone_back() -> None:
    """Its new state of that version is evaluated: it waits for nothing else."""
    pair = Pair()
    pair.come_to(7, "computing")
    before = pair.generation
    pair.lose_all((before, 3))
    assert pair.generation > before
    pair.come_to(4, "held")
    leases = [pair.come_to(4, "held", 0, wants_evaluation=True).evaluation for _ in range(2)]
    assert [lease.version for lease in leases if lease is not None][-1:] == [4]


def test_a_group_that_comes_to_the_same_version_again_is_seen_to_have_gone_back() -> None:
    """Nobody has the state of that version of before: what was evaluated of it does not count, and is told of."""
    pair = Pair()
    pair.come_to(4, "held")
    pair.come_to(4, "held")
    [number] = pair.core.work.evaluation._rounds
    before = pair.generation
    pair.lose_all((before, 3))
    pair.come_to(4, "held", 0)
    pair.come_to(4, "held", 1)
    texts = [each.text for each in pair.told if isinstance(each, Announce)]
    assert "training goes back to v3: v4 cannot be gone on from." in texts
    pair.come_to(4, "held", 0)
    [again] = pair.core.work.evaluation._rounds
    assert again > number


@pytest.mark.parametrize("version", [4, 3])
def test_a_state_that_others_have_saved_meanwhile_or_a_later_one_is_saved(version: int) -> None:
    core, last = Master().core, StateWritten(((1, 1), 4))
    told = [*core.feed(last, 1.0), *core.feed(StateWritten(((1, 1), version), "no such file"), 2.0)]
    assert not any(isinstance(each, Announce) for each in told)


def sealed_alone(master: Master, name: SnapshotName) -> MemberStatus:
    """Return what the job's only member says that has sealed a state."""
    part = WrittenPart(name=name, rank=0, count=1, info=msgspec.structs.replace(INFO, partitions=1))
    about = {"generation": (1, 1), "members": (master.life,), "name": name, "written": (part,)}
    return member(phase="sealed", finished=(0, 4), minibatches=4, **about)


def test_a_last_state_that_cannot_be_saved_is_told_of_once_and_in_the_end_fails_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tried again meanwhile: a job that were complete without it could be neither exported nor evaluated."""
    master, name = Master(), ((1, 1), 4)
    master.say(member=member())
    master.say(member=member(phase="promised", generation=(1, 1)))
    sealed = sealed_alone(master, name)
    told: list[Instruction] = []
    monkeypatch.setattr(group_course, "UNSAVED_S", 5.0)
    for now in (1.0, 2.0, 5.0, 7.0):
        assert any(isinstance(each, WriteState) for each in master.say(member=sealed))
        told += master.core.feed(StateWritten(name, "no room"), now)
        told += master.core.feed(Tick(), now)
    text = "v4 could not be saved to go on from: no room"
    assert [each for each in told if isinstance(each, Announce) and text in each.text] == [
        Announce("group", f"{text}; it is tried again", logging.WARNING),
        Announce("failed", text, logging.ERROR),
    ]
    failure = master.core.verdict.failure
    assert failure is not None
    assert "edlz resume" in failure.help


def test_each_last_state_has_its_own_time_to_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that seal anew, perhaps much later, have a state that nobody has tried to save."""
    monkeypatch.setattr(group_course, "UNSAVED_S", 1.0)
    master = Master()
    master.say(member=member())
    master.say(member=member(phase="promised", generation=(1, 1)))
    for name, now in ((((1, 1), 4), 1.0), (((1, 1), 5), 3.0)):
        master.say(member=sealed_alone(master, name))
        told = master.core.feed(StateWritten(name, "no room"), now)
        assert any(isinstance(each, Announce) and "it is tried again" in each.text for each in told)
    assert master.core.verdict.failure is None
