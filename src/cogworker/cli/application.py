"""Finds the application that ``-r`` names.

Whatever its import raises becomes one error, with the application's own frames and no others.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import cogworker
from cogworker.app import Cogworker
from cogworker.errors import CogworkerError, ConfigError

SETTING = "-r/--require"
_NOT_THE_APPLICATION_S = (
    str(Path(cogworker.__file__).parent) + os.sep,
    str(Path(importlib.__file__).parent) + os.sep,
    "<frozen importlib",
)


class Unimportable(CogworkerError):
    """The application's import raised something; the first line says what, the others where."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__("\n".join(_what_and_where(f"can't import {name}", error)))


def load(names: Sequence[str]) -> Cogworker:
    """Import each module and answer with the one application among them.

    A name is ``package.module:attribute``, ``package.module`` or the path of a Python file; the
    working directory is importable. Raises ConfigError and Unimportable.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found: dict[int, tuple[str, Cogworker]] = {}
    for name in names:
        try:
            applications = _applications(name)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            raise Unimportable(name.partition(":")[0], error) from error
        for application in applications:
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
            raise  # it is missing somewhere in the application
        raise ConfigError(
            SETTING,
            f"there is no module {error.name}; modules are looked for in {Path.cwd()} and "
            f"among the installed packages",
        ) from error


def _what_and_where(words: str, error: BaseException) -> Iterator[str]:
    """An error in one line, the frames that lead to it, and the same for what has caused it."""
    told: traceback.TracebackException | None = traceback.TracebackException.from_exception(error)
    cause: BaseException | None = error
    while told is not None and cause is not None:
        text = " ".join(str(cause).split())
        yield f"{words}: {type(cause).__name__}" + (f": {text}" if text else "")
        frames = [f for f in told.stack if not f.filename.startswith(_NOT_THE_APPLICATION_S)]
        yield from "".join(traceback.format_list(frames)).splitlines()
        if isinstance(cause, SyntaxError):  # it lies in no frame, for it was not run
            yield from "".join(list(told.format_exception_only())[:-1]).splitlines()
        told, cause, words = told.__cause__, cause.__cause__, "caused by"
