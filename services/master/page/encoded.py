"""What was seen of a job, as bytes for any number of watchers."""

import msgspec

from edlz.services.master.page.content import Content, shown_events
from edlz.services.master.page.rendering import header_policy, render

__all__ = ["Encoded"]


class Encoded:
    """A content as JSON and as a page.

    Parameters
    ----------
    content : Content

    Attributes
    ----------
    page_policy : str
        The Content-Security-Policy of its page.
    """

    page_policy = header_policy()

    def __init__(self, content: Content) -> None:
        self.content = content
        events = content.status.events
        tree = content.tree(since=events[-1].seq if events else 0)
        del tree["events"]
        self._body = msgspec.json.encode(tree)[:-1]

    def json(self, since: int = 0) -> bytes:
        """Return the object with the events after a number."""
        events = msgspec.json.encode(shown_events(self.content.status.events, since))
        return b"".join((self._body, b',"events":', events, b"}"))

    def page(self) -> bytes:
        """Return the page that goes on by itself."""
        return render(self.content.tree(), is_report=False)
