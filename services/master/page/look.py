"""Looking at a job for its page: what the master's core knows, taken on its loop as quickly as may be."""

from collections.abc import Callable

from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.core.master import MasterCore
from edlz.services.master.page.content import Content
from edlz.services.master.page.settings_table import command_to_repeat, settings_rows
from edlz.services.master.page.task_map import task_map
from edlz.services.master.progress.progress import Progress

__all__ = ["looking_at"]


def looking_at(
    config: JobConfig,
    core: MasterCore,
    progress: Progress,
    clock: Callable[[], float],
    network: Callable[[], tuple[int, int]],
) -> Callable[[], Content]:
    """Return what looks at a job; `network`: bytes that its master has taken and given."""
    settings, command = settings_rows(config), command_to_repeat(config)
    where = f"k8s/{config.namespace or 'default'}" if config.image_name else "local"

    def look() -> Content:
        queue = core.work.queue
        tasks = task_map(queue.task_count, queue.done, queue.leased, queue.again)
        status = progress.status(0, clock())
        measured = progress.measured(network())
        return Content(status, tuple(progress.curves.rows), tasks, settings, command, where, measured)

    return look
