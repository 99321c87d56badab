"""Time passes when a test says so: what is stored is made older."""

import redis as redis_client

from cogworker._redis.keys import Keys


def everything_is_due(redis: redis_client.Redis, keys: Keys) -> None:
    """Scheduled and retrying jobs have become due."""
    for key in (keys.schedule, keys.retry):
        for index, entry in enumerate(redis.zrange(key, 0, -1)):
            redis.zadd(key, {entry: index + 1})


def all_workers_are_dead(redis: redis_client.Redis, keys: Keys) -> None:
    """No worker has beaten for an hour."""
    for name in redis.zrange(keys.workers, 0, -1):
        redis.delete(keys.presence(name.decode()))
        redis.zincrby(keys.workers, -3600, name)
