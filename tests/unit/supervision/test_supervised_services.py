"""The rounds of the supervision around real services, in one event loop: who ends by itself has another one in its place."""

import asyncio
from collections.abc import Sequence

from edlz.services.protocol.messages import ProcessExit, SupervisorOrders, SupervisorStatus
from edlz.services.supervision.launcher import Facts, split_name
from edlz.services.supervision.loop import Supervision
from tests.in_process import Cluster, Life, play


class InOneLoop:
    """A home and a launcher whose processes are tasks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lives: dict[str, Life] = {}
        self._stopped: list[Life] = []
        self.started: list[str] = []
        self.is_over = False
        self.changes = (asyncio.Event(),)

    # -- a launcher

    def running(self) -> tuple[str, ...]:
        return tuple(self._lives)

    def take_exits(self) -> tuple[ProcessExit, ...]:
        gone = [name for name, life in self._lives.items() if not life.is_up]
        ended = [(name, self._lives.pop(name)) for name in gone]
        return tuple(
            ProcessExit(name=name, code=None, signal=9, reason="killed by signal 9 (SIGKILL)")
            for name, life in ended
            if life not in self._stopped
        )

    def facts(self) -> Facts:
        return Facts()

    def expect(self, desired: Sequence[str], waiting: int) -> None:
        """All that is wanted has room."""

    def begin_launch(self, name: str) -> None:
        role, number = split_name(name)
        start = self._cluster.start_server if role == "ps" else self._cluster.start_worker
        self._lives[name] = start(number)
        self.started.append(name)

    def begin_stop(self, name: str, *, is_hung: bool = False) -> None:
        self._stopped.append(self._lives[name])
        self._lives[name].stop.set(143, "told to end")

    async def kill(self, name: str) -> None:
        await self._lives[name].kill()

    # -- a home

    async def begin_round(self) -> bool:
        return self._cluster.master.service is not None

    async def ask(self, status: SupervisorStatus) -> SupervisorOrders | None:
        orders: SupervisorOrders | None = self._cluster.master.service.supervise(status)
        self.is_over = orders is not None and orders.stop
        return orders

    def end_round(self) -> None:
        """Nothing is left to do."""


def test_a_killed_worker_and_a_killed_server_are_replaced_and_the_job_completes() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.master = cluster.start_master()
        home = InOneLoop(cluster)
        rounds = asyncio.create_task(Supervision(home).run(home), name="rounds")
        await cluster.until(lambda: cluster.master.service is not None and cluster.status.tasks_done > 0)
        await home.kill("worker-0")
        await home.kill("ps-1")
        await rounds
        assert await cluster.master.code() == 0
        assert home.started[:4] == ["ps-0", "ps-1", "worker-0", "worker-1"]
        assert sorted(home.started[4:]) == ["ps-1", "worker-2"]
        told = [event.text for event in cluster.status.events]
        assert "worker-2 starts in its place.  1 of 2 workers training meanwhile." in told
        assert any(text.startswith("ps-1 starts again") for text in told)

    play(scene, num_epochs=8)


def test_a_job_shrinks_and_grows() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.master = cluster.start_master()
        home = InOneLoop(cluster)
        rounds = asyncio.create_task(Supervision(home).run(home), name="rounds")
        await cluster.until(lambda: cluster.master.service is not None and cluster.status.tasks_done > 0)
        assert cluster.master.service.scale(1).before == 2
        await cluster.until(lambda: home.running() == ("ps-0", "ps-1", "worker-0"))
        assert cluster.master.service.scale(2).before == 1
        await cluster.until(lambda: "worker-2" in home.running() or home.is_over)
        await rounds
        assert await cluster.master.code() == 0
        assert home.started[4:] == ["worker-2"]

    play(scene, num_epochs=40)
