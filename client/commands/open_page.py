"""`edlz open`: a job's status page in a browser; of a job that has ended, the report that it has left."""

import os
import sys
import webbrowser
from typing import Annotated

import typer

from edlz.client.arguments.jobs import JobArgument, NamespaceFlag, chosen_job

__all__ = ["open"]

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # without one a browser would take the terminal, or fail


def open(  # noqa: A001  the command's name
    job: JobArgument = None,
    only_print: Annotated[bool, typer.Option("--print", help="say the address, open no browser")] = False,
    namespace: NamespaceFlag = "",
) -> None:
    """Open a job's status page in a browser."""

    def show(address: str) -> None:
        print(address, flush=True)
        if not only_print and (sys.platform == "darwin" or any(os.environ.get(name) for name in _SCREENS)):
            webbrowser.open(address)

    chosen_job(job, namespace).open_page(show)
