"""The faults that tests inject into the emulated API server: each does what it says."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.k8s.server.api_server import ApiServer

_PODS = "/api/v1/namespaces/default/pods"
_WAIT_S = 30.0


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


@contextlib.asynccontextmanager
async def session_with(server: ApiServer) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {server.admin_token}"}
    async with asyncio.timeout(_WAIT_S), aiohttp.ClientSession(server.url, headers=headers) as session:
        yield session


async def status(session: aiohttp.ClientSession, path: str = _PODS) -> int:
    async with session.get(path) as response:
        return response.status


async def events(session: aiohttp.ClientSession, query: str = "") -> AsyncIterator[tuple[str, str]]:
    """Yield type and name (or error code) of the events of a watch."""
    async with session.get(f"{_PODS}?watch=1&{query}") as response:
        async for line in response.content:
            event = json.loads(line)
            yield event["type"], event["object"]["metadata"].get("name", str(event["object"].get("code")))


def test_requests_are_refused_as_often_as_asked() -> None:
    async def work() -> None:
        async with ApiServer() as server, session_with(server) as session:
            server.faults.refuse(429, times=2, retry_after_s=3)
            async with session.get(_PODS) as response:
                assert response.headers["Retry-After"] == "3"
                assert (await response.json())["reason"] == "TooManyRequests"
            assert [await status(session) for _ in range(2)] == [429, 200]
            server.faults.refuse(500, matches=lambda method, path: "watch" in path)
            assert [await status(session), await status(session, f"{_PODS}?watch=1")] == [200, 500]
            server.faults.accept()
            server.faults.refuse(503, share=0.5, seed=1)
            statuses = [await status(session) for _ in range(40)]
            assert {200, 503} == set(statuses)
            assert server.faults.refused == 3 + statuses.count(503)

    asyncio.run(work())


def test_a_server_that_is_down_refuses_connections_and_comes_back_with_its_objects() -> None:
    async def work() -> None:
        async with ApiServer() as server, session_with(server) as session:
            server.store.create("pods", pod("a"))
            stream = events(session)
            assert await anext(stream) == ("ADDED", "a")
            server.down()
            with pytest.raises(aiohttp.ClientError):
                await anext(stream)
            with pytest.raises(aiohttp.ClientConnectorError):
                await status(session)
            server.up()
            assert await status(session, f"{_PODS}/a") == 200

    asyncio.run(work())


def test_watches_are_broken_now_and_after_a_time() -> None:
    async def work() -> None:
        async with ApiServer() as server, session_with(server) as session:
            server.store.create("pods", pod("a"))
            stream = events(session)
            assert await anext(stream) == ("ADDED", "a")
            server.faults.drop_watches()
            with pytest.raises(aiohttp.ClientError):
                await anext(stream)
            server.faults.watch_life_s = 0.05
            with pytest.raises(aiohttp.ClientError):
                _ = [event async for event in events(session)]
            assert server.faults.dropped_watches == 2

    asyncio.run(work())


def test_each_reconnection_can_be_told_that_it_is_too_late() -> None:
    async def work() -> None:
        async with ApiServer() as server, session_with(server) as session:
            revision = server.store.revision
            running = events(session, f"resourceVersion={revision}")
            server.store.create("pods", pod("a"))
            assert await anext(running) == ("ADDED", "a")
            server.faults.is_expired = True
            late = [event async for event in events(session, f"resourceVersion={revision}")]
            assert late == [("ERROR", "410")]
            assert await anext(events(session, "resourceVersion=0")) == ("ADDED", "a")
            server.store.create("pods", pod("b"))
            assert await anext(running) == ("ADDED", "b")

    asyncio.run(work())


def test_events_come_twice_and_out_of_order() -> None:
    async def work() -> None:
        async with ApiServer() as server, session_with(server) as session:
            server.faults.doubles_events = True
            server.faults.shuffle_seed = 3
            names = [f"p{number}" for number in range(8)]
            revision = server.store.revision
            for name in names:
                server.store.create("pods", pod(name))
            query = f"resourceVersion={revision}&timeoutSeconds=0.2"
            seen = [name async for _, name in events(session, query)]
            assert sorted(seen) == sorted(names * 2)
            assert seen[::2] == seen[1::2] != names

    asyncio.run(work())


def test_answers_are_slow() -> None:
    async def work() -> None:
        async with ApiServer() as server, session_with(server) as session:
            server.faults.delay_s = 60.0
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await status(session)
            server.faults.delay_s = 0.0
            assert await status(session) == 200

    asyncio.run(work())


def test_bookmarks_come_without_changes() -> None:
    async def work() -> None:
        async with ApiServer() as server, session_with(server) as session:
            server.set_bookmark_interval(0.02)
            revision = server.store.revision
            stream = events(session, f"resourceVersion={revision}&allowWatchBookmarks=true")
            server.store.create("secrets", {"metadata": {"name": "s"}})
            assert [(await anext(stream))[0] for _ in range(2)] == ["BOOKMARK", "BOOKMARK"]

    asyncio.run(work())


def test_who_connects_while_the_server_goes_down_is_cut_too() -> None:
    with ApiServer() as server:
        loop, is_free = server._loop, threading.Event()
        loop.call_soon_threadsafe(is_free.wait, _WAIT_S)  # it accepts nobody meanwhile
        with socket.create_connection(("127.0.0.1", server.port), _WAIT_S) as waiting:
            goes_down = asyncio.run_coroutine_threadsafe(server._stop_listening(), loop)
            is_free.set()
            goes_down.result(_WAIT_S)
            waiting.settimeout(2.0)
            with contextlib.suppress(ConnectionResetError):
                assert waiting.recv(1) == b""
