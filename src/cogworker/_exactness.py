"""What survives the trip through JSON exactly, and what to say of the rest.

``list_kinds`` reads an annotation; the ``find_`` functions look for the first part of a value that
would not come back as it went; the ``describe`` functions say what is wrong with it and what to do.
"""

import dataclasses
import enum
import inspect
import json
import re
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect as schema

MAX_DEPTH = 200
TOO_DEEP = (
    f"refers to itself or is nested too deeply (over {MAX_DEPTH} levels); "
    f"pass a flat form of it, or an id"
)
_DEEP = object()  # stands for a value that is too deep
_MISSING = object()  # stands for a part that did not come back

_TEXT = frozenset({str})
ATOMS = frozenset({str, int, bool, type(None)})
_SCALARS = ATOMS | {float}
_LEAVES = _SCALARS | {bytes, date, datetime, time, timedelta, Decimal, UUID}
_SIMPLE: tuple[tuple[schema.Type, type], ...] = (
    (schema.StrType(), str),
    (schema.IntType(), int),
    (schema.BoolType(), bool),
    (schema.FloatType(), float),
    (schema.NoneType(), type(None)),
)
JSON_NAMES: dict[type, str] = {dict: "object", list: "array", type(None): "null"}
_PLAIN = (str, int, float, list, dict)
_PROBLEMS = {
    str: "has a lone surrogate, which UTF-8 can't carry; pass text without, or bytes as base64",
    int: "has more digits than Python reads from text; pass it as a string, of hex() for example",
    float: "is {}, which JSON has no form for; pass None or a string",
}
_STEP = re.compile(r"\.([^.\[`]+)|\[(\d+)\]|\[\.\.\.\]")  # of a path as msgspec writes it

_encode = msgspec.json.encode
_Found = tuple[str, Any]  # the path below a value, and what lies there


class RefusedError(Exception):
    """A value can't travel: the path below it, and the problem."""

    def __init__(self, below: str, problem: str) -> None:
        self.below = below
        self.problem = problem
        super().__init__(below, problem)


def list_kinds(hint: Any) -> frozenset[type] | None:
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
        return list_kinds(hint) is not None
    except Exception:  # msgspec looks into all that a type refers to
        return False


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


def step(container: Any, key: Any) -> str:
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
    return found if rest is _DEEP or rest is TOO_DEEP else (step + below, rest)


def find_foreign(value: Any, depth: int = 0) -> _Found | None:
    """Find what JSON lacks. Lone surrogates and huge integers are left to the encoder."""
    kind = type(value)
    if kind in ATOMS or (kind is float and isfinite(value)):
        return None
    if kind is not list and (kind is not dict or not _TEXT.issuperset(map(type, value))):
        return "", value
    if depth >= MAX_DEPTH:
        return "", _DEEP
    children: Any = value.values() if kind is dict else value
    if ATOMS.issuperset(map(type, children)):
        return None  # all in C: a list of 1,000 in 16 µs, 53 by the loop
    for key, item in _list_children(value):
        found = find_foreign(item, depth + 1)
        if found is not None:
            return _lead(step(value, key), found)
    return None


def find_unencodable(value: Any) -> _Found:
    """Find the smallest part of ``value`` that the encoder refuses."""
    for key, child in _list_children(value):
        try:
            _encode(child)
        except RecursionError:
            return "", _DEEP
        except Exception:  # the same that was caught for the whole
            return _lead(step(value, key), find_unencodable(child))
    return "", value


def find_difference(value: Any, back: Any, depth: int = 0) -> _Found | None:
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
        return "", TOO_DEEP
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
        found = find_difference(child, others.get(key, _MISSING), depth + 1)
        if found is not None:
            return _lead(step(value, key), found)
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


def locate(
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
        below += step(value, children[place][0])
        value, node = children[place][1], node[key]
    if "got" not in words:
        words += f", got `{JSON_NAMES.get(type(value), type(value).__name__)}`"
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


def describe(leaf: Any, advice: str) -> str:
    """Say why ``leaf`` can't travel, and what to do."""
    kind = type(leaf)
    if leaf is _DEEP:
        return TOO_DEEP
    if kind in _PROBLEMS:
        return _PROBLEMS[kind].format(leaf)
    if kind is dict:
        return _describe_keys(leaf, advice)
    problem = f"is {name_of(kind)}, which JSON has no form for"
    base = next((base for base in _PLAIN if issubclass(kind, base)), None)
    if base is not None and not issubclass(kind, enum.Enum):
        plain = base.__name__
        return f"is {name_of(kind)}, which would come back as a plain {plain}; pass {plain}(…)"
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
    return f"has a key that is {name_of(kind)}, where JSON has only str; {advice}pass str keys"


def _describe_change(value: Any, back: Any) -> str:
    kind, other = type(value), type(back)
    if kind is float and not isfinite(value):
        return _PROBLEMS[float].format(value)
    if back is _MISSING:
        return "would be lost; leave it out, or add it to the annotation"
    if kind is other or (kind is int and other is float):
        return (
            f"is {name_of(kind)} that would come back as another value; change it or the annotation"
        )
    came = name_of(other)
    return (
        f"is {name_of(kind)}, which would come back as {came}; pass {came} or change the annotation"
    )


def name_of(kind: type) -> str:
    name = kind.__name__
    return f"an {name}" if name[:1] in tuple("aeioAEIO") else f"a {name}"
