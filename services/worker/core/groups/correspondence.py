"""What one member has asked the others in a generation, and when something that was due has come from each."""

from collections.abc import Collection, Hashable
from dataclasses import replace

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
        # Of that, what was refused: when it is asked again, and whether whole.
        self._again: dict[Hashable, tuple[float, bool]] = {}
        self._heard: dict[Identity, float] = {}

    def ask(self, member: Member, key: Hashable, body: Message, again: Message | None = None) -> AskMember:
        """Return a request, noted."""
        self._asked[key] = asked = AskMember(member, key, body, again)
        return asked

    def forget(self) -> None:
        """Expect no answers any more."""
        self._asked, self._again = {}, {}

    def on_answer(self, key: Hashable) -> None:
        self._asked.pop(key, None)

    def on_refused(self, key: Hashable, now: float, *, is_whole: bool) -> None:
        """Ask again a little later, if that is of use still; `is_whole`: with all that was asked with at first."""
        if key in self._asked:
            self._again[key] = now + BACK_OFF_S, is_whole

    def due(self, now: float) -> list[AskMember]:
        """Return what is asked again now."""
        keys = [(key, is_whole) for key, (at, is_whole) in self._again.items() if at <= now]
        for key, _ in keys:
            del self._again[key]
        found = [(self._asked[key], is_whole) for key, is_whole in keys]
        return [
            asked if is_whole or asked.again is None else replace(asked, body=asked.again)
            for asked, is_whole in found
        ]

    def note_heard(self, who: Identity, now: float) -> None:
        """A part, a mean or a piece has come from a member."""
        self._heard[who] = now

    def overdue(self, whom: Collection[Identity], since: float, now: float) -> tuple[Identity, ...]:
        """Return those of whom nothing has come for long, of what is due `since`."""
        return tuple(sorted(who for who in whom if now - max(since, self._heard.get(who, 0.0)) > LINK_WAIT_S))
