"""Becomes a service whose life hangs on its parent's: `child.py PARENT_PID PROGRAM ARGUMENTS…`.

Run as a file, by an interpreter that imports nothing (`-I -S`); it asks the system to kill it when the
parent dies, and then becomes the program.  The system has no such request but on Linux: elsewhere it only
becomes the program.  A hangup (SIGHUP) of the whole session is the parent's to heed: it has the job saved, and
needs its services for that.
"""

import ctypes
import os
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1  # prctl(2); survives execve, not fork


def main(arguments: list[str]) -> None:
    """Tie this process to its parent and become the program.

    Parameters
    ----------
    arguments : list of str
        The parent's process id, the program, its arguments.

    Raises
    ------
    OSError
        If the system ties no process to its parent, or does not run the program.
    """
    parent, program = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # survives execve
    if os.getppid() != parent:  # it died before the request was made
        sys.exit(1)
    os.execv(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
