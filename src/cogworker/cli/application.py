"""Finds the application that ``-r`` names."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from cogworker.app import Cogworker
from cogworker.errors import ConfigError

SETTING = "-r/--require"


def load(names: Sequence[str]) -> Cogworker:
    """Import each module and answer with the one application among them.

    A name is ``package.module:attribute``, ``package.module`` or the path of a Python file; the
    working directory is importable. Raises ConfigError.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found: dict[int, tuple[str, Cogworker]] = {}
    for name in names:
        for application in _applications(name):
            found[id(application)] = (name, application)
    if len(found) == 1:
        [(_, application)] = found.values()
        return application
    if not found:
        raise ConfigError(
            SETTING,
            f"{' '.join(names)} has no Cogworker object; name the module that makes it, "
            f"for example -r package.module:cog",
        )
    where = ", ".join(sorted({name for name, _ in found.values()}))
    raise ConfigError(
        SETTING, f"{where} has {len(found)} Cogworker objects; say which one: module:attribute"
    )


def _applications(name: str) -> list[Cogworker]:
    module_name, colon, attribute = name.partition(":")
    module = _import(module_name)
    if not colon:
        return [value for value in vars(module).values() if isinstance(value, Cogworker)]
    value: object = module
    for part in attribute.split("."):
        value = getattr(value, part, None)
    if not isinstance(value, Cogworker):
        known = [key for key, each in vars(module).items() if isinstance(each, Cogworker)]
        hint = f"; it has {', '.join(known)}" if known else ""
        raise ConfigError(SETTING, f"{attribute!r} in {module_name} is no Cogworker object{hint}")
    return [value]


def _import(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise ConfigError(SETTING, f"there is no file {name}")
        sys.path.insert(0, str(path.parent.resolve()))
        name = path.stem
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(SETTING, f"{name!r} is not a module's name")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # it is missing somewhere in the application: its stack trace says where
        raise ConfigError(
            SETTING,
            f"there is no module {error.name}; modules are looked for in {Path.cwd()} and "
            f"among the installed packages",
        ) from error
