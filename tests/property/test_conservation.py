"""Whatever happens, in whatever order: each job lies in one place, and every count is exact.

The engine on a real server against a dict: jobs are pushed, taken, settled in every way, promoted,
rescued, given back, moved by hand; workers die and come back; calls are repeated and come late.
"""

import secrets

import hypothesis.strategies as st
import pytest
import redis as redis_client
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from cogworker import Cogworker
from cogworker._engine import presence
from cogworker._engine.moves import NewJob, Waiting
from cogworker._engine.places import InFlight, Place, Within

from support.counting import CountingMoves, back
from support.dump import clear
from support.times import everything_is_due

QUEUES = ("a", "b")
PLACES = ("queue:a", "queue:b", "schedule", "retry", "dead")


class Conservation(RuleBasedStateMachine):
    url = ""
    deliveries = Bundle("deliveries")

    @initialize()
    def begin(self):
        self.app = Cogworker(redis_url=self.url, namespace=f"{{p{secrets.token_hex(6)}}}")
        self.redis = redis_client.Redis.from_url(self.url)
        self.keys = self.app.client.keys
        self.moves = CountingMoves(self.keys, dead_max_jobs=10_000, dead_max_age_s=1e9)
        self.run = self.app.client.runner.run
        self.jobs = {}  # payload → place; nowhere is "done"
        self.processed = self.failed = self.lost = 0
        self.number = {"w1": 0, "w2": 0}
        self.rescued = set()
        self.pushes = self.made = 0
        for name in self.number:
            self.beat(name)

    def beat(self, name):
        self.run(presence.beat(self.keys, name, {"busy": "0"}, 60))

    def payload(self):
        self.made += 1  # not random: a life must be the same when it is lived again
        return b"%06d" % self.made

    @rule(queue=st.sampled_from(QUEUES), count=st.integers(1, 5), again=st.booleans())
    def push(self, queue, count, again):
        payloads = [self.payload() for _ in range(count)]
        self.pushes += 1
        command = self.moves.push(
            "lane", self.pushes, f"j{self.pushes}", [NewJob(queue, each) for each in payloads]
        )
        for _ in range(1 + again):
            assert not self.run(command).failed
        self.jobs.update(dict.fromkeys(payloads, f"queue:{queue}"))

    @rule(queue=st.sampled_from(QUEUES), delay_s=st.sampled_from([0.0, 3600.0]))
    def schedule(self, queue, delay_s):
        payload = self.payload()
        self.pushes += 1
        self.run(self.moves.push("lane", self.pushes, "j", [NewJob(queue, payload, None, delay_s)]))
        self.jobs[payload] = "schedule" if delay_s else f"queue:{queue}"

    @rule(
        target=deliveries,
        name=st.sampled_from(["w1", "w2"]),
        want=st.integers(0, 4),
        order=st.permutations(QUEUES),
        again=st.booleans(),
    )
    def take(self, name, want, order, again):
        self.number[name] += 1
        command = self.moves.turn(InFlight(name), self.number[name], [], want, order)
        taken = self.run(command).taken
        if again:
            assert self.run(command).taken == taken
        for each in taken:
            assert self.jobs[each.payload] == f"queue:{each.queue}"
            self.jobs[each.payload] = f"flight:{name}"
        return multiple(*[(name, each.tag, each.payload) for each in taken])

    @rule(
        delivery=consumes(deliveries),
        end=st.sampled_from(["done", "retry", "bury", "give back"]),
        again=st.booleans(),
    )
    def settle(self, delivery, end, again):
        name, tag, payload = delivery
        worker = InFlight(name)
        changed = self.payload()
        if end == "done":
            moves, place, changed = [self.moves.done(worker, [tag])], "done", payload
        elif end == "retry":
            moves, place = [self.moves.retry(worker, tag, changed, 3600.0)], "retry"
        elif end == "bury":
            moves, place = [self.moves.bury(worker, tag, changed)], "dead"
        else:
            moves = self.moves.give_back(worker, [back(tag)])
            place, changed = f"queue:{tag.split(b'.', 2)[2].decode()}", payload
        self.number[name] += 1
        command = self.moves.turn(worker, self.number[name], moves, 0, [])
        moved = self.run(command).moved
        if again:
            assert not self.run(command).moved.lost
        assert (tag in moved.lost) == ((name, tag) in self.rescued)
        if tag in moved.lost:
            self.lost += 1
            return
        assert self.jobs.pop(payload) == f"flight:{name}"
        self.jobs[changed] = place
        self.processed += end == "done"
        self.failed += end in ("retry", "bury")

    @rule(name=st.sampled_from(["w1", "w2"]))
    def late_turn(self, name):
        """A packet of a dead connection arrives when later turns have been answered."""
        if self.number[name] < 2:
            return
        command = self.moves.turn(InFlight(name), self.number[name] - 1, [], 4, QUEUES)
        assert self.run(command) == (self.number[name],)

    @rule(name=st.sampled_from(["w1", "w2"]), dead=st.booleans())
    def rescue(self, name, dead):
        worker = InFlight(name)
        if dead:
            self.redis.delete(self.keys.presence(name))
            self.redis.zincrby(self.keys.workers, -3600, name)
        held = self.run(self.moves.examine(worker, 300))
        assert (held is not None) == dead
        moves = self.moves.give_back(worker, [back(each.tag) for each in held.jobs] if dead else [])
        moved = self.run(self.moves.rescue(worker, 300, moves))
        assert (moved is not None) == dead
        for each in held.jobs if dead else ():
            assert self.jobs[each.payload] == f"flight:{name}"
            self.jobs[each.payload] = f"queue:{each.queue}"
            self.rescued.add((name, each.tag))
        self.beat(name)

    @rule(source=st.sampled_from([Place.SCHEDULE, Place.RETRY]), queue=st.sampled_from(QUEUES))
    def promote(self, source, queue):
        everything_is_due(self.redis, self.keys)
        due = self.run(self.moves.due(3, 10**6))
        entries = due.schedule if source is Place.SCHEDULE else due.retry
        changed = {entry: self.payload() for entry in entries}
        jobs = [Waiting(entry, payload, queue) for entry, payload in changed.items()]
        command = self.moves.move(self.moves.promote(source, jobs))
        assert not self.run(command).lost
        assert len(self.run(command).lost) == len(jobs)
        for entry, payload in changed.items():
            assert self.jobs.pop(entry) == source.value
            self.jobs[payload] = f"queue:{queue}"

    @rule(
        data=st.data(),
        action=st.sampled_from(["drop", "bury", "queue", "put off"]),
        reach=st.sampled_from([100_000, -100_000]),
        again=st.booleans(),
    )
    def by_hand(self, data, action, reach, again):
        waiting = sorted(each for each, place in self.jobs.items() if place in PLACES)
        if not waiting:
            return
        payload, changed = data.draw(st.sampled_from(waiting)), self.payload()
        place = self.jobs[payload]
        kind, _, queue = place.partition(":")
        if queue and action in ("queue", "put off"):
            return
        source = Within(queue, reach) if queue else Place(kind)
        if action == "drop":
            moves, ends = [self.moves.drop(source, payload)], "done"
        elif action == "bury":
            moves, ends = [self.moves.bury(source, payload, changed)], "dead"
        elif action == "queue":
            moves, ends = self.moves.promote(source, [Waiting(payload, changed, "b")]), "queue:b"
        else:
            moves, ends = [self.moves.put_off(source, payload, changed, 9e9)], kind
        command = self.moves.move(moves, answer_again=True)
        for _ in range(1 + again):
            assert not self.run(command).lost
        del self.jobs[payload]
        self.jobs[payload if action == "drop" else changed] = ends
        self.failed += action == "bury"

    @invariant()
    def each_job_lies_in_exactly_one_place(self):
        if not hasattr(self, "jobs"):
            return
        found = {}
        lists = {
            f"queue:{name}": self.redis.lrange(self.keys.queue(name), 0, -1) for name in QUEUES
        }
        sets = {
            "schedule": self.redis.zrange(self.keys.schedule, 0, -1),
            "retry": self.redis.zrange(self.keys.retry, 0, -1),
            "dead": self.redis.zrange(self.keys.dead, 0, -1),
        }
        flights = {
            f"flight:{name}": [
                payload
                for tag, payload in self.redis.hgetall(self.keys.in_flight(name)).items()
                if tag != b"@turn"
            ]
            for name in self.number
        }
        for place, payloads in {**lists, **sets, **flights}.items():
            for payload in payloads:
                assert payload not in found, f"{payload} lies in {found[payload]} and in {place}"
                found[payload] = place
        assert found == {each: place for each, place in self.jobs.items() if place != "done"}
        counts = self.redis.mget(self.keys.processed, self.keys.failed, self.keys.lost_claims)
        assert [int(count or 0) for count in counts] == [self.processed, self.failed, self.lost]

    def teardown(self):
        if hasattr(self, "app"):
            clear(self.redis, self.app.config.namespace)
            self.app.close()
            self.redis.close()


@pytest.fixture(autouse=True)
def _url(server_url):
    Conservation.url = server_url


TestConservation = Conservation.TestCase
TestConservation.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestConservation = pytest.mark.usefixtures("_url")(TestConservation)
