"""What every thread and task is doing, for the log."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType


def describe_stacks(loop: asyncio.AbstractEventLoop | None) -> str:
    """The stacks of all threads, and of the tasks of the event loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, '?')}\n" + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
    ]
    if loop is not None:
        for task in asyncio.all_tasks(loop):
            lines = [line for frame in _frames(task) for line in traceback.format_stack(frame, 1)]
            parts.append(f"task {task.get_name()}\n" + "".join(lines))
    return "\n".join(parts)


def _frames(task: "asyncio.Task[object]") -> Iterator[FrameType]:
    """A waiting task's frames; ``Task.get_stack`` knows only the outermost."""
    awaited: object = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None)
