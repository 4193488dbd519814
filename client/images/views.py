"""How a build or a push is shown: redrawn on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterable
from typing import Any, Protocol, TextIO

from edlz.client.images.daemon import Record
from edlz.client.images.progress import Happening, Progress
from edlz.client.screen.spans import Line, Span, fit
from edlz.client.screen.terminal import Display
from edlz.client.screen.wording import size

__all__ = ["LiveView", "PlainView", "QuietView", "View", "follow", "view_for"]

_SHOWN_LINES = 5


class View(Protocol):
    """One way to show what a daemon does."""

    def begin(self, title: str) -> None:
        """Something begins."""
        ...

    def show(self, happening: Happening, progress: Progress) -> None:
        """Something happened."""
        ...

    def refresh(self, progress: Progress) -> None:
        """Another record came, worth no line."""
        ...

    def end(self) -> None:
        """It is over, well or not; draw no more."""
        ...


def view_for(display: Display, stream: TextIO, *, is_coloured: bool) -> View:
    """Return the view of a look; where progress is JSON, that of a job, a build shows nothing."""
    if display == "live":
        return LiveView(stream, is_coloured=is_coloured)
    return PlainView(stream) if display == "plain" else QuietView()


def follow(title: str, records: Iterable[Record], view: View) -> None:
    """Show a stream of records to its end.

    Raises
    ------
    ImageError
        If the daemon gave up.
    """
    progress = Progress()
    view.begin(title)
    try:
        for record in records:
            for happening in progress.feed(record):
                view.show(happening, progress)
            view.refresh(progress)
    finally:
        view.end()


class QuietView:
    """Nothing but errors, which are not a view's."""

    def begin(self, title: str) -> None:
        """Not shown."""

    def show(self, happening: Happening, progress: Progress) -> None:
        """Not shown."""

    def refresh(self, progress: Progress) -> None:
        """Not shown."""

    def end(self) -> None:
        """Nothing to end."""


class PlainView:
    """A line for each step, each line of its output, each layer that has arrived."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, title: str) -> None:
        """Say what begins."""
        self._write(title)

    def show(self, happening: Happening, progress: Progress) -> None:
        """Write it, output further to the right."""
        self._write(f"step {happening.text}" if happening.kind == "step" else f"  {happening.text}")

    def refresh(self, progress: Progress) -> None:
        """Not shown: a line an update would fill a log."""

    def end(self) -> None:
        """Nothing to end."""

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class LiveView:
    """The running step with its last lines, redrawn below the steps that are done.

    Parameters
    ----------
    stream : file
        A terminal.
    is_coloured : bool
    """

    def __init__(self, stream: TextIO, *, is_coloured: bool) -> None:
        from rich.console import Console

        self._console = Console(
            file=stream, force_terminal=True, no_color=not is_coloured, highlight=False, markup=False
        )
        self._live: Any = None
        self._step, self._since = "", 0.0

    def begin(self, title: str) -> None:
        """Say what begins."""
        from rich.live import Live

        self._console.print(title, soft_wrap=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._live.start()

    def show(self, happening: Happening, progress: Progress) -> None:
        """Move a step that is done above the block."""
        if happening.kind == "step":
            self._finish_step()
            self._step, self._since = happening.text, time.monotonic()
        self.refresh(progress)

    def refresh(self, progress: Progress) -> None:
        """Put the block together anew; it is drawn four times a second."""
        from rich.text import Text

        rows = [
            Text.assemble(*((span.text, span.role) for span in fit(line, self._console.width)))
            for line in live_lines(progress, time.monotonic() - self._since)
        ]
        self._live.update(Text("\n").join(rows))

    def end(self) -> None:
        """Take the block away."""
        self._finish_step()
        self._live.stop()

    def _finish_step(self) -> None:
        if self._step:
            self._live.console.print(f"  {self._step}  {time.monotonic() - self._since:.1f}s", soft_wrap=True)
        self._step = ""


def live_lines(progress: Progress, elapsed_s: float) -> list[Line]:
    """Return the block: the running step, its last lines, or how far its layers are."""
    lines: list[Line] = []
    if progress.step:
        lines.append([Span(f"  {progress.step}  ", "bold"), Span(f"{elapsed_s:.0f}s", "dim")])
    transfer = progress.transfer
    if transfer.layers:
        sizes = f"{size(transfer.moved_bytes)} of {size(transfer.total_bytes)}"
        lines.append([Span(f"    {transfer.done} of {len(transfer.layers)} layers, {sizes}", "dim")])
    else:
        lines += [[Span(f"    {text}", "dim")] for text in list(progress.tail)[-_SHOWN_LINES:]]
    return lines
