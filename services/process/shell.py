"""What the shells of all services do alike: feed a core, carry out its instructions, fail once.

A core takes one input at a time and returns instructions.  Its shell has sockets, threads and files; it gives the core
what comes from them, and has a method for each kind of instruction.  Whatever is raised on the way ends the
service: half-dead is worse than dead.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, TypeVar

from edlz.services.errors import LocalProtocolError
from edlz.services.process.runtime import Stop

__all__ = ["Fail", "Instructions", "Shell"]

Fail = Callable[[BaseException], None]

Input = TypeVar("Input")
Instruction = TypeVar("Instruction")
Owner = TypeVar("Owner")
Kind = TypeVar("Kind")


class Instructions(Generic[Owner]):
    """Which method of a shell carries out which kind of instruction.

    `@carries.out(Reply)` stands over the method that takes a Reply; the type checker sees that it does.

    Attributes
    ----------
    methods : dict
        By the kind of instruction that they carry out.
    """

    def __init__(self) -> None:
        self.methods: dict[type[Any], Callable[[Owner, Any], None]] = {}

    def out(
        self, kind: type[Kind]
    ) -> Callable[[Callable[[Owner, Kind], None]], Callable[[Owner, Kind], None]]:
        """Return a decorator for the method that carries out instructions of a kind."""

        def note(method: Callable[[Owner, Kind], None]) -> Callable[[Owner, Kind], None]:
            self.methods[kind] = method
            return method

        return note


class Shell(ABC, Generic[Input, Instruction]):
    """Around one core.

    Parameters
    ----------
    stop : Stop
        Set at the first error, with its exit code: 70 for one of ours, a bug.
    """

    carries: ClassVar[Instructions[Any]]

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._error: BaseException | None = None  # the first one

    @abstractmethod
    def decide(self, event: Input) -> Iterable[Instruction]:
        """Give the core an input, with the time; return its instructions."""

    def feed(self, event: Input) -> None:
        """Give the core an input, and carry out what it answers."""
        try:
            self.carry_out(self.decide(event))
        except Exception as error:
            self.fail(error)

    def carry_out(self, instructions: Iterable[Instruction]) -> None:
        """Carry out instructions, in their order; none after an error, as some of those before were not carried out."""
        if self._error is not None:
            return
        methods = self.carries.methods
        for instruction in instructions:
            methods[type(instruction)](self, instruction)

    def fail(self, error: BaseException) -> None:
        """Have the service end with this error, unless it ends already."""
        self._error = self._error or error
        self._stop.set(getattr(error, "exit_code", LocalProtocolError.exit_code), str(error))

    def raise_failure(self) -> None:
        """Raise the error that the service ends with, if there is one."""
        if self._error is not None:
            raise self._error
