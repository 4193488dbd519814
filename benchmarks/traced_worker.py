"""`python -m benchmarks.traced_worker TRACE [--drain_behind TASKS] …`: a worker that notes what its engine was at.

TRACE becomes a JSON list of [kind, begun, ended] of all that the engine's thread did, in seconds of a clock that does not go
back.  With `--drain_behind`, behind each so many tasks it takes no other one until it has finished all that it has.
"""

import json
import sys
from pathlib import Path
from typing import Any

from edlz.services.worker.__main__ import main
from edlz.services.worker.core.held_tasks import HeldTasks, Phase
from edlz.services.worker.pace import Pace

__all__: list[str] = []


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


def _drain_behind(count: int) -> None:
    """Let the pipeline run empty behind each so many tasks."""
    has_room = vars(HeldTasks)["wants_task"].fget
    assert has_room is not None

    def wants_task(self: HeldTasks) -> bool:
        is_empty = all(held.phase is Phase.REPORTING for held in self)
        return has_room(self) and (is_empty or (max(self.tasks) + 1) % count > 0)

    HeldTasks.wants_task = property(wants_task)  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    place = Path(sys.argv.pop(1))
    noted: list[list[Any]] = []
    if sys.argv[1] == "--drain_behind":
        _drain_behind(int(sys.argv[2]))
        del sys.argv[1:3]
    _note_work(noted)
    code = main()
    place.write_text(json.dumps(noted))
    sys.exit(code)
