"""How a new member takes the source's state over: which piece it asks whom for, and what it makes of them.

Theory of operation.  All holders of the source are equal, so each is asked for another piece, at once.  If the whole has
another digest than it had, somebody holds something else under the name; then one holder alone is asked for all pieces,
and the next one, until the digest is right.  Who gets it right from none of them is damaged itself.
"""

from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol.messages import FetchState, Identity, SnapshotName, StatePiece

__all__ = ["Transfer"]

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
    now : float
    """

    def __init__(
        self, generation: Identity, source: SnapshotName, holders: tuple[Identity, ...], now: float
    ) -> None:
        self.source, self.since_s = source, now
        self._generation, self._holders = generation, holders
        self._lone: int | None = None  # the one holder that is asked, after a digest that was wrong
        self._pieces: dict[int, StatePiece] = {}

    def requests(self) -> list[Asked]:
        """Return what is asked of whom: all pieces."""
        pieces = len(self._holders)
        return [
            (
                self._holder(piece),
                ("fetch", self._lone, piece),
                FetchState(generation=self._generation, name=self.source, piece=piece, pieces=pieces),
            )
            for piece in range(pieces)
        ]

    @property
    def due(self) -> set[Identity]:
        """Holders of which a piece has not come."""
        return {self._holder(piece) for piece in range(len(self._holders)) if piece not in self._pieces}

    def take(self, lone: int | None, piece: StatePiece) -> tuple[StatePiece, ...]:
        """Take a piece; return all of them, in their order, when the last one has come.

        Parameters
        ----------
        lone : int or None
            Of the key that it was asked for with.
        """
        is_due = 0 <= piece.piece < len(self._holders) and piece.piece not in self._pieces
        is_ours = (piece.generation, piece.name) == (self._generation, self.source)
        if lone != self._lone or not (is_due and is_ours):
            return ()
        self._pieces[piece.piece] = piece
        return () if self.due else tuple(self._pieces[place] for place in sorted(self._pieces))

    def begin_again(self) -> list[Asked]:
        """The pieces are not those of one state: return what is asked of one holder alone, all of it.

        Raises
        ------
        RemoteProtocolError
            If none of them has given it whole.
        """
        self._pieces = {}
        self._lone = 0 if self._lone is None else self._lone + 1
        if self._lone == len(self._holders):
            raise RemoteProtocolError(
                f"v{self.source[1]} is not whole when it is here, whoever it is taken from"
            )
        return self.requests()

    def _holder(self, piece: int) -> Identity:
        return self._holders[piece if self._lone is None else self._lone]
