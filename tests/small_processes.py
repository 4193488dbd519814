"""Programs of one line for processes that a test starts, and what became of those."""

import os
from pathlib import Path

import msgspec

from edlz.services.protocol.messages import ProcessExit

__all__ = ["FAILS", "LIMIT_S", "STUBBORN", "TELLS_PID", "WAITS", "is_gone", "unnumbered"]

LIMIT_S = 30.0
WAITS = "import signal; print('ready', flush=True); signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGUSR2, signal.SIG_IGN); {WAITS}"
TELLS_PID = "import os, signal; print(os.getpid(), flush=True); signal.pause()"  # prints one line
FAILS = "raise SystemExit(3)"


def unnumbered(exit_: ProcessExit | None) -> ProcessExit | None:
    """How a process ended, whichever start of it that was."""
    return exit_ and msgspec.structs.replace(exit_, launch=0)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"
