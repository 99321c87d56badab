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
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError):  # a job has closed it
            stream.flush()
    os._exit(status)
