"""How the arguments of one function, and its result, travel as JSON and come back.

A codec is built once, when a job is declared: each parameter's annotation is resolved, and kept if
msgspec can carry it. Then ``encode``: the signature, the values (each as its annotation says, and
proved by decoding it again; without an annotation, JSON's own types only), the text. And
``decode``: the text, straight to typed values, and the signature once more, since other software
may have written it.

The usual case is quick in both directions; whatever fails there is done again value by value, to
find out which one it was. What survives is exact; everything else is refused with its path.
"""

import inspect
import json
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import repeat
from math import isfinite
from typing import Any, TypeVar

import msgspec

from cogworker._exactness import (
    ATOMS,
    JSON_NAMES,
    MAX_DEPTH,
    TOO_DEEP,
    RefusedError,
    describe,
    find_difference,
    find_foreign,
    find_unencodable,
    list_kinds,
    locate,
    name_of,
    step,
)
from cogworker.errors import DeclarationError, InvalidArguments, InvalidPayload

__all__ = ["MAX_DEPTH", "ArgumentCodec", "decode_json", "encode_json"]

if sys.version_info >= (3, 14):
    from annotationlib import Format

# For more positional arguments than this no decoder is kept: *args has no end, and memory has.
_MAX_DECODERS = 64

_encode = msgspec.json.encode
_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_any_list = msgspec.json.Decoder(list[Any])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])
_raw_dict = msgspec.json.Decoder(dict[str, msgspec.Raw])

_T = TypeVar("_T")
_Json = bytes | memoryview | msgspec.Raw


def encode_json(value: Any, path: str, owner: str) -> bytes:
    """Encode one value that no annotation describes.

    Only JSON's own types are taken, by exact type; InvalidArguments tells ``owner`` (the job's
    name) and where in ``path`` (``args[0]``) something else lies.
    """
    return _report(owner, path, _encode_untyped, value)


def decode_json(raw: _Json) -> Any:
    """Decode one value; InvalidPayload if it isn't JSON in UTF-8."""
    try:
        try:
            return _anything.decode(raw)
        except ValueError:
            # msgspec refuses an escaped lone surrogate, which other software may have written.
            return json.loads(str(raw, "utf-8"))
    except RecursionError:
        raise InvalidPayload(f"not readable as JSON: it {TOO_DEEP}") from None
    except ValueError as error:
        raise InvalidPayload(f"not readable as JSON: {error}; send JSON in UTF-8") from None


class ArgumentCodec:
    """Turn the arguments of ``function`` into JSON and back, exactly or not at all.

    ``job`` is the name that errors show. A parameter whose annotation can't be resolved, or that
    msgspec can't carry, is treated like one without.
    """

    def __init__(self, function: Callable[..., Any], job: str) -> None:
        self._job = job
        self._signature = _read_signature(function, job)
        self._positional: list[_Parameter] = []
        self._named: dict[str, _Parameter] = {}
        self._extra: _Parameter | None = None
        self._extra_named: _Parameter | None = None
        # How many positional arguments fit when there are no keywords; what any call must give.
        self._least = self._most = 0
        self._required: set[str] = set()
        self._typed = False
        self._decoders: dict[int, msgspec.json.Decoder[Any]] = {}
        self._namespace = getattr(inspect.unwrap(function), "__globals__", {})
        for parameter in self._signature.parameters.values():
            self._add(parameter, _Parameter(parameter, self._namespace))

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, bytes | None]:
        """Encode the arguments of one call: a JSON list, and a JSON object or None.

        InvalidArguments if the call does not fit the signature or a value can't travel.
        """
        self._check(args, kwargs)
        return self._encode_args(args), self._encode_kwargs(kwargs) if kwargs else None

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters by name, in order."""
        return self._signature.parameters

    def normalise(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call, with whatever can be positional as positional."""
        bound = self._signature.bind(*args, **kwargs)
        return bound.args, bound.kwargs

    def decode(self, args: _Json, kwargs: _Json | None) -> tuple[Sequence[Any], dict[str, Any]]:
        """Decode what ``encode``, or other software, has written.

        InvalidArguments if it is not JSON, or does not fit the annotations or the signature: the
        function can be called with what is returned.
        """
        try:
            values = self._decode_at_once(args, kwargs is None)
        except Exception:  # anything: a type's own __post_init__ runs in there
            values = None
        if values is None:
            values = self._decode_each(args)
        named = {} if kwargs is None else self._decode_kwargs(kwargs)
        self._check(values, named)
        return values, named

    def encode_result(self, value: Any) -> bytes:
        """Encode what the function has returned; InvalidArguments if it can't travel."""
        return _report(self._job, "the result", self._result.encode, value)

    def decode_result(self, raw: _Json) -> Any:
        """Decode what ``encode_result`` has written; InvalidArguments if it does not fit."""
        return _report(self._job, "the result", self._result.decode, raw)

    @cached_property
    def _result(self) -> "_Parameter":
        declared = inspect.Parameter(
            "return",
            inspect.Parameter.POSITIONAL_ONLY,
            annotation=self._signature.return_annotation,
        )
        return _Parameter(declared, self._namespace)

    def _add(self, declared: inspect.Parameter, parameter: "_Parameter") -> None:
        self._typed |= parameter.decoder is not None
        required = declared.default is declared.empty
        if declared.kind is declared.VAR_POSITIONAL:
            self._extra = parameter
            self._most = sys.maxsize
        elif declared.kind is declared.VAR_KEYWORD:
            self._extra_named = parameter
        elif declared.kind is declared.KEYWORD_ONLY:
            self._named[declared.name] = parameter
            if required:
                self._required.add(declared.name)
                self._least = sys.maxsize  # no call without keywords fits
        else:
            self._positional.append(parameter)
            self._most += 1
            if required:
                self._required.add(declared.name)
                self._least += 1
            if declared.kind is declared.POSITIONAL_OR_KEYWORD:
                self._named[declared.name] = parameter

    def _check(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        if self._fits(len(args), kwargs):  # 0.1 µs; 0.5 with keywords, where bind() takes 2
            return
        try:
            self._signature.bind(*args, **kwargs)
            words = "these arguments do not fit"  # 3.13.0's bind() takes a missing one in **kwargs
        except TypeError as error:
            words = str(error)
        shown = f"{self._job.rpartition('.')[2]}{self._signature}"
        raise InvalidArguments(self._job, "", f"{words}; call it as {shown}")

    def _fits(self, count: int, kwargs: dict[str, Any]) -> bool:
        if not kwargs:
            return self._least <= count <= self._most
        placed = {parameter.name for parameter in self._positional[:count]}
        by_name = self._named.keys() & kwargs.keys()
        return (
            count <= self._most
            and (self._extra_named is not None or len(by_name) == len(kwargs))
            and placed.isdisjoint(by_name)
            and self._required <= placed | by_name
        )

    def _parameters(self, count: int) -> "list[_Parameter]":
        """List the parameters that the first ``count`` positional arguments go to."""
        missing = count - len(self._positional)
        if missing <= 0 or self._extra is None:
            return self._positional[:count]
        return [*self._positional, *repeat(self._extra, missing)]

    def _parameter(self, name: str) -> "_Parameter":
        return self._named.get(name) or self._extra_named or _UNKNOWN

    def _encode_args(self, args: tuple[Any, ...]) -> bytes:
        count = len(args)
        parameters = self._positional if count <= len(self._positional) else self._parameters(count)
        if _are_plain(parameters, args):
            try:
                return _encode(args)
            except ValueError:  # a lone surrogate, a huge integer: named below
                pass
        texts = [
            _report(self._job, f"args[{index}]", parameter.encode, value)
            for index, (parameter, value) in enumerate(zip(parameters, args, strict=False))
        ]
        return b"[%b]" % b",".join(texts)

    def _encode_kwargs(self, kwargs: dict[str, Any]) -> bytes:
        texts = []
        for name, value in kwargs.items():
            key = _report(self._job, "kwargs", _encode_keyword, name)
            path = _keyword_path(name)
            text = _report(self._job, path, self._parameter(name).encode, value)
            texts.append(b"%b:%b" % (key, text))
        return b"{%b}" % b",".join(texts)

    def _decode_at_once(self, raw: _Json, alone: bool) -> Sequence[Any] | None:
        if not self._typed:
            return _any_list.decode(raw)
        count = self._least
        if count != self._most or not alone:  # keywords may stand for positional ones
            count = len(_raw_list.decode(raw))
        decoder = self._decoders.get(count)
        if decoder is None:
            if count > min(self._most, _MAX_DECODERS):
                return None
            hints = tuple(parameter.hint for parameter in self._parameters(count))
            decoder = self._decoders[count] = msgspec.json.Decoder(tuple[hints])  # type: ignore[valid-type]
        return decoder.decode(raw)  # type: ignore[no-any-return]

    def _decode_each(self, raw: _Json) -> list[Any]:
        pieces = _report(self._job, "args", _split, raw, list)
        if len(pieces) > self._most:
            self._check(pieces, {})
        return [
            _report(self._job, f"args[{index}]", parameter.decode, piece)
            for index, (parameter, piece) in enumerate(
                zip(self._parameters(len(pieces)), pieces, strict=True)
            )
        ]

    def _decode_kwargs(self, raw: _Json) -> dict[str, Any]:
        pieces = _report(self._job, "kwargs", _split, raw, dict)
        return {
            name: _report(self._job, _keyword_path(name), self._parameter(name).decode, piece)
            for name, piece in pieces.items()
        }


class _Parameter:
    """One parameter: what it accepts, and how that is written and read."""

    __slots__ = ("annotated", "decoder", "floats", "hint", "name", "obstacle", "plain")

    def __init__(self, declared: inspect.Parameter, namespace: dict[str, Any]) -> None:
        self.name = declared.name
        self.annotated = ""
        self.hint: Any = Any  # as msgspec understands it; Any when there is nothing usable
        self.obstacle = ""  # why the annotation isn't used
        self.plain = ATOMS  # types for which the encoder alone is exact
        self.floats = True  # also finite floats
        self.decoder: msgspec.json.Decoder[Any] | None = None
        if declared.annotation is declared.empty:
            return
        try:
            written = getattr(declared.annotation, "__forward_arg__", declared.annotation)
            shown = written if isinstance(written, str) else inspect.formatannotation(written)
            self.annotated = shown
            hint = _resolve(declared.name, declared.annotation, namespace)
            kinds = list_kinds(hint)
        except Exception as error:  # an annotation is an expression: it may raise anything
            self.obstacle = f"{type(error).__name__}: {error}"
            return
        if kinds is None:
            return
        self.hint = hint
        self.decoder = msgspec.json.Decoder(hint)
        self.floats = float in kinds
        self.plain = kinds - {float}

    def encode(self, value: Any) -> bytes:
        if _are_plain((self,), (value,)):
            with suppress(ValueError):
                return _encode(value)
        decoder = self.decoder
        if decoder is None:
            return _encode_untyped(value, self._advise)
        try:
            text = _encode(value)
        except RecursionError:
            raise
        except Exception:
            below, leaf = find_unencodable(value)
            raise RefusedError(below, describe(leaf, self._advise(leaf, below))) from None
        try:
            fault = find_difference(value, decoder.decode(text))
        except RecursionError:
            raise
        except Exception as error:
            below, leaf, words = locate(decoder, text, value, error)
            if type(leaf) is float and not isfinite(leaf):  # written as null
                raise RefusedError(below, describe(leaf, "")) from None
            fault = below, f"does not fit {self}: {words}; pass what the annotation says"
        if fault is None:
            return text
        raise RefusedError(*fault)

    def decode(self, piece: _Json) -> Any:
        decoder = self.decoder
        if decoder is None:
            return decode_json(piece)
        try:
            return decoder.decode(piece)
        except RecursionError:
            raise
        except Exception as error:
            below, _, words = locate(decoder, bytes(piece), decode_json(piece), error)
        raise RefusedError(below, f"does not fit {self}: {words}; send what the annotation says")

    def _advise(self, leaf: Any, below: str) -> str:
        if self.obstacle:
            return f"mend the annotation {self}, now ignored ({self.obstacle}), or "
        if below or self.decoder is not None or type(leaf) is dict:
            return f"say so in the annotation of {self._called}, or "
        kind = type(leaf).__name__
        if self.name == "return":
            return f"annotate the function with `-> {kind}`, or "
        return f"annotate the parameter `{self.name}: {kind}`, or "

    @property
    def _called(self) -> str:
        return "what is returned" if self.name == "return" else f"the parameter `{self.name}`"

    def __str__(self) -> str:
        return f"`{self.name}: {self.annotated}`"


def _read_signature(function: Callable[..., Any], job: str) -> inspect.Signature:
    try:
        if sys.version_info >= (3, 14):
            # 3.14 evaluates annotations only now, and one that fails must not stop us.
            try:
                return inspect.signature(function, annotation_format=Format.FORWARDREF)
            except Exception:  # an annotation is an expression: it may raise anything
                return inspect.signature(function, annotation_format=Format.STRING)
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{job}: {error}; a job is a function with a signature") from None


def _resolve(name: str, annotation: Any, namespace: dict[str, Any]) -> Any:
    # One at a time, since one that does not resolve would spoil the others.
    def holder() -> None: ...

    holder.__annotations__ = {name: annotation}
    return typing.get_type_hints(holder, namespace, include_extras=True)[name]


def _report(job: str, path: str, action: Callable[..., _T], *operands: Any) -> _T:
    """Call ``action``, and tell whatever goes wrong in it as InvalidArguments."""
    try:
        return action(*operands)
    except RefusedError as refused:
        raise InvalidArguments(job, path + refused.below, refused.problem) from None
    except InvalidPayload as error:
        raise InvalidArguments(job, path, f"is {error}") from None
    except RecursionError:
        raise InvalidArguments(job, path, TOO_DEEP) from None
    except Exception as error:  # the value's own methods run in there: it may be anything
        problem = f"can't be converted ({type(error).__name__}); pass plain values"
        raise InvalidArguments(job, path, problem) from error


def _are_plain(parameters: Iterable[_Parameter], values: Iterable[Any]) -> bool:
    for parameter, value in zip(parameters, values, strict=False):
        kind = type(value)
        if kind not in parameter.plain and not (
            kind is float and parameter.floats and isfinite(value)
        ):
            return False
    return True


def _keyword_path(name: str) -> str:
    return name if name.isidentifier() else f"kwargs{step({}, name)}"


def _encode_keyword(name: str) -> bytes:
    if type(name) is not str:
        raise RefusedError("", f"has a keyword that is {name_of(type(name))}; pass str keywords")
    return _encode_untyped(name)


def _encode_untyped(value: Any, advise: Callable[[Any, str], str] = lambda _, __: "") -> bytes:
    found = find_foreign(value)
    if found is None:
        try:
            return _encode(value)
        except ValueError:
            found = find_unencodable(value)
    below, leaf = found
    raise RefusedError(below, describe(leaf, advise(leaf, below)))


def _split(raw: _Json, whole: type) -> Any:
    """Split a JSON list or object into its items, each still JSON."""
    with suppress(ValueError):
        return (_raw_list if whole is list else _raw_dict).decode(raw)
    values = decode_json(raw)
    # If it fits, there is a lone surrogate in it: write each item again, since others may be fine.
    if whole is list and isinstance(values, list):
        return [json.dumps(value).encode() for value in values]
    if whole is dict and isinstance(values, dict):
        return {name: json.dumps(value).encode() for name, value in values.items()}
    expected, came = JSON_NAMES[whole], JSON_NAMES.get(type(values), type(values).__name__)
    raise RefusedError("", f"does not fit: Expected `{expected}`, got `{came}`; send what fits")


# Takes the keywords that no parameter takes, until the check of the signature refuses them.
_UNKNOWN = _Parameter(inspect.Parameter("unknown", inspect.Parameter.KEYWORD_ONLY), {})
