"""`python -m benchmarks.traced_worker TRACE …`: a worker that notes what its engine was at, and when its pushes were answered.

TRACE becomes a JSON object, in seconds of a clock that does not go back: `work`, a list of [kind, begun, ended] of all that
the engine's thread did, and `pushes`, one of [sent, answered].
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from edlz.services.protocol.messages import Exchange
from edlz.services.transport.rpc import OnAnswer, RpcClient
from edlz.services.worker.__main__ import main
from edlz.services.worker.pace import Pace

__all__: list[str] = []


def _note_pushes(pushes: list[list[float]]) -> None:
    """Let every client of this process note its pushes."""
    send = RpcClient.send

    def noted(self: RpcClient, body: Any, on_answer: OnAnswer, **more: Any) -> int:
        if not isinstance(body, Exchange) or body.push is None:
            return send(self, body, on_answer, **more)
        times = [time.monotonic()]
        pushes.append(times)

        def answered(answer: Any) -> None:
            times.append(time.monotonic())
            on_answer(answer)

        return send(self, body, answered, **more)

    RpcClient.send = noted  # type: ignore[method-assign]


def _note_work(work: list[list[Any]]) -> None:
    """Note each piece of work of the engine's thread."""
    begin, end = Pace.begin, Pace.end

    def begun(self: Pace, kind: str, now: float) -> None:
        work.append([kind, now])
        begin(self, kind, now)

    def ended(self: Pace, now: float) -> None:
        work[-1].append(now)
        end(self, now)

    Pace.begin, Pace.end = begun, ended  # type: ignore[method-assign]


if __name__ == "__main__":
    place, trace = Path(sys.argv.pop(1)), {"work": [], "pushes": []}
    _note_pushes(trace["pushes"])
    _note_work(trace["work"])
    code = main()
    place.write_text(json.dumps(trace))
    sys.exit(code)
