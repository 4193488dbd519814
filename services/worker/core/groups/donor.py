"""How a member gives its state to others, piece by piece.

Theory of operation.  With the first piece goes a digest of the whole state, which takes seconds of a large one: it is
worked out elsewhere, once, while this core hears other things, and who has asked meanwhile waits for it.  A step may
change the state under it; then the state has another name, and the digest is of no use.
"""

from collections.abc import Callable, Hashable

from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol.messages import FetchState, SnapshotName
from edlz.services.storage.state import State
from edlz.services.worker.core.groups.instructions import DigestState, Instruction, Reply
from edlz.services.worker.core.groups.state_transfer import cut

__all__ = ["Donor"]


class Donor:
    """One member's pieces for others."""

    def __init__(self) -> None:
        self._name: SnapshotName | None = None  # of the state whose digest is known, or is worked out
        self._digest = ""
        self._attempt = 0  # numbers what is worked out
        self._waiting: dict[Hashable, FetchState] = {}  # by whom it is answered to

    def reset(self) -> None:
        """The state is another one, whatever its name is."""
        self._name = None

    def give(self, to: Hashable, asked: FetchState, state: State) -> list[Instruction]:
        """Give a piece of a state of the name that is asked for, as soon as its digest is known.

        Raises
        ------
        RemoteProtocolError
            If there is no such piece.
        """
        if not 0 <= asked.piece < asked.pieces:
            raise RemoteProtocolError(f"piece {asked.piece} of {asked.pieces} of a state")
        is_known = self._name == state.name and self._digest
        if is_known or asked.piece:  # the digest goes with the first one
            digest = self._digest if is_known else ""
            return [Reply(to, cut(state, asked.generation, asked.piece, asked.pieces, digest))]
        self._waiting[to] = asked
        if self._name == state.name:
            return []
        self._name, self._digest = state.name, ""
        self._attempt += 1
        return [DigestState(("donor", self._attempt), state)]

    def on_digest(
        self, key: Hashable, digest: str, answer: Callable[[Hashable, FetchState], list[Instruction]]
    ) -> list[Instruction]:
        """A digest is worked out; `answer` gives who has waited what is to be had by now."""
        if key != ("donor", self._attempt):
            return []
        self._digest = digest
        waiting, self._waiting = self._waiting, {}
        return [one for to, asked in waiting.items() for one in answer(to, asked)]
