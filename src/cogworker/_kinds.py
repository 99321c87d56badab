"""What a setting may hold: its kinds, how they read a text, and how a value is shown.

A *kind* is one function that checks a value, and one that reads a text. No message shows a
password.
"""

import ipaddress
import os
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from cogworker import clock
from cogworker.errors import CogworkerError
from cogworker.periodic import Entry, entry_of

_SCHEMES = ("redis://", "rediss://", "valkey://", "valkeys://", "unix://", "sentinel://")
DAY = 86_400.0
# Python's locks and sockets overflow at waits of some 290 years.
_LONGEST = 100 * 365 * DAY
# Control characters, line ends, and half characters, which have no UTF-8 form.
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_SENTINEL_URL = re.compile(
    r"sentinel://(?:(?P<redis_username>[^@/:]*)(?::(?P<redis_password>[^@/]*))?@)?"
    r"(?P<redis_sentinels>[^@/?#]+)/(?P<redis_sentinel_master>[^@/?#]+)(?:/(?P<redis_db>\d{1,9}))?",
    re.ASCII,
)


def redacted(url: str) -> str:
    """Put ``***`` for the password in a URL, so that it can be shown in logs and messages.

    It takes any text, and where it can't tell what is secret it hides too much.
    """
    start = re.match(r"(?:b?['\"])?[A-Za-z][\w+.-]{0,20}://", url)  # or the repr of one
    scheme, rest = (url[: start.end()], url[start.end() :]) if start else ("", url)
    account, at, place = rest.rpartition("@")
    user, colon, _ = account.partition(":")
    if "?" in account:  # the "@" may be part of a password in the query
        return f"{scheme}***"
    if at:
        account = f"{user}:***@" if colon and re.fullmatch(r"[\w.%+~-]*", user) else "***@"
    elif scheme:  # "redis://:secret" without its "@host"
        place = re.sub(r"(?s)^([^/?#\[\]:]*):(?!\d*(?:[,/?#]|$)).*", r"\1:***", place)
    place = re.sub(r"(?is)([?&][^=&]*(?:pass|pwd|secret|token)[^=&]*=).*", r"\1***", place)
    return f"{scheme}{account}{place}"


class _Shortened(reprlib.Repr):
    """``repr`` for messages: short whatever the value is, and without passwords."""

    def repr_str(self, x: str, level: int) -> str:
        if len(x) > 2000:  # too much to search, and what is cut off could be the "@"
            return f"<{len(x)} characters>"
        return super().repr_str(redacted(x), level)

    def repr_instance(self, x: object, level: int) -> str:
        try:
            text = redacted(repr(x)).replace("\n", " ")
        except Exception:  # a foreign __repr__, or an integer too long for one
            return f"<{type(x).__name__}>"
        return text if len(text) <= self.maxother else f"{text[: self.maxother]}..."

    repr_int = repr_instance


_shortened = _Shortened()
_shortened.maxstring = _shortened.maxother = 60
shown = _shortened.repr


def printable(text: object) -> str:
    return text if isinstance(text, str) and text.isprintable() else shown(text)


class Refusal(Exception):
    """What is wrong with a value, in words that follow ``setting:``."""


def _refusal(allowed: str, value: object) -> Refusal:
    return Refusal(f"must be {allowed}, not {shown(value)}")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a setting may hold.

    ``check`` returns a value in the form in which it is kept, or raises Refusal; it takes what it
    returned. ``read`` makes what it can of a text and leaves the rest to ``check``.
    """

    check: Callable[[Any], Any]
    read: Callable[[str], Any] = str


def checked(kind: Kind, name: str, value: Any) -> Any:
    """A value for something that is called ``name``. Raises CogworkerError when it can't be."""
    try:
        return kind.check(value)
    except Refusal as refusal:
        raise CogworkerError(f"{name} {refusal}") from None


def _read_whole(text: Any) -> Any:
    whole = isinstance(text, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text)
    return int(text) if whole else text


def _read_seconds(text: str) -> float | str:
    number = text.strip()
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}.get(number[-1:])
    try:
        return float(number[:-1]) * unit if unit else float(number)
    except ValueError:
        return text


def whole(low: int, high: int) -> Kind:
    def check(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return int(value)
        raise _refusal(f"a whole number from {low} to {high}", value)

    return Kind(check, _read_whole)


def seconds(*, zero: bool = False) -> Kind:
    def check(value: Any) -> float:
        number = clock.seconds_of(value)
        if isinstance(number, int | float) and not isinstance(number, bool):
            in_range = 0 < number <= _LONGEST  # false for NaN
            if in_range or (zero and number == 0):
                return float(number)
        least = "of at least 0" if zero else "above 0"
        raise _refusal(f"a number of seconds {least} (100 years at most)", value)

    return Kind(check, _read_seconds)


def _check_size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**60:
        return int(value)
    raise _refusal("a number of bytes above 0, or as in 512M or 2G", value)


def _read_size(text: str) -> Any:
    match = re.fullmatch(r"\s*([0-9]{1,18})\s*([KMG]?)(?:i?B)?\s*", text, re.ASCII | re.IGNORECASE)
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()] if match else text


def _check_flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _refusal("true or false", value)


def _read_flag(text: str) -> Any:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    return words.get(text.strip().lower(), text)


def choice(*words: str) -> Kind:
    def check(value: Any) -> str:
        if isinstance(value, str) and value.lower() in words:
            return value.lower()
        raise _refusal(f"one of {', '.join(words)}", value)

    return Kind(check)


def _text(pattern: str, allowed: str) -> Kind:
    compiled = re.compile(pattern)

    def check(value: Any) -> str:
        if isinstance(value, str) and compiled.fullmatch(value):
            return str(value)
        raise _refusal(allowed, value)

    return Kind(check)


def _items(check: Callable[[Any], Any], allowed: str, read: Callable[[str], Any]) -> Kind:
    def check_all(value: Any) -> tuple[Any, ...]:
        if isinstance(value, list | tuple):
            return tuple(check(item) for item in value)
        raise _refusal(allowed, value)

    return Kind(check_all, read)


def check_password(value: Any) -> str:
    if isinstance(value, str) and not re.search(r"[\ud800-\udfff]", value):
        return str(value)
    raise Refusal("must be a text (in YAML: in quotes); its value is not shown here")


def check_file(value: Any) -> str:
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if isinstance(path, str) and os.path.isfile(path):
        return path
    raise _refusal("the path of a file that exists", value)


def check_host(value: Any) -> str:
    if isinstance(value, str):
        try:
            return str(ipaddress.IPv6Address(value))
        except ValueError:
            if re.fullmatch(r"[A-Za-z0-9._-]{1,253}", value):
                return str(value)
    raise _refusal("a host name or an IP address, without a port", value)


def _check_sentinel(value: Any) -> tuple[str, int]:
    host = port = None
    if isinstance(value, str):
        host, colon, port = value.rpartition(":")
        if not colon or value.endswith("]"):
            host, port = value, "26379"
        host = host.removeprefix("[").removesuffix("]")
    elif isinstance(value, list | tuple) and len(value) == 2:
        host, port = value
    return check_host(host), PORT.check(_read_whole(port))


def _queue_pairs(value: Any) -> Iterator[tuple[Any, Any]]:
    """Names and weights as they were given, from any of the forms in which queues can be."""
    allowed = "a list of queues, each 'name', 'name,weight' or [name, weight]"
    entries = [value] if isinstance(value, Mapping) else value
    if not isinstance(entries, list | tuple):
        raise _refusal(allowed, value)
    for entry in entries:
        if isinstance(entry, str):
            name, comma, weight = entry.partition(",")
            yield name, weight if comma else 1
        elif isinstance(entry, Mapping):
            yield from entry.items()
        elif isinstance(entry, list | tuple) and len(entry) == 2:
            yield entry[0], entry[1]
        else:
            raise _refusal(allowed, entry)


def check_queue_name(name: object) -> str:
    """A queue's name; raises Refusal."""
    if isinstance(name, str) and re.fullmatch(rf"[^,{_CONTROL}]{{1,200}}", name):
        return str(name)
    need = "1 to 200 characters, without comma and control characters"
    raise Refusal(f"the name of a queue must have {need}, not {shown(name)}")


def _check_queues(value: Any) -> tuple[tuple[str, int], ...]:
    weights: dict[str, int] = {}
    for name, weight in _queue_pairs(value):
        name = check_queue_name(name)
        try:
            total = weights.get(name, 0) + _WEIGHT.check(_read_whole(weight))
            weights[name] = _WEIGHT.check(total)
        except Refusal as refusal:
            raise Refusal(f"the weight of {shown(name)} {refusal}") from None
    if not weights:
        raise _refusal("at least one queue", value)
    return tuple(weights.items())


def check_url(value: Any) -> str:
    known = isinstance(value, str) and value.startswith(_SCHEMES)
    if not known or re.search(rf"[\s{_CONTROL}]", value):
        raise _refusal(f"a URL without spaces, of {', '.join(_SCHEMES)}", value)
    if value.startswith("sentinel://"):
        sentinel_settings(value)
        return str(value)
    try:
        parts = urlsplit(value)
        good = parts.port != 0
    except ValueError:  # its text is not passed on: it may quote the password
        good = False
    if not good:
        raise _refusal("a URL with a valid host and a port from 1 to 65535", value)
    if parts.scheme == "unix":
        if parts.netloc.rpartition("@")[2] or len(parts.path) < 2:
            raise _refusal("unix:///path/of/the/socket", value)
    elif not re.fullmatch(r"/?|/[0-9]{1,9}", parts.path):
        raise _refusal("a URL that ends with the number of a database, such as /0", value)
    return str(value)


def sentinel_settings(url: str) -> dict[str, Any]:
    """Take a sentinel URL apart; its user and password are for the server, not the sentinels."""
    match = _SENTINEL_URL.fullmatch(url)
    given = (
        {name: unquote(text) for name, text in match.groupdict().items() if text} if match else {}
    )
    try:
        if given:
            return {
                name: kind.check(kind.read(given[name])) for name, kind in _PARTS if name in given
            }
    except Refusal:
        pass  # it would show a part of the URL, which may be one of the password
    raise _refusal("sentinel://[user:password@]host:port,host:port/master[/database]", url)


def _check_entry(value: Any) -> Entry:
    if isinstance(value, Entry):
        return value
    if not isinstance(value, Mapping) or not isinstance(value.get("job"), str):
        raise _refusal("a list of entries, each a mapping with cron or every, and job", value)
    every = value.get("every")
    given = {**value, "every": _read_seconds(every) if isinstance(every, str) else every}
    try:
        return entry_of({str(name): each for name, each in given.items()})
    except ValueError as error:
        raise Refusal(str(error)) from None


SIZE = Kind(_check_size, _read_size)
FLAG = Kind(_check_flag, _read_flag)
PORT = whole(1, 65_535)
_WEIGHT = whole(1, 100)
WORD = _text(rf"[^\s{_CONTROL}]{{1,200}}", "a text of 1 to 200 characters without spaces")
LINE = _text(rf"[^{_CONTROL}]{{1,200}}", "a text of 1 to 200 characters in one line")
FILE = Kind(check_file)
NAMESPACE = _text(
    rf"(?=.{{1,100}}\Z)[^{{}}\s{_CONTROL}]*(?:\{{[^{{}}\s{_CONTROL}]+\}}[^{{}}\s{_CONTROL}]*)?",
    "1 to 100 characters without spaces, with braces only around one part, as in {cogworker}",
)
QUEUES = Kind(_check_queues, str.split)
LABELS = _items(LINE.check, "a list of texts", str.split)
SENTINELS = _items(_check_sentinel, "a list of 'host:port'", lambda t: t.replace(",", " ").split())
PERIODIC = _items(_check_entry, "a list of entries", str)
PASSWORD = Kind(check_password)
HOST = Kind(check_host)
URL = Kind(check_url)
DATABASE = whole(0, 999_999_999)
_PARTS = (
    ("redis_username", LINE),
    ("redis_password", PASSWORD),
    ("redis_sentinels", SENTINELS),
    ("redis_sentinel_master", WORD),
    ("redis_db", DATABASE),
)
