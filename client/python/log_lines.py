"""The lines of a job's logs, one after the other."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator

from edlz.client.arguments.jobs import Job as FoundJob
from edlz.client.screen.log_choice import LogChoice, LogOutput
from edlz.client.screen.log_lines import LogLine, Selection

__all__ = ["chosen_lines", "lines_of"]

MOST_AHEAD = 10_000  # lines that are read before somebody asks for them


def chosen_lines(
    worker: int | None,
    ps: int | None,
    *,
    master: bool,
    tail: int | None,
    since_s: float,
    grep: str,
    follow: bool,
) -> LogChoice:
    """Return what `edlz logs` takes for the same flags."""
    sources = [*([] if worker is None else [f"worker-{worker}"]), *([] if ps is None else [f"ps-{ps}"])]
    sources += ["master"] if master else []
    begin = time.time() - since_s if since_s else 0.0
    return LogChoice(sources, Selection(begin, grep, None), tail, follow)


class _Output(LogOutput):
    """Lines for whoever asks for them."""

    def __init__(self) -> None:
        super().__init__(is_single=True)
        self.lines: queue.Queue[LogLine | BaseException | None] = queue.Queue(MOST_AHEAD)
        self.is_wanted = True

    def write(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            self.put(line)

    def put(self, item: LogLine | BaseException | None) -> None:
        while self.is_wanted:
            try:
                self.lines.put(item, timeout=1.0)
            except queue.Full:
                continue
            return
        raise _NobodyReads


class _NobodyReads(Exception):
    """Whoever has asked for lines has gone."""


def lines_of(job: FoundJob, choice: LogChoice) -> Iterator[str]:
    """Yield the lines; the thread that reads them ends when nobody asks for more."""
    output = _Output()

    def work() -> None:
        end: BaseException | None = None
        try:
            job.print_logs(choice, output)
        except _NobodyReads:
            return
        except BaseException as error:  # whoever has asked gets it
            end = error
        output.put(end)

    threading.Thread(target=work, name="edlz logs", daemon=True).start()
    try:
        while (item := output.lines.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item.text
    finally:
        output.is_wanted = False
