"""How the arguments of one function travel as JSON and come back.

A codec is built once, when a job is declared: each parameter's annotation is resolved, and kept if
msgspec can carry it. Then ``encode``: the signature, the values (each as its annotation says, and
proved by decoding it again; without an annotation, JSON's own types only), the text. And
``decode``: the text, straight to typed values, and the signature once more, since other software
may have written it.

The usual case is quick in both directions; whatever fails there is done again value by value, to
find out which one it was. What survives is exact; everything else is refused with its path.
"""

import dataclasses
import enum
import inspect
import json
import re
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import repeat
from math import isfinite
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import inspect as schema

from cogworker.errors import DeclarationError, InvalidArguments, InvalidPayload

if sys.version_info >= (3, 14):
    from annotationlib import Format

MAX_DEPTH = 200
_TOO_DEEP = (
    f"refers to itself or is nested too deeply (over {MAX_DEPTH} levels); "
    f"pass a flat form of it, or an id"
)
_DEEP = object()  # stands for a value that is too deep
_MISSING = object()  # stands for a part that did not come back

# For more positional arguments than this no decoder is kept: *args has no end, and memory has.
_MAX_DECODERS = 64

_TEXT = frozenset({str})
_ATOMS = frozenset({str, int, bool, type(None)})
_SCALARS = _ATOMS | {float}
_LEAVES = _SCALARS | {bytes, date, datetime, time, timedelta, Decimal, UUID}
_SIMPLE: tuple[tuple[schema.Type, type], ...] = (
    (schema.StrType(), str),
    (schema.IntType(), int),
    (schema.BoolType(), bool),
    (schema.FloatType(), float),
    (schema.NoneType(), type(None)),
)
_JSON_NAMES: dict[type, str] = {dict: "object", list: "array", type(None): "null"}
_PLAIN = (str, int, float, list, dict)
_PROBLEMS = {
    str: "has a lone surrogate, which UTF-8 can't carry; pass text without, or bytes as base64",
    int: "has more digits than Python reads from text; pass it as a string, of hex() for example",
    float: "is {}, which JSON has no form for; pass None or a string",
}
_STEP = re.compile(r"\.([^.\[`]+)|\[(\d+)\]|\[\.\.\.\]")  # of a path as msgspec writes it

_encode = msgspec.json.encode
_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_any_list = msgspec.json.Decoder(list[Any])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])
_raw_dict = msgspec.json.Decoder(dict[str, msgspec.Raw])

_T = TypeVar("_T")
_Json = bytes | memoryview | msgspec.Raw
_Found = tuple[str, Any]  # the path below a value, and what lies there


class _RefusedError(Exception):
    """A value can't travel: the path below it, and the problem."""

    def __init__(self, below: str, problem: str) -> None:
        self.below = below
        self.problem = problem
        super().__init__(below, problem)


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
        raise InvalidPayload(f"not readable as JSON: it {_TOO_DEEP}") from None
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
        namespace = getattr(inspect.unwrap(function), "__globals__", {})
        for parameter in self._signature.parameters.values():
            self._add(parameter, _Parameter(parameter, namespace))

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, bytes | None]:
        """Encode the arguments of one call: a JSON list, and a JSON object or None.

        InvalidArguments if the call does not fit the signature or a value can't travel.
        """
        self._check(args, kwargs)
        return self._encode_args(args), self._encode_kwargs(kwargs) if kwargs else None

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
        self.plain = _ATOMS  # types for which the encoder alone is exact
        self.floats = True  # also finite floats
        self.decoder: msgspec.json.Decoder[Any] | None = None
        if declared.annotation is declared.empty:
            return
        try:
            written = getattr(declared.annotation, "__forward_arg__", declared.annotation)
            shown = written if isinstance(written, str) else inspect.formatannotation(written)
            self.annotated = shown
            hint = _resolve(declared.name, declared.annotation, namespace)
            kinds = _list_kinds(hint)
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
            below, leaf = _find_unencodable(value)
            raise _RefusedError(below, _describe(leaf, self._advise(leaf, below))) from None
        try:
            fault = _find_difference(value, decoder.decode(text))
        except RecursionError:
            raise
        except Exception as error:
            below, leaf, words = _locate(decoder, text, value, error)
            if type(leaf) is float and not isfinite(leaf):  # written as null
                raise _RefusedError(below, _describe(leaf, "")) from None
            fault = below, f"does not fit {self}: {words}; pass what the annotation says"
        if fault is None:
            return text
        raise _RefusedError(*fault)

    def decode(self, piece: _Json) -> Any:
        decoder = self.decoder
        if decoder is None:
            return decode_json(piece)
        try:
            return decoder.decode(piece)
        except RecursionError:
            raise
        except Exception as error:
            below, _, words = _locate(decoder, bytes(piece), decode_json(piece), error)
        raise _RefusedError(below, f"does not fit {self}: {words}; send what the annotation says")

    def _advise(self, leaf: Any, below: str) -> str:
        if self.obstacle:
            return f"mend the annotation {self}, now ignored ({self.obstacle}), or "
        if below or self.decoder is not None or type(leaf) is dict:
            return f"say so in the annotation of the parameter `{self.name}`, or "
        return f"annotate the parameter `{self.name}: {type(leaf).__name__}`, or "

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


def _list_kinds(hint: Any) -> frozenset[type] | None:
    """List the types that the encoder alone writes exactly, or None for Any.

    TypeError if msgspec can't carry something in ``hint``.
    """
    root = schema.type_info(hint)
    if hint is object or isinstance(root, schema.AnyType):
        return None
    todo: list[Any] = [root]
    seen = set()
    while todo:
        node = todo.pop()
        if isinstance(node, tuple):
            todo += node
        elif isinstance(node, schema.Type | schema.Field) and id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, schema.CustomType | schema.RawType | schema.ExtType):
                shown = inspect.formatannotation(getattr(node, "cls", msgspec.Raw))
                raise TypeError(f"msgspec has no form for {shown}")
            todo += (getattr(node, field) for field in node.__struct_fields__)
    members = root.types if isinstance(root, schema.UnionType) else (root,)
    kinds = [kind for member in members for simple, kind in _SIMPLE if member == simple]
    return frozenset(kinds) if len(kinds) == len(members) else frozenset()


def _can_carry(hint: Any) -> bool:
    try:
        return _list_kinds(hint) is not None
    except Exception:  # msgspec looks into all that a type refers to
        return False


def _report(job: str, path: str, action: Callable[..., _T], *operands: Any) -> _T:
    """Call ``action``, and tell whatever goes wrong in it as InvalidArguments."""
    try:
        return action(*operands)
    except _RefusedError as refused:
        raise InvalidArguments(job, path + refused.below, refused.problem) from None
    except InvalidPayload as error:
        raise InvalidArguments(job, path, f"is {error}") from None
    except RecursionError:
        raise InvalidArguments(job, path, _TOO_DEEP) from None
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
    return name if name.isidentifier() else f"kwargs{_step({}, name)}"


def _encode_keyword(name: str) -> bytes:
    if type(name) is not str:
        raise _RefusedError("", f"has a keyword that is {_name(type(name))}; pass str keywords")
    return _encode_untyped(name)


def _encode_untyped(value: Any, advise: Callable[[Any, str], str] = lambda _, __: "") -> bytes:
    found = _find_foreign(value)
    if found is None:
        try:
            return _encode(value)
        except ValueError:
            found = _find_unencodable(value)
    below, leaf = found
    raise _RefusedError(below, _describe(leaf, advise(leaf, below)))


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
    expected, came = _JSON_NAMES[whole], _JSON_NAMES.get(type(values), type(values).__name__)
    raise _RefusedError("", f"does not fit: Expected `{expected}`, got `{came}`; send what fits")


def _list_children(value: Any) -> Iterable[tuple[Any, Any]]:
    """List the parts of a value with their keys: indexes, keys, field names, a set's items."""
    kind: type[Any] = type(value)
    if issubclass(kind, dict):
        return list(value.items())
    if issubclass(kind, (list, tuple)):
        return enumerate(value)
    if issubclass(kind, (set, frozenset)):
        return [(item, item) for item in value]
    return [(name, getattr(value, name, _MISSING)) for name in _list_fields(kind)]


def _list_fields(kind: type) -> tuple[str, ...]:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    fields = getattr(kind, "__attrs_attrs__", ())
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
    return tuple(field.name for field in fields)


def _step(container: Any, key: Any) -> str:
    kind = type(container)
    if issubclass(kind, dict):
        shown = repr(key)
        return f"[{shown if len(shown) <= 60 else shown[:60] + '…'}]"
    if issubclass(kind, (list, tuple)):
        return f"[{key}]"
    return "[...]" if issubclass(kind, (set, frozenset)) else f".{key}"


def _lead(step: str, found: _Found) -> _Found:
    below, rest = found
    # Two hundred steps into a cycle would help nobody.
    return found if rest is _DEEP or rest is _TOO_DEEP else (step + below, rest)


def _find_foreign(value: Any, depth: int = 0) -> _Found | None:
    """Find what JSON lacks. Lone surrogates and huge integers are left to the encoder."""
    kind = type(value)
    if kind in _ATOMS or (kind is float and isfinite(value)):
        return None
    if kind is not list and (kind is not dict or not _TEXT.issuperset(map(type, value))):
        return "", value
    if depth >= MAX_DEPTH:
        return "", _DEEP
    children: Any = value.values() if kind is dict else value
    if _ATOMS.issuperset(map(type, children)):
        return None  # all in C: a list of 1,000 in 16 µs, 53 by the loop
    for key, item in _list_children(value):
        found = _find_foreign(item, depth + 1)
        if found is not None:
            return _lead(_step(value, key), found)
    return None


def _find_unencodable(value: Any) -> _Found:
    """Find the smallest part of ``value`` that the encoder refuses."""
    for key, child in _list_children(value):
        try:
            _encode(child)
        except RecursionError:
            return "", _DEEP
        except Exception:  # the same that was caught for the whole
            return _lead(_step(value, key), _find_unencodable(child))
    return "", value


def _find_difference(value: Any, back: Any, depth: int = 0) -> _Found | None:
    """Find where ``back``, which was decoded, differs from ``value``: the path, the problem."""
    kind, other = type(value), type(back)
    if kind is not other:
        # `float` takes an int, as everywhere in Python's typing.
        same = kind is int and other is float and value == back
        return None if same else ("", _describe_change(value, back))
    children = () if kind in _LEAVES else list(_list_children(value))
    if not children:
        return None if _are_equal(value, back) else ("", _describe_change(value, back))
    if depth >= MAX_DEPTH:
        return "", _TOO_DEEP
    kinds = list(map(type, value)) if issubclass(kind, (list, dict)) else []
    alike = not kinds or kinds == list(map(type, back))
    if kind is list and alike and _SCALARS.issuperset(kinds) and value == back:
        return None  # all in C, as above
    if kind is dict and not alike and len(value) == len(back):
        changed = next(
            pair for pair in zip(value, back, strict=True) if type(pair[0]) is not type(pair[1])
        )
        return "", f"has a key that {_describe_change(*changed)}"
    others = dict(_list_children(back))
    for key, child in children:
        found = _find_difference(child, others.get(key, _MISSING), depth + 1)
        if found is not None:
            return _lead(_step(value, key), found)
    return None


def _are_equal(value: Any, back: Any) -> bool:
    if isinstance(value, datetime | time):
        # By wall time and offset: a zone comes back as an offset, and Python calls the times in
        # an hour that a clock repeats unequal whenever their zones differ. The fold of a time
        # without a zone is lost, as it is for ==: ISO 8601 has no form for it.
        return (value.tzinfo is None) == (back.tzinfo is None) and (
            value.replace(tzinfo=None) == back.replace(tzinfo=None)
            and value.utcoffset() == back.utcoffset()
        )
    return bool(value == back)


def _locate(
    decoder: msgspec.json.Decoder[Any], text: bytes, value: Any, error: Exception
) -> tuple[str, Any, str]:
    """Translate an error about ``text``: the path in ``value``, what lies there, the words."""
    words, _, where = str(error).partition(" - at `")
    if not isinstance(error, msgspec.ValidationError):
        words = f"{type(error).__name__}: {error}"
        if isinstance(error, msgspec.DecodeError):
            words = "it has a lone surrogate, or a number that JSON lacks"
        return "", value, words
    if where.startswith("key"):
        words += " as a key"
    tree = node = json.loads(text)
    below = ""
    for field, index in _STEP.findall(where):
        key, place = field or int(index or -1), int(index or -1)
        if not field and not index:
            key, place = _narrow(decoder, tree, node, str(error))
        children = list(_list_children(value))
        if field:
            place = next((n for n, child in enumerate(children) if child[0] == field), -1)
        if not 0 <= place < len(children):  # a renamed field, or a tag: the path ends here
            break
        below += _step(value, children[place][0])
        value, node = children[place][1], node[key]
    if "got" not in words:
        words += f", got `{_JSON_NAMES.get(type(value), type(value).__name__)}`"
    return below, value, words


def _narrow(
    decoder: msgspec.json.Decoder[Any], tree: Any, node: dict[str, Any], error: str
) -> tuple[str, int]:
    """Find the key that msgspec shows as [...]: halve the object while the error stays the same.

    ``node`` lies in ``tree``, and keeps that key only.
    """
    items = list(enumerate(node.items()))
    while len(items) > 1:
        half = items[: len(items) // 2]
        node.clear()
        node.update(item for _, item in half)
        try:
            decoder.decode(json.dumps(tree))
            stays = False
        except Exception as other:
            stays = str(other) == error
        items = half if stays else items[len(half) :]
    place, (key, item) = items[0]
    node.clear()
    node[key] = item
    return key, place


def _describe(leaf: Any, advice: str) -> str:
    """Say why ``leaf`` can't travel, and what to do."""
    kind = type(leaf)
    if leaf is _DEEP:
        return _TOO_DEEP
    if kind in _PROBLEMS:
        return _PROBLEMS[kind].format(leaf)
    if kind is dict:
        return _describe_keys(leaf, advice)
    problem = f"is {_name(kind)}, which JSON has no form for"
    base = next((base for base in _PLAIN if issubclass(kind, base)), None)
    if base is not None and not issubclass(kind, enum.Enum):
        plain = base.__name__
        return f"is {_name(kind)}, which would come back as a plain {plain}; pass {plain}(…)"
    if not _can_carry(kind):
        return f"{problem}; pass plain values, or an id"
    instead = "its .value" if issubclass(kind, enum.Enum) else "a string"
    instead = "a list" if issubclass(kind, (tuple, set, frozenset)) else instead
    instead = "a dict" if _list_fields(kind) else instead
    return f"{problem}; {advice}pass {instead}"


def _describe_keys(leaf: dict[Any, Any], advice: str) -> str:
    kind = next((type(key) for key in leaf if type(key) is not str), None)
    if kind is None:
        return "has a key with a lone surrogate, which UTF-8 can't carry; pass keys without"
    return f"has a key that is {_name(kind)}, where JSON has only str; {advice}pass str keys"


def _describe_change(value: Any, back: Any) -> str:
    kind, other = type(value), type(back)
    if kind is float and not isfinite(value):
        return _PROBLEMS[float].format(value)
    if back is _MISSING:
        return "would be lost; leave it out, or add it to the annotation"
    if kind is other or (kind is int and other is float):
        return (
            f"is {_name(kind)} that would come back as another value; change it or the annotation"
        )
    came = _name(other)
    return (
        f"is {_name(kind)}, which would come back as {came}; pass {came} or change the annotation"
    )


def _name(kind: type) -> str:
    name = kind.__name__
    return f"an {name}" if name[:1] in tuple("aeioAEIO") else f"a {name}"


# Takes the keywords that no parameter takes, until the check of the signature refuses them.
_UNKNOWN = _Parameter(inspect.Parameter("unknown", inspect.Parameter.KEYWORD_ONLY), {})
