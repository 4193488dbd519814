"""What was seen of a job, as bytes for any number of watchers."""

import msgspec

from edlz.services.master.page.content import Content, shown_events, workers_of
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
        tree = content.tree_without_workers()
        tree["workers"] = msgspec.Raw(msgspec.json.encode(workers_of(content.status.workers)))
        self._body = msgspec.json.encode(tree)[:-1]

    def json(self, since: int = 0) -> bytes:
        """Return the object with the events after a number."""
        events = msgspec.json.encode(shown_events(self.content.status.events, since))
        return b"".join((self._body, b',"events":', events, b"}"))

    def page(self) -> bytes:
        """Return the page that goes on by itself."""
        return render(self.content.tree(), is_report=False)
