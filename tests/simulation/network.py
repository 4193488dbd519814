"""The network of a simulated job: messages are delayed, lost, doubled and delivered late, connections break."""

import contextlib
import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from edlz.services.errors import EdlzError, RemoteProtocolError
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import ErrorReply, Exchange, PartitionStatus, ScaleRequest, WorkerOrders
from edlz.services.ps.core import inputs as ps_inputs
from edlz.services.ps.core.partition import Partition
from edlz.services.transport.outbox import Outbox
from edlz.services.worker.core import inputs as worker_inputs
from tests.simulation.processes import Process, Request, Violation

if TYPE_CHECKING:
    from tests.simulation.job import SimulatedJob

__all__ = ["Network"]

RETRY_S = 2.0


@dataclass(eq=False)
class Connection:
    """Of a client with the life of a server; messages arrive in order, each way."""

    client: int
    role: str
    server: int
    is_up: bool = True


class Network:
    """Delivers what the processes of one job send each other, in the job's order of events."""

    def __init__(self, job: "SimulatedJob") -> None:
        self._job = job
        self._requests = itertools.count(1)
        self._newest: dict[str, dict[tuple[int, type], Message]] = {}
        self._connections: dict[tuple[int, str], Connection] = {}
        self._last_delivery: dict[tuple[int, str], float] = {}

    def ask(
        self,
        process: Process,
        role: str,
        key: Hashable,
        body: Message,
        *,
        is_newest: bool = False,
        again: Message | None = None,
    ) -> None:
        """Send a request, repeatedly, until it is answered.

        With `is_newest` it takes the place of those to the same role that have not left yet, as a status does.
        """
        outbox = process.outboxes.setdefault(role, Outbox(self._job.schedule.credits))
        if is_newest:
            for number, _ in outbox.pending():
                if number not in outbox.under_way:
                    outbox.pop(number)
        outbox.add(next(self._requests), Request(role, key, body, again), body)
        self._send_waiting(process, outbox)

    def repeat(self, process: Process) -> None:
        """Send again what a process has waited long for."""
        under_way = [item for outbox in process.outboxes.values() for item in outbox.under_way.items()]
        for number, request in sorted(under_way, key=lambda item: item[0]):
            if self._job.now - request.sent_s > RETRY_S:
                self._dispatch(process, number, request, request.again)

    def reply(self, to: Hashable, body: Message) -> None:
        """Answer a request; `to` as the core got it."""
        connection, client, request = to
        self._deliver(connection, client, "on_answer", (request, body), "answer")

    def newest(self, role: str) -> list[Message]:
        """Return the newest request that each process has sent to somebody."""
        return list(self._newest.get(role, {}).values())

    def forge(self, process: Process) -> None:
        """Let a process of another run, with the same numbers, ask what this one asks: nobody may believe it."""
        for outbox in process.outboxes.values():
            for number, request in list(outbox.under_way.items()):
                server = self._job.process(request.role)
                if server is not None:
                    nobody = Connection(process.name, request.role, server.name, is_up=False)
                    to = (nobody, process.name, number)
                    with contextlib.suppress(RemoteProtocolError):
                        self._job.feed(server, ps_inputs.Request(to, _of_another_run(request.body)))

    def hang_up(self, process: Process, role: str) -> None:
        """Forget what a process asks whoever has a role, and close its connection."""
        process.outboxes.pop(role, None)
        if (process.name, role) in self._connections:
            self._break((process.name, role))

    def cut(self, role: str) -> None:
        """Break all connections of whoever has a role."""
        for key, connection in list(self._connections.items()):
            if role in (connection.role, self._job.processes[connection.client].role):
                self._break(key)

    def drop(self, process: Process) -> None:
        """Break all connections of a process that is gone."""
        for key, connection in list(self._connections.items()):
            if process.name in (connection.client, connection.server):
                self._break(key)

    def _send_waiting(self, process: Process, outbox: Outbox[Request]) -> None:
        while (found := outbox.next()) is not None:
            outbox.leave(found[0])
            self._dispatch(process, *found)

    def _dispatch(
        self, process: Process, number: int, request: Request, again: Message | None = None
    ) -> None:
        request.sent_s = self._job.now
        self._newest.setdefault(request.role, {})[process.name, type(request.body)] = request.body
        self._send(process, request.role, number, again or request.body)

    def _break(self, key: tuple[int, str]) -> None:
        self._connections.pop(key).is_up = False

    def _send(self, process: Process, role: str, request: int, body: Message) -> None:
        key = (process.name, role)
        if not process.is_up or (process.is_apart and role == "m"):
            return
        if key not in self._connections:
            server = self._server(role)
            if server is None:
                return
            self._connections[key] = Connection(process.name, role, server.name)
        server = self._job.processes[self._connections[key].server]
        moved = self._job.address.get(role) not in (None, server.name) and not server.is_apart
        if self._job.rng.random() < self._job.schedule.noise / 4 or (moved and self._job.rng.random() < 0.1):
            self._break(key)
            return
        connection = self._connections[key]
        to = (connection, process.name, request)
        self._deliver(connection, connection.server, "on_request", (to, body), "request")
        # A late copy comes over whatever connection there is then.
        if self._job.rng.random() < self._job.schedule.noise:
            self._job.within(0, 40, self._copy, role, to, body)

    def _server(self, role: str) -> Process | None:
        """Return whom a new connection leads to: for a while perhaps to a former life that is still up."""
        server = self._job.process(role)
        former = [
            process
            for process in self._job.processes.values()
            if process.role == role and process.is_up and process is not server and not process.is_apart
        ]
        return former[-1] if server and former and self._job.rng.random() < 0.3 else server

    def _copy(self, role: str, to: Any, body: Message) -> None:
        server = self._job.process(role)
        if server:
            self._job.at(self._job.now, self._arrive, None, server.name, "on_request", (to, body))

    def _deliver(self, connection: Connection, name: int, method: str, args: Any, way: str) -> None:
        lane = (id(connection), way)
        delay = self._job.rng.choice((0.01, 0.05, 0.3, 1.5)) * self._job.rng.random()
        when = self._last_delivery[lane] = max(self._last_delivery.get(lane, 0), self._job.now + delay)
        self._job.at(when, self._arrive, connection, name, method, args)

    def _arrive(self, connection: Connection | None, name: int, method: str, args: Any) -> None:
        process = self._job.processes[name]
        if connection and not connection.is_up:
            # What the client had queued is sent on reconnection.
            if method == "on_request" and self._job.rng.random() < 0.5:
                self._send(self._job.processes[connection.client], connection.role, args[0][2], args[1])
            return
        if not process.is_up:
            return
        if self._job.now < process.stalled_until:
            self._job.at(
                process.stalled_until + self._job.rng.random() * 0.1,
                self._arrive,
                connection,
                name,
                method,
                args,
            )
            return
        if method == "on_request":
            try:
                self._job.feed(process, ps_inputs.Request(*args))
            except EdlzError as error:
                if isinstance(
                    args[1], ScaleRequest
                ):  # nobody has told this master yet that it starts workers
                    return
                raise Violation(f"{process.role} cannot take {args[1]}: {error}") from error
            return
        number, body = args
        outbox = next((each for each in process.outboxes.values() if number in each.under_way), None)
        if outbox is not None:
            request = outbox.under_way[number]
            outbox.pop(number)
            self._on_answer(process, request.key, body, request.body)
            self._send_waiting(process, outbox)

    def _on_answer(self, process: Process, key: Any, body: Message, asked: Message) -> None:
        if isinstance(body, ErrorReply):
            raise Violation(f"{process.role} got {body}")
        if callable(key):  # a master's question of the partitions, or a supervisor's of it
            key(body)
        elif isinstance(process.core, Partition):
            self._job.feed(process, ps_inputs.Answered(asked, body))
        elif isinstance(body, WorkerOrders):
            self._job.feed(process, worker_inputs.Ordered(body))
        else:
            index, inner = key
            self._job.feed(process, worker_inputs.Answered(index, inner, body))


def _of_another_run(body: Message) -> Message:
    """Return a request as a process of another run would make it, to the greatest harm."""
    if isinstance(body, PartitionStatus):
        return msgspec.structs.replace(body, run="2", seq=body.seq + 1000, version=0, is_sealed=True)
    if isinstance(body, Exchange) and body.push is not None and body.push.gradient is not None:
        push = msgspec.structs.replace(body.push, gradient=-body.push.gradient)
        return msgspec.structs.replace(body, run="2", push=push)
    return msgspec.structs.replace(body, run="2")
