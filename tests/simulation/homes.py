"""Where the services of a simulated job run, and who starts them: by hand, on one machine, or as pods of a cluster.

The rounds of the supervision are the real ones.  On one machine a supervisor of its own tells the master over the
network; on a cluster it lives in the master's process, and dies with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from edlz.services.master.core.processes.live_workers import HANG_S
from edlz.services.master.core.vocabulary.inputs import Request
from edlz.services.protocol.messages import ProcessExit, Scaled, ScaleRequest, SupervisorOrders
from edlz.services.supervision.launcher import HUNG_GRACE_S, Facts, count_workers
from edlz.services.supervision.loop import Supervision
from tests.simulation.processes import Process, Violation

if TYPE_CHECKING:
    from tests.simulation.job import SimulatedJob

__all__ = ["Home", "Machine", "Pods", "name_of", "role_of"]

GRACE_S = 5.0
ANSWER_S = 2.0  # a master that has not answered by then is asked anew
START_S = (0.1, 4.0)  # from a launch until the process speaks
POLL_S = (0.2, 0.4)
PLACE_S = (0.0, 20.0)  # until a pod has its place
FORGIVEN_S = 5.0  # between what a master knows when it gives a worker up, and when that is seen here


def role_of(name: str) -> str:
    """Return the role of a service in the simulation: w3 of worker-3."""
    role, _, number = name.partition("-")
    return role[0] + number


def name_of(role: str) -> str:
    """Return the name of a service: worker-3 of w3."""
    return f"{'worker' if role[0] == 'w' else 'ps'}-{role[1:]}"


class Home:
    """By hand: whoever has started a service starts it again, under its old name; the master is told nothing."""

    def __init__(self, job: "SimulatedJob") -> None:
        self._job = job

    def begin(self) -> None:
        """Start the job's services, or whoever does that."""
        for p in range(self._job.schedule.servers):
            self._job.launch(f"p{p}")
        for worker in range(self._job.schedule.workers):
            self._job.within(0, 3, self._job.start, f"w{worker}")

    @property
    def is_empty(self) -> bool:
        """Whether nothing is being started."""
        return True

    def target(self, role: str) -> str:
        """Return the role that a fault befalls which was meant for this one."""
        return role

    def on_master(self, process: Process) -> None:
        """The master has begun a life."""

    def on_end(self, process: Process, how: ProcessExit, *, is_again: bool) -> None:
        """A process has ended by itself; `is_again`: whoever started it by hand would start it again."""
        if is_again and self._job.address.get(process.role) == process.name:
            self._job.within(0.5, 8, self._job.start, process.role)

    def on_stall(self, process: Process, seconds: float) -> None:
        """A process stands still for so long; its place may be taken meanwhile."""
        if self._job.rng.random() < 0.7:
            del self._job.address[process.role]
            self._job.within(0.5, 15, self._job.start, process.role)

    def on_apart(self, process: Process, seconds: float) -> None:
        """A process and the master cannot reach each other any more, here for good; another one takes its place."""
        process.is_apart = True
        del self._job.address[process.role]
        self._job.within(0.5, 15, self._job.start, process.role)

    def scale(self, workers: int) -> None:
        """Somebody wants another number of workers."""


@dataclass
class _Service:
    """A service that runs, or is being started.

    Attributes
    ----------
    launch : the number of its start
    process : the number of its process; None until it has begun
    is_stopped : its end was asked for
    is_placed : a node has taken it
    is_lost : its node does not answer
    """

    name: str
    launch: int
    process: int | None = None
    is_stopped: bool = False
    is_placed: bool = True
    is_lost: bool = False


@dataclass
class _Launched:
    """What a launcher has under way, and the exits that it has not told."""

    services: dict[str, _Service] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)  # the names of all workers so far
    exits: list[ProcessExit] = field(default_factory=list)
    ended: dict[str, ProcessExit] = field(default_factory=dict)  # the last exit of each name, told or not
    launches: int = 0


class Machine(Home):
    """One machine: a launcher, and a supervisor that tells the master over the network."""

    _is_forgetful = False  # an exit may never be told

    def __init__(self, job: "SimulatedJob") -> None:
        super().__init__(job)
        self._world = _Launched()
        self._wanted = 0
        self._supervisor: Process | None = None
        self._asked_s: float | None = None
        self._supervision = Supervision(self)

    def begin(self) -> None:
        self._supervisor = self._job.add("s", None)
        self._job.at(self._job.now, self._poll)

    @property
    def is_empty(self) -> bool:
        return all(service.process is not None for service in self._world.services.values())

    def target(self, role: str) -> str:
        """Workers get other names here when they are replaced: one of those that are there."""
        workers = [role_of(name) for name in self.running() if name.startswith("worker")]
        live = [each for each in workers if self._job.process(each)]
        return live[int(role[1:]) % len(live)] if role[0] == "w" and live else role

    def on_end(self, process: Process, how: ProcessExit, *, is_again: bool) -> None:
        service = self._world.services.get(name_of(process.role))
        if service is None or service.process != process.name:
            return
        del self._world.services[service.name]
        if not service.is_stopped:
            exit_ = ProcessExit(
                name=service.name,
                code=how.code,
                signal=how.signal,
                reason=how.reason,
                launch=service.launch,
            )
            self._world.exits.append(exit_)
            self._world.ended[service.name] = exit_

    def on_stall(self, process: Process, seconds: float) -> None:
        if process.role == "m":
            super().on_stall(process, seconds)

    def on_apart(self, process: Process, seconds: float) -> None:
        """One machine does not fall apart."""

    def scale(self, workers: int) -> None:
        assert self._supervisor is not None
        somebody = self._job.add("s", None)
        self._job.network.ask(somebody, "m", self._on_scaled, ScaleRequest(workers=workers))
        self._job.at(self._job.now + ANSWER_S, self._repeat, somebody)

    def _repeat(self, somebody: Process) -> None:
        self._job.network.repeat(somebody)
        if any(outbox.under_way for outbox in somebody.outboxes.values()):
            self._job.at(self._job.now + ANSWER_S, self._repeat, somebody)

    def _on_scaled(self, answer: object) -> None:
        assert isinstance(answer, Scaled), answer
        self._job.log.append(f"{self._job.now:8.2f} scaled: {answer}")

    # -- the rounds

    def _poll(self) -> None:
        assert self._supervisor is not None
        now = self._job.now
        if self._asked_s is not None and now - self._asked_s > ANSWER_S:
            self._job.network.hang_up(self._supervisor, "m")
            self._asked_s = None
        if self._asked_s is None:
            self._asked_s = now
            self._job.network.ask(self._supervisor, "m", self._obey, self._supervision.next_status())
        self._job.within(*POLL_S, self._poll)

    def _obey(self, orders: object) -> None:
        assert isinstance(orders, SupervisorOrders), orders
        self._asked_s = None
        self._supervision.obey(orders)

    # -- a launcher

    def running(self) -> tuple[str, ...]:
        return tuple(self._world.services)

    def take_exits(self) -> tuple[ProcessExit, ...]:
        exits, self._world.exits = tuple(self._world.exits), []
        return exits

    def facts(self) -> Facts:
        rooms = [room for since, room in self._job.schedule.rooms if since <= self._job.now]
        return Facts(room=rooms[-1] if rooms else None)

    def expect(self, desired: Sequence[str], waiting: int) -> None:
        self._wanted = count_workers(desired) + waiting

    def begin_launch(self, name: str) -> None:
        world = self._world
        if name in world.services:
            raise Violation(f"{name} is started, and runs")
        if name in world.used and not self._is_forgetful:
            raise Violation(f"{name} is started a second time")
        world.used |= {name} if name.startswith("worker") else set()
        world.launches += 1
        service = world.services[name] = _Service(name, world.launches)
        room = self.facts().room
        if room is not None and count_workers(world.services) > max(
            room, count_workers([*world.services][:-1])
        ):
            raise Violation(f"{name} is started, and there is room for {room} workers only")
        self._job.within(*START_S, self._start, service)

    def _start(self, service: _Service) -> None:
        if self._world.services.get(service.name) is not service:
            return
        if service.is_stopped:
            del self._world.services[service.name]
            return
        service.process = self._job.launch(role_of(service.name)).name

    def begin_stop(self, name: str, *, is_hung: bool = False) -> None:
        service = self._world.services[name]
        if service.is_stopped:
            return
        service.is_stopped = True
        if is_hung:
            self._note_hung(service)
        grace_s = HUNG_GRACE_S if is_hung and not service.is_lost else GRACE_S
        self._job.within(0.5, grace_s, self._end, service)

    def _note_hung(self, service: _Service) -> None:
        job = self._job
        job.given_up.append(service.name)
        process = None if service.process is None else job.processes[service.process]
        is_well = process is not None and process.is_up and job.now - process.stalled_until > FORGIVEN_S
        is_well = is_well and not job.schedule.is_allreduce  # a member may leave for the sake of others
        if is_well and not service.is_lost and process.pace.told(job.now)[0] < HANG_S - FORGIVEN_S:
            raise Violation(f"{service.name} was given up, but gets on")

    def _end(self, service: _Service) -> None:
        """End a service by force."""
        if self._world.services.get(service.name) is not service:
            return
        if service.process is None:
            del self._world.services[service.name]
            return
        self._job.end(
            self._job.processes[service.process], ProcessExit(name=service.name, code=None, signal=9)
        )


class Pods(Machine):
    """A cluster: pods wait for their place, nodes are lost with what runs on them, and the master's pod tells itself.

    What runs on a lost node goes on, and is taken for gone: it is a zombie until its node answers again.
    """

    _is_forgetful = True

    def begin(self) -> None:
        """The master's pod starts all others."""

    def on_master(self, process: Process) -> None:
        """The rounds begin anew; what has ended is told again, under other numbers."""
        world, self._supervision = self._world, Supervision(self)
        world.exits = []
        for name, exit_ in world.ended.items():
            if name not in world.services:
                world.launches += 1
                world.exits.append(msgspec.structs.replace(exit_, launch=world.launches))
        self._job.at(self._job.now, self._poll_of, process.name)

    def on_stall(self, process: Process, seconds: float) -> None:
        """A node is lost, with one of the pods."""
        if self._job.rng.random() < 0.7:
            self._lose_node(process, seconds)

    def on_apart(self, process: Process, seconds: float) -> None:
        """The same, but the workers can reach what runs there."""
        process.is_apart = self._lose_node(process, seconds)

    def _lose_node(self, process: Process, seconds: float) -> bool:
        service = self._world.services.get(name_of(process.role)) if process.role != "m" else None
        if service is None or service.process != process.name:
            return False
        service.is_lost = True
        self._job.within(seconds, seconds + 1, self._find, service)
        return True

    def _find(self, service: _Service) -> None:
        """The node answers again: a pod that was deleted meanwhile ends."""
        service.is_lost = False
        if service.process is not None:
            process = self._job.processes[service.process]
            process.is_apart = False
            process.stalled_until = max(
                process.stalled_until, self._job.now
            )  # a moment ago it did not answer
        if service.process is not None and self._world.services.get(service.name) is not service:
            process = self._job.processes[service.process]
            self._job.within(0, 3, self._job.end, process, ProcessExit(name=service.name, code=143))

    def scale(self, workers: int) -> None:
        master = self._job.process("m")
        if master is not None:
            self._ask(master, ScaleRequest(workers=workers))

    def _poll_of(self, name: int) -> None:
        process = self._job.processes[name]
        if not process.is_up:
            return
        if self._job.now >= process.stalled_until:
            orders = self._ask(process, self._supervision.next_status())
            if isinstance(orders, SupervisorOrders):
                self._supervision.obey(orders)
        self._job.within(*POLL_S, self._poll_of, name)

    def _ask(self, master: Process, body: object) -> object:
        """Have the master answer from within its process; None if another one has begun."""
        asker: list[object] = []
        self._job.give(master, Request(asker.append, body))  # type: ignore[arg-type]
        return asker[0] if asker else None

    # -- a launcher

    def facts(self) -> Facts:
        services = self._world.services.values()
        return Facts(
            placed=tuple(service.name for service in services if service.is_placed),
            unreachable=tuple(service.name for service in services if service.is_lost),
        )

    def begin_launch(self, name: str) -> None:
        super().begin_launch(name)
        service = self._world.services[name]
        service.is_placed = False

    def _start(self, service: _Service) -> None:
        if not service.is_placed and self._world.services.get(service.name) is service:
            service.is_placed = True
            self._job.within(*PLACE_S, self._start, service)
            return
        super()._start(service)

    def _end(self, service: _Service) -> None:
        if service.is_lost and self._world.services.get(service.name) is service:  # deleted by force
            del self._world.services[service.name]
            if service.process is not None:
                self._job.address.pop(role_of(service.name), None)
            return
        super()._end(service)
