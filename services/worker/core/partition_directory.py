"""What a worker knows of the partitions: where each is, in which life, and whether it has the initial values."""

from edlz.services.protocol.messages import Identity, PartitionAddress
from edlz.services.worker.core.instructions import Cancel, Instruction, SendInitialise

__all__ = ["PartitionDirectory"]


class PartitionDirectory:
    """Addresses by index, newest life of each; and the way of the initial values to them.

    Every life of a partition is told what this worker would begin with: with all values if it has
    none, else only by their digest, which must be the same.
    """

    def __init__(self) -> None:
        self.count = 0  # set when the job is known
        self._addresses: dict[int, PartitionAddress] = {}
        self._initialised: dict[int, Identity] = {}  # partition -> the life that took our initial values
        self._under_way: dict[int, tuple[Identity, bool]] = {}

    @property
    def are_ready(self) -> bool:
        """Whether every partition is known, and in its present life knows this worker's model."""
        return 0 < self.count == len(self._addresses) and all(
            self._initialised.get(p) == address.incarnation for p, address in self._addresses.items()
        )

    @property
    def known(self) -> frozenset[int]:
        """Partitions whose addresses have been told."""
        return frozenset(self._addresses)

    def endpoint(self, index: int) -> str:
        return self._addresses[index].endpoint

    def incarnation(self, index: int) -> Identity:
        """Return the partition's present life, as far as is known."""
        return self._addresses[index].incarnation

    def is_life(self, index: int, incarnation: Identity) -> bool:
        """Whether this is the partition's present life, as far as is known."""
        address = self._addresses.get(index)
        return address is None or address.incarnation == incarnation

    def learn(self, addresses: tuple[PartitionAddress, ...]) -> tuple[list[int], list[Instruction]]:
        """Take the master's list, and hang up where a connection may lead to a life that is over.

        A former life may live on, at the same address, where only the master cannot reach it.

        Returns
        -------
        moved : list of int
            Partitions that have begun another life, or have another address.
        instructions : list
        """
        moved = []
        for address in addresses:
            known = self._addresses.get(address.index)
            if known and address.incarnation < known.incarnation:
                continue
            self._addresses[address.index] = address
            before = known and (known.endpoint, known.incarnation)
            if before and before != (address.endpoint, address.incarnation):
                self._under_way.pop(address.index, None)
                moved.append(address.index)
        return moved, [Cancel(index) for index in moved]

    def be_own(self, address: PartitionAddress) -> None:
        """The one partition is in this process, with this worker's model."""
        self._addresses = {address.index: address}
        self._initialised = {address.index: address.incarnation}

    def initialise(self) -> list[Instruction]:
        """Tell each life that has not heard it what this worker would begin with."""
        out: list[Instruction] = []
        for p, address in self._addresses.items():
            wanted = (address.incarnation, not address.has_base)
            if self._initialised.get(p) == address.incarnation or self._under_way.get(p) == wanted:
                continue
            self._under_way[p] = wanted
            out.append(SendInitialise(p, address.endpoint, ("initialise", wanted), *wanted))
        return out

    def on_answer(self, index: int, wanted: tuple[Identity, bool], *, has_taken: bool) -> None:
        """A partition has answered; when it was not ready, the next list says what it lacks."""
        if self._under_way.get(index) == wanted:
            del self._under_way[index]
            if has_taken:
                self._initialised[index] = wanted[0]
