"""What a master makes of a job's figures, in tests: of a job that has just begun."""

from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary.inputs import Start
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.progress.progress import Progress
from tests import builders

__all__ = ["core_of", "progress_of"]


def core_of(strategy: str) -> MasterCore:
    """Return the core of the master of a job with this strategy."""
    job = builders.job(builders.plan(100), config={"distribution_strategy": strategy})
    core = MasterCore(job, JournalState())
    core.feed(Start(), 0.0)
    return core


def progress_of(strategy: str, core: MasterCore | None = None) -> Progress:
    """Return what screens are told of it."""
    return Progress(core or core_of(strategy), 1e9, 0.0, JournalState())
