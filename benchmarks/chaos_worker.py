"""A worker behind a line: `python -m benchmarks.chaos_worker ADDRESS FILE FLAGS...`.

It is the worker as it is, but others hear of ADDRESS in place of where it listens, and after each step of its replica the
version stands in FILE: eight bytes.
"""

import os
import sys
from typing import Any

from edlz.services.parameters.mean_step import NextValues
from edlz.services.parameters.store import Store
from edlz.services.transport.rpc import RpcServer
from edlz.services.worker import members
from edlz.services.worker.__main__ import main as work

__all__ = ["main"]


def main() -> int:
    address, file, *sys.argv[1:] = sys.argv[1:]
    versions = os.open(file, os.O_CREAT | os.O_WRONLY)
    advance = Store.advance

    class BehindLine(RpcServer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.endpoint = address

    def advance_and_tell(self: Store, values: NextValues) -> None:
        advance(self, values)
        os.pwrite(versions, self.version.to_bytes(8, "little"), 0)

    members.RpcServer = BehindLine  # type: ignore[attr-defined]
    Store.advance = advance_and_tell  # type: ignore[method-assign]
    return work()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # as a worker does
