"""What the status page costs the master of a large job: 10,000 tasks, 1,000 workers, 5 pages open.

A master process, `python -m edlz.services.master`, is told once a second by each of its workers, which this process
plays, that it is at its task; workers began at different times, so each has its own moment of the second.  The master's
CPU time is taken in turns without pages and with five that ask every 2 s, as a browser does; and how long their answers
take.  A turn is as long as twice the longest time between two looks at the job.  The pages are another process, so that what they make of
an answer is in nobody's way.
"""

import http.client
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import held_to_processor
from benchmarks.rows import Row
from benchmarks.scale import MasterProcess
from edlz.services.master.page.status_page import MOST_LOOK_S

__all__ = ["measure"]

TASKS, WORKERS, PAGES = 10_000, 1_000, 5
TURNS, TURN_S, WARM_UP_S, POLL_S = 3, 2 * MOST_LOOK_S, 4.0, 2.0
MOST_CPU, MOST_ANSWER_S = 1.05, 0.05


def measure() -> list[Row]:
    """Measure; takes three and a half minutes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with held_to_processor(0), tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        flags = [f"--status_port={port}"]
        with MasterProcess(Path(folder), records=TASKS, epochs=1, flags=flags) as master:
            workers = [master.join(str(number)) for number in range(WORKERS)]
            master.tell(workers, WARM_UP_S)
            quiet: list[float] = []
            watched: list[float] = []
            answers_s: list[float] = []
            for _ in range(TURNS):
                began_s = master.cpu_s
                master.tell(workers, TURN_S)
                quiet.append(master.cpu_s - began_s)
                with _pages(port, answers_s):
                    began_s = master.cpu_s
                    master.tell(workers, TURN_S)
                    watched.append(master.cpu_s - began_s)
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


@contextmanager
def _pages(port: int, answers_s: list[float]) -> Iterator[None]:
    """Have pages open; at the end, add how long each of their answers took."""
    command = [sys.executable, "-m", "benchmarks.page", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()  # they are there
            yield
            told, _ = process.communicate()
        finally:
            process.kill()
    if process.returncode:
        raise RuntimeError(f"the pages ended with exit code {process.returncode}")
    answers_s += json.loads(told)


# ---------------------------------------------------------------- the pages' process


def _watch(port: int) -> None:
    """Be the pages until standard input ends, then print how long answers took."""
    print("watching", flush=True)
    over, answers_s, failures = threading.Event(), list[float](), list[Exception]()

    def follow(number: int) -> None:
        try:
            _follow(port, number * POLL_S / PAGES, over, answers_s)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(PAGES)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    print(json.dumps(answers_s))


def _follow(port: int, after_s: float, over: threading.Event, answers_s: list[float]) -> None:
    """Ask as a browser's page does."""
    over.wait(after_s)
    look = 0
    while not over.is_set():
        began_s = time.perf_counter()
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        line.request("GET", f"/api/status?since=0&look={look}")
        answer = line.getresponse()
        assert answer.status == 200, answer.status
        body = answer.read()
        answers_s.append(time.perf_counter() - began_s)
        line.close()
        told = json.loads(body)
        assert told.get("unchanged") or len(told["workers"]) == WORKERS
        look = told["look"]
        over.wait(POLL_S)


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
