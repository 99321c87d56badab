"""Workers that can't reach the server for minutes, and the search for dead ones."""

import pytest

from cogworker import Cogworker

from support.inline import InlineWorker
from support.processes import eventually, lines
from support.proxy import proxy

SETTINGS = {
    "heartbeat_interval": 0.4,
    "orphan_threshold": 300,
    "orphan_check_interval": 0.2,
    "poll_interval": 0.1,
    "redis_timeout": 0.5,
}


@pytest.mark.parametrize(("minutes", "keeps"), [(4, True), (6, False)])
def test_a_worker_that_was_cut_off_keeps_its_jobs_for_five_minutes_and_nothing_is_counted_twice(
    minutes, keeps, workers, tmp_path, server_url, app, look, redis
):
    workers.write(
        f"""
import os, time
@cog.job
def job(number):
    with open({str(tmp_path / "ran")!r}, "a") as file:
        file.write(f"{{number}}\\n")
    while os.path.exists({str(tmp_path / "hold")!r}):
        time.sleep(0.01)
"""
    )
    (tmp_path / "hold").touch()
    keys = app.client.keys
    with proxy(server_url) as between:
        cut_off = workers.start(**SETTINGS, redis_url=between.url)
        for number in range(5):
            app.push({"class": "tasks.job", "args": [number]})
        eventually(lambda: look.stats().in_flight == 5)
        eventually(lambda: len(lines(tmp_path / "ran")) == 5)
        [identity] = look.identities()
        between.cut()
        cut_off.wait_for("redis is away")
        # Time passes on the server: its last beat gets older, and its presence expires.
        redis.zincrby(keys.workers, -60 * minutes, identity)
        redis.delete(keys.presence(identity))

        other = workers.start(**SETTINGS)
        if keeps:
            for _ in range(3):  # it searches again and again, and takes nothing
                before = redis.info("commandstats")["cmdstat_zrangebyscore"]["calls"]
                eventually(
                    lambda before=before: (
                        redis.info("commandstats")["cmdstat_zrangebyscore"]["calls"] > before + 10
                    )
                )
            assert look.held(identity) == 5
        else:
            other.wait_for(f"rescued: jobs=5 worker={identity}")
        (tmp_path / "hold").unlink()
        between.heal()
        eventually(lambda: look.stats().processed == 5)
        if not keeps:
            cut_off.wait_for("lost claim", times=5)
        assert cut_off.stop() == 0
        assert other.stop() == 0

    ran = sorted(lines(tmp_path / "ran"))
    assert ran == sorted([*"01234"] * (1 if keeps else 2))
    assert look.stats() == (5, 0, 0, 0 if keeps else 5, 0, 0, 0, 0, 0)
    assert look.workers() == []


@pytest.mark.parametrize("how", ["cut", "stall"])
def test_an_order_given_while_a_worker_is_cut_off_is_obeyed_when_it_is_back(
    how, workers, server_url, look, redis
):
    workers.write("@cog.job\ndef job(): pass\n")
    with proxy(server_url) as between:
        worker = workers.start(**SETTINGS, redis_url=between.url)
        [identity] = look.identities()
        getattr(between, how)()
        worker.wait_for("redis is away")
        assert look.stop_worker(identity, by="ada") == "ordered"
        between.heal()
        assert worker.process.wait(30) == 0
    assert "told from afar: retire by='ada'" in worker.log
    assert look.workers() == []


def test_the_search_for_dead_workers_costs_the_same_with_a_million_other_keys(
    settings, redis, app, record_property
):
    @app.job
    def job():
        pass

    job.enqueue()
    doomed = InlineWorker(app, run_jobs=False)
    doomed.beat()
    doomed.turn()
    rescuer = InlineWorker(Cogworker(**settings))
    rescuer.beat()

    def cost():
        """The commands that one search sends, with those in its scripts, and the server's time."""
        before = redis.info("commandstats")
        rescuer.rescue()
        after = redis.info("commandstats")
        names = {*before, *after} - {"cmdstat_info"}
        calls = {
            name: after[name]["calls"] - before.get(name, {"calls": 0})["calls"] for name in names
        }
        spent = sum(
            after[name]["usec"] - before.get(name, {"usec": 0})["usec"]
            for name in names
            if name.startswith("cmdstat_eval")
        )
        return {name: number for name, number in calls.items() if number}, spent

    cost()  # so that the server knows the scripts
    few, spent_few = cost()
    fill = "for i = 1, 50000 do redis.call('SET', 'other:' .. ARGV[1] .. ':' .. i, 'x') end"
    for part in range(20):
        redis.eval(fill, 0, part)
    try:
        many, spent_many = cost()
    finally:
        redis.flushdb()
    assert many == few
    assert not {"cmdstat_scan", "cmdstat_keys"} & many.keys()
    record_property("seen", f"{sum(many.values())} commands, {spent_few} and {spent_many} µs")
