"""Arguments survive the trip exactly, or are refused with the path and what to do."""

import dataclasses
import enum
import functools
import sys
import threading
import typing
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Protocol, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from cogworker.codec import MAX_DEPTH, ArgumentCodec, decode_json, encode_json
from cogworker.errors import DeclarationError, InvalidArguments, InvalidPayload

AMSTERDAM = ZoneInfo("Europe/Amsterdam")


class Colour(enum.IntEnum):
    RED = 1


class Size(enum.Enum):
    SMALL = "s"


class Mixed(enum.Enum):
    NUMBER = 1
    TEXT = "t"


class Bits(enum.Flag):
    A = 1
    B = 2


class Text(str):
    __slots__ = ()


class Number(int):
    pass


@dataclasses.dataclass
class Person:
    age: int
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class Anonymous:
    age: float


@dataclasses.dataclass
class Node:
    below: "Node | None" = None


@dataclasses.dataclass
class Grumpy:
    age: int

    def __post_init__(self) -> None:
        if self.age < 0:
            raise RuntimeError("born tomorrow")


@dataclasses.dataclass
class Loud:
    words: list[str]

    def __post_init__(self) -> None:
        self.words = [word.upper() for word in self.words]


@dataclasses.dataclass(eq=False)
class Silent:
    name: str = ""

    def __eq__(self, other: object) -> bool:
        raise OSError("no comparison")

    def __repr__(self) -> str:
        raise OSError("no repr")


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Parcel(TypedDict):
    weights: list[int]
    note: NotRequired[str]


class Record(msgspec.Struct, rename="camel"):
    first_name: str


class Opaque:
    pass


class Readable(Protocol):
    def read(self) -> bytes: ...


Loose = TypeVar("Loose")


def cycle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def nest(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def codec_for(annotation: Any) -> ArgumentCodec:
    def greet(when, *rest, loud=False): ...

    if annotation is not None:
        greet.__annotations__ = {"when": annotation}
    return ArgumentCodec(greet, "mail.greet")


def refuse(call: Callable[[], Any]) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        call()
    return caught.value


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down."""
    return repr(one) == repr(other) and type(one) is type(other) and one == other


# --- the signature -------------------------------------------------------------------------------


def plain(name, count=3, *, loud=False): ...
def annotated(name: str, count: int = 3, *, loud: bool = False): ...
def many(first, *rest: int, **named: float): ...
def only(a, b=0, /, c=1, **named): ...
def keywords(*, key): ...
def nothing(): ...


CALLS = [
    (plain, ("ada",), {}, ""),
    (plain, ("ada", 3), {}, ""),
    (plain, (), {"name": "ada", "loud": True}, ""),
    (plain, (), {}, "missing a required argument: 'name'"),
    (plain, (), {"count": 3}, "missing a required argument: 'name'"),
    (plain, ("ada", 3, 4), {}, "too many positional arguments"),
    (plain, ("ada", 3, 4), {"loud": True}, "too many positional arguments"),
    (plain, ("ada",), {"name": "bob"}, "multiple values for argument 'name'"),
    (plain, ("ada",), {"lout": 1}, "got an unexpected keyword argument 'lout'"),
    (many, (), {}, "missing a required argument: 'first'"),
    (many, (1, 2, 3), {"a": 1.5}, ""),
    (many, (), {"first": 1, "x": 1.0}, ""),
    (only, (1,), {"a": 2, "c": 3}, ""),
    (only, (1, 2, 3), {}, ""),
    (only, (1, 2, 3), {"c": 3}, "multiple values for argument 'c'"),
    (only, (), {"a": 1}, "; "),
    (only, (1,), {"b": 2}, ""),  # which Signature.bind() refuses before 3.13
    (keywords, (), {"key": 1}, ""),
    (keywords, (), {}, "argument: 'key'"),
    (keywords, (1,), {}, "too many positional arguments"),
    (nothing, (), {}, ""),
    (nothing, (1,), {}, "too many positional arguments"),
    (functools.partial(plain, count=1), ("ada",), {}, ""),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "words"), CALLS)
def test_signature_is_checked_in_both_directions(function, args, kwargs, words):
    codec = ArgumentCodec(function, "mail.greet")
    raw = msgspec.json.encode(args), msgspec.json.encode(kwargs) if kwargs else None
    for call in (lambda: codec.encode(args, kwargs), lambda: codec.decode(*raw)):
        if words:
            error = refuse(call)
            assert error.path == ""
            assert words in error.problem
            assert "call it as greet(" in error.problem
        else:
            call()
    if not words:
        assert codec.encode(args, kwargs) == raw
        values, named = codec.decode(*raw)
        assert same((*values,), args)
        assert same(named, kwargs)


def test_signature_is_shown():
    error = refuse(lambda: ArgumentCodec(annotated, "mail.greet").encode((), {}))
    assert str(error) == (
        "mail.greet: missing a required argument: 'name'; "
        "call it as greet(name: str, count: int = 3, *, loud: bool = False)"
    )


def test_defaults_are_not_sent():
    assert ArgumentCodec(annotated, "j").encode(("ada",), {}) == (b'["ada"]', None)


def test_text_is_compact_utf8():
    encoded = ArgumentCodec(plain, "j").encode(("é", [1, {"a": None}]), {"loud": True})
    assert encoded == ('["é",[1,{"a":null}]]'.encode(), b'{"loud":true}')


def test_a_function_without_signature_is_refused_at_declaration():
    with pytest.raises(DeclarationError, match=r"^j: .*a job is a function with a signature"):
        ArgumentCodec(max, "j")


# --- values without an annotation ----------------------------------------------------------------

SURVIVORS = [
    None, True, False, 0, 1, 1.0, -0.0, 0.1, 1e308, 5e-324, 1e16, 2**53 + 1, 2**200, -(2**63) - 1,
    2**64, 10**4299, "", "\0", "\x7f\u2028", "😀", "שלום", "x" * 2**20, [], {}, [[], {}, [{}]],
    {"": {"": []}}, [True, 1, 1.0, "1", None], {"a": [1.5, {"b": False}]}, nest(MAX_DEPTH),
]  # fmt: skip


@pytest.mark.parametrize("value", SURVIVORS, ids=lambda value: repr(value)[:20])
def test_json_survives_exactly(value):
    for annotation in (None, Any, object, Loose, Opaque):
        codec = codec_for(annotation)
        args, kwargs = codec.decode(*codec.encode((value,), {"loud": value}))
        assert same(args[0], value)
        assert same(kwargs["loud"], value)
    assert same(decode_json(encode_json(value, "here", "job")), value)


NO_FORM = "which JSON has no form for"
FOREIGN = [
    (datetime(2020, 1, 1), "", f"is a datetime, {NO_FORM}; annotate the parameter "
     "`when: datetime`, or pass a string"),
    ({"a": [date(2020, 1, 1)]}, "['a'][0]", f"is a date, {NO_FORM}; say so in the annotation of "
     "the parameter `when`, or pass a string"),
    ((1,), "", f"is a tuple, {NO_FORM}; annotate the parameter `when: tuple`, or pass a list"),
    ({1}, "", f"is a set, {NO_FORM}; annotate the parameter `when: set`, or pass a list"),
    (Point(1), "", f"is a Point, {NO_FORM}; annotate the parameter `when: Point`, or pass a list"),
    (Person(1), "", f"is a Person, {NO_FORM}; annotate the parameter `when: Person`, or pass a "
     "dict"),
    (Record("x"), "", f"is a Record, {NO_FORM}; annotate the parameter `when: Record`, or pass a "
     "dict"),
    (Colour.RED, "", f"is a Colour, {NO_FORM}; annotate the parameter `when: Colour`, or pass its "
     ".value"),
    (Mixed.TEXT, "", f"is a Mixed, {NO_FORM}; pass plain values, or an id"),
    (Decimal(1), "", "annotate the parameter `when: Decimal`"),
    (UUID(int=1), "", f"is a UUID, {NO_FORM}; annotate the parameter `when: UUID`"),
    (b"x", "", "annotate the parameter `when: bytes`"),
    (Opaque(), "", f"is an Opaque, {NO_FORM}; pass plain values, or an id"),
    (object(), "", f"is an object, {NO_FORM}; pass plain values, or an id"),
    (print, "", "pass plain values, or an id"),
    (range(3), "", "is a range"),
    (1j, "", "is a complex"),
    (Silent(), "", "is a Silent"),
    ([1, {"a": Silent()}], "[1]['a']", "is a Silent"),
    (msgspec.Raw(b"1]["), "", "is a Raw"),
    ([float("nan")], "[0]", f"is nan, {NO_FORM}; pass None or a string"),
    (float("-inf"), "", f"is -inf, {NO_FORM}; pass None or a string"),
    ([1, Text("x")], "[1]", "is a Text, which would come back as a plain str; pass str(…)"),
    (Number(3), "", "is a Number, which would come back as a plain int; pass int(…)"),
    (typing.OrderedDict(a=1), "", "which would come back as a plain dict; pass dict(…)"),
    ({"a": {1: 2}}, "['a']", "has a key that is an int, where JSON has only str; say so in the "
     "annotation of the parameter `when`, or pass str keys"),
    ({Text("a"): 2}, "", "has a key that is a Text, where JSON has only str"),
    ([{"b": "\ud800"}], "[0]['b']", "has a lone surrogate, which UTF-8 can't carry; pass text "
     "without, or bytes as base64"),
    ([{"\udfff": "b"}], "[0]", "has a key with a lone surrogate, which UTF-8 can't carry; pass "
     "keys without"),
    ([1, 10**4300], "[1]", "has more digits than Python reads from text; pass it as a string, of "
     "hex() for example"),
    (cycle(), "", "refers to itself or is nested too deeply (over 200 levels); pass a flat form"),
    (nest(MAX_DEPTH + 1), "", "refers to itself or is nested too deeply"),
    (nest(100_000), "", "refers to itself or is nested too deeply"),
    ({"k" * 100: {1}}, f"['{'k' * 59}…]", "is a set"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "below", "problem"), FOREIGN, ids=[str(number) for number in range(len(FOREIGN))]
)
def test_what_json_lacks_is_refused_with_its_path(value, below, problem):
    codec = codec_for(None)
    error = refuse(lambda: codec.encode((value,), {}))
    assert error.job == "mail.greet"
    assert error.path == f"args[0]{below}"
    assert problem in error.problem
    assert str(error) == f"mail.greet: args[0]{below} {error.problem}"
    error = refuse(lambda: codec.encode((1, 2, value), {}))
    assert error.path == f"args[2]{below}"
    error = refuse(lambda: codec.encode((1,), {"loud": value}))
    assert error.path == f"loud{below}"
    error = refuse(lambda: encode_json(value, "meta", "owner"))
    assert (error.job, error.path) == ("owner", f"meta{below}")
    assert "annotat" not in error.problem


def test_a_keyword_that_is_no_name_is_quoted_in_the_path():
    codec = ArgumentCodec(many, "j")
    assert refuse(lambda: codec.encode((1,), {"a b": "x"})).path == "kwargs['a b']"
    assert refuse(lambda: codec.encode((1,), {"\ud800": 1})).path == "kwargs"
    assert refuse(lambda: codec.encode((1,), {Text("a"): 1})).path == "kwargs"
    assert refuse(lambda: codec.encode((1,), {1: 1})).path == "kwargs"
    assert refuse(lambda: ArgumentCodec(plain, "j").encode((1,), {1: 1})).path == ""


def test_near_the_end_of_the_stack_nothing_but_our_error_escapes():
    codec, value, seen = codec_for(None), nest(150), []

    def dive() -> None:
        try:
            dive()
        except RecursionError:
            # A few frames up from the very end, where there is no room even to raise.
            seen.append(1)
            if len(seen) > 12:
                seen.append(refuse(lambda: codec.encode((value,), {})))
                return
            raise

    dive()
    assert "nested too deeply" in seen[-1].problem


# --- annotated values ----------------------------------------------------------------------------

CARRIED = [
    (int, 2**200), (str, "é\0"), (bool, True), (float, 0.1), (float, -0.0), (None, None),
    (int | None, None), (int | float, 1.0), (int | float, 1), (str | int, "1"),
    (datetime, datetime(2020, 1, 1, 12, 30, 1, 5)),
    (datetime, datetime(2020, 1, 1, tzinfo=UTC)),
    (datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    (date, date(2020, 2, 29)), (time, time(1, 2, 3, 4)), (timedelta, timedelta.min),
    (timedelta, timedelta(microseconds=-1)), (UUID, UUID(int=3)), (Decimal, Decimal("1.10")),
    (Decimal, Decimal("-0")), (bytes, b"\0\xff"), (Colour, Colour.RED), (Size, Size.SMALL),
    (Bits, Bits.A | Bits.B), (Person, Person(1, ["x"])), (Point, Point(1)),
    (Parcel, {"weights": [1], "note": "x"}), (Record, Record("ada")), (Node, Node(Node())),
    (list[datetime], [datetime(2020, 1, 1)]), (tuple[int, str], (1, "a")), (tuple, (1, [2.5])),
    (set[int], {1, 2}), (frozenset[date], frozenset({date(2020, 1, 1)})), (set, set()),
    (dict[int, str], {1: "a"}), (dict[UUID, Person], {UUID(int=1): Person(2)}),
    (dict[str, Any], {"a": [True, 1, 1.0, None, -0.0]}), (list, [[1], {"a": 1}]),
    (Literal["a", 3], 3), (Annotated[int, msgspec.Meta(gt=3)], 4), (Sequence[int], [1]),
    (Person | None, Person(1)), (typing.NewType("Id", int), 3), ("datetime", datetime(2020, 1, 1)),
    ("list[Person]", [Person(1)]), (list["Person"], [Person(1)]),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value"), CARRIED, ids=repr)
def test_annotated_values_come_back_as_annotated(annotation, value):
    def greet(when, *, loud=None): ...

    greet.__annotations__ = {"when": annotation, "loud": annotation}
    codec = ArgumentCodec(greet, "mail.greet")
    args, kwargs = codec.decode(*codec.encode((value,), {"loud": value}))
    assert same(args[0], value)
    assert same(kwargs["loud"], value)


def test_extra_arguments_follow_the_annotation_of_their_star():
    def job(*days: date, **sizes: Size): ...

    codec, days = ArgumentCodec(job, "j"), tuple(date(2020, 1, n) for n in range(1, 4))
    for count in (0, 1, 3):
        encoded = codec.encode(days[:count], {"a": Size.SMALL, "b c": Size.SMALL})
        assert codec.decode(*encoded) == (days[:count], {"a": Size.SMALL, "b c": Size.SMALL})
    days = (date(2020, 1, 1),) * 1000
    assert [*codec.decode(*codec.encode(days, {}))[0]] == [*days]
    for count in range(100):
        codec.decode(codec.encode(days[:count], {})[0], None)
    assert len(codec._decoders) <= 65  # memory is bounded whatever is sent
    assert refuse(lambda: codec.encode((*days, 3), {})).path == "args[1000]"
    assert refuse(lambda: codec.decode(b"[" + b'"2020-01-01",' * 99 + b"3]", None)).path == (
        "args[99]"
    )


def test_float_takes_an_int_and_gives_a_float():
    codec = codec_for(float)
    assert same(codec.decode(*codec.encode((3,), {}))[0], (3.0,))
    codec = codec_for(list[float])
    assert same(codec.decode(*codec.encode(([3, 2.5],), {}))[0], ([3.0, 2.5],))


def test_a_time_in_the_hour_that_a_clock_repeats_comes_back():
    codec = codec_for(datetime)
    for fold in (0, 1):
        value = datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=AMSTERDAM)
        (back,) = codec.decode(*codec.encode((value,), {}))[0]
        assert back.timestamp() == value.timestamp()


def test_objects_without_equality_are_compared_by_field():
    codec = codec_for(Anonymous)
    assert codec.decode(*codec.encode((Anonymous(1.5),), {}))[0][0].age == 1.5
    assert "is nan" in refuse(lambda: codec.encode((Anonymous(float("nan")),), {})).problem


DOES_NOT_FIT = [
    (int, "3", "", "does not fit `when: int`: Expected `int`, got `str`; pass what the annotation"),
    (int, True, "", "Expected `int`, got `bool`"),
    (int, 1.0, "", "Expected `int`, got `float`"),
    (float, True, "", "Expected `float`, got `bool`"),
    (float, 10**400, "", "Number out of range"),
    (float, 2**53 + 1, "", "is an int that would come back as another value"),
    (float, float("nan"), "", "is nan"),
    (float | None, float("nan"), "", "is nan"),
    (dict[str, float], {"a": 1.0, "b": float("inf")}, "['b']", "is inf"),
    (dict[str, Any], {"a": [float("nan")]}, "['a'][0]", "is nan"),
    (str, Text("x"), "", "is a Text, which would come back as a plain str; pass str(…)"),
    (str, "\ud800", "", "lone surrogate"),
    (int, 10**4300, "", "more digits"),
    (int, Colour.RED, "", "is a Colour, which would come back as an int; pass an int or change"),
    (Colour, 1, "", "is an int, which would come back as a Colour; pass a Colour or change"),
    (list[int], [Colour.RED], "[0]", "is a Colour, which would come back as an int"),
    (list[Colour], [1], "[0]", "is an int, which would come back as a Colour"),
    (list[Decimal], [1], "[0]", "is an int, which would come back as a Decimal"),
    (Loud, (lambda it: it.words.append("b") or it)(Loud(["a"])), ".words[1]", "as another value"),
    (Annotated[dict[str, int], msgspec.Meta(min_length=2)], {"a": 1, "b": 2, "c": None}, "['c']",
     "Expected `int`, got `null`"),
    (int, {False: cycle()}, "", "refers to itself or is nested too deeply"),
    (set[int], {Colour.RED}, "[...]", "is a Colour, which would come back as an int"),
    (set[int], {"x"}, "[...]", "Expected `int`, got `str`"),
    (dict[int, str], {Colour.RED: "a"}, "", "has a key that is a Colour, which would come back"),
    (dict[int, str], {True: "a"}, "", "has a key that is a bool, where JSON has only str"),
    (dict[int, str], {"x": "a"}, "", "Expected `int`, got `str` as a key"),
    (dict, {"a": {1: 2}}, "['a']", "has a key that is an int, which would come back as a str"),
    (dict[int | str, int], {"1": 1, 1: 2}, "['1']", "come back as another"),
    (datetime, "x", "", "does not fit `when: datetime.datetime`: Invalid RFC3339 encoded datetime, "
     "got `str`"),
    ("datetime", 3, "", "does not fit `when: datetime`: Expected `datetime`, got `int`"),
    (date, datetime(2020, 1, 1), "", "Invalid RFC3339 encoded date"),
    (datetime, datetime(1900, 1, 1, tzinfo=AMSTERDAM), "", "that would come back as another value"),
    (time, time(1, tzinfo=AMSTERDAM), "", "that would come back as another value"),
    (Decimal, 3, "", "is an int, which would come back as a Decimal"),
    (Decimal, Decimal("NaN"), "", "that would come back as another value"),
    (Decimal, Decimal("sNaN"), "", "does not fit `when: decimal.Decimal`"),
    (bytes, bytearray(b"a"), "", "is a bytearray, which would come back as a bytes"),
    (tuple[int, int], [1, 2], "", "is a list, which would come back as a tuple"),
    (list[tuple[int]], [[1]], "[0]", "is a list, which would come back as a tuple"),
    (list, [1, (2,)], "[1]", "is a tuple, which would come back as a list"),
    (list, [1, True, Text("x")], "[2]", "is a Text"),
    (dict[str, list[int]], {"a": [1], "when": [1, 2, 3, "x"], "z": [1]}, "['when'][3]",
     "Expected `int`, got `str`"),
    (dict[str, dict[int, list[int]]], {"a": {1: [1], 2: []}, "b": {3: [1], 4: [1, None]}},
     "['b'][4][1]", "Expected `int`, got `null`"),
    (dict[str, int], {f"k{n}": n if n != 777 else None for n in range(1000)}, "['k777']", "int"),
    (list[Person], [Person(1), Person("x")], "[1].age", "Expected `int`, got `str`"),
    (Person, Person(1, ["a", 2]), ".tags[1]", "Expected `str`, got `int`"),
    (Person, Person(1, ["a", Opaque()]), ".tags[1]", "is an Opaque"),
    (Person, Person(1, ["a", "\ud800"]), ".tags[1]", "lone surrogate"),
    (Person, {"age": 1}, "", "is a dict, which would come back as a Person"),
    (Parcel, {"weights": [1, "x"]}, "['weights'][1]", "Expected `int`, got `str`"),
    (Parcel, {"weights": [], "lost": 1}, "['lost']", "would be lost; leave it out, or add it to"),
    (Parcel, {}, "", "missing required field `weights`"),
    (Record, Record(3), "", "Expected `str`, got `int`"),
    (Record, msgspec.Raw(b'{"firstName":""}'), "", "is a Raw, which would come back as a Record"),
    (Point, Point("x"), "[0]", "Expected `int`, got `str`"),
    (Node, (lambda node: setattr(node, "below", node) or node)(Node()), "", "refers to itself"),
    (list[Any], cycle(), "", "refers to itself or is nested too deeply"),
    (list[Any], nest(MAX_DEPTH + 5), "", "refers to itself or is nested too deeply"),
    (Literal["a"], "b", "", "Invalid enum value 'b'"),
    (Annotated[int, msgspec.Meta(gt=3)], 3, "", "Expected `int` >= 4"),
    (Grumpy, (lambda it: setattr(it, "age", -1) or it)(Grumpy(1)), "", "born tomorrow"),
    (Size, "s", "", "is a str, which would come back as a Size"),
    # Annotations that are of no use: the strict rules, and why.
    ("Nowhere", date(2020, 1, 1), "", "is a date, which JSON has no form for; mend the annotation "
     "`when: Nowhere`, now ignored (NameError: name 'Nowhere' is not defined), or pass a string"),
    (int | str | date, date(2020, 1, 1), "", "mend the annotation `when: int | str | datetime.date`"
     ", now ignored (TypeError: Type unions may not contain"),
    (Opaque, Opaque(), "", "is an Opaque, which JSON has no form for; pass plain values, or an id"),
    (list[Opaque], [date(2020, 1, 1)], "[0]", "(TypeError: msgspec has no form for "),
]  # fmt: skip


@pytest.mark.parametrize(
    ("annotation", "value", "below", "problem"),
    DOES_NOT_FIT,
    ids=[str(number) for number in range(len(DOES_NOT_FIT))],
)
def test_what_would_not_come_back_is_refused(annotation, value, below, problem):
    def greet(when, *, loud=None): ...

    greet.__annotations__ = {"when": annotation, "loud": annotation}
    codec = ArgumentCodec(greet, "mail.greet")
    error = refuse(lambda: codec.encode((value,), {}))
    assert error.path == f"args[0]{below}"
    assert problem in error.problem
    assert ("; " in error.problem) or (", or " in error.problem)  # what to do
    with pytest.raises(InvalidArguments, match=r"^mail\.greet: "):
        codec.encode((value,), {"loud": value})


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise OSError(name)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[Silent], [Silent()]),
        (list[Silent], [Silent(), Text("x")]),
        (list[Silent], Hostile()),
        (Silent, [Hostile()]),
        (None, [Hostile()]),
        (Silent, Silent(Hostile())),  # type: ignore[arg-type]
    ],
    ids=[*"abcdef"],
)
def test_objects_whose_methods_raise_do_so_in_vain(annotation, value):
    codec = codec_for(annotation)
    try:
        codec.encode((value,), {})
    except InvalidArguments as error:
        path = error.path
    else:
        path = "args[0]"  # compared by field, without its own equality
    assert path.startswith("args[0]")


@pytest.mark.parametrize(
    "annotation",
    [
        "Nowhere", "list[Nowhere]", "1 / 0", "not a type", "", 5, "5", Opaque, list[Opaque],
        Readable, Callable, Callable[[int], str], Loose, type, list[Callable[[], None]], Mixed,
        dict[str, Opaque | None], int | str | date, Person | Parcel, typing.Self, msgspec.Raw,
        enum.IntEnum, Any, object, typing.ClassVar[int],
    ],
    ids=repr,
)  # fmt: skip
def test_a_useless_annotation_counts_as_none(annotation):
    codec = codec_for(annotation)
    for value in (1, "x", [1, {"a": None}]):
        assert codec.decode(*codec.encode((value,), {}))[0][0] == value
    problem = refuse(lambda: codec.encode((date(2020, 1, 1),), {})).problem
    assert "is a date" in problem
    assert ("mend the annotation" in problem) == (annotation not in (Any, object, Loose))


def test_one_useless_annotation_does_not_spoil_the_others():
    def job(a: "Nowhere", b: "date", c: "Opaque"): ...  # noqa: F821

    codec, args = ArgumentCodec(job, "j"), ([1], date(2020, 1, 1), "x")
    assert codec.decode(*codec.encode(args, {}))[0] == args


def test_annotations_of_a_wrapped_function_are_found():
    def job(day: "date"): ...

    space: dict[str, Any] = {}
    exec("def wrapper(*args, **kwargs): ...", space)
    codec = ArgumentCodec(functools.wraps(job)(space["wrapper"]), "j")
    assert codec.decode(*codec.encode((date(2020, 1, 1),), {}))[0] == (date(2020, 1, 1),)


if sys.version_info >= (3, 14):  # annotations are lazy from then on

    @pytest.mark.parametrize("annotation", ["Nowhere", "list[Nowhere]", "1 / 0"])
    def test_a_lazy_annotation_that_fails_counts_as_none(annotation):
        space = {"date": date}
        exec(f"def job(a: {annotation}, b: date): ...", space)
        codec, args = ArgumentCodec(space["job"], "j"), ([1], date(2020, 1, 1))
        assert codec.decode(*codec.encode(args, {}))[0] == args


# --- what other software sends -------------------------------------------------------------------


def send(name: str, when: datetime, sizes: dict[str, list[int]] | None = None, free=None): ...


WHEN = b'"2020-01-01T00:00:00Z"'
FROM_OUTSIDE = [
    (b"[1," + WHEN + b"]", "args[0]", "does not fit `name: str`: Expected `str`, got `int`; send"),
    (b'["a","x"]', "args[1]", "does not fit `when: datetime.datetime`: Invalid RFC3339 encoded "
     "datetime, got `str`; send what the annotation says"),
    (b'["a",null]', "args[1]", "Expected `datetime`, got `null`"),
    (b'["a",' + WHEN + b',{"a":[1],"b":[1,"x"]}]', "args[2]['b'][1]", "Expected `int`, got `str`"),
    (b'["a",' + WHEN + b',{"a":1}]', "args[2]['a']", "Expected `array`, got `int`"),
    (b'["a"]', "", "missing a required argument: 'when'; call it as "),
    (b'["a",' + WHEN + b",null,1,2]", "", "too many positional arguments; call it as "),
    (b"{}", "args", "does not fit: Expected `array`, got `object`"),
    (b"null", "args", "does not fit: Expected `array`, got `null`"),
    (b"", "args", "is not readable as JSON"),
    (b"[", "args", "is not readable as JSON"),
    (b"\xff\xfe[\0]\0", "args", "is not readable as JSON"),
    (b'["\xff",' + WHEN + b"]", "args[0]", "is not readable as JSON"),
    (b'["a",' + WHEN + b',null,"\xff"]', "args[3]", "is not readable as JSON"),
    (b"[" * 100_000, "args", "nested too deeply"),
    (b'["\\ud800",' + WHEN + b"]", "args[0]", "lone surrogate"),
    (b'["a",' + WHEN + b',{"\\ud800":[]}]', "args[2]", "lone surrogate"),
    (b"[" + b"1" * 5000 + b"]", "args", ""),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "path", "problem"), FROM_OUTSIDE, ids=lambda x: repr(x)[:30])
def test_foreign_arguments_that_do_not_fit_are_refused(raw, path, problem):
    error = refuse(lambda: ArgumentCodec(send, "mail.send").decode(raw, None))
    assert error.job == "mail.send"
    assert error.path.startswith(path) if problem == "" else error.path == path
    assert problem in error.problem


@pytest.mark.parametrize(
    ("raw", "path", "problem"),
    [
        (b"[]", "kwargs", "does not fit: Expected `object`, got `array`"),
        (b"{", "kwargs", "is not readable as JSON"),
        (b'{"loud":1}', "loud", "does not fit `loud: bool`: Expected `bool`, got `int`"),
        (b'{"count":"3"}', "count", "Expected `int`, got `str`"),
        (b'{"lout":1}', "", "got an unexpected keyword argument 'lout'"),
        (b'{"name":"x"}', "", "multiple values for argument 'name'"),
    ],
)
def test_foreign_keywords_that_do_not_fit_are_refused(raw, path, problem):
    error = refuse(lambda: ArgumentCodec(annotated, "j").decode(b'["a"]', raw))
    assert error.path == path
    assert problem in error.problem


def test_lone_surrogates_reach_parameters_without_annotation():
    values, named = ArgumentCodec(only, "j").decode(b'["\\ud800",[1]]', b'{"d":"\\udfff"}')
    assert (values, named) == (["\ud800", [1]], {"d": "\udfff"})
    args = b'["a",' + WHEN + b',null,["\\ud800",1e2,2]]'
    values, _ = ArgumentCodec(send, "j").decode(args, None)
    assert same(values[1:], [datetime(2020, 1, 1, tzinfo=UTC), None, ["\ud800", 100.0, 2]])
    assert decode_json(b'"\\ud800"') == "\ud800"


def test_any_buffer_is_read():
    codec = ArgumentCodec(annotated, "j")
    whole = msgspec.json.decode(b'[["a",3],{"loud":true}]', type=list[msgspec.Raw])
    for args, kwargs in (
        (b'["a",3]', b'{"loud":true}'),
        (memoryview(b'["a",3]'), memoryview(b'{"loud":true}')),
        whole,
    ):
        values, named = codec.decode(args, kwargs)
        assert same((*values,), ("a", 3))
        assert same(named, {"loud": True})
    assert refuse(lambda: codec.decode(memoryview(b"[1]"), None)).path == "args[0]"
    assert decode_json(memoryview(b'"\\ud800"')) == "\ud800"
    assert decode_json(msgspec.Raw(b'"\\ud800"')) == "\ud800"


@pytest.mark.parametrize("raw", [b"", b"nul", b"1 2", b'"\xff"', b"\xef\xbb\xbf1", b"[" * 100_000])
def test_decode_json_refuses_what_is_not_json(raw):
    with pytest.raises(InvalidPayload, match="not readable as JSON"):
        decode_json(raw)


def test_a_type_whose_own_code_raises_at_decoding_is_refused():
    error = refuse(lambda: codec_for(Grumpy).decode(b'[{"age":-1}]', None))
    assert error.path == "args[0]"
    assert "RuntimeError: born tomorrow" in error.problem


def test_a_codec_serves_many_threads():
    codec, errors = ArgumentCodec(send, "j"), []

    def work() -> None:
        try:
            for count in (2, 3, 4) * 200:
                args = ("a", datetime(2020, 1, 1), {"a": [1]}, [None])[:count]
                assert tuple(codec.decode(*codec.encode(args, {}))[0]) == args
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
