"""A parameter server behind a line: `python -m benchmarks.chaos_ps ADDRESS FLAGS...`.

It is the parameter server as it is, but the master hears of ADDRESS in place of where it listens.
"""

import sys
from typing import Any

from edlz.services.ps import service
from edlz.services.ps.__main__ import main as serve
from edlz.services.transport.rpc import RpcServer

__all__ = ["main"]


def main() -> int:
    address, *sys.argv[1:] = sys.argv[1:]

    class BehindLine(RpcServer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.endpoint = address

    service.RpcServer = BehindLine  # type: ignore[attr-defined]
    return serve()


if __name__ == "__main__":
    sys.exit(main())
