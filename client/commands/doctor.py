"""`edlz doctor`: whether jobs can run here, and what to correct; a text for a bug report."""

import os
from typing import Annotated

import typer

from edlz.client.arguments.flag_values import output_format
from edlz.client.doctor.examination import examine, to_correct
from edlz.client.doctor.page import doctor_lines, doctor_object
from edlz.client.doctor.software import environment_of, versions
from edlz.client.screen.json_objects import object_text
from edlz.client.screen.terminal import print_text

__all__ = ["doctor"]

_FORMATS = ("table", "json")
TROUBLE = 1


def doctor(
    output: Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="table | json")] = "table",
) -> None:
    """See whether jobs can run here, and say what to correct."""
    output_format(output, _FORMATS)
    checks = examine()
    wrong = to_correct(checks)
    about = (versions(), checks, wrong, environment_of(os.environ))
    if output == "json":
        print(object_text(doctor_object(*about), "json"))
    else:
        print_text(doctor_lines(*about))
    if any(check.mark == "no" for check in wrong):
        raise typer.Exit(TROUBLE)
