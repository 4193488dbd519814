"""What a worker's core does when something happens, in both modes: event by event, as tables.

Each line is `event | instructions`; see tests/unit/worker/worker_script.py for the words.  All begin with a worker that has
joined, built its model and made itself known to two partitions, with a status under way.
"""

from typing import Any

import pytest

from tests.unit.worker.worker_script import Script

TABLES: dict[str, tuple[str, dict[str, Any], str]] = {
    "sync: a task alone in its step is pushed and pulled in one message": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 pull 0.1, p1 push 0.0 pull 0.1
        p0 answers 1 v1           |
        p1 answers 1 v1           | compute 0.1
        computed last             | p0 push 0.1 last pull 0.2, p1 push 0.1 last pull 0.2
        p0 answers 2 v2 finished  |
        p1 answers 2 v2 finished  | drop 0
        """,
    ),
    "sync: of several slots of a step only the last one pulls, and moves all of them on": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        lease 1                   | begin 1, p0 pull 1.0, p1 pull 1.0, tell
        p0 answers                |
        p0 answers                |
        p1 answers                | compute 0.0
        p1 answers                |
        computed                  | p0 push 0.0, p1 push 0.0, compute 1.0
        p0 answers 1              |
        p1 answers 1              |
        computed                  | p0 push 1.0 pull 1.1, p1 push 1.0 pull 1.1
        p0 answers 1 v1           |
        p1 answers 1 v1           | compute 0.1
        """,
    ),
    "sync: a staged slot asks for itself when no other one of its step is left": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        lease 1                   | begin 1, p0 pull 1.0, p1 pull 1.0, tell
        p0 answers                |
        p0 answers                |
        p1 answers                | compute 0.0
        p1 answers                |
        computed                  | p0 push 0.0, p1 push 0.0, compute 1.0
        p0 answers 1              |
        p1 answers 1              |
        raised                    | drop 1, p0 pull 0.1, p1 pull 0.1
        """,
    ),
    "sync: tasks of a later round wait until this worker has nothing left in the one before": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        lease 2                   | begin 2, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed last             | p0 push 0.0 last pull 0.1, p1 push 0.0 last pull 0.1
        p0 answers 1 v1 finished  |
        p1 answers 1 v1 finished  | drop 0, p0 pull 2.0, p1 pull 2.0
        """,
    ),
    "sync: of a partition that is ahead it takes the version that all have": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers v1             |
        p1 answers                | p0 pull 0.0 v0
        p0 answers v0             | compute 0.0
        """,
    ),
    "sync: who is not ready is asked again a little later": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 refuses not ready      |
        later 0.05                |
        later 0.1                 | p0 pull 0.0, p1 pull 0.0
        """,
    ),
    "sync: what is behind loses its place: the task is looked up anew": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 pull 0.1, p1 push 0.0 pull 0.1
        p0 refuses behind         |
        later 0.1                 | p0 pull 0.0, p1 pull 0.0
        """,
    ),
    "sync: another era ends what is in hand, whoever tells it": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 pull 0.1, p1 push 0.0 pull 0.1
        p0 refuses era            | drop 0
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        era                       | drop 0, tell
        """,
    ),
    "sync: a report that is not believed begins again with its records": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers 3 v3 finished  |
        p1 answers 3 v3 finished  | drop 0
        doubted 0                 | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        """,
    ),
    "sync: a loss that is NaN ends the job, if that is wanted": (
        "sync",
        {"flags": {"stop_on_nan": True}},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed nan              | drop 0
        """,
    ),
    "sync: but not behind the end of its task, where nothing is pushed": (
        "sync",
        {"flags": {"stop_on_nan": True}},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        ended 0.0                 | drop 0, begin 0 to 0
        computed nan              | p0 pull 0.0, p1 pull 0.0
        p0 answers                |
        p1 answers                | p0 push 0.0 end pull 0.1, p1 push 0.0 end pull 0.1
        """,
    ),
    "sync: a task that the master ends is ended by an empty minibatch": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        ended 0.1                 | drop 0, begin 0 to 1
        computed                  | p0 push 0.0 pull 0.1, p1 push 0.0 pull 0.1
        p0 answers 1 v1           |
        p1 answers 1 v1           | p0 push 0.1 end pull 0.2, p1 push 0.1 end pull 0.2
        p0 answers 2 v2 finished  |
        p1 answers 2 v2 finished  | drop 0, tell
        """,
    ),
    "sync: what is raised is told, and the task given up": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        raised                    | drop 0
        """,
    ),
    "sync: with tables every slot pulls its own rows": (
        "sync",
        {"has_tables": True},
        """
        lease 0                   | begin 0, find 0.0, tell
        lease 1                   | begin 1, find 1.0, tell
        ids                       | p0 pull 0.0 rows 0, p1 pull 0.0 rows 0
        ids                       | p0 pull 1.0 rows 0, p1 pull 1.0 rows 0
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 pull 0.1 rows 1, p1 push 0.0 pull 0.1 rows 1
        p0 answers                |
        p1 answers                | compute 1.0
        computed                  | p0 push 1.0 pull 1.1 rows 1, p1 push 1.0 pull 1.1 rows 1
        """,
    ),
    "sync: rows of another minibatch than was expected are pulled anew": (
        "sync",
        {"has_tables": True},
        """
        lease 0                   | begin 0, find 0.0, tell
        ids                       | p0 pull 0.0 rows 0, p1 pull 0.0 rows 0
        p0 answers 1 v1           |
        p1 answers 1 v1           | find 0.1
        ids                       | p0 pull 0.1 rows 1, p1 pull 0.1 rows 1
        p0 answers 1 v1           |
        p1 answers 1 v1           | compute 0.1
        """,
    ),
    "sync: a task without records is ended by the minibatch that it has not": (
        "sync",
        {"has_tables": True},
        """
        lease 0                   | begin 0, find 0.0, tell
        ids missing               | p0 pull 0.0, p1 pull 0.0
        p0 answers                |
        p1 answers                | compute 0.0
        computed empty last       | p0 push 0.0 end pull 0.1 rows 1, p1 push 0.0 end pull 0.1 rows 1
        """,
    ),
    "async: one exchange carries a push and the next pull; the next task begins when the last push is there": (
        "async",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        lease 1                   | begin 1
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 pull 0.1, p1 push 0.0 pull 0.1
        p0 answers 1 v1           |
        p1 answers 1 v1           | compute 0.1
        computed last             | p0 push 0.1 last, p1 push 0.1 last
        p0 answers 2 v2 finished  |
        p1 answers 2 v2 finished  | drop 0, tell, p0 pull 1.0, p1 pull 1.0
        """,
    ),
    "async: while its pushes are held the next task begins": (
        "async",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        lease 1                   | begin 1
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 pull 0.1, p1 push 0.0 pull 0.1
        p0 refuses held           | p0 pull 1.0, p1 pull 1.0
        later 0.1                 |
        later 0.1                 | p0 pull 0.0, p1 pull 0.0, tell
        """,
    ),
    "async: a partition that begins another life is asked where it stands": (
        "async",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 pull 0.1, p1 push 0.0 pull 0.1
        p0 answers 1 v1           |
        lost p1                   | hang up 1, p0 pull 0.0, p1 pull 0.0, initialise 1
        initialised               | tell
        p0 answers 1 v1           |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 pull 0.1, p1 push 0.0 pull 0.1
        """,
    ),
    "async: who refuses a push of another life is asked a little later": (
        "async",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 pull 0.1, p1 push 0.0 pull 0.1
        p0 answers 1 v1           |
        p1 refuses incarnation    |
        later 0.1                 | p0 pull 0.0, p1 pull 0.0
        """,
    ),
    "async: rows travel while the minibatch before is computed": (
        "async",
        {"has_tables": True},
        """
        lease 0                   | begin 0, find 0.0, tell
        lease 1                   | begin 1
        ids                       | p0 pull 0.0 rows 0, p1 pull 0.0 rows 0, find 0.1
        ids                       |
        p0 answers                |
        p1 answers                | p0 pull 0.0 rows 1, p1 pull 0.0 rows 1, compute 0.0
        p0 answers                |
        p1 answers                |
        computed                  | p0 push 0.0 pull 0.1 rows 2, p1 push 0.0 pull 0.1 rows 2, compute 0.1
        p0 answers 1 v1           |
        p1 answers 1 v1           |
        computed before-end       | p0 push 0.1, p1 push 0.1, find 1.0, compute 0.2
        p0 answers 2 v2           |
        p1 answers 2 v2           |
        computed last             | p0 push 0.2 last, p1 push 0.2 last
        """,
    ),
    "async: a computation whose next rows were refused is given up": (
        "async",
        {"has_tables": True},
        """
        lease 0                   | begin 0, find 0.0, tell
        ids                       | p0 pull 0.0 rows 0, p1 pull 0.0 rows 0, find 0.1
        ids                       |
        p0 answers                |
        p1 answers                | p0 pull 0.0 rows 1, p1 pull 0.0 rows 1, compute 0.0
        p0 answers                |
        p1 refuses held           |
        computed                  |
        later 0.2                 | p0 pull 0.0, p1 pull 0.0
        """,
    ),
    "async: nothing computed behind the end of its task is pushed": (
        "async",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        ended 0.0                 | drop 0, begin 0 to 0
        computed                  | p0 pull 0.0, p1 pull 0.0
        """,
    ),
    "sync: what is computed of a task behind a barrier is kept back until that is passed": (
        "sync",
        {},
        """
        barred 0                  | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        barred 1                  | begin 1, p0 pull 1.0, p1 pull 1.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  |
        p0 answers                |
        p1 answers                | compute 1.0
        computed last             |
        released 0 1              | p0 push 0.0, p1 push 0.0, p0 push 1.0 last pull 1.1, p1 push 1.0 last pull 1.1, tell
        """,
    ),
    "sync: who is not through when the barrier is passed goes on as ever": (
        "sync",
        {},
        """
        barred 0                  | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        released 0                |
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 pull 0.1, p1 push 0.0 pull 0.1
        """,
    ),
    "sync: at another rate it is pushed, and with tables, which may have their own, computed again": (
        "sync",
        {"has_tables": True},
        """
        barred 0                  | begin 0, find 0.0, tell
        ids                       | p0 pull 0.0 rows 0, p1 pull 0.0 rows 0
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  |
        released 0 at 0.5         | p0 pull 0.0 rows 0, p1 pull 0.0 rows 0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 at 0.5 pull 0.1 rows 1, p1 push 0.0 at 0.5 pull 0.1 rows 1
        """,
    ),
    "sync: the rate may become another one while it is computed": (
        "sync",
        {},
        """
        barred 0                  | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        released 0 at 0.5         |
        computed                  | p0 push 0.0 at 0.5 pull 0.1, p1 push 0.0 at 0.5 pull 0.1
        """,
    ),
    "sync: the rate may become another one when it is computed": (
        "sync",
        {},
        """
        barred 0                  | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  |
        released 0 at 0.5         | p0 push 0.0 at 0.5 pull 0.1, p1 push 0.0 at 0.5 pull 0.1, tell
        """,
    ),
    "sync: what is to be reported may bring an evaluation, which comes before what is behind a barrier": (
        "sync",
        {},
        """
        lease 0                   | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        barred 2                  | begin 2
        computed last             | p0 push 0.0 last pull 0.1, p1 push 0.0 last pull 0.1
        p0 answers 1 v1 finished  |
        p1 answers 1 v1 finished  | drop 0, tell, p0 pull 2.0, p1 pull 2.0
        p0 answers v1             |
        p1 answers v1             |
        noted 0                   | drop 0, compute 2.0
        """,
    ),
    "sync: what the user's code raises behind a barrier is told when that is passed": (
        "sync",
        {},
        """
        barred 0                  | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        raised                    |
        released 0                | drop 0, tell
        """,
    ),
    "sync: with rows, whatever happens behind a barrier": (
        "sync",
        {"has_tables": True},
        """
        barred 0                  | begin 0, find 0.0, tell
        ids                       | p0 pull 0.0 rows 0, p1 pull 0.0 rows 0
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  |
        released 0                | p0 push 0.0 pull 0.1 rows 1, p1 push 0.0 pull 0.1 rows 1, tell
        """,
    ),
    "sync: not even the end of a task that has no minibatch is pushed behind a barrier": (
        "sync",
        {},
        """
        barred 0                  | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        ended 0.0                 | drop 0, begin 0 to 0
        p0 answers                |
        p1 answers                |
        released 0                | p0 push 0.0 end pull 0.1, p1 push 0.0 end pull 0.1
        """,
    ),
    "sync: a job that ends before a barred task has it no more": (
        "sync",
        {},
        """
        barred 0                  | begin 0, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  |
        noted 0                   | drop 0, tell
        """,
    ),
    "async: a task that is leased with its end stops there": (
        "async",
        {},
        """
        lease 0 to 1              | begin 0 to 1, p0 pull 0.0, p1 pull 0.0, tell
        p0 answers                |
        p1 answers                | compute 0.0
        computed last             | p0 push 0.0 pull 0.1, p1 push 0.0 pull 0.1
        p0 answers 1 v1           |
        p1 answers 1 v1           | p0 push 0.1 end, p1 push 0.1 end
        p0 answers 1 v2 finished  |
        p1 answers 1 v2 finished  | drop 0
        """,
    ),
    "async: without rows ahead it waits for the answer to its push": (
        "async",
        {"has_tables": True, "flags": {"prefetch_rows": False}},
        """
        lease 0                   | begin 0, find 0.0, tell
        ids                       | p0 pull 0.0 rows 0, p1 pull 0.0 rows 0
        p0 answers                |
        p1 answers                | compute 0.0
        computed                  | p0 push 0.0 pull 0.1 rows 1, p1 push 0.0 pull 0.1 rows 1
        p0 answers 1 v1           |
        p1 answers 1 v1           | compute 0.1
        """,
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table(name: str) -> None:
    mode, how, lines = TABLES[name]
    Script(mode, **how).play(lines)


def test_a_line_that_is_not_so_is_told() -> None:
    with pytest.raises(AssertionError, match=r"p0 answers: nothing, not compute 0\.0"):
        Script("sync").play("lease 0 | begin 0, p0 pull 0.0, p1 pull 0.0, tell\np0 answers | compute 0.0")
