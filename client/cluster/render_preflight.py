"""The lines of a submission: what was checked, how the master comes up, what to do next.  Pure."""

from collections.abc import Sequence

from edlz.client.cluster.job_view import ClusterJobView
from edlz.client.screen.checks import Check, check_lines
from edlz.client.screen.columns import aligned
from edlz.client.screen.spans import Line, Span
from edlz.client.screen.wording import working
from edlz.services.configuration.job_config import JobConfig

__all__ = ["master_line", "next_lines", "object_lines", "preflight_lines"]


def preflight_lines(checks: Sequence[Check], context: str, namespace: str) -> list[Line]:
    """Return the page of the checks."""
    where = f'in context "{context}", namespace "{namespace}"' if context else f'in namespace "{namespace}"'
    return [[Span(f"Preflight {where}")], *check_lines(checks)]


def master_line(job_view: ClusterJobView) -> str:
    """Return what the master waits for, or that it runs."""
    master = job_view.master
    if master is None:
        return "its pod is gone"
    if master.has_ended:
        return f"ended: {master.end}"
    if not master.is_running:
        return master.waits_for or "starts"
    return "running"


def crew_text(job_view: ClusterJobView, config: JobConfig) -> str:
    """Return how many parameter servers and workers there are."""
    serving = sum(view.state != "starting" for view in job_view.status.partitions)
    workers = f"workers {working(job_view.status.workers)}/{job_view.asked_workers or config.num_workers}"
    return f"ps {serving}/{config.num_ps_pods}, {workers}" if config.num_ps_pods else workers


def next_lines(word: str) -> list[Line]:
    """Return the commands that make sense after a submission."""
    pairs = [("status", "logs -f"), ("scale", "stop")]
    left = max(len(f"edlz {first} {word} --workers=N") for first, _ in pairs)
    lines: list[Line] = []
    for first, second in pairs:
        more = " --workers=N" if first == "scale" else ""
        text = f"edlz {first} {word}{more}".ljust(left)
        lines.append([Span(f"  {text}    edlz {second} {word}", "bold")])
    return lines


def object_lines(config: JobConfig, image: str, master: str) -> list[Line]:
    """Return what a submission would create, and what the master would."""
    pods = [
        f"{role}-0 to {count - 1}" if count > 1 else f"{role}-0" for role, count in _counts(config) if count
    ]
    rows = [
        ["Pod", master, f"image {image}"],
        ["by it", "pods, services, keys", ", ".join(pods)],
    ]
    return aligned(["OBJECT", "NAME", ""], rows)


def _counts(config: JobConfig) -> list[tuple[str, int]]:
    return [("ps", config.num_ps_pods), ("worker", config.num_workers)]
