"""What an empty request costs a server in CPU, beside grpc-python's and a bare pyzmq loop's.

`python -m benchmarks.rpc` prints the table.  Three server processes are asked in turn by this process, with 1
and with 32 requests in flight: edlz's, grpc's (synchronous, raw bytes), and the limit of what Python can do
with ZeroMQ, a loop that blocks in its one socket and knows nothing but the codec.  Counted is the CPU time of
all threads of the server, from the kernel's scheduler (Linux only): on a busy machine it is what stays.
Figures are medians over the rounds.

With 1 in flight both of a ZeroMQ server's threads fall asleep twice a request, and most of the time goes into
waking them; with more in flight they stay awake.

A fourth server has the keys of a job: what encryption costs, for an empty request and for a large tensor.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
import numpy as np
import uvloop
import zmq

from benchmarks.processes import cpu_s
from benchmarks.rows import Row, format_rows
from edlz.services.errors import EdlzError
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Ping, Pong, ReadVector, VectorPart
from edlz.services.transport.codec import Codec
from edlz.services.transport.keys import load_keys, make_job_keys, write_keys
from edlz.services.transport.rpc import ReplyTo, RpcClient, RpcServer
from edlz.services.transport.security import Security

__all__ = ["measure"]

WINDOWS: Final = (1, 32)
ROUNDS: Final = 7
REQUESTS: Final = 1500  # a round and a window
LEAST_RATIO: Final = 8.0
LEAST_RATIO_ALONE: Final = 4.0
MOST_OF_BARE: Final = 1.5
GRPC_METHOD: Final = "/benchmark/Echo"
KEYS_VARIABLE: Final = "EDLZ_KEYS_DIR"
PULL_MB: Final = 4
PULLS: Final = 40  # a round
MOST_OF_PLAIN: Final = 1.5  # encrypted, an empty request
MOST_OF_PLAIN_PULL: Final = 8.0  # and a large tensor, of which plain means little but copying to the kernel


def measure() -> list[Row]:
    """Return two rows for each number of requests in flight, and what encryption costs; takes about 40 s."""
    return _measure_empty() + _measure_encrypted()


def _measure_empty() -> list[Row]:
    costs: dict[tuple[str, int], list[float]] = {}
    with _server("edlz") as ours, _server("bare") as bare, _server("grpc") as theirs:
        sides: tuple[tuple[str, _Server, Callable[[str, int, int], None]], ...] = (
            ("edlz", ours, _ask_edlz),
            ("bare", bare, _ask_edlz),
            ("grpc", theirs, _ask_grpc),
        )
        for turn in range(ROUNDS + 1):
            for window in WINDOWS:
                for name, server, ask in sides:
                    before_s = server.cpu_s
                    ask(server.address, window, REQUESTS)
                    cost_us = (server.cpu_s - before_s) / REQUESTS * 1e6
                    if turn:  # the first one warms up
                        costs.setdefault((name, window), []).append(cost_us)
    rows = []
    for window in WINDOWS:
        ours_us, bare_us, grpc_us = (
            statistics.median(costs[name, window]) for name in ("edlz", "bare", "grpc")
        )
        label = f"empty RPC, {window} in flight, server CPU"
        ours_text, grpc_text = f"{ours_us:.1f} us", f"grpc-python {grpc_us:.0f} us"
        # One request at a time costs ZeroMQ's own thread some 30 us of wake-ups, whatever we do.
        least = LEAST_RATIO if window > 1 else LEAST_RATIO_ALONE
        rows += [
            Row(f"{label}, grpc / edlz", ours_text, grpc_text, grpc_us / ours_us, least, True),
            Row(
                f"{label}, edlz / bare loop",
                ours_text,
                f"pyzmq alone {bare_us:.1f} us",
                ours_us / bare_us,
                MOST_OF_BARE,
                False,
            ),
        ]
    return rows


def _measure_encrypted() -> list[Row]:
    """Compare two servers that differ in keys alone."""
    pull = ReadVector(vector="dense", first=0, count=PULL_MB << 18)
    kinds: tuple[tuple[str, Message, int, int], ...] = (
        ("empty RPC, 1 in flight", Ping(), 1, REQUESTS),
        ("empty RPC, 32 in flight", Ping(), 32, REQUESTS),
        (f"pull of {PULL_MB} MB", pull, 4, PULLS),
    )
    costs: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        write_keys(keys, make_job_keys())
        security = Security(load_keys(keys, "worker"))
        with _server("edlz") as plain, _server("edlz", **{KEYS_VARIABLE: str(keys)}) as encrypted:
            for turn in range(ROUNDS + 1):
                for label, body, window, count in kinds:
                    for name, server in (("plain", plain), ("encrypted", encrypted)):
                        before_s = server.cpu_s
                        used = security if name == "encrypted" else None
                        _ask_edlz(server.address, window, count, body, used)
                        if turn:
                            cost_us = (server.cpu_s - before_s) / count * 1e6
                            costs.setdefault((name, label), []).append(cost_us)
    rows = []
    for label, body, _, _ in kinds:
        plain_us, encrypted_us = (statistics.median(costs[name, label]) for name in ("plain", "encrypted"))
        most = MOST_OF_PLAIN_PULL if body is pull else MOST_OF_PLAIN
        rows.append(
            Row(
                f"{label}, server CPU, encrypted / plain",
                f"{encrypted_us:.1f} us",
                f"plain {plain_us:.1f} us",
                encrypted_us / plain_us,
                most,
                False,
            )
        )
    return rows


class _Server:
    """A server process of this module, and where it listens."""

    def __init__(self, kind: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.rpc", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError(f"the {kind} server did not start: exit code {self.process.wait()}")

    @property
    def cpu_s(self) -> float:
        return cpu_s(self.process.pid)


@contextmanager
def _server(kind: str, **environment: str) -> Iterator[_Server]:
    server = _Server(kind, **environment)
    try:
        yield server
    finally:
        server.process.communicate()  # the end of its input ends it


def _ask_edlz(
    address: str, window: int, count: int, body: Message | None = None, security: Security | None = None
) -> None:
    asked = body or Ping()

    async def ask() -> None:
        client = RpcClient(address, role="benchmark", identity="0", credits=window, security=security)
        is_done = asyncio.Event()
        open_requests = count

        def on_answer(answer: Message | EdlzError) -> None:
            nonlocal open_requests
            open_requests -= 1
            if open_requests >= window:
                client.send(asked, on_answer)
            elif open_requests == 0:
                is_done.set()

        for _ in range(window):
            client.send(asked, on_answer)
        try:
            async with asyncio.timeout(60):
                await is_done.wait()
        finally:
            client.close()

    uvloop.run(ask())


def _ask_grpc(address: str, window: int, count: int) -> None:
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(GRPC_METHOD)
        in_flight = deque(call.future(b"") for _ in range(window))
        for _ in range(count - window):
            in_flight.popleft().result(60)
            in_flight.append(call.future(b""))
        for answer in in_flight:
            answer.result(60)


async def _serve_edlz() -> None:
    values = np.zeros(PULL_MB << 18, np.float32)
    part = VectorPart(total=values.size, slots=(), values=values)

    def handler(to: ReplyTo, body: Message) -> None:
        server.reply(to, part)

    keys = os.environ.get(KEYS_VARIABLE)
    security = Security(load_keys(Path(keys), "master")) if keys else None
    server = RpcServer("tcp://127.0.0.1:0", handler, role="benchmark", linger_s=0, security=security)
    print(server.endpoint, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


def _serve_bare() -> None:
    codec = Codec("requests")
    server = zmq.Context().socket(zmq.ROUTER)
    port = server.bind_to_random_port("tcp://127.0.0.1")
    print(f"tcp://127.0.0.1:{port}", flush=True)
    threading.Thread(target=lambda: os._exit(len(sys.stdin.read())), daemon=True).start()
    while True:
        peer, *frames = server.recv_multipart()
        request_id, _ = codec.decode(frames)
        server.send_multipart([peer, *codec.encode(Pong(role="benchmark", job=""), request_id)])


def _serve_grpc() -> None:
    echo = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    service, _, method = GRPC_METHOD.strip("/").partition("/")
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: echo}),))
    print(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    server.start()
    sys.stdin.read()
    server.stop(0)


if __name__ == "__main__":
    if sys.argv[1:] == ["edlz"]:
        uvloop.run(_serve_edlz())
    elif sys.argv[1:] == ["bare"]:
        _serve_bare()
    elif sys.argv[1:] == ["grpc"]:
        _serve_grpc()
    else:
        print(format_rows(measure()))
