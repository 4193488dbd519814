"""What the status page costs the master of a large job: 10,000 tasks, 1,000 workers, 5 pages open.

A master process, `python -m edlz.services.master`, is told once a second by each of its workers, which this process
plays, that it is at its task.  Its CPU time is taken in turns without pages and with five that ask every 2 s, as a
browser does; and how long their answers take.
"""

import http.client
import json
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.processes import held_to_processor
from benchmarks.rows import Row
from benchmarks.scale import MasterProcess

__all__ = ["measure"]

TASKS, WORKERS, PAGES = 10_000, 1_000, 5
TURNS, TURN_S, POLL_S = 3, 8.0, 2.0
MOST_CPU, MOST_ANSWER_S = 1.05, 0.05


def measure() -> list[Row]:
    """Measure; takes a minute and a half."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with held_to_processor(0), tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        flags = [f"--status_port={port}"]
        with MasterProcess(Path(folder), records=TASKS, epochs=1, flags=flags) as master:
            workers = [master.join(str(number)) for number in range(WORKERS)]
            master.tell(workers, TURN_S / 2)
            quiet, watched, answers_s = [], [], []
            for _ in range(TURNS):
                began_s = master.cpu_s
                master.tell(workers, TURN_S)
                quiet.append(master.cpu_s - began_s)
                began_s = master.cpu_s
                with _Pages(port) as pages:
                    master.tell(workers, TURN_S)
                watched.append(master.cpu_s - began_s)
                answers_s += pages.answers_s
    label = f"page: {TASKS} tasks, {WORKERS} workers, {PAGES} pages"
    ratio = statistics.median(watched) / statistics.median(quiet)
    answer_s = statistics.quantiles(answers_s, n=20)[-1]
    return [
        Row(
            f"{label}, master's CPU with / without them",
            f"{statistics.median(watched) / TURN_S * 100:.1f} % of a core",
            f"{statistics.median(quiet) / TURN_S * 100:.1f} % without",
            ratio,
            MOST_CPU,
            False,
        ),
        Row(
            f"{label}, an answer's 95th percentile / wanted",
            f"{answer_s * 1000:.1f} ms of {len(answers_s)}",
            f"wanted {MOST_ANSWER_S * 1000:.0f} ms",
            answer_s / MOST_ANSWER_S,
            1.0,
            False,
        ),
    ]


class _Pages:
    """Pages that ask as browsers do, each on a thread of its own."""

    def __init__(self, port: int) -> None:
        self._port, self._over = port, threading.Event()
        self.answers_s: list[float] = []
        self._threads = [threading.Thread(target=self._watch, args=(number,)) for number in range(PAGES)]

    def __enter__(self) -> "_Pages":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, number: int) -> None:
        self._over.wait(number * POLL_S / PAGES)
        look = 0
        while not self._over.is_set():
            began_s = time.perf_counter()
            line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
            line.request("GET", f"/api/status?since=0&look={look}")
            answer = line.getresponse()
            assert answer.status == 200, answer.status
            told = json.loads(answer.read())
            assert told.get("unchanged") or len(told["workers"]) == WORKERS
            look = told["look"]
            line.close()
            self.answers_s.append(time.perf_counter() - began_s)
            self._over.wait(POLL_S)
