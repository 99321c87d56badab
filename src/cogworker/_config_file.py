"""Reads a configuration file: YAML, with references to environment variables. Knows no setting."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cogworker._kinds import printable
from cogworker.errors import ConfigError

_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}", re.ASCII)
_DEPTH = 4
"""How deep in a value references are looked for: ``periodic`` is a list of
mappings, whose ``args`` may be a list of lists."""


def parse(path: Any, source: str) -> dict[Any, Any]:
    """What a file holds. Raises ConfigError, which names the ``source``."""
    import yaml  # only here: it takes longer to import than all of the rest

    try:
        text = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise ConfigError("config", f"can't be read: {reason}", source) from None
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = f" (line {mark.line + 1})" if mark else ""
        # What PyYAML quotes may be a password (*name is an alias, !name a tag), if it is not a
        # single character or a '<token>'.
        quoted = re.compile(r"""('[^!].?'|'<[a-z ]+>')|['"].*""", re.DOTALL)
        reason = quoted.sub(lambda m: m[1] or "'...'", problem or "a character is not allowed")
        raise ConfigError("config", f"is not YAML: {reason}{line}", source) from None
    except Exception as error:  # PyYAML lets many through, such as a ValueError for 2024-99-99
        problem = f"has a value that YAML can't read ({type(error).__name__})"
        raise ConfigError("config", problem, source) from None
    if content is not None and not isinstance(content, dict):
        problem = f"must be a mapping of settings, not a {type(content).__name__}"
        raise ConfigError("config", problem, source)
    return content or {}  # None is a file of comments


def filled(content: Mapping[Any, Any], environ: Mapping[str, str], source: str) -> dict[Any, Any]:
    """Replace ``${NAME}`` and ``${NAME:-default}`` in values. Raises ConfigError."""
    return {key: _fill(value, environ, key, source, _DEPTH) for key, value in content.items()}


def _fill(value: Any, environ: Mapping[str, str], key: object, source: str, depth: int) -> Any:
    def replace(match: re.Match[str]) -> str:
        name, default = match.groups()
        if default is None and name not in environ:
            problem = f"needs the environment variable {name}; set it or write ${{{name}:-default}}"
            raise ConfigError(printable(key), problem, source)
        return environ.get(name) or default or ""

    if isinstance(value, str) and _REFERENCE.search(value):
        return _REFERENCE.sub(replace, value) or None  # empty: not given, as in the environment
    if isinstance(value, list) and depth:
        return [_fill(item, environ, key, source, depth - 1) for item in value]
    if isinstance(value, dict) and depth:
        return {k: _fill(v, environ, key, source, depth - 1) for k, v in value.items()}
    return value
