"""Every call of the actions by hand fails: before, after, its request lost, its reply lost.

The life: jobs wait, retry and are dead, all of them unique and with an attempts log; each action is
done to one. After each fault each job lies in exactly one place, with exactly what belongs to it.
"""

import json
from collections import Counter
from datetime import UTC, datetime

import pytest

from cogworker import Cogworker
from cogworker.inspector import Inspector

from support.dump import clear
from support.flaky import FULL, MODES, Death, Fault, FlakyConnector
from support.throughput import pop_throughput

WHEN = datetime(2100, 1, 1, tzinfo=UTC)
ACTIONS = {
    "q-delete": ("queue", "delete", "deleted"),
    "q-discard": ("queue", "discard", "discarded"),
    "q-kill": ("queue", "kill", "killed"),
    "s-delete": ("scheduled", "delete", "deleted"),
    "s-retry": ("scheduled", "retry_now", "requeued"),
    "s-move": ("scheduled", "reschedule", "rescheduled"),
    "s-kill": ("scheduled", "kill", "killed"),
    "r-discard": ("retrying", "discard", "discarded"),
    "r-retry": ("retrying", "retry_now", "requeued"),
    "r-move": ("retrying", "reschedule", "rescheduled"),
    "d-delete": ("dead", "delete", "deleted"),
    "d-revive": ("dead", "revive", "requeued"),
}
CLEARED = [f"clear-{number}" for number in range(3)]


def seed(redis, keys):
    """One job for each action, another one that nobody touches, and a queue to be cleared."""
    places = {"queue": keys.queue("mail"), "scheduled": keys.schedule, "retrying": keys.retry}
    places["dead"] = keys.dead
    jobs = {jid: place for jid, (place, _, _) in ACTIONS.items()}
    jobs |= {f"{place}-stays": place for place in places}
    for jid, place in jobs.items():
        fields = {"class": "x", "jid": jid, "queue": "back", "unique": "until_executed"}
        entry = json.dumps({**fields, "lock": jid, "retry_count": 1})
        if place == "queue":
            redis.lpush(places[place], entry)
        else:
            redis.zadd(places[place], {entry: 4e9})
        if place != "dead":
            redis.set(keys.lock(jid), jid)
        redis.rpush(keys.attempts(jid), "an attempt")
    for jid in CLEARED:
        redis.lpush(keys.queue("clear"), json.dumps({"class": "x", "jid": jid}))
        redis.rpush(keys.attempts(jid), "an attempt")


def live(app):
    """Do each action; answers with what they said."""
    look = Inspector(app)
    answers = {}
    for jid, (place, action, _) in ACTIONS.items():
        jobs = look.jobs_in("mail") if place == "queue" else look.jobs(place)
        act = getattr(jobs, action)
        answers[jid] = (act(jid, WHEN) if action == "reschedule" else act(jid)).word
    answers["clear"] = look.jobs_in("clear").clear()
    return answers


def check(dump, after_all):
    """Each job is in one place, with its lock and its attempts, or without; counts are exact."""
    rest = dump()
    pop_throughput(rest)
    places = {name: rest.pop(name, ()) for name in ("schedule", "retry", "dead")}
    places |= {name: rest.pop(f"queue:{name}", ()) for name in ("mail", "back", "clear")}
    lies = {
        json.loads(entry)["jid"]: place for place, entries in places.items() for entry in entries
    }
    assert sum(map(len, places.values())) == len(lies), "a job lies in two places"
    first = {"queue": "mail", "scheduled": "schedule", "retrying": "retry", "dead": "dead"}
    counts = Counter()
    for jid, (place, _, word) in ACTIONS.items():
        gone = word in ("deleted", "discarded")
        moved = {"requeued": "back", "killed": "dead"}.get(word, first[place])
        target = None if gone else moved
        now = lies.pop(jid, None)
        acted = now == target if target != first[place] else after_all
        assert now in (target, first[place])
        assert acted or not after_all
        counts[word] += acted
        attempts = rest.pop(f"attempts:{jid}", [])
        wanted = {"deleted": 0, "killed": 2}.get(word, 1) if acted else 1
        assert len(attempts) == wanted, f"{jid}: {attempts}"
        has_lock = now is not None and now != "dead"
        assert rest.pop(f"unique:{jid}", None) == (jid.encode() if has_lock else None)
    for place in ("queue", "scheduled", "retrying", "dead"):
        jid = f"{place}-stays"
        assert lies.pop(jid) == first[place]
        assert len(rest.pop(f"attempts:{jid}")) == 1
        assert (f"unique:{jid}" in rest) == (place != "dead")
        rest.pop(f"unique:{jid}", None)
    for jid in CLEARED:
        assert (lies.pop(jid, None) is None) == (rest.pop(f"attempts:{jid}", None) is None)
    assert lies == {}
    assert int(rest.pop("stats:discarded", 0)) == counts["discarded"]
    assert {key for key in rest if not key.startswith(("call:", "wake:"))} <= {"queues"}


def app_with(settings, fault):
    app = Cogworker(**settings)
    app.client.runner.connector = FlakyConnector(app.config, fault)
    return app


WORDS = {jid: word for jid, (_, _, word) in ACTIONS.items()} | {"clear": len(CLEARED)}


def test_a_life_without_faults(settings, redis, dump, app):
    seed(redis, app.client.keys)

    assert live(app_with(settings, Fault())) == WORDS

    check(dump, True)


@pytest.mark.parametrize("mode", [*MODES, FULL])
def test_whichever_call_fails(mode, settings, redis, dump, app):
    keys = app.client.keys
    seed(redis, keys)
    clean = Fault()
    live(app_with(settings, clean))

    for at in range(1, clean.count + 1):
        clear(redis, settings["namespace"])
        seed(redis, keys)
        died, answers = False, {}
        try:
            answers = live(app_with(settings, Fault(at, mode, redis)))
        except Death:
            died = True
        assert died == mode.startswith("dies")
        try:
            assert died or answers == WORDS
            check(dump, not died)
            if died:
                again = live(app)
                assert all(again[jid] in (WORDS[jid], "gone") for jid in ACTIONS)
                check(dump, True)
        except AssertionError as error:
            raise AssertionError(f"call {at} of {clean.count} {mode}: {error}") from error
