"""How a new member takes the source's state over: which piece it asks whom for, and what it makes of them.

Theory of operation.  All holders of the source are equal, so each is asked for other pieces, at once.  A piece is small enough to
come in a few seconds of a slow network, so that who gives is seen to be there; of each holder some are under way.  If the whole has
another digest than it had, somebody holds something else under the name; then one holder alone is asked for all pieces,
and the next one, until the digest is right.  Who gets it right from none of them is damaged itself.
"""

from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol.messages import FetchState, Identity, SnapshotName, StatePiece
from edlz.services.storage.state import State
from edlz.services.worker.core.groups.incoming_state import IncomingState

__all__ = ["PIECE_BYTES", "Transfer"]

PIECE_BYTES = 8 << 20  # copied to its place in a few milliseconds, while others wait
AHEAD = 4  # pieces asked of a holder at once

Asked = tuple[Identity, tuple[str, int | None, int], FetchState]  # whom, with which key, what


class Transfer:
    """One member's transfer, in one generation.

    Parameters
    ----------
    generation : Identity
    source : SnapshotName
        The state.
    holders : tuple of Identity
        Who has it; at least one.
    own : State
        The member's own, of the same model.
    now : float

    Attributes
    ----------
    incoming : IncomingState
        What has come of it.
    """

    def __init__(
        self,
        generation: Identity,
        source: SnapshotName,
        holders: tuple[Identity, ...],
        own: State,
        now: float,
    ) -> None:
        self.source, self.since_s = source, now
        size_bytes = sum(vector.nbytes for vector in (own.dense, own.state, *own.slots.values()))
        self._count = max(len(holders), -(-size_bytes // PIECE_BYTES))
        self._asked: set[int] = set()
        self._generation, self._holders = generation, holders
        self._lone: int | None = None  # the one holder that is asked, after a digest that was wrong
        self._taken: set[int] = set()
        self._own = own
        self.incoming = IncomingState(own, source, self._count)

    def requests(self) -> list[Asked]:
        """Return what is to be asked of whom now, once: of each holder the next pieces."""
        out: list[Asked] = []
        for piece in range(self._count):
            holder = self._holder(piece)
            if piece not in self._asked and self._under_way(holder) < AHEAD:
                self._asked.add(piece)
                about = {"generation": self._generation, "name": self.source}
                body = FetchState(piece=piece, pieces=self._count, **about)  # type: ignore[arg-type]
                out.append((holder, ("fetch", self._lone, piece), body))
        return out

    def _under_way(self, holder: Identity) -> int:
        return sum(self._holder(piece) == holder for piece in self._asked.difference(self._taken))

    @property
    def due(self) -> set[Identity]:
        """Holders of which a piece has not come."""
        return {self._holder(piece) for piece in self._asked.difference(self._taken)}

    @property
    def has_all(self) -> bool:
        """Whether no piece is missing."""
        return len(self._taken) == self._count

    def take(self, lone: int | None, piece: StatePiece) -> bool:
        """Take a piece; return whether it was due.

        Parameters
        ----------
        lone : int or None
            Of the key that it was asked for with.
        """
        is_due = piece.piece in self._asked.difference(self._taken)
        is_ours = (piece.generation, piece.name) == (self._generation, self.source)
        if lone != self._lone or not (is_due and is_ours):
            return False
        self._taken.add(piece.piece)
        self.incoming.take(piece)
        return True

    def begin_again(self) -> list[Asked]:
        """The pieces are not those of one state: return what is asked of one holder alone.

        Raises
        ------
        RemoteProtocolError
            If none of them has given it whole.
        """
        self._taken, self._asked = set(), set()
        self.incoming = IncomingState(self._own, self.source, self._count)
        self._lone = 0 if self._lone is None else self._lone + 1
        if self._lone == len(self._holders):
            raise RemoteProtocolError(
                f"v{self.source[1]} is not whole when it is here, whoever it is taken from"
            )
        return self.requests()

    def _holder(self, piece: int) -> Identity:
        return self._holders[piece % len(self._holders) if self._lone is None else self._lone]
