"""Jobs whose master was killed when they were complete, before it could say so."""

from typing import Any

from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.planning import open_journal
from edlz.services.protocol.job_status import JobStatus, PartitionView
from edlz.services.protocol.messages import Job

__all__ = ["COMPLETE", "FINAL", "completed"]

FINAL = JobStatus(
    name="j",
    state="Succeeded",
    mode="sync",
    slots=1,
    started_at=1.0,
    now=9.0,
    version=7,
    digest="sha",
    partitions=(PartitionView(id="0", state="sealed", version=7, expected=9, applied=9),),
)
COMPLETE = {"is_complete": True, "digest": "sha", "final": FINAL}


def completed(config: JobConfig, **facts: Any) -> Job:
    """Leave the journal of a job whose master was killed when it was complete."""
    config.job_directory.mkdir()
    journal, job = open_journal(config, config.job_directory)
    with journal:
        journal.write(1, {"term": 1})
        journal.write(1, COMPLETE | facts)
    return job
