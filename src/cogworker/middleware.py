"""Middleware: what an application puts around enqueueing (client) and around runs (server).

Both are ordered chains; the first one is the outermost. A client middleware is a function that is
given the job to be enqueued and answers with it, with a changed copy, or with None: don't. A server
middleware is called with the run and answers with a context manager around it. What the built-in
features do is no middleware, but goes with the moves of a job, so it can't get into their order.
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from cogworker.errors import DeclarationError

M = TypeVar("M", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingJob:
    """A job that is about to be enqueued. Client middlewares answer with it, or a changed copy.

    ``args`` and ``kwargs`` are those of the call, not yet encoded; of ``cog.push``, and of other
    software's jobs, JSON values. ``at`` is when it is due, in epoch seconds, ``delay_s`` after how
    many seconds; neither means now. ``fields`` are what else its payload holds: what features need
    and what middlewares add, JSON values. ``jid`` and ``name`` can't be changed.
    """

    jid: str
    name: str
    queue: str
    retry: bool | int | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    at: float | None = None
    delay_s: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def with_fields(self, **fields: Any) -> "OutgoingJob":
        """A copy with more fields in its payload, for a server middleware to read."""
        return replace(self, fields={**self.fields, **fields})


ClientMiddleware = Callable[..., OutgoingJob | None]


class JobRun:
    """A run, as server middlewares and hooks are told of it.

    ``attempt`` is 1 for the first run, 2 for the first retry. ``args`` and ``kwargs`` are None when
    they can't be decoded, ``job`` (the declared ``Job``) when no job of that name is declared.
    """

    def __init__(
        self,
        jid: str,
        name: str,
        queue: str,
        attempt: int,
        job: Any,
        raw: bytes,
    ) -> None:
        self.jid = jid
        self.name = name
        self.queue = queue
        self.attempt = attempt
        self.job = job
        self.args: Sequence[Any] | None = None
        self.kwargs: Mapping[str, Any] | None = None
        self._raw = raw

    def __repr__(self) -> str:
        return f"<JobRun {self.name} jid={self.jid} attempt={self.attempt}>"

    @cached_property
    def payload(self) -> dict[str, Any]:
        """The job's payload: a copy, whose changes change nothing."""
        payload: dict[str, Any] = msgspec.json.decode(self._raw)
        return payload

    @property
    def tags(self) -> tuple[str, ...]:
        """The job's tags."""
        tags = self.payload.get("tags")
        return tuple(tags) if isinstance(tags, list) else ()


Manager = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
ServerMiddleware = Callable[..., Manager | None]


class Link(NamedTuple):
    """A middleware in its chain, with the arguments it is called with after its own."""

    middleware: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = MappingProxyType({})

    def __call__(self, subject: OutgoingJob | JobRun) -> Any:
        """Call the middleware."""
        return self.middleware(subject, *self.args, **self.kwargs)


class Chain(Generic[M]):
    """Middlewares in their order, the outermost first. Raises DeclarationError.

    A middleware is in it once: who adds it again moves it. Further arguments of the methods are
    passed to the middleware with each call. ``add`` and ``prepend`` can decorate it.
    """

    def __init__(self) -> None:
        self.links: tuple[Link, ...] = ()

    def __iter__(self) -> Iterator[M]:
        return iter([link.middleware for link in self.links])  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self.links)

    def __contains__(self, middleware: object) -> bool:
        return any(link.middleware == middleware for link in self.links)

    def add(self, middleware: M, *args: Any, **kwargs: Any) -> M:
        """Put a middleware at the end: it is the innermost."""
        self._insert(lambda others: len(others), middleware, args, kwargs)
        return middleware

    def prepend(self, middleware: M, *args: Any, **kwargs: Any) -> M:
        """Put a middleware at the start: it is the outermost."""
        self._insert(lambda others: 0, middleware, args, kwargs)
        return middleware

    def insert_before(self, other: M, middleware: M, *args: Any, **kwargs: Any) -> M:
        """Put a middleware just outside of another one."""
        self._insert(lambda others: self._place(others, other), middleware, args, kwargs)
        return middleware

    def insert_after(self, other: M, middleware: M, *args: Any, **kwargs: Any) -> M:
        """Put a middleware just inside of another one."""
        self._insert(lambda others: self._place(others, other) + 1, middleware, args, kwargs)
        return middleware

    def remove(self, middleware: M) -> None:
        """Take a middleware out."""
        if middleware not in self:
            raise DeclarationError(f"{name_of(middleware)} is not in this chain")
        self.links = self._without(middleware)

    def without(self, skipped: Collection[object]) -> tuple[Link, ...]:
        """The links but for some middlewares."""
        return tuple(
            link
            for link in self.links
            if not any(link.middleware == middleware for middleware in skipped)
        )

    def _insert(
        self,
        place: Callable[[Sequence[Link]], int],
        middleware: M,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        if not callable(middleware) or inspect.iscoroutinefunction(middleware):
            raise DeclarationError(f"a middleware is a plain function, not {middleware!r:.100}")
        if inspect.isgeneratorfunction(middleware) or inspect.isasyncgenfunction(middleware):
            raise DeclarationError(
                f"{name_of(middleware)} is a generator function; put @contextmanager above it, or "
                f"@asynccontextmanager, below the line that adds it"
            )
        others = self._without(middleware)
        at = place(others)
        link = Link(middleware, args, kwargs)
        self.links = (*others[:at], link, *others[at:])  # a new one: others are iterating

    def _without(self, middleware: object) -> tuple[Link, ...]:
        return self.without((middleware,))

    @staticmethod
    def _place(links: Sequence[Link], other: object) -> int:
        for index, link in enumerate(links):
            if link.middleware == other:  # bound methods are made anew each time
                return index
        raise DeclarationError(f"{name_of(other)} is not in this chain")


class Middleware:
    """An application's chains."""

    def __init__(self) -> None:
        self.client: Chain[ClientMiddleware] = Chain()
        self.server: Chain[ServerMiddleware] = Chain()


def name_of(middleware: object) -> str:
    """What a function or class is called in messages."""
    module = getattr(middleware, "__module__", None)
    name = getattr(middleware, "__qualname__", None)
    return f"{module}.{name}" if isinstance(name, str) else type(middleware).__qualname__
