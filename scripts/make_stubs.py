"""Write client/__init__.pyi, by which editors complete the flags: `python scripts/make_stubs.py`.

A test fails when the flags have changed without that.
"""

import sys
from pathlib import Path

from edlz.client.python.arguments import kind_of, parameters
from edlz.client.python.calls import SUMMARIES
from edlz.services.configuration.flags import Flag, Reader

__all__ = ["STUB", "made"]

STUB = Path(__file__).parents[1] / "client" / "__init__.pyi"
_HEAD = '''\
"""Made of the flags by scripts/make_stubs.py."""

from edlz.client.python.handle import Job as Job
from edlz.client.python.handle import JobFailed as JobFailed
from edlz.client.python.handle import JobResult as JobResult
from edlz.client.python.handle import JobStopped as JobStopped
from edlz.client.python.handle import get as get
from edlz.client.python.handle import jobs as jobs
'''


def made() -> str:
    """Return the stub as the flags are now."""
    calls = [_call(command, is_async=is_async) for command in SUMMARIES for is_async in (False, True)]
    return "\n".join([_HEAD, *calls]) + "\n"


def _call(command: Reader, *, is_async: bool) -> str:
    begin = f"async def {command}_async(" if is_async else f"def {command}("
    lines = [f"    {_parameter(about, command)}" for about in parameters(command)]
    return "\n".join([begin, "    *,", *lines, ") -> Job: ..."])


def _parameter(about: Flag, command: Reader) -> str:
    default = about.default_for(command)
    kind = kind_of(about).__name__ + ("" if default is not None else " | None")
    text = repr(default).replace("'", '"') if isinstance(default, str) else repr(default)
    return f"{about.name}: {kind} = {text},  # {about.help_for(command)}"


def main() -> int:
    STUB.write_text(made())
    return 0


if __name__ == "__main__":
    sys.exit(main())
