"""A partition whose state before training does not fit on its disk: it takes it anew, from wherever it came."""

from pathlib import Path

from edlz.services.parameters.store import initial_digest
from edlz.services.protocol.messages import Granted, Initialise, Refused
from edlz.services.ps.core.inputs import Answered, NoRoom, Request, Tick
from edlz.services.ps.core.instructions import Reply, Report, Write
from edlz.services.ps.core.partition import RETRY_S, Partition
from edlz.services.storage.snapshots import SnapshotFolder
from tests import builders
from tests.simulation.model import LAYOUT, OPTIMIZER, initial_vectors
from tests.states import save

PLAN = builders.plan(9, mode="async", records_per_task=2)


def initial_values() -> Initialise:
    dense, state, counters = initial_vectors()
    return Initialise(
        run="r",
        plan_hash=PLAN.hash,
        digest=initial_digest(PLAN.hash, LAYOUT, OPTIMIZER, (), dense, state, counters),
        layout=LAYOUT,
        optimizer=OPTIMIZER,
        dense=dense,
        state=state,
        counters=counters,
    )


def test_a_checkpoint_that_a_job_begins_from_is_read_again(tmp_path: Path) -> None:
    begins_from = str(save(tmp_path / "checkpoints"))
    job = builders.job(PLAN, begins_from=begins_from)
    folder = SnapshotFolder(0, tmp_path / "job")
    partition = Partition(0, 1, "here", folder)
    (report,) = partition.feed(Tick(), 0.0)
    assert isinstance(report, Report)
    first = next(
        order
        for order in (
            *partition.feed(Answered(report.body, Granted(term=1, incarnation=None, job=job)), 0.0),
            *partition.feed(Answered(report.body, Granted(term=1, incarnation=(1, 1), job=job)), 0.0),
        )
        if isinstance(order, Write)
    )
    first.state.close()
    assert partition.feed(NoRoom(first), 1.0) == []
    assert not [order for order in partition.feed(Tick(), 1.0) if isinstance(order, Write)]
    assert partition.feed(Request("a worker", initial_values()), 1.0) == [
        Reply("a worker", Refused(reason="not ready"))
    ], "what a worker begins with is not what the checkpoint holds"
    (again,) = [order for order in partition.feed(Tick(), 1.0 + RETRY_S) if isinstance(order, Write)]
    assert again.kind == "base"
    assert again.state.name == first.state.name == ((0, 0), 7)
    again.state.close()
