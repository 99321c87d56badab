"""Notices that Python files have changed, for development, in a child of its own.

So the parent has no threads when it forks, and a watcher that fails ends nothing else.
"""

import importlib.util
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from cogworker.errors import CogworkerError
from cogworker.swarm.child import Body


def watcher_of(folders: Sequence[Path]) -> Body:
    """What a child does to say ``changed`` for each change below some folders.

    Raises CogworkerError when the package that it needs is not there.
    """
    if importlib.util.find_spec("watchfiles") is None:
        raise CogworkerError('--reload needs watchfiles: pip install "cogworker[reload]"')

    def watch(reports: int, lifeline: int) -> int:
        import watchfiles  # here: it is an extra, and its threads must not be the parent's

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
        threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
        for changes in watchfiles.watch(*folders, watch_filter=watchfiles.PythonFilter()):
            paths = sorted(path for _, path in changes)
            words = f"changed files={len(paths)} first={paths[0]!r}\n"
            os.write(reports, words.encode())
        return 0

    return watch


def _end_with_parent(lifeline: int) -> None:
    """The parent needs it no longer, or is dead; nothing is lost when it ends in mid-work."""
    os.read(lifeline, 1)
    os._exit(0)
