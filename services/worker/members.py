"""A worker's lines to the other members of its all-reduce group: the door at which they ask, and those it asks at theirs."""

from collections.abc import Callable, Hashable
from typing import Final

from edlz.services.errors import EdlzError, RemoteProtocolError
from edlz.services.process.runtime import keep_freed_memory, when_failed
from edlz.services.process.shell import Fail
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import FetchState, Identity, Member, ReadTables, ReadVector, Reduce
from edlz.services.transport.limits import Limits
from edlz.services.transport.rpc import RpcClient, RpcServer
from edlz.services.transport.security import Security
from edlz.services.worker.core.groups.inputs import Answered, Request
from edlz.services.worker.core.groups.instructions import AskMember, Reply
from edlz.services.worker.core.groups.transfer import PIECE_BYTES

__all__ = ["MemberLines"]

# A bucket is one frame, and so is a vector of a piece of a state: they are used where they were received, without being
# joined from several.
LIMITS: Final = Limits(frame_bytes=PIECE_BYTES)


class MemberLines:
    """Requests of other members to this one, and of this one to them, on the running event loop.

    The process keeps the memory that it has freed from then on: each step brings as much as the one before.

    Parameters
    ----------
    listen : str
        Where this member is asked.
    worker : str
        Its id.
    job : str
        The job's name.
    security : Security
        A worker's.
    feed : callable
        Given what others ask (`Request`) and answer (`Answered`), inline: it takes no longer than about 0.5 ms.
    fail : callable
        Told of an error that ends a line, or the door.

    Attributes
    ----------
    endpoint : str
        Where it listens, with the port that was chosen.
    """

    def __init__(
        self,
        listen: str,
        *,
        worker: str,
        job: str,
        security: Security,
        feed: Callable[[Request | Answered], None],
        fail: Fail,
    ) -> None:
        self._worker, self._security, self._feed, self._fail = worker, security, feed, fail
        keep_freed_memory(whole_heaps=True)
        # The master reads the digest of the finished model where it is.
        self._server = RpcServer(
            listen,
            self._on_request,
            role=f"worker-{worker}",
            job=job,
            limits=LIMITS,
            security=security.letting_in("worker", "master"),
        )
        when_failed(self._server.failed, fail)
        self.endpoint = self._server.endpoint
        self._lines: dict[Identity, RpcClient] = {}
        self._under_way: dict[Identity, set[int]] = {}  # requests that are not answered
        self._before = (0, 0)  # bytes of lines that were hung up

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes that have come from others, and gone to them."""
        ends = [self._server.traffic, *(line.traffic for line in self._lines.values())]
        bytes_in, bytes_out = self._before
        return bytes_in + sum(end.bytes_in for end in ends), bytes_out + sum(end.bytes_out for end in ends)

    def ask(self, asked: AskMember) -> None:
        """Ask another member until it answers."""
        who, key = asked.member.incarnation, asked.key
        line = self._lines.get(who) or self._connect(asked.member)
        under_way = self._under_way.setdefault(who, set())

        def on_answer(answer: Message | EdlzError) -> None:
            under_way.discard(number)
            if isinstance(answer, EdlzError):  # it has broken the protocol, or this one has
                self._fail(answer)
            else:
                self._feed(Answered(who, key, answer))

        number = line.send(asked.body, on_answer, again=asked.again)
        under_way.add(number)

    def reply(self, reply: Reply) -> None:
        """Answer another member."""
        self._server.reply(reply.to, reply.body)

    def abandon(self) -> None:
        """Forget all that was asked, and hang up where nothing has been asked since the last time."""
        for who, line in list(self._lines.items()):
            under_way = self._under_way.pop(who, None)
            if under_way is None:
                self._hang_up(who)
                continue
            for number in under_way:
                line.cancel(number)

    def close(self) -> None:
        """Hang up, and close the door; answers already given still go out."""
        for who in list(self._lines):
            self._hang_up(who)
        self._server.close()

    def _hang_up(self, who: Identity) -> None:
        line = self._lines.pop(who)
        bytes_in, bytes_out = self._before
        self._before = bytes_in + line.traffic.bytes_in, bytes_out + line.traffic.bytes_out
        line.close()

    def _connect(self, member: Member) -> RpcClient:
        line = self._lines[member.incarnation] = RpcClient(
            member.endpoint,
            role="worker",
            identity=self._worker,
            limits=LIMITS,
            security=self._security,
            server="worker",
        )
        when_failed(line.failed, self._fail)
        return line

    def _on_request(self, to: Hashable, body: Message) -> None:
        if not isinstance(body, Reduce | FetchState | ReadVector | ReadTables):
            raise RemoteProtocolError(f"a member takes no {type(body).__name__}")
        self._feed(Request(to, body))
