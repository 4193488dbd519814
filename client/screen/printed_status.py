"""A job's status on standard output: the screen of `edlz status`, or the object that scripts read."""

import sys
import time
from typing import TYPE_CHECKING

from edlz.client.screen.jobs import job_object
from edlz.client.screen.json_objects import object_text
from edlz.client.screen.status import status_screen
from edlz.client.screen.terminal import glyphs_for, print_lines, width_for

if TYPE_CHECKING:
    from edlz.client.screen.job_view import JobView

__all__ = ["print_status"]


def print_status(view: "JobView", output: str = "table", *, is_line: bool = False) -> None:
    """Print the screen of `edlz status`, or the object that scripts read; `is_line`: JSON as one line."""
    if output in ("json", "yaml"):
        print(object_text(job_object(view), output, is_line=is_line))
        return
    is_wide = output == "wide"
    screen = status_screen(
        view,
        time.time(),
        width=None if is_wide else width_for(sys.stdout),
        is_wide=is_wide,
        has_checkpoints=view.has_checkpoints,
        glyphs=glyphs_for(sys.stdout),
    )
    print_lines(screen)
