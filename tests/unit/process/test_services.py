"""The shells of master, partitions and workers at their edges: whole jobs in one event loop."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from edlz.services.errors import DataError, LocalProtocolError, ModelError
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary.inputs import Input, Request
from edlz.services.master.core.vocabulary.instructions import Instruction
from edlz.services.master.service import serve_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol.messages import ReadVector, SupervisorStatus
from edlz.services.worker.core.computation import Built, Computed
from tests.in_process import Cluster, Life, NumpyEngine, play

TASKS = range(8)  # of two epochs of 24 records, three minibatches of two in each task
INSTANTS = [
    7,
    *(pytest.param(at, marks=pytest.mark.slow) for at in (0, 1, 20)),
]  # minibatches computed before
ALL = {(task, index) for task in TASKS for index in range(3)}


async def digest_of(cluster: Cluster) -> str:
    """Wait until the job is complete and everybody has left; return the digest of what was trained."""
    assert await cluster.master.code() == 0, cluster.master.error
    digest = cluster.status.digest
    codes = {life.name: await life.code() for life in (*cluster.servers, *cluster.workers)}
    assert set(codes.values()) <= {0}, codes
    return digest


@pytest.fixture(scope="module")
def undisturbed() -> str:
    """The digest of the job on one worker and one partition, with which nothing happens."""
    found: list[str] = []

    async def scene(cluster: Cluster) -> None:
        cluster.start()
        found.append(await digest_of(cluster))

    play(scene, num_workers=1, num_ps_pods=1, grads_to_wait=2)
    return found[0]


def engines(cluster: Cluster) -> list[NumpyEngine]:
    """The engines of workers that have begun to build."""
    return [engine for life in cluster.workers if (engine := life.service._computing._engine) is not None]


def computed(cluster: Cluster) -> list[tuple[int, int]]:
    return [name for engine in engines(cluster) for name in engine.computed]


# ---------------------------------------------------------------- whole jobs


@pytest.mark.parametrize("partitions", [0, 2], ids=["hosted by the master", "two servers"])
def test_a_job_has_the_same_bits_wherever_its_partitions_are(partitions: int, undisturbed: str) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        assert await digest_of(cluster) == undisturbed
        assert set(computed(cluster)) == ALL
        assert cluster.status.minibatches == len(ALL)
        network = cluster.master.service._look().measured.network
        of_servers = [count for (role, _), count in network.items() if role != "worker"]
        assert min(of_servers) > 0, "as much of it as was told before the end"

    play(scene, num_ps_pods=partitions)


def test_an_asynchronous_job_has_each_minibatch_once() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        assert await digest_of(cluster)
        assert sorted(computed(cluster)) == sorted(ALL)
        assert cluster.status.version == len(ALL)

    play(scene, use_async=True)


def test_a_job_evaluates_what_it_has_trained() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await digest_of(cluster)
        (last,) = cluster.status.evaluations
        assert (last.version, last.metrics) == (12, {"records": 24.0})

    play(scene, has_validation=True)


# ---------------------------------------------------------------- losses


@pytest.mark.parametrize("at", INSTANTS)
def test_a_partition_that_is_lost_begins_again(at: int, undisturbed: str) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until(lambda: len(computed(cluster)) >= at)
        await cluster.servers[0].kill()
        cluster.servers[0] = cluster.start_server(0)
        assert await digest_of(cluster) == undisturbed

    play(scene)


@pytest.mark.parametrize("at", INSTANTS)
def test_a_master_that_is_lost_begins_again(at: int, undisturbed: str) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until(lambda: len(computed(cluster)) >= at)
        await cluster.master.kill()
        cluster.master = cluster.start_master()
        assert await digest_of(cluster) == undisturbed

    play(scene)


def test_a_worker_that_begins_again_takes_its_own_place(undisturbed: str) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until(lambda: len(computed(cluster)) >= 5)
        await cluster.workers[0].kill()
        cluster.workers[0] = cluster.start_worker(0)
        assert await digest_of(cluster) == undisturbed

    play(scene, num_workers=1)


def test_a_partition_that_is_told_to_leave_saves_what_it_has(undisturbed: str) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until(lambda: len(computed(cluster)) >= 7)
        leaving = cluster.servers[0]
        leaving.service.leave(20.0)
        assert await leaving.code() == 143
        done = len(computed(cluster))
        cluster.servers[0] = cluster.start_server(0)
        assert await digest_of(cluster) == undisturbed
        assert len(computed(cluster)) - done <= len(ALL) - 7, "what was saved is computed again"

    play(scene)


# ---------------------------------------------------------------- ends


class Bug(Exception):
    """Of a core."""


def raise_bug(*args: object) -> None:
    raise Bug


@pytest.mark.parametrize("role", ["master", "ps", "worker"])
def test_a_core_that_raises_ends_its_service_with_70(role: str) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until(lambda: bool(computed(cluster)))
        life: Life = {"master": cluster.master, "ps": cluster.servers[0], "worker": cluster.workers[0]}[role]
        life.service._core.feed = raise_bug
        assert await life.code() == 70
        assert isinstance(life.error, Bug)

    play(scene)


def test_a_master_whose_journal_takes_nothing_says_nothing_more() -> None:
    """What could not be journalled is spoken of to nobody, the one included who has asked; the next master goes on."""

    async def scene(cluster: Cluster) -> None:
        cluster.master = cluster.start_master()
        await cluster.until(lambda: cluster.master.service is not None)
        cluster.master.service._journal._database.execute("PRAGMA query_only=ON")
        cluster.servers = [cluster.start_server(index) for index in range(2)]
        cluster.workers = [cluster.start_worker(ident) for ident in range(2)]
        assert await cluster.master.code() == 1
        assert isinstance(cluster.master.error, DataError)
        assert all(life.is_up for life in (*cluster.servers, *cluster.workers))
        cluster.master = cluster.start_master()
        await digest_of(cluster)

    play(scene)


def test_a_rule_that_a_request_breaks_in_the_master_ends_it_with_70() -> None:
    """That is a bug of the master's core: an answer would keep alive what has half taken in the request."""

    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until(lambda: bool(computed(cluster)))
        core = cluster.master.service._core
        feed = core.feed

        def break_a_rule(event: Input, now: float) -> list[Instruction]:
            if isinstance(event, Request):
                raise LocalProtocolError("a job that was running cannot be gathering")
            return feed(event, now)

        core.feed = break_a_rule
        assert await cluster.master.code() == 70
        assert all(life.is_up for life in (*cluster.servers, *cluster.workers))

    play(scene)


def test_a_master_that_cannot_begin_raises_that_and_nothing_around_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A master pod says it on itself."""

    def raise_error(_: MasterCore) -> list[Instruction]:
        raise DataError("the journal cannot be written")

    monkeypatch.setattr(MasterCore, "_start", raise_error)

    async def scene(cluster: Cluster) -> None:
        config = dataclasses.replace(cluster.config, endpoint=cluster.config.master_addr)
        with pytest.raises(DataError, match="the journal cannot be written"):
            await serve_master(config, Stop())

    play(scene)


def test_an_error_while_the_master_leaves_is_not_lost() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until(lambda: bool(computed(cluster)))
        service = cluster.master.service
        service._stop_reading = lambda: service.fail(Bug())  # the first thing that it does then
        cluster.master.stop.set(130, "signal 2")
        assert await cluster.master.code() == 70

    play(scene)


def test_a_server_that_has_failed_answers_nobody_any_more() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until(lambda: bool(computed(cluster)))
        life, answers = cluster.servers[0], []
        life.service._server.reply = lambda to, body: answers.append(body)
        life.service.fail(Bug())
        life.service.on_request("somebody", ReadVector(vector="dense", first=0, count=1))
        assert await life.code() == 70
        assert answers == []

    play(scene)


@pytest.mark.parametrize("role", ["servers", "workers"])
def test_who_is_stopped_ends_with_the_code_of_that(role: str) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until(lambda: bool(computed(cluster)))
        (life, *_) = getattr(cluster, role)
        life.stop.set(143, "signal 15")
        assert await life.code() == 143

    play(scene)


def test_a_supervisor_that_stops_the_job_ends_everybody() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until(lambda: bool(computed(cluster)))
        others = (*cluster.servers, *cluster.workers)

        def is_over() -> bool:
            running = tuple(life.name for life in others if life.is_up)
            cluster.master.service.supervise(SupervisorStatus(seq=1, stop=True, running=running))
            return not cluster.master.is_up

        await cluster.until(is_over)
        assert await cluster.master.code() == 0
        assert cluster.status.state == "Stopped"
        assert cluster.status.minibatches < cluster.status.minibatches_total
        assert [await life.code() for life in others] == [0] * 4

    play(scene, num_epochs=20_000)


@pytest.mark.parametrize("role", ["servers", "workers"])
def test_who_has_no_master_any_more_ends(role: str) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until(lambda: bool(computed(cluster)))
        await cluster.master.kill()
        (life, *_) = getattr(cluster, role)
        assert await life.code() == 5
        assert "does not answer any more" in str(life.error)

    play(scene, orphan_secs=3.0, num_epochs=20_000)  # it is not over before


def test_a_worker_that_is_ended_while_it_closes_leaves_no_thread() -> None:
    """It would keep the process from ending."""
    is_closing, may_close = threading.Event(), threading.Event()

    class Slow(NumpyEngine):
        def close(self) -> None:
            is_closing.set()
            may_close.wait(10.0)
            super().close()

    async def scene(cluster: Cluster) -> None:
        cluster.start(Slow)
        await cluster.until(lambda: bool(computed(cluster)))
        (life, *_) = cluster.workers
        life.stop.set(143, "signal 15")
        await cluster.until(is_closing.is_set)
        await life.kill()
        may_close.set()
        thread = life.service._computing._thread
        is_ended, thread._is_closed = thread._is_closed, True  # in any case: the tests are to end as well
        thread._inbox.put(None)
        assert is_ended

    play(scene)


class Unbuildable(NumpyEngine):
    def build(self) -> Built:
        raise ModelError("no such layer", "use another one")


class Exiting(NumpyEngine):
    def compute(self, task: int, index: int, rows: Sequence[np.ndarray] = ()) -> Computed:
        sys_exit: Any = SystemExit(3)
        raise sys_exit


@pytest.mark.parametrize(
    ("make_engine", "text", "code"),
    [(Unbuildable, "no such layer", 2), (Exiting, "exit", 1)],
    ids=["a model that cannot be built", "code that exits"],
)
def test_what_no_other_attempt_can_mend_ends_the_job(
    make_engine: Callable[..., NumpyEngine], text: str, code: int
) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start(make_engine)
        assert await cluster.master.code() == code
        failure = cluster.status.failure
        assert failure is not None
        assert text in failure.text
        assert [await life.code() for life in cluster.servers] == [0, 0]
        assert 1 in [await life.code() for life in cluster.workers]

    play(scene)
