"""The states of a machine as a table: which may follow which.

A core that has states moves between them by such a table, so a step that nobody has thought of raises where it is
taken, and changes nothing.  The diagrams in docs/architecture.md are made of the same tables.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Generic, TypeVar

from edlz.services.errors import LocalProtocolError

__all__ = ["Transitions"]

State = TypeVar("State", bound=Enum)


class Transitions(Generic[State]):
    """Which state may follow which.

    Parameters
    ----------
    what : str
        The machine, as errors name it: "a held task".
    first : State
        Where it begins.
    after : mapping of each state to those that may follow it
        A state that may follow itself is named there as well.
    """

    def __init__(self, what: str, first: State, after: Mapping[State, Iterable[State]]) -> None:
        self.what, self.first = what, first
        self.after = {state: frozenset(following) for state, following in after.items()}
        missing = set(type(first)) - set(self.after)
        assert not missing, f"nobody says what follows {missing}"

    def check(self, state: State, following: State) -> None:
        """Check that one state may follow another.

        Raises
        ------
        LocalProtocolError
            If it may not.
        """
        if following not in self.after[state]:
            raise LocalProtocolError(f"{self.what} that was {state.value} cannot be {following.value}")
