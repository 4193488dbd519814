"""The parameter servers of a job as screens are told of them."""

from collections.abc import Mapping

import msgspec

from edlz.services.master.core.master import MasterCore
from edlz.services.master.progress.measures import Measures, p99
from edlz.services.master.progress.rates import Rate
from edlz.services.protocol.buckets import DURATIONS_S
from edlz.services.protocol.job_status import PartitionView
from edlz.services.supervision.launcher import split_name

__all__ = ["noted", "partition_views"]


def partition_views(
    core: MasterCore, measures: Measures, request_rates: Mapping[str, Rate], now: float
) -> tuple[PartitionView, ...]:
    """Return those that have spoken, and those that something keeps from running.

    Parameters
    ----------
    request_rates : mapping of str to Rate
        Of the requests that each has answered, by its id.
    """
    views, operations = [], measures.operations()
    for status in core.partitions.statuses:
        rate = request_rates.get(str(status.partition))
        state = "sealed" if status.is_sealed else "serving" if status.has_base else "starting"
        is_silent = core.processes.silent_servers.is_silent(status.partition)
        if is_silent and not core.verdict.is_over:
            state = "silent"
        mine = [each for (ident, _), each in operations.items() if ident == str(status.partition)]
        views.append(
            PartitionView(
                id=str(status.partition),
                state=state,
                version=status.version,
                memory_bytes=status.telemetry.memory_bytes,
                cpu_share=status.telemetry.cpu_share,
                rows=sum(table.rows for table in status.telemetry.tables),
                note=core.processes.notes.get(f"ps-{status.partition}", ""),
                requests_per_s=rate.per_s(now) if rate else 0.0,
                p99_s=p99(mine, DURATIONS_S),
                **msgspec.structs.asdict(status.recount),
            )
        )
    for ident in noted(core, "ps"):
        if int(ident) not in core.partitions.entries:
            note = core.processes.notes[f"ps-{ident}"]
            views.append(PartitionView(id=ident, state="starting", version=0, note=note))
    return tuple(sorted(views, key=lambda view: int(view.id)))


def noted(core: MasterCore, role: str) -> list[str]:
    """Return the ids of the services of a role that something keeps from running."""
    return [str(split_name(name)[1]) for name in core.processes.notes if split_name(name)[0] == role]
