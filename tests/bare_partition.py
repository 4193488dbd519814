"""A partition of a small job that waits for initial values, and the request that brings them."""

from edlz.services.parameters.store import initial_digest
from edlz.services.protocol.messages import Granted, Identity, Initialise, Job
from edlz.services.protocol.plan import Plan
from edlz.services.ps.core.inputs import Answered, Written
from edlz.services.ps.core.instructions import Instruction, Write
from edlz.services.ps.core.partition import Partition
from tests import builders
from tests.simulation.disk import Disk
from tests.simulation.model import LAYOUT, OPTIMIZER, initial_vectors
from tests.statuses import partition_status

__all__ = ["PLAN", "bare_partition", "become_based", "initial_values", "job_of"]

PLAN = builders.plan(40, mode="async", seed=1, records_per_task=4)


def job_of(run: str, plan: Plan = PLAN) -> Job:
    return builders.job(plan, run=run)


def bare_partition(run: str, life: Identity, plan: Plan = PLAN) -> Partition:
    server = Partition(0, 1, "ipc://ps-0", Disk())
    asked = partition_status(incarnation=None, run="")
    server.feed(Answered(asked, Granted(term=1, incarnation=None)), 0.0)
    server.feed(Answered(asked, Granted(term=1, incarnation=life, job=job_of(run, plan))), 0.0)
    return server


def initial_values(run: str, life: Identity | None = None, plan: Plan = PLAN) -> Initialise:
    dense, state, counters = initial_vectors()
    return Initialise(
        run=run,
        incarnation=life,
        plan_hash=plan.hash,
        digest=initial_digest(plan.hash, LAYOUT, OPTIMIZER, (), dense, state, counters),
        layout=LAYOUT,
        optimizer=OPTIMIZER,
        dense=dense,
        state=state,
        counters=counters,
    )


def become_based(server: Partition, answer: list[Instruction], life: Identity) -> None:
    """Let what the partition has made of its initial values reach the disk."""
    (write,) = answer
    assert isinstance(write, Write)
    server._snapshots.write(write.state, life)
    server.feed(Written(write), 0.0)
