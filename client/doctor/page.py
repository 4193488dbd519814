"""What `edlz doctor` has found, in words: a page that may be put into a bug report, and an object for scripts.  Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from edlz.client.screen.checks import Check, check_lines
from edlz.client.screen.json_objects import API_VERSION
from edlz.client.screen.spans import Line, Span

__all__ = ["doctor_lines", "doctor_object"]


def doctor_lines(
    versions: Mapping[str, str],
    checks: Sequence[Check],
    wrong: Sequence[Check],
    environment: Mapping[str, str],
) -> list[Line]:
    """Return the page.

    Parameters
    ----------
    versions : mapping
        Of packages and the system, by name.
    checks : sequence of Check
        All that was found.
    wrong : sequence of Check
        What of it should be corrected, the worst first.
    environment : mapping
        Variables that matter, without secrets.
    """
    title = f"edlz {versions['edlz'] or '(not installed)'}"
    lines: list[Line] = [
        [Span(title, "bold"), Span(f"  Python {versions['python']}, {versions['system']}")],
        *check_lines(checks),
    ]
    if environment:
        lines.append([Span("  environment", "dim")])
        lines += [[Span(f"    {name}={value}")] for name, value in environment.items()]
    if not wrong:
        return [*lines, [Span("Nothing to correct.", "good")]]
    lines.append([Span("To correct:", "bold")])
    for check in wrong:
        lines.append([Span(f"  {check.about}: ", "bad" if check.mark == "no" else "wait"), Span(check.text)])
        if check.help:
            lines.append([Span("      help: ", "dim"), Span(check.help, "bold")])
    return lines


def doctor_object(
    versions: Mapping[str, str],
    checks: Sequence[Check],
    wrong: Sequence[Check],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return what `edlz doctor -o json` prints."""
    return {
        "api": API_VERSION,
        "versions": {name: version or None for name, version in versions.items()},
        "checks": [_check(check) for check in checks],
        "environment": dict(environment),
        "to_correct": [check.about for check in wrong],
    }


def _check(check: Check) -> dict[str, str | None]:
    return {"mark": check.mark, "about": check.about, "text": check.text, "help": check.help or None}
