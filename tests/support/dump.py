"""All keys of an installation, with what they hold."""

from collections.abc import Callable, Iterator
from typing import Any

import redis as redis_client

Dump = dict[str, Any]

ANSWERS = ("call:", "producer:")
"""So begin keys that keep the answer to a call, should it be sent again; they expire."""


def dump_of(redis: redis_client.Redis, namespace: str) -> Dump:
    """All keys of a namespace with what they hold, without the namespace."""
    readers: dict[bytes, Callable[[bytes], Any]] = {
        b"string": redis.get,
        b"list": lambda key: redis.lrange(key, 0, -1),
        b"set": redis.smembers,
        b"hash": redis.hgetall,
        b"zset": lambda key: dict(redis.zrange(key, 0, -1, withscores=True)),
        b"stream": lambda key: [fields for _, fields in redis.xrange(key)],
    }
    return {
        key.decode().removeprefix(namespace + ":"): readers[redis.type(key)](key)
        for key in _keys_of(redis, namespace)
    }


def clear(redis: redis_client.Redis, namespace: str) -> None:
    """Delete all keys of a namespace."""
    for key in _keys_of(redis, namespace):
        redis.delete(key)


def _keys_of(redis: redis_client.Redis, namespace: str) -> Iterator[bytes]:
    pattern = namespace.replace("{", "\\{").replace("}", "\\}") + ":*"
    yield from redis.scan_iter(pattern, count=1000)
