"""Ends a process when what it ran for is over, whatever its jobs have left running.

The interpreter would wait for their threads, for ever perhaps.
"""

import atexit
import contextlib
import os
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """Call what the application wants called at the end, write out what is printed, and end."""
    try:
        atexit._run_exitfuncs()
        write_out()
    finally:
        os._exit(status)


def write_out() -> None:
    """Write what the process has printed and still keeps in its buffers."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it is, when the process began without the file
            with contextlib.suppress(ValueError, OSError):  # a job has closed it
                stream.flush()
