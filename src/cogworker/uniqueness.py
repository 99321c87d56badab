"""The name of a unique job's lock: what must be the same for two calls to be duplicates."""

from collections.abc import Callable
from typing import Any

import msgspec

from cogworker.codec import ArgumentCodec, encode_json
from cogworker.errors import DeclarationError
from cogworker.features.unique import digest
from cogworker.options import Options, UniqueBy

Lock = Callable[[tuple[Any, ...], dict[str, Any], bytes], str]
"""From a call's arguments, and the positional ones as JSON, to the name of its lock."""

_OfWhat = Callable[[ArgumentCodec, tuple[Any, ...], dict[str, Any], bytes], bytes]
"""What of a call must be the same, as JSON."""

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
    if callable(by):
        key_of = by
        return lambda _codec, args, kwargs, _encoded: encode_json(
            key_of(*args, **kwargs), "unique_by()", job
        )
    names = _checked(by, codec, job)

    def by_names(
        codec: ArgumentCodec, args: tuple[Any, ...], kwargs: dict[str, Any], _encoded: bytes
    ) -> bytes:
        encoded, named = codec.encode(*codec.normalise(args, kwargs))
        given = dict(zip(codec.parameters, _values.decode(encoded), strict=False))
        given |= {} if named is None else _fields(named)
        return msgspec.json.encode([given.get(name) for name in names])

    return by_names


def _fields(named: bytes) -> dict[str, msgspec.Raw]:
    return dict(sorted(_named_values.decode(named).items()))


def _checked(by: Any, codec: ArgumentCodec, job: str) -> tuple[str, ...]:
    if isinstance(by, str) or not all(isinstance(name, str) for name in by):
        raise DeclarationError(
            f"{job}: unique_by must be a function, or names of parameters in a list, "
            f"not {by!r:.100}"
        )
    for name in by:
        if name not in codec.parameters:
            raise DeclarationError(f"{job}: unique_by names {name!r}, which is no parameter of it")
    return tuple(by)
