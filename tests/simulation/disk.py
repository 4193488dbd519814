"""The folders of partitions, as far as their cores see them."""

from typing import Any

from edlz.services.messages import Job
from edlz.services.ps.partition import BASE
from edlz.services.ps.state import State

__all__ = ["Disk"]


class Disk:
    """One partition's folder: snapshots by name, and which lives have a link to each.

    Attributes
    ----------
    full_until : until then nothing can be written
    """

    def __init__(self) -> None:
        self.full_until = 0.0
        self.states: dict[Any, State] = {}
        self.links: dict[Any, set[Any]] = {}

    def open(self, job: Job) -> None:
        """The folder is there from the start."""

    def names(self) -> tuple[Any, ...]:
        return tuple(self.states)

    def load(self, name: Any) -> State:
        return self.states[name]

    def load_checkpoint(self, folder: str) -> State:
        raise NotImplementedError(folder)

    def write(self, state: State, life: Any) -> None:
        self.states[state.name] = state
        self.links.setdefault(state.name, set()).add(life)

    def unlink(self, name: Any, life: Any) -> None:
        """A life removes its own links and those of older lives, never a later life's."""
        if name == BASE:
            return
        self.links[name] = {other for other in self.links.get(name, ()) if other > life}
        if not self.links[name]:
            self.states.pop(name, None)
