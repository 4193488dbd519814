"""How whole states go from member to member: what this one gives of its own, and what it takes over of another's.

Theory of operation.  `Donor` gives, `Transfer` takes; both have what takes long of a large state done elsewhere.  A new
generation ends a transfer, whatever has come of it.
"""

from collections.abc import Hashable

from edlz.services.protocol.messages import FetchState, GroupOrders, Identity, StatePiece
from edlz.services.storage.state import State
from edlz.services.worker.core.groups.donor import Donor
from edlz.services.worker.core.groups.inputs import Assembled
from edlz.services.worker.core.groups.instructions import AskMember, AssembleState, Instruction, Reply
from edlz.services.worker.core.groups.member_exchange import MemberExchange
from edlz.services.worker.core.groups.reduction import refusal
from edlz.services.worker.core.groups.transfer import Transfer

__all__ = ["Handover"]


class Handover:
    """One member's part in it.

    Parameters
    ----------
    exchange : MemberExchange
        Asks the others.

    Attributes
    ----------
    transfer : Transfer or None
        While it takes a state over.
    """

    def __init__(self, exchange: MemberExchange) -> None:
        self._exchange = exchange
        self._donor = Donor()
        self._attempt = 0  # numbers states that are put together
        self.transfer: Transfer | None = None

    def on_other_state(self) -> None:
        """The member has another state than before, whatever its name is."""
        self._donor.reset()

    # -- taking

    def begin(self, orders: GroupOrders, own: State, now: float) -> list[AskMember]:
        """Take the source of a generation over from its holders."""
        self.transfer = Transfer(orders.generation, orders.source, orders.holders, own, now)
        return self._exchange.fetch(self.transfer.requests())

    def end(self) -> None:
        """A new generation begins: nothing is taken over any more, and what is given is looked at anew.

        A state that was damaged behind its digest would be whole for nobody, again and again, if no other member has it.
        """
        self.transfer = None
        self._donor.reset()

    def on_piece(self, piece: StatePiece, lone: int | None) -> list[Instruction]:
        """A piece has come."""
        transfer = self.transfer
        if transfer is None or not transfer.take(lone, piece):
            return []
        if not transfer.has_all:
            return [*self._exchange.fetch(transfer.requests())]
        self._attempt += 1
        return [AssembleState(self._attempt, transfer.incoming)]

    def on_assembled(self, event: Assembled) -> State | list[AskMember]:
        """Return the state that is put together, if it is the one that was cut; else what is asked now."""
        if self.transfer is None or event.attempt != self._attempt:
            return []
        if event.state is not None:
            self.transfer = None
            return event.state
        self._exchange.letters.forget()
        return self._exchange.fetch(self.transfer.begin_again())

    # -- giving

    def give(
        self, to: Hashable, asked: FetchState, generation: Identity, own: State | None
    ) -> list[Instruction]:
        """Give a piece of the member's state, if that is what is asked for."""
        if own is None or (asked.generation, asked.name) != (generation, own.name):
            return [Reply(to, refusal(asked.generation, generation))]
        return self._donor.give(to, asked, own)

    def on_digest(
        self, key: Hashable, digest: str, generation: Identity, own: State | None
    ) -> list[Instruction]:
        """A digest is worked out, perhaps for those who wait for a piece."""
        return self._donor.on_digest(key, digest, lambda to, asked: self.give(to, asked, generation, own))
