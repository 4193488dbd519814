"""The connections of a job's processes, through here: cut, refused and delayed as somebody says.

A *line* is a loopback port that leads to one server's socket.  Who is at the other end of a connection says
its identity in the handshake (`worker/3/...`), so a fault meets the connections of one process and no others.
"""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Network"]

CHUNK_BYTES = 1 << 16
HEAD_BYTES = 512  # a handshake is shorter
LAST_WORDS_S = 0.1
_IDENTITY = re.compile(rb"(worker|ps|digest)/(\d+)/[0-9a-f]{12}")


@dataclass(eq=False)
class Connection:
    """One client's connection to a server."""

    server: str
    ends: list[asyncio.StreamWriter]
    client: str = ""  # not known before the handshake
    is_doomed: bool = False  # it breaks in the middle of the next piece
    head: bytes = b""

    def is_of(self, process: str) -> bool:
        return process in (self.server, self.client)

    @property
    def link(self) -> frozenset[str]:
        return frozenset((self.server, self.client))

    def abort(self) -> None:
        for end in self.ends:
            end.transport.abort()


class Network:
    """All lines of a job; to be closed.

    Attributes
    ----------
    reached : set of str
        The servers that somebody has got to through their lines.
    held : str
        Who was asked last what goes no further.
    """

    def __init__(self) -> None:
        self.reached: set[str] = set()
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._handlers: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._refused: Counter[str] = Counter()
        self._cut_links: Counter[frozenset[str]] = (
            Counter()
        )  # two workers that get no connection to each other
        # By client and server, which may be any (""): met, and let go.
        self._holds: dict[tuple[str, str], tuple[asyncio.Event, asyncio.Event]] = {}
        self.held = ""
        self._delays: dict[str, tuple[float, asyncio.Event]] = {}  # seconds, and whether a piece has met it

    async def add_line(self, server: str, path: str) -> str:
        """Return an endpoint that leads to the Unix socket at `path`, whether somebody listens there or not."""

        async def on_connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._handlers.add(task)
            try:
                await self._carry(server, path, reader, writer)
            finally:
                writer.transport.abort()
                self._handlers.discard(task)

        listening = await asyncio.start_server(on_connected, "127.0.0.1", 0)
        self._servers.append(listening)
        return f"tcp://127.0.0.1:{listening.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        self._is_closed = True
        for connection in self._connections:
            connection.abort()
        await asyncio.gather(*self._handlers)

    # -- what is seen, and what is done

    def connections_of(self, process: str) -> int:
        return sum(connection.is_of(process) for connection in self._connections)

    def are_linked(self, one: str, other: str) -> bool:
        """Whether there is a connection of two workers with each other."""
        return any(connection.link == {one, other} for connection in self._connections)

    async def cut(self, process: str, seconds: float) -> int:
        """Break all connections of a process and refuse new ones for a while; return how many were broken.

        Each breaks in the middle of the next piece that it carries, if one comes soon.
        """
        self._refused[process] += 1
        met = await self._break(lambda connection: connection.is_of(process), seconds)
        self._refused[process] -= 1
        return met

    async def cut_link(self, one: str, other: str, seconds: float) -> int:
        """The same of the connections of two workers with each other."""
        link = frozenset((one, other))
        self._cut_links[link] += 1
        met = await self._break(lambda connection: connection.link == link, seconds)
        self._cut_links[link] -= 1
        return met

    async def _break(self, is_met: Callable[[Connection], bool], seconds: float) -> int:
        met = [connection for connection in self._connections if is_met(connection)]
        for connection in met:
            connection.is_doomed = True
        await asyncio.sleep(LAST_WORDS_S)
        for connection in met:
            connection.abort()
        await asyncio.sleep(seconds)
        return len(met)

    async def delay(self, process: str, delay_s: float, seconds: float) -> None:
        """Hold up each piece of what a process sends and gets, for a while and until one has been."""
        has_met = asyncio.Event()
        self._delays[process] = (delay_s, has_met)
        await asyncio.sleep(seconds)
        await has_met.wait()
        del self._delays[process]

    def hold(self, client: str, server: str) -> tuple[asyncio.Event, asyncio.Event]:
        """Let what a client asks a server ("": any) go no further: return an event for when it asks, and one that lets it pass."""
        return self._holds.setdefault((client, server), (asyncio.Event(), asyncio.Event()))

    @contextlib.contextmanager
    def slowed(self, process: str, delay_s: float) -> Iterator[None]:
        """Hold up each piece of what a process sends and gets."""
        self._delays[process] = (delay_s, asyncio.Event())
        try:
            yield
        finally:
            del self._delays[process]

    # -- carrying

    async def _carry(
        self, server: str, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._refused[server]:
            return
        try:
            answers, requests = await asyncio.open_unix_connection(path)
        except OSError:  # the server is away: so is this connection
            return
        connection = Connection(server, [writer, requests])
        if self._is_closed:
            connection.abort()
        self._connections.add(connection)
        self.reached.add(server)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(connection, reader, requests, is_request=True), name="requests")
                group.create_task(self._pump(connection, answers, writer, is_request=False), name="answers")
        finally:
            self._connections.discard(connection)
            connection.abort()

    async def _pump(
        self,
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_request: bool,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(CHUNK_BYTES):
                if is_request and not connection.client:
                    self._look_for_client(connection, piece)
                await self._hold(connection)
                await self._hold_up(connection)
                if writer.is_closing():
                    break
                writer.write(piece[: len(piece) // 2] if connection.is_doomed else piece)
                await writer.drain()
                if connection.is_doomed:
                    break
        if connection.is_doomed and not writer.is_closing():
            writer.close()  # what is half out should arrive
            await asyncio.sleep(LAST_WORDS_S)
        connection.abort()

    def _look_for_client(self, connection: Connection, piece: bytes) -> None:
        connection.head = (connection.head + piece)[:HEAD_BYTES]
        found = _IDENTITY.search(connection.head)
        if found:
            connection.client = f"{found[1].decode()}-{found[2].decode()}"
            connection.is_doomed = bool(self._refused[connection.client] or self._cut_links[connection.link])

    async def _hold(self, connection: Connection) -> None:
        client, server = connection.client, connection.server
        hold = self._holds.get((client, server)) or self._holds.get((client, ""))
        if hold is not None:
            self.held = server
            hold[0].set()
            await hold[1].wait()

    async def _hold_up(self, connection: Connection) -> None:
        for process, (delay_s, has_met) in list(self._delays.items()):
            if connection.is_of(process):
                has_met.set()
                await asyncio.sleep(delay_s)
