"""What was seen of a job, as bytes for any number of watchers."""

import time

import msgspec

from edlz.services.master.page.content import Content, shown_events, workers_of
from edlz.services.master.page.rendering import header_policy, render
from edlz.services.protocol.status_object import API_VERSION

__all__ = ["Encoded"]


class Encoded:
    """A content as JSON and as a page.

    Parameters
    ----------
    content : Content
    number : int
        Which look at the job it is of: whoever has it already gets it no more.

    Attributes
    ----------
    page_policy : str
        The Content-Security-Policy of its page.
    took_s : float
        Of a processor, to make it.
    """

    def __init__(self, content: Content, number: int = 1) -> None:
        self.content, self.number = content, number
        began_s = time.thread_time()
        tree = content.tree_without_workers()
        status = content.status
        workers = workers_of(status.workers, are_members=status.is_allreduce)
        tree["workers"] = msgspec.Raw(msgspec.json.encode(workers))
        tree["look"] = number
        self._body = msgspec.json.encode(tree)[:-1]
        self.took_s = time.thread_time() - began_s

    def json(self, since: int = 0) -> bytes:
        """Return the object with the events after a number."""
        events = msgspec.json.encode(shown_events(self.content.status.events, since))
        return b"".join((self._body, b',"events":', events, b"}"))

    def unchanged(self) -> bytes:
        """Return what somebody is told who has it already."""
        return msgspec.json.encode({"api": API_VERSION, "look": self.number, "unchanged": True})

    @property
    def page_policy(self) -> str:
        return header_policy()

    def page(self) -> bytes:
        """Return the page that goes on by itself."""
        return render(self.content.tree() | {"look": self.number}, is_report=False)
