"""Requests and answers: one server, many clients, each request repeated until it is answered.

A request may arrive any number of times, its answer too: all of them are safe to repeat (PROTOCOL,
section 3), so a server keeps no past answers, drops what it cannot deliver, and never waits for a peer.
A client sends the same bytes under the same id again until it is answered: at once when the server comes
back, else at growing intervals.  A copy that has not left is not joined by another one, of answers neither; and a large
request may have a short form, which does while the connection is the same.  There is no task, future or timer per message.

An error that edlz raises on purpose travels to the peer as ErrorReply; any other one in a handler is a
bug: the endpoint closes and says so through `failed`, since half-dead is worse than dead.

How messages become bytes is `services/transport/codec.py`'s affair, sockets are `services/transport/sockets.py`'s.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Hashable
from typing import Final

import msgspec

from edlz.core_ext._tensors import size_in_bytes
from edlz.services.errors import (
    EdlzError,
    LocalProtocolError,
    PeerUnavailable,
    error_of,
)
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import ErrorReply, Ping, Pong
from edlz.services.transport.codec import Buffer, Codec, MalformedMessage
from edlz.services.transport.limits import Limits
from edlz.services.transport.outbox import Outbox
from edlz.services.transport.request import NEVER, OnAnswer, Request
from edlz.services.transport.security import Security
from edlz.services.transport.sockets import (
    ClientTransport,
    DealerSocket,
    Departure,
    RouterSocket,
    ServerTransport,
)
from edlz.services.transport.traffic import RareLog, Traffic

__all__ = ["ReplyTo", "RpcClient", "RpcServer", "Traffic"]

logger = logging.getLogger(__name__)

RETRY_S, RETRY_MAX_S = 2.0, 10.0  # PROTOCOL, section 5
JITTER: Final = 0.2


class ReplyTo(msgspec.Struct, frozen=True, gc=False):
    """Whom an answer is for."""

    peer: bytes
    request_id: int


class RpcServer:
    """Takes requests at an endpoint, on the running event loop.

    Parameters
    ----------
    endpoint : str
        `tcp://HOST:PORT` (0 or `*`: a free one) or `ipc://PATH`.
    handler : callable (to: ReplyTo, body: Message)
        Called for every valid request but Ping, inline: it must not take longer than about 0.5 ms.  It
        answers by `reply`, now or later.  An EdlzError from it becomes the answer.
    role, job : str
        What Ping is answered with.
    linger_s : float
        How long answers may still go out after `close`; 0.1 at least.
    limits : Limits, optional
    security : Security, optional
        Where it may listen and whom it lets in; by default anybody, on this machine.

    Attributes
    ----------
    endpoint : str
        Where it listens, with the port that was chosen.
    handler : callable
        May be replaced.
    failed : Future
        Gets the exception when the handler has raised anything but an EdlzError; the server is closed then.
    traffic : Traffic

    Raises
    ------
    ConfigError, LaunchError
        See sockets.RouterSocket.
    """

    def __init__(
        self,
        endpoint: str,
        handler: Callable[[ReplyTo, Message], None],
        *,
        role: str,
        job: str = "",
        linger_s: float = 1.0,
        limits: Limits | None = None,
        security: Security | None = None,
    ) -> None:
        limits = limits or Limits()
        self._codec = Codec("requests", limits)
        self.handler = handler
        self._pong = Pong(role=role, job=job)
        self._log = RareLog(logger)
        self.traffic = Traffic()
        self._leaving: dict[ReplyTo, Departure] = {}  # large answers
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: ServerTransport = RouterSocket(
            endpoint, self._on_message, limits, linger_s=linger_s, security=security or Security()
        )
        self.endpoint = self._transport.endpoint

    def reply(self, to: Hashable, body: Message) -> None:
        """Answer a request; an answer to a peer that is gone, or stuck, is dropped.

        Parameters
        ----------
        to : ReplyTo
            As the handler got it.  (Cores hold it as just something hashable.)

        Raises
        ------
        LocalProtocolError
            If the answer cannot be encoded, or `to` is not a ReplyTo.
        """
        if not isinstance(to, ReplyTo):
            raise LocalProtocolError(f"an answer addressed to {to!r}; a ReplyTo is due")
        if self._is_leaving(to):
            return
        frames = self._codec.encode(body, to.request_id)
        traffic = self.traffic
        departure = self._transport.send(to.peer, frames)
        if departure is None:
            traffic.dropped += 1
            self._log.warning(
                "answer %s dropped, its peer is gone or stuck: peer=%r", type(body).__name__, to.peer
            )
            return
        traffic.answers += 1
        traffic.bytes_out += size_in_bytes(frames)
        if not departure.done:
            self._leaving[to] = departure

    def _is_leaving(self, to: ReplyTo) -> bool:
        """Whether a large answer to the same request, which has come again, still lies in this process."""
        if self._leaving:
            self._leaving = {each: left for each, left in self._leaving.items() if not left.done}
        return to in self._leaving

    def close(self) -> None:
        """Stop receiving and free the address; answers already given still go out."""
        self._transport.close()

    def _on_message(self, peer: bytes, frames: list[Buffer]) -> None:
        traffic, size = self.traffic, size_in_bytes(frames)
        traffic.newest_in = size
        traffic.bytes_in += size
        try:
            request_id, body = self._codec.decode(frames)
        except MalformedMessage as error:
            self._on_malformed(peer, error)
            return
        traffic.requests += 1
        to = ReplyTo(peer, request_id)
        try:
            if type(body) is Ping:
                self.reply(to, self._pong)
            else:
                self.handler(to, body)
        except EdlzError as error:
            self._log.warning("request %s refused: peer=%r error=%s", type(body).__name__, peer, error)
            self._reply_error(to, error)
        except Exception as error:
            logger.critical(
                "the handler of %s raised; this server closes", type(body).__name__, exc_info=error
            )
            self.close()
            if not self.failed.done():
                self.failed.set_exception(error)

    def _on_malformed(self, peer: bytes, error: MalformedMessage) -> None:
        self.traffic.malformed += 1
        self._log.warning("malformed message: peer=%r error=%s", peer, error)
        if error.request_id is not None:
            self._reply_error(ReplyTo(peer, error.request_id), error)

    def _reply_error(self, to: ReplyTo, error: EdlzError) -> None:
        self.reply(to, ErrorReply(code=error.code, message=error.message, help=error.help))


class RpcClient:
    """Sends requests to one server, on the running event loop; the server need not be there yet.

    Parameters
    ----------
    endpoint : str
        Of the server.
    role, identity : str
        Who asks: `worker` and its id.  A random boot number is added.
    credits : int
        Requests that may be under way at once, beside those that the server may hold (`Outbox`); further ones
        wait their turn.
    max_waiting : int
        How many may wait for a credit; more raise PeerUnavailable.
    retry_s, retry_max_s : float
        First and longest interval after which an unanswered request is sent again; doubled each time.
    linger_s : float
        How long requests may still go out after `close`; 0.1 at least.
    limits : Limits, optional
    security : Security, optional
        Where it may connect to, and with which keys; by default on this machine, with none.
    server : str
        The server's role in the job, by which its key is known: `master` or `ps`.

    Attributes
    ----------
    failed : Future
        Gets the exception when an `on_answer` has raised one, or when the server keeps refusing this client's
        keys; the client is closed then.
    traffic : Traffic

    Raises
    ------
    ConfigError
        If it is not an endpoint, or lies beyond this machine and there are no keys.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        role: str,
        identity: str,
        credits: int = 32,  # noqa: A002
        max_waiting: int = 1024,
        retry_s: float = RETRY_S,
        retry_max_s: float = RETRY_MAX_S,
        linger_s: float = 1.0,
        limits: Limits | None = None,
        security: Security | None = None,
        server: str = "master",
    ) -> None:
        limits = limits or Limits()
        self.endpoint = endpoint
        self.traffic = Traffic()
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._codec = Codec("answers", limits)
        self._max_waiting = max_waiting
        self._retry_s, self._retry_max_s = retry_s, retry_max_s
        self._random = random.Random()
        self._last_id = 0
        self._outbox: Outbox[Request] = Outbox(credits)
        self._awaited: set[asyncio.Future[Message]] = set()
        self._timer: asyncio.Handle | None = None  # of uvloop, no TimerHandle if it is due at once
        self._timer_s = NEVER  # when it rings
        self._is_closed = False
        self._log = RareLog(logger)
        name = f"{role}/{identity}/{secrets.token_hex(6)}".encode()
        heard = (self._on_message, self._on_connected, self._on_refused)
        keys = security or Security()
        self._transport: ClientTransport = DealerSocket(
            endpoint, name, *heard, limits, linger_s=linger_s, security=keys, server=server
        )

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now; requests made without one go out as soon as there is."""
        return self._transport.is_connected

    def send(
        self,
        body: Message,
        on_answer: OnAnswer,
        *,
        deadline_s: float | None = None,
        again: Message | None = None,
    ) -> int:
        """Send a request, repeatedly, until it is answered, cancelled or past its deadline.

        Its arrays must not be written before the answer has come and nobody holds them any more.

        Parameters
        ----------
        on_answer : callable (Message or EdlzError)
            Called once, on the loop, with the answer, the server's error, or PeerUnavailable past the
            deadline; never after `cancel` or `close`.
        deadline_s : float, optional
            From now; without one it is repeated for ever.
        again : Message, optional
            What it is repeated with as long as the connection is the one by which it has left.

        Returns
        -------
        int, the request id
            For `cancel`.

        Raises
        ------
        PeerUnavailable
            If too many requests wait already; nothing has been sent.
        LocalProtocolError
            If the message cannot be encoded, or the client is closed.
        """
        if self._is_closed:
            raise LocalProtocolError(f"{type(body).__name__} sent by a closed client of {self.endpoint}")
        if self._outbox.waiting >= self._max_waiting:
            waiting = f"{self._outbox.waiting} requests wait for {self.endpoint} already"
            raise PeerUnavailable(waiting, "see whether it still runs")
        self._last_id = request_id = self._last_id + 1
        now = self._loop.time()
        deadline = NEVER if deadline_s is None else now + deadline_s
        frames = self._codec.encode(body, request_id)
        short = None if again is None else self._codec.encode(again, request_id)
        request = Request(type(body).__name__, frames, on_answer, now, deadline, self._retry_s, short)
        self._outbox.add(request_id, request, body)
        self._send_waiting()
        self._wake_at(min(deadline, request.due_at))
        return request_id

    def cancel(self, request_id: int) -> None:
        """Forget a request, if it is not answered yet."""
        if self._outbox.pop(request_id) is not None:
            self._send_waiting()

    async def request(self, body: Message, deadline_s: float) -> Message:
        """Send a request and wait for its answer.

        Raises
        ------
        PeerUnavailable
            If it is not answered within `deadline_s` seconds, or the client is closed meanwhile.
        EdlzError
            The one that the server answered with.
        LocalProtocolError
            See `send`.
        """
        answer: asyncio.Future[Message] = self._loop.create_future()

        def on_answer(outcome: Message | EdlzError) -> None:
            if answer.done():
                return
            if isinstance(outcome, EdlzError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        request_id = self.send(body, on_answer, deadline_s=deadline_s)
        self._awaited.add(answer)
        try:
            return await answer
        finally:
            self._awaited.discard(answer)
            self.cancel(request_id)

    def close(self) -> None:
        """Forget all requests and close; who awaits a `request` gets PeerUnavailable."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer:
            self._timer.cancel()
        self._outbox.clear()
        self._transport.close()
        self._fail_awaited(PeerUnavailable(f"the connection to {self.endpoint} was closed"))

    def _fail_awaited(self, error: EdlzError) -> None:
        for answer in self._awaited:
            if not answer.done():
                answer.set_exception(error)

    # ------------------------------------------------------------ sending

    def _send_waiting(self) -> None:
        """Send what waits, as far as credits and the connection allow."""
        while self._transport.is_connected and (found := self._outbox.next()) is not None:
            request_id, request = found
            if not self._dispatch(request, request.frames):
                return
            self._outbox.leave(request_id)

    def _dispatch(self, request: Request, frames: list[Buffer]) -> bool:
        """Send a request by these frames; False if there is no connection."""
        departure = self._transport.send(frames)
        if departure is None:
            return False
        request.departure = departure
        request.due_at = self._loop.time() + request.retry_s * self._random.uniform(1 - JITTER, 1 + JITTER)
        self.traffic.requests += 1
        self.traffic.bytes_out += size_in_bytes(frames)
        return True

    def _on_connected(self) -> None:
        """Send what may have been lost with the connection before, then what waits."""
        for request in list(self._outbox.under_way.values()):
            if not self._dispatch(request, request.frames):
                return
        self._send_waiting()
        self._wake_at(min((r.due_at for r in self._outbox.under_way.values()), default=NEVER))

    def _on_refused(self, error: EdlzError) -> None:
        """Give up: the server will not take this process' keys, however often it is asked."""
        logger.debug("given up: %s", error.message)  # whoever ends by it says why; its first time was logged
        self._fail_awaited(error)
        self.close()
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # a warning has told it, should nobody ask for it

    def _repeat(self, request: Request, now: float) -> None:
        request.retry_s = min(2 * request.retry_s, self._retry_max_s)
        # A copy that still lies in this process need not be joined by another one.
        has_left = request.departure is None or request.departure.done
        if not (has_left and self._dispatch(request, request.again or request.frames)):
            request.due_at = now + request.retry_s

    # ------------------------------------------------------------ time

    def _wake_at(self, due_at: float) -> None:
        """See to it that the one timer rings at `due_at`, or earlier."""
        if due_at == NEVER or self._is_closed:
            return
        if self._timer is not None:
            if self._timer_s <= due_at:
                return
            self._timer.cancel()
        self._timer_s = due_at
        self._timer = self._loop.call_at(due_at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._loop.time()
        for request_id, request in self._outbox.pending():
            if self._outbox.get(request_id) is None:  # cancelled by what the loop called before
                continue
            if request.deadline <= now:
                self._outbox.pop(request_id)
                self._finish(request, self._unanswered(request))
            elif request.due_at <= now:
                self._repeat(request, now)
        if self._is_closed:
            return
        self._send_waiting()
        self._wake_at(min((min(r.deadline, r.due_at) for _, r in self._outbox.pending()), default=NEVER))

    def _unanswered(self, request: Request) -> PeerUnavailable:
        was_sent = request.departure is not None
        refusal = self._transport.refusal
        if refusal is not None:
            return PeerUnavailable(refusal.message, refusal.help)
        what = "took {} but did not answer" if was_sent else "could not be reached for {}"
        return PeerUnavailable(
            f"{self.endpoint} {what.format(request.kind)} within {request.deadline - request.asked_at:.1f} s",
            "see whether its process still runs, and its log",
        )

    # ------------------------------------------------------------ receiving

    def _on_message(self, frames: list[Buffer]) -> None:
        self.traffic.bytes_in += size_in_bytes(frames)
        outcome: Message | EdlzError
        try:
            request_id, outcome = self._codec.decode(frames)
        except MalformedMessage as error:
            self.traffic.malformed += 1
            self._log.warning("malformed answer from %s: %s", self.endpoint, error)
            if error.request_id is None:
                return
            request_id, outcome = error.request_id, error
        request = self._outbox.pop(request_id) if request_id in self._outbox.under_way else None
        if request is None:  # answered before, or cancelled
            self.traffic.dropped += 1
            return
        self.traffic.answers += 1
        if isinstance(outcome, ErrorReply):
            outcome = error_of(outcome.code, outcome.message, outcome.help)
        self._finish(request, outcome)
        if not self._is_closed:
            self._send_waiting()

    def _finish(self, request: Request, outcome: Message | EdlzError) -> None:
        try:
            request.on_answer(outcome)
        except Exception as error:
            logger.critical(
                "what an answer to %s called raised; this client closes", request.kind, exc_info=error
            )
            self.close()
            if not self.failed.done():
                self.failed.set_exception(error)
