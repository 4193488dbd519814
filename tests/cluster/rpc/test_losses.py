"""What is lost, late, doubled or cancelled does no harm."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from edlz.services.errors import (
    EdlzError,
    PeerUnavailable,
)
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    NewestPull,
    Ping,
    Pong,
    VectorPart,
)
from edlz.services.transport.codec import Codec
from edlz.services.transport.rpc import ReplyTo, RpcClient
from tests.loops import Run
from tests.rpc_peers import REQUEST, Server, outcome_of, pair, part, push_of, raw_peer, received, until


def test_a_request_waits_for_a_server_that_is_not_there_yet(run: Run, address: str) -> None:
    async def main() -> None:
        client = RpcClient(address, role="worker", identity="0", retry_s=60)
        asking = asyncio.ensure_future(client.request(Ping(), 5))
        await asyncio.sleep(0.02)
        assert not client.is_connected
        server = Server(address)
        assert isinstance(await asking, Pong)
        assert client.traffic.requests == 1
        client.close()
        server.rpc.close()

    run(main())


def test_a_request_under_way_outlives_its_server(run: Run, address: str) -> None:
    """The retry interval is out of reach: it is the new connection that sends it again."""

    async def main() -> None:
        first = Server(address)
        client = RpcClient(address, role="worker", identity="0", retry_s=60)
        asking = [asyncio.ensure_future(client.request(REQUEST, 9)) for _ in range(3)]
        await until(lambda: len(first.requests) == 3)
        first.rpc.close()
        await until(lambda: not client.is_connected)
        late = asyncio.ensure_future(client.request(Ping(), 9))
        second = Server(address, lambda body: part(np.ones(1, np.float32)))
        assert all(isinstance(answer, VectorPart) for answer in await asyncio.gather(*asking))
        assert isinstance(await late, Pong)
        assert [to.request_id for to, _ in second.requests] == [to.request_id for to, _ in first.requests]
        client.close()
        second.rpc.close()

    run(main())


def test_a_server_that_is_away_finds_no_heap_of_repetitions(run: Run, address: str) -> None:
    async def main() -> None:
        first = Server(address)
        client = RpcClient(address, role="worker", identity="0", retry_s=0.01, retry_max_s=0.01)
        await until(lambda: client.is_connected)
        first.rpc.close()
        await until(lambda: not client.is_connected)
        sent = client.traffic.requests
        asking = asyncio.ensure_future(client.request(REQUEST, 9))
        await asyncio.sleep(0.2)
        assert client.traffic.requests == sent
        second = Server(address, lambda body: part(np.ones(1, np.float32)))
        await asking
        assert len(second.requests) <= client.traffic.requests - sent  # all of them came since it is there
        client.close()
        second.rpc.close()

    run(main())


def test_an_address_is_free_when_its_server_is_closed(run: Run, address: str) -> None:
    async def main() -> None:
        for _ in range(30):
            server = Server(address)
            assert server.rpc.endpoint == address
            server.rpc.close()

    run(main())


def test_an_answer_that_arrived_before_a_request_is_sent_is_seen(run: Run) -> None:
    """Sending reads ZeroMQ's commands, after which the descriptor says nothing of the answer any more."""

    async def main() -> None:
        async with pair(retry_s=60) as (server, client):
            answers: list[Message | EdlzError] = []
            client.send(REQUEST, answers.append)
            await until(lambda: server.requests)
            server.rpc.reply(server.requests[0][0], part(np.ones(1, np.float32)))
            time.sleep(0.05)  # noqa: ASYNC251  it arrives, and the loop does not look
            client.send(REQUEST, lambda answer: None)
            await until(lambda: answers)

    run(main())


def test_a_request_that_arrived_before_an_answer_is_sent_is_seen(run: Run) -> None:
    async def main() -> None:
        server = Server()
        with raw_peer(server.rpc.endpoint) as peer:
            peer.send_multipart(Codec("answers").encode(REQUEST, 1))
            await until(lambda: server.requests)
            peer.send_multipart(Codec("answers").encode(REQUEST, 2))
            time.sleep(0.05)  # noqa: ASYNC251
            server.rpc.reply(server.requests[0][0], Pong(role="", job=""))
            await until(lambda: len(server.requests) == 2)
        server.rpc.close()

    run(main())


def test_an_unanswered_request_is_repeated_and_answered_once(run: Run) -> None:
    async def main() -> None:
        async with pair(retry_s=0.02, retry_max_s=0.05) as (server, client):
            answers: list[Message | EdlzError] = []
            request_id = client.send(REQUEST, answers.append)
            await until(lambda: len(server.requests) >= 4)
            assert {to.request_id for to, _ in server.requests} == {request_id}
            assert {body for _, body in server.requests} == {REQUEST}
            copies = list(server.requests)
            for to, _ in copies:
                server.rpc.reply(to, part(np.ones(2, np.float32)))
            await until(lambda: client.traffic.dropped >= len(copies) - 1)
            assert len(answers) == 1
            count = len(server.requests)
            await asyncio.sleep(0.12)
            assert len(server.requests) <= count + 1  # one may have been on its way

    run(main())


def test_a_request_with_a_short_form_is_repeated_by_it_until_the_connection_is_another_one(
    run: Run, address: str
) -> None:
    async def main() -> None:
        first = Server(address)
        client = RpcClient(address, role="worker", identity="0", retry_s=0.02, retry_max_s=0.05)
        answers: list[Message | EdlzError] = []
        long = push_of(np.ones(1000, np.float32))
        request_id = client.send(long, answers.append, again=REQUEST)
        await until(lambda: len(first.requests) >= 3)
        assert {to.request_id for to, _ in first.requests} == {request_id}
        assert [body == REQUEST for _, body in first.requests[:3]] == [False, True, True]
        first.rpc.close()
        await until(lambda: not client.is_connected)
        second = Server(address)
        await until(lambda: len(second.requests) >= 2)
        assert [body == REQUEST for _, body in second.requests[:2]] == [False, True]
        second.rpc.reply(second.requests[0][0], part(np.ones(2, np.float32)))
        await until(lambda: answers)
        client.close()
        second.rpc.close()

    run(main())


def test_intervals_grow_up_to_a_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    intervals: list[tuple[float, float]] = []  # at most, at least

    async def main() -> None:
        async with pair(retry_s=0.01, retry_max_s=0.03) as (_, client):
            clock, dispatch = asyncio.get_running_loop().time, client._dispatch

            def noting_dispatch(request: Any, frames: Any) -> bool:
                before = clock()
                is_sent = dispatch(request, frames)
                intervals.append((request.due_at - before, request.due_at - clock()))
                return is_sent

            monkeypatch.setattr(client, "_dispatch", noting_dispatch)
            client.send(REQUEST, lambda answer: None)
            await until(lambda: len(intervals) >= 7)

    run(main())
    due = [0.01, 0.02, *[0.03] * 5]
    assert all(at_most >= 0.8 * interval for (at_most, _), interval in zip(intervals, due, strict=False))
    assert all(at_least <= 1.2 * interval for (_, at_least), interval in zip(intervals, due, strict=False))
    assert len(set(intervals)) > 2  # with jitter


def test_a_deadline_names_endpoint_and_seconds(run: Run, address: str) -> None:
    async def main() -> None:
        client = RpcClient(address, role="worker", identity="0")
        got = await outcome_of(client.request(REQUEST, 0.1))
        assert isinstance(got, PeerUnavailable)
        assert got.message == f"{address} could not be reached for ReadVector within 0.1 s"
        server = Server(address)
        await until(lambda: client.is_connected)
        client.send(
            NewestPull(), lambda answer: None, deadline_s=60
        )  # a later one, by which the timer is set
        got = await outcome_of(client.request(REQUEST, 0.2))
        assert isinstance(got, PeerUnavailable)
        assert got.message == f"{address} took ReadVector but did not answer within 0.2 s"
        assert len(server.requests) == 2
        client.close()
        server.rpc.close()

    run(main())


def test_a_cancelled_request_gets_no_answer_and_frees_its_place(run: Run) -> None:
    async def main() -> None:
        async with pair(credits=1, retry_s=60) as (server, client):
            answers: list[Message | EdlzError] = []
            first = client.send(REQUEST, answers.append)
            waiting = client.send(REQUEST, answers.append)
            third = client.send(NewestPull(), answers.append)
            await until(lambda: server.requests)
            client.cancel(waiting)
            client.cancel(first)
            client.cancel(first)
            await until(lambda: len(server.requests) == 2)
            assert [to.request_id for to, _ in server.requests] == [first, third]
            for to, _ in server.requests:
                server.rpc.reply(to, part(np.ones(1, np.float32)))
            await until(lambda: answers)
            assert len(answers) == 1
            assert client.traffic.dropped == 1

    run(main())


def test_a_deadline_that_is_over_already(run: Run) -> None:
    """uvloop's `call_at` returns no TimerHandle for a time that has passed, as after a long stall."""

    async def main() -> None:
        async with pair() as (_, client):
            answers: list[object] = []
            for _ in range(3):
                client.send(REQUEST, answers.append, deadline_s=-1.0)
            await until(lambda: len(answers) == 3)
            assert all(isinstance(answer, PeerUnavailable) for answer in answers)

    run(main())


def test_a_request_past_its_deadline_frees_its_place(run: Run) -> None:
    async def main() -> None:
        async with pair(credits=1, retry_s=60) as (server, client):
            answers: list[Message | EdlzError] = []
            client.send(REQUEST, answers.append, deadline_s=0.05)
            client.send(NewestPull(), answers.append)
            await until(lambda: len(server.requests) == 2)
            assert [type(answer) for answer in answers] == [PeerUnavailable]

    run(main())


def test_an_answer_may_cancel_what_is_due_at_the_same_time(run: Run) -> None:
    async def main() -> None:
        async with pair() as (_, client):
            answers: list[Message | EdlzError] = []
            others: list[int] = []

            def on_answer(answer: Message | EdlzError) -> None:
                answers.append(answer)
                client.cancel(others[0])

            client.send(REQUEST, on_answer, deadline_s=0.05)
            others.append(client.send(REQUEST, answers.append, deadline_s=0.05))
            time.sleep(0.1)  # noqa: ASYNC251  both are due when the timer rings
            await until(lambda: answers)
            await asyncio.sleep(0.02)
            assert len(answers) == 1
            assert not client.failed.done()

    run(main())


def test_who_stops_waiting_cancels(run: Run) -> None:
    async def main() -> None:
        async with pair(retry_s=0.02) as (server, client):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.request(REQUEST, 60)
            count = len(server.requests)
            assert count > 0
            await asyncio.sleep(0.1)
            assert len(server.requests) <= count + 1

    run(main())


def test_credits_bound_what_is_under_way_and_what_waits_is_bounded_too(run: Run) -> None:
    async def main() -> None:
        async with pair(credits=2, max_waiting=3) as (server, client):
            answers: list[Message | EdlzError] = []
            sent = [client.send(REQUEST, answers.append) for _ in range(5)]
            with pytest.raises(PeerUnavailable, match="3 requests wait"):
                client.send(REQUEST, answers.append)
            await client_has_no_more(server, 2)
            for count in range(5):
                server.rpc.reply(server.requests[count][0], part(np.ones(1, np.float32)))
                await client_has_no_more(server, min(count + 3, 5))
            await until(lambda: len(answers) == 5)
            assert [to.request_id for to, _ in server.requests] == sent

    async def client_has_no_more(server: Server, count: int) -> None:
        await until(lambda: len(server.requests) == count)
        await asyncio.sleep(0.01)
        assert len(server.requests) == count

    run(main())


def test_what_the_server_holds_takes_no_credit(run: Run) -> None:
    """More requests than credits, none of which is answered before all of them, and others, have come."""
    count = 40

    async def main() -> None:
        async with pair(credits=1, max_waiting=1) as (server, client):
            answers: list[Message | EdlzError] = []
            held = push_of(np.zeros(1, np.float32))
            for _ in range(count):
                client.send(held, answers.append)
            client.send(REQUEST, answers.append)
            await until(lambda: len(server.requests) == count + 1)
            for to, _ in server.requests:
                server.rpc.reply(to, part(np.ones(1, np.float32)))
            await until(lambda: len(answers) == count + 1)

    run(main())


def test_closing_a_client_ends_all_waiting(run: Run) -> None:
    async def main() -> None:
        async with pair() as (server, client):
            answers: list[Message | EdlzError] = []
            client.send(REQUEST, answers.append, deadline_s=0.02)
            asking = asyncio.ensure_future(client.request(REQUEST, 60))
            await until(lambda: len(server.requests) == 2)
            client.close()
            client.close()
            assert isinstance(await outcome_of(asking), PeerUnavailable)
            for to, _ in server.requests:
                server.rpc.reply(to, part(np.ones(1, np.float32)))
            await asyncio.sleep(0.05)
            assert answers == []

    run(main())


def test_an_answer_to_a_peer_that_is_gone_is_dropped(run: Run) -> None:
    async def main() -> None:
        async with pair() as (server, client):
            with raw_peer(server.rpc.endpoint) as peer:
                peer.send_multipart(Codec("answers").encode(REQUEST, 1))
                await until(lambda: server.requests)
            to = server.requests[0][0]
            await until(lambda: _drops(server, to))
            assert isinstance(await client.request(Ping(), 5), Pong)

    def _drops(server: Server, to: ReplyTo) -> bool:
        before = server.rpc.traffic.dropped
        server.rpc.reply(to, Pong(role="", job=""))
        return server.rpc.traffic.dropped > before

    run(main())


def test_a_peer_that_comes_back_while_the_server_is_busy_is_heard(run: Run) -> None:
    """Without ROUTER_HANDOVER its second connection is ignored for ever."""

    async def main() -> None:
        server = Server()
        for number in (1, 2):
            with raw_peer(server.rpc.endpoint, b"worker/0/boot") as peer:
                peer.send_multipart(Codec("answers").encode(Ping(), number))
                if number == 2:
                    time.sleep(0.1)  # noqa: ASYNC251  the server is busy, its socket not looked at
                assert (await received(peer))[0] == number
            time.sleep(0.1)  # noqa: ASYNC251
        server.rpc.close()

    run(main())
