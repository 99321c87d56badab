"""The name of a unique job's lock: what must be the same for two calls to be duplicates."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from cogworker.codec import ArgumentCodec, encode_json
from cogworker.errors import DeclarationError, InvalidArguments
from cogworker.features.unique import digest
from cogworker.options import Options, UniqueBy

Lock = Callable[[tuple[Any, ...], dict[str, Any], bytes], str]
"""From a call's arguments, and the positional ones as JSON, to the name of its lock."""

_OfWhat = Callable[[ArgumentCodec, tuple[Any, ...], dict[str, Any], bytes], bytes]
"""What of a call must be the same, as JSON."""


_KEY = "unique_by()"

_values = msgspec.json.Decoder(list[msgspec.Raw])
_named_values = msgspec.json.Decoder(dict[str, msgspec.Raw])


def lock_of(options: Options, codec: ArgumentCodec, job: str) -> Lock | None:
    """How a job's locks are named; None when it is not unique. Raises DeclarationError.

    Two calls are the same when their arguments are, however they are written: ``f(1)`` and
    ``f(a=1)``; a default that is left out differs from one that is given.
    """
    if options.unique is None:
        return None
    of_what = _by_all if options.unique_by is None else _by(options.unique_by, codec, job)

    def name(args: tuple[Any, ...], kwargs: dict[str, Any], encoded: bytes) -> str:
        return digest(job, options.queue, of_what(codec, args, kwargs, encoded))

    return name


def _by_all(
    codec: ArgumentCodec, args: tuple[Any, ...], kwargs: dict[str, Any], encoded: bytes
) -> bytes:
    if not kwargs:
        return encoded  # the Ruby system's formula, so that its duplicates are ours
    encoded, named = codec.encode(*codec.normalise(args, kwargs))
    return encoded if named is None else encoded + b"|" + msgspec.json.encode(_fields(named))


def _by(by: UniqueBy, codec: ArgumentCodec, job: str) -> _OfWhat:
    return _by_key(by, job) if callable(by) else _by_names(_checked(by, codec, job))


def _by_key(key_of: Callable[..., Any], job: str) -> _OfWhat:
    if inspect.iscoroutinefunction(key_of):
        raise DeclarationError(f"{job}: unique_by is called by enqueue and can't be async")

    def by_key(
        codec: ArgumentCodec, args: tuple[Any, ...], kwargs: dict[str, Any], _encoded: bytes
    ) -> bytes:
        args, kwargs = codec.normalise(args, kwargs)
        try:
            key = key_of(*args, **kwargs)
        except Exception as error:
            raise InvalidArguments(job, _KEY, f"failed: {type(error).__name__}: {error}") from error
        return encode_json(key, _KEY, job)

    return by_key


def _by_names(names: Sequence[str]) -> _OfWhat:
    def by_names(
        codec: ArgumentCodec, args: tuple[Any, ...], kwargs: dict[str, Any], _encoded: bytes
    ) -> bytes:
        encoded, named = codec.encode(*codec.normalise(args, kwargs))
        given = _by_parameter(codec.parameters, _values.decode(encoded), named)
        return msgspec.json.encode([given.get(name) for name in names])

    return by_names


def _by_parameter(
    parameters: Mapping[str, inspect.Parameter], values: list[msgspec.Raw], named: bytes | None
) -> dict[str, Any]:
    """What was given for each parameter, as JSON; all that is left for ``*args`` and ``**kwargs``.

    Parameters that got nothing are not there.
    """
    rest = iter(values)
    left = {} if named is None else _fields(named)
    given: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            given[name] = list(rest)
        elif parameter.kind is parameter.VAR_KEYWORD:
            given[name] = left
        elif name in left and parameter.kind is not parameter.POSITIONAL_ONLY:
            given[name] = left.pop(name)
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            given[name] = next(rest, None)
    return given


def _fields(named: bytes) -> dict[str, msgspec.Raw]:
    return dict(sorted(_named_values.decode(named).items()))


def _checked(by: Any, codec: ArgumentCodec, job: str) -> tuple[str, ...]:
    listed = isinstance(by, Sequence) and not isinstance(by, str)
    if not listed or not all(isinstance(name, str) for name in by):
        raise DeclarationError(
            f"{job}: unique_by must be a function, or names of parameters in a list, "
            f"not {by!r:.100}"
        )
    for name in by:
        if name not in codec.parameters:
            raise DeclarationError(f"{job}: unique_by names {name!r}, which is no parameter of it")
    return tuple(by)
