"""A job's arguments survive everything that happens to its payload."""

import json
from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from cogworker import Cogworker, InvalidPayload, payload
from cogworker._worker import failure
from cogworker.inspector import Inspector

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**300), 2**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)

EXTREMES = [
    2**200, -(2**63) - 1, 2**64, 9007199254740993, 0.1, 1e308, 5e-324, -0.0, "", "\0", "a\0b",
    "👩‍👩‍👧", "שלום עולם", "\u2028", "\x7f", [], {}, [[], {}, [[]], {"": {}}], "x" * 2**19,
    {"a" * 1000: [None, True, False]},
]  # fmt: skip


def same(left, right):
    """Equal, in type too, and in the sign of zero."""
    return repr(left) == repr(right)


@pytest.fixture(scope="module")
def app(server_url):
    app = Cogworker(redis_url=server_url, namespace="{payload}", queues=["default"])
    yield app
    app.close()


@pytest.fixture(scope="module")
def echo(app):
    @app.job
    def echo(*args, **kwargs):
        return args, kwargs

    return echo


def travel(app, echo, args, kwargs):
    """Enqueue, read from Redis, fail, be promoted, be orphaned, and be decoded by a worker."""
    look = Inspector(app)
    echo.enqueue(*args, **kwargs)
    [raw] = look.waiting("default")
    app.client.runner.run(look_away(app))
    changes = {"retry_count": 1, **failure.describe(ValueError("why"))}
    raw = payload.amend(raw, changes, drop=("orphaned",))
    raw = payload.amend(raw, {"enqueued_at": 1.5})
    raw = payload.amend(raw, {"orphaned": 1})
    envelope = payload.parse(raw)
    named = None if envelope.kwargs is payload.NO_KWARGS else envelope.kwargs
    return echo.codec.decode(envelope.args, named)


def look_away(app):
    """Empty the queue."""
    from cogworker._redis.command import Command

    return Command("clear", None, ("DEL", app.client.keys.queue("default")), (), int)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    args=st.lists(json_values, max_size=4),
    kwargs=st.dictionaries(st.text(min_size=1), json_values, max_size=3),
)
@example(args=EXTREMES, kwargs={})
@example(args=[], kwargs={"k": EXTREMES})
def test_arguments_survive_enqueue_failure_promotion_and_rescue(app, echo, args, kwargs):
    decoded_args, decoded_kwargs = travel(app, echo, args, kwargs)

    assert same(list(decoded_args), args)
    assert same(decoded_kwargs, kwargs)


@settings(max_examples=300)
@given(fields=st.dictionaries(st.text(), json_values), changed=st.text(), value=json_values)
def test_what_is_not_changed_stays_byte_for_byte(fields, changed, value):
    before = {key: json.dumps(each, indent=1) for key, each in fields.items()}
    text = ",".join(f"{json.dumps(key)}:{each}" for key, each in before.items())
    raw = payload.amend(f"{{{text}}}".encode(), {changed: value})

    after = payload._raw_objects.decode(raw)
    for key, each in before.items():
        if key != changed:
            assert bytes(after[key]).decode() == each
    assert same(json.loads(bytes(after[changed])), value)


@settings(max_examples=500)
@given(raw=st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
@example(raw=b"[" * 100_000)
@example(raw=b'{"class":"x","jid":"y","args":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
@example(raw=b'{"class":"\\ud800","jid":"y"}')
def test_any_bytes_are_a_job_or_refused_and_can_be_kept(raw):
    try:
        payload.parse(raw)
    except InvalidPayload as error:
        kept = payload.wrap_unparseable(raw, "mail", error, 1.0)
        assert payload.parse(kept).class_ == payload.UNPARSEABLE
    with suppress(InvalidPayload):
        assert payload.destination(raw)
    assert len(payload.excerpt(raw)) < 2500
