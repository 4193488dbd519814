"""The end of a feed: TensorFlow logs nothing of it."""

import os
import subprocess
import sys

from tests.unit.engine.feed.feeds import HEAD, PLAIN

TASKS = """
import sys
import threading
import time
from collections import Counter

from edlz.api.feeds import Mode
from edlz.services.configuration.job_config import JobConfig
from edlz.services.protocol.plan import TaskRange
from edlz.services.worker.engine.contract.model_module import load_contract
from edlz.services.worker.engine.feed.feed import FeedSettings, open_feed
from edlz.services.worker.engine.feed.minibatch_streams import Lanes
from edlz.services.worker.engine.feed.streamed_feed import StreamedFeed


def read(assignment):
    if assignment.task == 1:
        raise OSError("it is gone")
    return [b"1,2,3"] * assignment.records.count


contract = load_contract(JobConfig(model_file=sys.argv[1]))
settings = FeedSettings(
    mode=Mode.TRAINING,
    minibatch_size=4,
    seed=0,
    threads=1,
    read=read,
    number=lambda assignment, place: place,
    sample=lambda: [b"1,2,3"],
)
pulls = Counter()


def counted(self, stream):
    pulls[int(stream)] += 1
    return pull(self, stream)


pull, StreamedFeed._pull = StreamedFeed._pull, counted
lanes = Lanes(open_feed(contract, settings), contract.code, contract.feed)
for task in range(3):
    lanes.begin(task, TaskRange(name="file", first=0, count=10), lane=task)
assert [lanes.minibatch(0, index).is_last for index in range(3)] == [False, False, True]
try:
    lanes.minibatch(1, 0)
except Exception as error:
    assert "it is gone" in str(error), error
assert not lanes.minibatch(2, 0).is_last
while pulls[0] < 2:  # until the next task is waited for
    time.sleep(0.01)
lanes.close()
for thread in threading.enumerate():
    if thread.name == "feed-close":
        thread.join(60)
        assert not thread.is_alive()
print("ended")
"""


def test_streams_end_without_a_line_in_the_log(tmp_path):
    """In the middle of tasks, and at their end; at TensorFlow's own level, which shows warnings."""
    model, script = tmp_path / "model.py", tmp_path / "tasks.py"
    model.write_text(HEAD + PLAIN)
    script.write_text(TASKS)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    done = subprocess.run(
        [sys.executable, str(script), str(model)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "ended\n", done.stderr
    for sign in ("user-defined", "Traceback", "StopIteration", "OutOfRange", "KeyError"):
        assert sign not in done.stderr, done.stderr
