"""The Lua scripts: one file a script in ``lua/``, shared parts in ``lua/include/``.

A line ``-- @include name`` is replaced by ``lua/include/name.lua``, each once in a script.
"""

import hashlib
import re
from importlib.resources import files
from typing import NamedTuple

_INCLUDE = re.compile(r"^-- @include (\w+)\n", re.MULTILINE)


class Script(NamedTuple):
    """A script's text and the digest by which the server knows it."""

    name: str
    source: str
    sha: str


def load(name: str) -> Script:
    """Read a script and what it includes."""
    folder = files("cogworker._redis") / "lua"
    included: set[str] = set()

    def include(match: re.Match[str]) -> str:
        part = match[1]
        if part in included:
            return ""
        included.add(part)
        text = (folder / "include" / f"{part}.lua").read_text("utf-8")
        return _INCLUDE.sub(include, text)

    source = _INCLUDE.sub(include, (folder / f"{name}.lua").read_text("utf-8"))
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324


BEAT = load("beat")
BEATS = load("beats")
DUE = load("due")
EXAMINE = load("examine")
FLEET = load("fleet")
HASHES = load("hashes")
HELD = load("held")
INTAKE = load("intake")
LOCKS = load("locks")
MOVE = load("move")
NOW = load("now")
ORDER = load("order")
PAGE = load("page")
PAUSE = load("pause")
PUSH = load("push")
QUARANTINE = load("quarantine")
QUEUES = load("queues")
RESCUE = load("rescue")
RING = load("ring")
STALE = load("stale")
STANDING = load("standing")
STATS = load("stats")
TURN = load("turn")
TYPES = load("types")
UNLOCK = load("unlock")
