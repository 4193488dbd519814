"""What one member has asked the others in a generation, and when something that was due has come from each."""

from collections.abc import Collection, Hashable

from edlz.services.protocol.groups import LINK_WAIT_S
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Identity, Member
from edlz.services.worker.core.groups.instructions import AskMember

__all__ = ["Correspondence"]

BACK_OFF_S = 0.2  # after a refusal


class Correspondence:
    """Requests that have no answer yet, by their keys."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, AskMember] = {}
        self._again: dict[Hashable, float] = {}  # of that, what was refused, and when it is asked again
        self._heard: dict[Identity, float] = {}

    def ask(self, member: Member, key: Hashable, body: Message) -> AskMember:
        """Return a request, noted."""
        self._asked[key] = asked = AskMember(member, key, body)
        return asked

    def forget(self) -> None:
        """Expect no answers any more."""
        self._asked, self._again = {}, {}

    def on_answer(self, key: Hashable) -> None:
        self._asked.pop(key, None)

    def on_refused(self, key: Hashable, now: float) -> None:
        """Ask again a little later, if that is of use still."""
        if key in self._asked:
            self._again[key] = now + BACK_OFF_S

    def due(self, now: float) -> list[AskMember]:
        """Return what is asked again now."""
        keys = [key for key, at in self._again.items() if at <= now]
        for key in keys:
            del self._again[key]
        return [self._asked[key] for key in keys]

    def note_heard(self, who: Identity, now: float) -> None:
        """A part, a mean or a piece has come from a member."""
        self._heard[who] = now

    def overdue(self, whom: Collection[Identity], since: float, now: float) -> tuple[Identity, ...]:
        """Return those of whom nothing has come for long, of what is due `since`."""
        return tuple(sorted(who for who in whom if now - max(since, self._heard.get(who, 0.0)) > LINK_WAIT_S))
