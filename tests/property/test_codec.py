"""Whatever is thrown at the codec: it comes back exactly, or InvalidArguments says no."""

import dataclasses
import enum
import functools
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cogworker.codec import ArgumentCodec, decode_json, encode_json
from cogworker.errors import InvalidArguments, InvalidPayload

# A busy machine must not fail a test; a value that takes seconds must.
slow = settings(deadline=timedelta(seconds=3))


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Text(str):
    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Person:
    age: int
    tags: tuple[str, ...] = ()


class Point(NamedTuple):
    x: int
    y: float


class Parcel(TypedDict):
    weights: list[float]


class Record(msgspec.Struct):
    name: str
    born: date | None = None


def identical(one: Any, other: Any) -> bool:
    """Equal, of the same types all the way down, in the same order, with the same sign of zero."""
    return type(one) is type(other) and repr(one) == repr(other) and one == other


def job_with(*annotations: Any) -> ArgumentCodec:
    """Make the codec of a function of two positional parameters and a keyword."""

    def job(first, second=None, *, third=None): ...

    job.__annotations__ = dict(zip(("first", "second", "third"), annotations, strict=False))
    return ArgumentCodec(job, "job")


numbers = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers() | st.integers(-(2**700), 2**700)
atoms = st.none() | st.booleans() | integers | numbers | st.text()
json_values = st.recursive(
    atoms, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30
)
people = st.builds(Person, integers, st.lists(st.text(), max_size=3).map(tuple))
offsets = st.timezones()
moments = st.datetimes() | st.datetimes(min_value=datetime(1980, 1, 1), timezones=offsets)
records = st.builds(Record, st.text(), st.none() | st.dates())

CARRIED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, integers),
    (float, numbers),
    (str, st.text()),
    (bool, st.booleans()),
    (int | None, st.none() | integers),
    (int | float, integers | numbers),
    (bytes, st.binary()),
    (date, st.dates()),
    (datetime, moments),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False)),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (Literal["a", 1], st.sampled_from(["a", 1])),
    (Person, people),
    (Point, st.builds(Point, integers, numbers)),
    (Parcel, st.fixed_dictionaries({"weights": st.lists(numbers)})),
    (Record, records),
    (list[Record], st.lists(records)),
    (dict[UUID, Decimal], st.dictionaries(st.uuids(), st.decimals(allow_nan=False))),
    (dict[int, list[Person]], st.dictionaries(integers, st.lists(people))),
    (tuple[int, str, Size], st.tuples(integers, st.text(), st.sampled_from(Size))),
    (frozenset[Person], st.frozensets(people)),
    (set[date], st.sets(st.dates())),
    (dict[str, Any], st.dictionaries(st.text(), json_values)),
    (list, st.lists(json_values)),
]


def came_back(one: Any, other: Any) -> bool:
    if isinstance(one, set | frozenset):
        return type(one) is type(other) and one == other
    if isinstance(one, datetime | time):  # a zone comes back as an offset
        return type(one) is type(other) and one.isoformat() == other.isoformat()
    return identical(one, other)


@settings(slow)
@given(json_values, json_values)
@example([True, 1, 1.0, -0.0, 0.0, "1"], {"": [[], {}, "\0\U0010ffff"]})
def test_json_comes_back_exactly(value, other):
    codec = job_with()
    args, kwargs = codec.decode(*codec.encode((value, other), {"third": value}))
    assert identical([*args], [value, other])
    assert identical(kwargs, {"third": value})
    assert identical(decode_json(encode_json(value, "", "")), value)


@pytest.mark.parametrize(("annotation", "values"), CARRIED, ids=lambda x: str(x)[:40])
def test_annotated_values_come_back_exactly(annotation, values):
    codec = job_with(annotation, Any, annotation)

    @settings(slow)
    @given(values, json_values)
    def check(value, other):
        args, kwargs = codec.decode(*codec.encode((value, other), {"third": value}))
        assert came_back(value, args[0])
        assert identical(other, args[1])
        assert came_back(value, kwargs["third"])

    check()


def attempt(call: Callable[[], Any]) -> tuple[Any, InvalidArguments | None]:
    """Call; no error but InvalidArguments may come out, and its text fits a log."""
    try:
        return call(), None
    except InvalidArguments as error:
        str(error).encode()
        return None, error


class Hostile:
    """Raises wherever it is asked something (save where Hypothesis asks)."""

    def __eq__(self, other):
        raise OSError

    def __hash__(self):
        raise OSError

    def __bool__(self):
        raise OSError

    def __len__(self):
        raise OSError

    def __iter__(self):
        raise OSError


def looped() -> list[Any]:
    loop: list[Any] = [1]
    loop.append({"again": loop})
    return loop


surrogates = st.text(st.characters(categories=["Cs", "Ll"]), max_size=5)
keys = st.text(max_size=3) | surrogates | st.integers() | st.booleans() | st.none()
keys |= st.sampled_from([*Colour, *Size, Text("k"), b"k", (1, 2), 1.5, math.nan])
oddities = st.one_of(
    json_values,
    st.floats(),
    surrogates,
    st.complex_numbers(),
    st.decimals(),
    st.builds(looped),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.sampled_from([*Colour, *Size, Text("x"), print, type, ...]),
    st.builds(lambda: -(10**5000)),
    st.builds(Hostile),
    st.builds(object),
    st.builds(Person, st.text() | integers, st.lists(st.floats() | surrogates)),
    st.builds(Record, st.integers() | st.text(), st.none() | st.floats()),
    st.builds(msgspec.Raw, st.binary()),
    *(values for _, values in CARRIED),
)
anything = st.recursive(
    oddities,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.builds(Person, inner, inner),
    ),
    max_leaves=8,
)
HINTS = [Any, int, float, str, list, dict, list[Any], dict[str, Any], tuple, Person, Record]
HINTS += [annotation for annotation, _ in CARRIED] + [dict[float, int], list[float | None]]


@functools.cache
def codec_of(index: int) -> ArgumentCodec:
    return job_with(HINTS[index], Any, HINTS[index])


@settings(slow, max_examples=300)
@given(st.integers(0, len(HINTS) - 1), anything, st.booleans())
def test_anything_is_refused_or_comes_back(index, value, by_name):
    codec = codec_of(index)
    call = ((), {"first": value}) if by_name else ((value,), {})
    encoded, refused = attempt(lambda: codec.encode(*call))
    if refused:
        assert refused.path.startswith("first" if by_name else "args[0]")
        return
    args, kwargs = codec.decode(*encoded)
    back = kwargs["first"] if by_name else args[0]
    assert back == value
    assert type(back) is type(value) or (type(back) is float and type(value) is int)


@settings(slow, max_examples=300)
@given(anything)
def test_encode_json_refuses_or_is_exact(value):
    raw, refused = attempt(lambda: encode_json(value, "meta", "owner"))
    if refused:
        assert refused.path.startswith("meta")
        return
    assert identical(decode_json(raw), value)


def first(a, b, c=1, *, d=2): ...
def second(a: int, *rest: str, **named: float): ...
def third(a, b: dict[str, list[int]] | None = None, /, c: Person | None = None, **named): ...
def fourth(*, d, c=1): ...


FUNCTIONS = [first, second, third, fourth]
CODECS = [(function, ArgumentCodec(function, "job")) for function in FUNCTIONS]


def fits(function, args, kwargs) -> bool:
    try:
        function(*args, **kwargs)
    except TypeError:
        return False
    return True


@settings(slow, max_examples=300)
@given(
    st.sampled_from([first, fourth, lambda a, b=1, /, c=1, **n: 0, lambda *r, a, **n: 0]),
    st.lists(st.integers(), max_size=5).map(tuple),
    st.dictionaries(st.sampled_from("abcdnrx"), st.integers(), max_size=4),
)
def test_what_python_would_call_is_what_is_taken(function, args, kwargs):
    codec = ArgumentCodec(function, "job")
    raw = msgspec.json.encode(args), msgspec.json.encode(kwargs) if kwargs else None
    for call in (lambda: codec.encode(args, kwargs), lambda: codec.decode(*raw)):
        _, refused = attempt(call)
        assert (refused is None) == fits(function, args, kwargs)
        assert refused is None or refused.path == ""


def spoil(text: bytes, cuts: list[tuple[int, bytes]]) -> bytes:
    for place, piece in cuts:
        at = place % (len(text) + 1)
        text = text[:at] + piece + text[at + len(piece) :]
    return text


json_like = st.builds(
    spoil,
    (st.lists(json_values, max_size=4) | json_values).map(msgspec.json.encode),
    st.lists(
        st.tuples(
            st.integers(0, 500),
            st.sampled_from([b'"\\ud800"', b"\xff", b",", b"[", b"}", b'"', b"NaN", b"1e999", b""])
            | st.binary(max_size=3),
        ),
        max_size=2,
    ),
)
raws = st.binary(max_size=40) | json_like


@settings(slow, max_examples=300)
@given(st.sampled_from(CODECS), raws, st.none() | raws)
@example(CODECS[0], b"[" * 100_000, None)
@example(CODECS[2], b'[1,{"a":[1]},{"age":1}]', b'{"\\ud800":1}')
@example(CODECS[2], b'[1,{"\\ud800":[1]},{"age":"\\ud800"}]', b"{}")
@example(CODECS[1], b'[1,"a"]', b'{"x":NaN}')
def test_any_bytes_are_refused_or_can_be_called_with(pair, args, kwargs):
    function, codec = pair
    decoded, refused = attempt(lambda: codec.decode(args, kwargs))
    if refused is None:
        function(*decoded[0], **decoded[1])


@settings(slow)
@given(raws)
def test_decode_json_reads_or_refuses(raw):
    try:
        decode_json(raw)
    except InvalidPayload as error:
        str(error).encode()
