"""Keys of the wrong type, in mid-work: moved aside, logged, and work goes on."""

import pytest

from support.processes import eventually

QUICK = {
    "poll_interval": 0.05,
    "heartbeat_interval": 0.1,
    "shutdown_timeout": 5,
    "orphan_check_interval": 600,  # what is damaged must be noticed, not found by chance
}


def worker_keys(keys, worker):
    return {
        "presence": keys.presence(worker),
        "in flight": keys.in_flight(worker),
        "orders": keys.orders(worker),
    }


@pytest.mark.parametrize(
    "name", ["queues", "paused_queues", "schedule", "retry", "dead", "workers"]
)
@pytest.mark.parametrize("when", ["before the start", "in mid-work"])
def test_a_damaged_key_holds_up_nothing_and_is_kept_aside(name, when, app, look, redis):
    @app.job(retry=1)
    def fails():
        raise ValueError

    @app.job(retry=False)
    def dies():
        raise ValueError

    @app.job
    def job():
        pass

    key = getattr(app.client.keys, name)

    def damage():
        redis.delete(key)
        redis.set(key, "a mess")

    if when == "before the start":
        damage()
    # Nobody misses the names of queues before a job comes back to one: they are checked in time.
    interval = 0.1 if name == "queues" else QUICK["orphan_check_interval"]
    with app.worker(**{**QUICK, "orphan_check_interval": interval}) as worker:
        assert worker.wait_until_ready(30)
        if when == "in mid-work":
            damage()
        job.enqueue()
        fails.enqueue()
        dies.enqueue()
        aside = app.client.keys.quarantine(key, 1)
        eventually(lambda: redis.get(aside) == b"a mess")
        eventually(lambda: look.stats() == (1, 2, 0, 0, 0, 0, 0, 1, 1))
        assert 0 < redis.ttl(aside) <= 30 * 86400
        eventually(lambda: look.identities() == [worker.identity])
    assert look.workers() == []


@pytest.mark.parametrize("name", ["presence", "in flight", "orders", "queue", "wake"])
def test_a_worker_goes_on_when_one_of_its_own_keys_is_damaged(name, app, look, redis, caplog):
    @app.job
    def job():
        pass

    with app.worker(**QUICK) as worker:
        assert worker.wait_until_ready(30)
        keys = app.client.keys
        names = {
            **worker_keys(keys, worker.identity),
            "queue": keys.queue("default"),
            "wake": keys.wake("default"),
        }
        redis.eval("redis.call('DEL', KEYS[1]); redis.call('SET', KEYS[1], 'x')", 1, names[name])
        if name != "queue":
            job.enqueue()
        if name != "wake":  # whoever finds the queue empty deletes that one by the way
            eventually(lambda: f"key={names[name]} type=string" in caplog.text)
        if name == "queue":
            job.enqueue()
        eventually(lambda: look.stats().processed == 1)
        eventually(lambda: redis.type(names[name]) != b"string")
    assert look.workers() == []


def test_only_five_copies_of_a_key_are_kept_the_newest(app, redis):
    key = app.client.keys.dead
    for number in range(7):
        redis.set(key, number)
        with app.worker(**QUICK) as worker:
            assert worker.wait_until_ready(30)
            worker._launcher._parts.guard.poke()
            eventually(lambda: not redis.exists(key))
        # The names aside are used in turn by the time they have left.
        for copy in range(1, 6):
            left = redis.ttl(app.client.keys.quarantine(key, copy))
            if left > 0:
                redis.expire(app.client.keys.quarantine(key, copy), left - 100)

    copies = {redis.get(app.client.keys.quarantine(key, copy)) for copy in range(1, 6)}
    assert copies == {b"2", b"3", b"4", b"5", b"6"}
