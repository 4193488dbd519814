"""RPC with keys over live sockets of this machine: who gets in, who does not, and what each side is told."""

import asyncio
import contextlib
import logging
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator

import numpy as np
import pytest
import zmq

from edlz.services.errors import ConfigError, EdlzError, PeerUnavailable
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Ping, Pong, ReadVector, VectorPart
from edlz.services.transport import gate as gate_module
from edlz.services.transport import handshakes as handshakes_module
from edlz.services.transport import sockets as sockets_module
from edlz.services.transport import strangers as strangers_module
from edlz.services.transport import zap
from edlz.services.transport.keys import JobKeys, KeyPair, make_job_keys
from edlz.services.transport.rpc import ReplyTo, RpcClient, RpcServer
from edlz.services.transport.security import Security
from edlz.services.transport.strangers import MOST_BYTES, Bounds
from tests.loops import LOOPS, Run, runner_on
from tests.rpc_peers import until

ANY_PORT = "tcp://127.0.0.1:0"
LIMIT_S = 20.0
KEYS, OTHER_KEYS = make_job_keys(), make_job_keys()


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a test's coroutine on one of the loops, within a time limit; then no handler is left."""
    yield runner_on(request.param, monkeypatch, LIMIT_S)
    assert zap._Handler._the_one is None


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients give up soon."""
    monkeypatch.setattr(sockets_module, "LOOK_S", 0.1)
    monkeypatch.setattr(handshakes_module, "REFUSED_S", 0.3)
    monkeypatch.setattr(handshakes_module, "HUNG_UP_S", 0.5)


def security(keys: JobKeys | None, role: str) -> Security | None:
    return Security(keys.of(role)) if keys else None


class Server:
    """A server of a role, which answers each request by `answer`."""

    def __init__(
        self,
        keys: JobKeys | None = KEYS,
        role: str = "ps",
        endpoint: str = ANY_PORT,
        answer: Callable[[Message], Message] = lambda body: body,
    ) -> None:
        def handle(to: ReplyTo, body: Message) -> None:
            self.rpc.reply(to, answer(body))

        self.rpc = RpcServer(endpoint, handle, role=role, linger_s=0, security=security(keys, role))
        self.endpoint = self.rpc.endpoint

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.rpc.close()


@contextlib.asynccontextmanager
async def client_of(
    endpoint: str, keys: JobKeys | None = KEYS, role: str = "worker", server: str = "ps"
) -> AsyncIterator[RpcClient]:
    client = RpcClient(
        endpoint, role=role, identity="0", linger_s=0, security=security(keys, role), server=server
    )
    try:
        yield client
    finally:
        client.close()


async def refusal_of(client: RpcClient) -> EdlzError:
    """Wait for a client to give up; return why."""
    with pytest.raises(EdlzError) as caught:
        await client.request(Ping(), 15.0)
    assert client.failed.exception() is caught.value
    return caught.value


def with_client_pair(keys: JobKeys, pair: KeyPair) -> JobKeys:
    """Keys whose public ones are a job's, but a worker's own is not."""
    return JobKeys({**keys.pairs, "worker": pair})


# ---------------------------------------------------------------- let in


@pytest.mark.parametrize("role", ["master", "ps", "worker", "client"])
def test_each_role_of_the_job_gets_in(run: Run, role: str) -> None:
    async def main() -> None:
        for server_role in ("master", "ps"):
            with Server(role=server_role) as server:
                async with client_of(server.endpoint, role=role, server=server_role) as client:
                    assert await client.request(Ping(), 10) == Pong(role=server_role, job="")

    run(main())


def test_large_tensors_come_through_whole(run: Run) -> None:
    values = np.arange(3_000_000, dtype=np.float32)

    async def main() -> None:
        answer = VectorPart(total=values.size, slots=(), values=values)
        with Server(answer=lambda body: answer) as server:
            async with client_of(server.endpoint) as client:
                part = await client.request(ReadVector(vector="dense", first=0, count=3), 10)
                assert isinstance(part, VectorPart)
                np.testing.assert_array_equal(part.values, values)

    run(main())


def test_unix_sockets_too(run: Run) -> None:
    async def main() -> None:
        with (
            tempfile.TemporaryDirectory(prefix="edlz-", dir="/tmp") as folder,
            Server(endpoint=f"ipc://{folder}/s") as server,
        ):
            async with client_of(server.endpoint) as client:
                assert isinstance(await client.request(Ping(), 10), Pong)

    run(main())


def test_a_restarted_server_is_found_again(run: Run) -> None:
    async def main() -> None:
        first = Server()
        async with client_of(first.endpoint) as client:
            assert isinstance(await client.request(Ping(), 10), Pong)
            first.rpc.close()
            await until(lambda: not client.is_connected)
            with Server(endpoint=first.endpoint):
                assert isinstance(await client.request(Ping(), 10), Pong)

    run(main())


def test_a_server_that_comes_late_is_found(run: Run, hasty: None) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"

    async def main() -> None:
        for keys in (KEYS, None):
            async with client_of(endpoint, keys) as client:
                answer = asyncio.ensure_future(client.request(Ping(), 10))
                await until(lambda: client._transport._monitor is not None)  # type: ignore[attr-defined]
                with Server(keys, endpoint=endpoint):
                    assert isinstance(await answer, Pong)
                    assert client._transport._monitor is None  # type: ignore[attr-defined]

    run(main())


def test_two_servers_of_different_jobs_in_one_process(run: Run, hasty: None) -> None:
    async def main() -> None:
        with Server() as ours, Server(OTHER_KEYS) as theirs:
            async with client_of(ours.endpoint) as a, client_of(theirs.endpoint, OTHER_KEYS) as b:
                assert isinstance(await a.request(Ping(), 10), Pong)
                assert isinstance(await b.request(Ping(), 10), Pong)
            mixed = JobKeys({**KEYS.pairs, "ps": OTHER_KEYS.pairs["ps"]})  # knows their server, has our key
            async with client_of(theirs.endpoint, mixed) as client:
                assert "does not know the keys" in (await refusal_of(client)).message

    run(main())


# ---------------------------------------------------------------- refused


def test_a_key_that_is_not_of_the_job(run: Run, hasty: None, caplog: pytest.LogCaptureFixture) -> None:
    keys = with_client_pair(KEYS, OTHER_KEYS.pairs["worker"])

    async def main() -> None:
        with Server() as server:
            async with client_of(server.endpoint, keys) as client:
                error = await refusal_of(client)
            assert isinstance(error, ConfigError)
            assert f"{server.endpoint} does not know the keys of this process" in error.message
            assert "--keys_dir" in error.help
            await until(lambda: "connection refused: peer=127.0.0.1" in caplog.text)
            assert caplog.text.count("its key is not one of this job's keys") == 1
            assert server.rpc.traffic.requests == 0

    run(main())


def test_the_keys_of_another_job(run: Run, hasty: None, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with Server() as server:
            async with client_of(server.endpoint, OTHER_KEYS) as client:
                assert "hangs up on this process" in (await refusal_of(client)).message
            await until(lambda: "it expects another server key" in caplog.text)
            assert server.rpc.traffic.requests == 0

    run(main())


def test_a_server_of_another_role(run: Run, hasty: None) -> None:
    async def main() -> None:
        with Server(role="ps") as server:
            async with client_of(server.endpoint, server="master") as client:
                assert "hangs up" in (await refusal_of(client)).message

    run(main())


def test_no_keys_at_all(run: Run, hasty: None, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with Server() as server:
            async with client_of(server.endpoint, None) as client:
                error = await refusal_of(client)
            assert "takes encrypted connections only" in error.message
            assert "--keys_dir" in error.help
            await until(lambda: "it does not encrypt" in caplog.text)
            assert server.rpc.traffic.requests == 0

    run(main())


def test_keys_for_a_server_that_has_none(run: Run, hasty: None) -> None:
    async def main() -> None:
        with Server(None) as server:
            async with client_of(server.endpoint) as client:
                assert "does not encrypt, this process does" in (await refusal_of(client)).message
            assert server.rpc.traffic.requests == 0

    run(main())


def test_a_deadline_that_comes_first_says_it_too(
    run: Run, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes_module, "REFUSED_S", 1000.0)

    async def main() -> None:
        with Server() as server:
            async with client_of(server.endpoint, None) as client:
                with pytest.raises(PeerUnavailable, match="takes encrypted connections only"):
                    await client.request(Ping(), 1.0)
                assert not client.failed.done()

    run(main())


def test_a_client_that_gets_its_keys_late_is_let_in(run: Run, hasty: None) -> None:
    """ZeroMQ itself never tries again after such a refusal."""

    async def main() -> None:
        with Server(OTHER_KEYS, role="master") as wrong:
            endpoint = wrong.endpoint
            mixed = JobKeys({**KEYS.pairs, "master": OTHER_KEYS.pairs["master"]})
            async with client_of(endpoint, mixed, server="master") as client:
                await until(lambda: client._transport.refusal is not None)
                door = wrong.rpc._transport._door  # type: ignore[attr-defined]
                door.roles = {**_raw(OTHER_KEYS), **_raw(KEYS)}
                assert isinstance(await client.request(Ping(), 10), Pong)
                assert client._transport.refusal is None

    run(main())


def _raw(keys: JobKeys) -> dict[bytes, str]:
    return {zmq.utils.z85.decode(pair.public): role for role, pair in keys.pairs.items()}


def test_nobody_is_let_in_without_a_handler(run: Run, hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets_module, "HANDSHAKE_MS", 200)

    async def main() -> None:
        with Server() as server:
            server.rpc._transport._door.close()  # type: ignore[attr-defined]
            async with client_of(server.endpoint) as client:
                assert isinstance(await refusal_of(client), ConfigError)
            assert server.rpc.traffic.requests == 0

    run(main())


# ---------------------------------------------------------------- what strangers send does no harm


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01"
STRANGERS = {
    "nothing": b"",
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100,
    "an old version": b"\x01\x00" * 50,
    "plain ZeroMQ": GREETING + b"NULL".ljust(20, b"\0") + bytes(32),
    "half a greeting": GREETING,
    "a bad hello": GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x04\xc8\x05HELLO" + bytes(194),
    "a huge command": GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x06" + b"\x7f" + b"\xff" * 7,
    "a message too early": GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x00\x05hello",
}


def address_of(endpoint: str) -> tuple[str, int]:
    return "127.0.0.1", int(endpoint.rpartition(":")[2])


@pytest.mark.parametrize("what", STRANGERS)
def test_a_stranger_does_no_harm(run: Run, what: str) -> None:
    async def main() -> None:
        with Server() as server, contextlib.ExitStack() as stack:
            for _ in range(50):
                stranger = stack.enter_context(socket.create_connection(address_of(server.endpoint)))
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(STRANGERS[what])
            async with client_of(server.endpoint) as client:
                assert isinstance(await client.request(Ping(), 10), Pong)
            stack.close()
            peers = server.rpc._transport._gate._refused._peers  # type: ignore[attr-defined]
            await until(lambda: not peers)
            assert server.rpc.traffic.requests == 1
            assert server.rpc.traffic.malformed == 0

    run(main())


def test_silent_connections_do_not_keep_a_worker_out(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(strangers_module, "PATIENCE_S", 0.1)
    monkeypatch.setattr(gate_module, "descriptor_limit", lambda: 512)
    bounds = Bounds.within(512)

    async def main() -> None:
        with Server() as server, contextlib.ExitStack() as stack:
            gate = server.rpc._transport._gate  # type: ignore[attr-defined]
            async with client_of(server.endpoint) as early:
                await early.request(Ping(), 10)
                silent = [
                    stack.enter_context(socket.create_connection(address_of(server.endpoint)))
                    for _ in range(2 * bounds.most)
                ]
                await until(lambda: gate._strangers.cut_off == len(silent) - bounds.patient)
                assert len(gate._strangers) == bounds.patient
                async with client_of(server.endpoint) as late:
                    await late.request(Ping(), 10)
                await early.request(Ping(), 10)
                assert early.traffic.requests == 2  # never lost its connection

    run(main())
    assert "cut off that had not finished a handshake" in caplog.text


def test_a_frame_of_a_stranger_is_not_taken_in_whole(run: Run) -> None:
    async def main() -> None:
        with Server() as server, socket.create_connection(address_of(server.endpoint)) as stranger:
            stranger.setblocking(False)
            greeting = GREETING + b"CURVE".ljust(20, b"\0") + bytes(32)
            claim = b"\x06" + (1 << 19).to_bytes(8, "big") + b"\x05HELLO"  # a long command

            async def drip() -> None:
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(stranger, greeting + claim + bytes(MOST_BYTES))
                while True:  # by itself ZeroMQ would end it after 10 s
                    await loop.sock_sendall(stranger, b"x")
                    await asyncio.sleep(0.001)

            with pytest.raises(OSError):
                await drip()
            assert server.rpc._transport._gate._strangers.cut_off == 1  # type: ignore[attr-defined]

    run(main())


def test_messages_of_an_unknown_peer_go_nowhere(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        caplog.set_level(logging.WARNING)
        context = zmq.Context()
        with context, Server() as server:
            strangers = []
            for _ in range(20):
                stranger = context.socket(zmq.DEALER)
                strangers.append(stranger)
                stranger.setsockopt(zmq.LINGER, 0)
                stranger.setsockopt(zmq.CURVE_SERVERKEY, KEYS.pairs["ps"].public)
                public, secret = zmq.curve_keypair()
                stranger.setsockopt(zmq.CURVE_PUBLICKEY, public)
                stranger.setsockopt(zmq.CURVE_SECRETKEY, secret)
                stranger.connect(server.endpoint)
                for _ in range(10):
                    stranger.send_multipart([b"x" * 1000] * 3)
            async with client_of(server.endpoint) as client:
                assert isinstance(await client.request(Ping(), 10), Pong)
            await until(lambda: caplog.text.count("connection refused") == 1)
            for stranger in strangers:
                stranger.close()
            assert server.rpc.traffic.requests == 1
            assert server.rpc.traffic.malformed == 0

    run(main())


def test_another_loop_cannot_share_the_handler() -> None:
    async def main() -> None:
        async def second() -> None:
            with pytest.raises(EdlzError, match="share an event loop"):
                Server()

        with Server():
            await asyncio.to_thread(asyncio.run, second())

    asyncio.run(main())
    assert zap._Handler._the_one is None
