"""Workers are steered from afar: orders, paused queues, the paused intake."""

import logging

import pytest

from cogworker import Cogworker, CogworkerError, RedisRefused
from cogworker.inspector import Inspector

from support.processes import eventually
from support.server import server

QUICK = {"poll_interval": 0.05, "heartbeat_interval": 0.1, "shutdown_timeout": 5}


@pytest.fixture
def job(app):
    @app.job
    def job():
        pass

    return job


def is_quiet(redis, app, worker):
    return redis.hget(app.client.keys.presence(worker.identity), "quiet") == b"true"


def test_quiet_and_resume_one_worker(app, look, job, redis):
    with app.worker(**QUICK) as one, app.worker(**QUICK, queues=["other"]) as other:
        assert one.wait_until_ready(30)
        assert other.wait_until_ready(30)
        assert look.quiet_worker(one.identity, by="ada") == "ordered"
        eventually(lambda: is_quiet(redis, app, one))
        assert not is_quiet(redis, app, other)
        job.enqueue()
        job.using(queue="other").enqueue()
        eventually(lambda: look.stats().processed == 1)
        assert look.stats().enqueued == 1

        assert look.resume_worker(one.identity) == "ordered"
        eventually(lambda: look.stats().processed == 2)


def test_stop_ends_one_worker(app, look, job):
    with app.worker(**QUICK) as one, app.worker(**QUICK) as other:
        assert one.wait_until_ready(30)
        assert other.wait_until_ready(30)
        assert look.stop_worker(one.identity, by="ada") == "ordered"
        assert one.join(30)
        job.enqueue()
        eventually(lambda: look.stats().processed == 1)
        assert look.identities() == [other.identity]
        assert look.stop_worker(one.identity) == "gone"


def test_stop_all(app, look):
    workers = [app.worker(**QUICK) for _ in range(3)]
    for worker in workers:
        worker.start()
        assert worker.wait_until_ready(30)
    assert look.stop_workers() == {worker.identity: "ordered" for worker in workers}
    for worker in workers:
        assert worker.join(30)
    assert look.workers() == []


def test_an_order_leaves_no_key_behind(app, look, dump):
    with app.worker(**QUICK) as worker:
        assert worker.wait_until_ready(30)
        look.quiet_worker(worker.identity)
        eventually(lambda: not worker._launcher.dispatcher.taking)
    assert [key for key in dump() if not key.startswith("call:")] == []


def test_a_stop_can_t_be_undone(app, look, redis):
    redis.zadd(app.client.keys.workers, {"w": 1})
    assert look.quiet_worker("w") == "ordered"
    assert look.stop_worker("w") == "ordered"
    assert look.resume_worker("w") == "stopping"
    assert redis.hget(app.client.keys.orders("w"), "order") == b"stop"


def test_an_order_given_while_the_worker_could_not_listen_is_obeyed_later(app, look, job, redis):
    worker = app.worker(**QUICK)
    # As if the bell had been lost with a connection: only the stored order is there.
    redis.zadd(app.client.keys.workers, {worker.identity: 1})
    look.stop_worker(worker.identity)
    redis.delete(app.client.keys.order_bell(worker.identity))
    worker.start()
    assert worker.join(30)


def test_the_intake_of_all_is_paused_for_workers_that_start_later_too(app, look, job, redis):
    assert look.pause_intake(by="ada")
    assert not look.pause_intake(by="bob"), "it is paused already"
    assert look.intake().by == "ada"
    with app.worker(**QUICK) as early:
        eventually(lambda: is_quiet(redis, app, early))
        job.enqueue()
        with app.worker(**QUICK) as late:
            eventually(lambda: is_quiet(redis, app, late))
            assert look.stats().enqueued == 1
        assert look.resume_intake()
        assert not look.resume_intake()
        eventually(lambda: look.stats().processed == 1)
    assert look.intake() is None


def test_a_quiet_worker_stays_quiet_when_the_intake_opens(app, look, job, redis):
    with app.worker(**QUICK) as worker:
        assert worker.wait_until_ready(30)
        look.quiet_worker(worker.identity)
        eventually(lambda: is_quiet(redis, app, worker))
        look.pause_intake()
        eventually(lambda: worker._launcher._intake_paused)
        look.resume_intake()
        eventually(lambda: not worker._launcher._intake_paused)
        assert not worker._launcher.dispatcher.taking
        look.resume_worker(worker.identity)
        eventually(lambda: not is_quiet(redis, app, worker))


def test_a_paused_queue_is_left_alone_from_the_very_next_take(app, look, job):
    @app.job(queue="mail")
    def mail():
        pass

    with app.worker(**QUICK, queues=["default", "mail"]) as worker:
        assert worker.wait_until_ready(30)
        assert look.pause_queue("mail", by="ada")
        mail.enqueue()
        job.enqueue()
        eventually(lambda: look.stats().processed == 1)
        assert look.stats().enqueued == 1
        assert look.resume_queue("mail")
        eventually(lambda: look.stats().processed == 2)


def test_resuming_a_queue_wakes_workers_that_look_rarely(app, look, job):
    with app.worker(**QUICK, fetch_idle_max_interval=600) as worker:
        assert worker.wait_until_ready(30)
        look.pause_queue("default")
        job.enqueue()
        # It has found the queue paused, and listens at no other one.
        eventually(lambda: worker._launcher.dispatcher._paused == {"default"})
        look.resume_queue("default")
        eventually(lambda: look.stats().processed == 1)


def test_who_paused_a_queue_and_when_is_known(app, look, redis):
    redis.sadd(app.client.keys.paused_queues, "ruby")  # paused by other software
    assert look.pause_queue("mail", by="ada\nlovelace 7")
    assert not look.pause_queue("mail", by="bob")
    now = redis.time()[0]

    paused = look.paused_queues()
    assert list(paused) == ["mail", "ruby"]
    assert paused["mail"].by == "ada\nlovelace 7"
    assert now - 60 < paused["mail"].at < now + 60
    assert paused["ruby"] == ("", None)

    assert look.resume_queue("ruby")
    assert look.resume_queue("mail")
    assert not look.resume_queue("mail")
    assert look.paused_queues() == {}


def test_an_order_is_obeyed_by_a_worker_whose_server_has_lost_its_data(app, look, redis):
    with app.worker(**QUICK) as worker:
        assert worker.wait_until_ready(30)
        look.quiet_worker(worker.identity)
        eventually(lambda: is_quiet(redis, app, worker))
        keys = app.client.keys
        redis.delete(keys.orders(worker.identity))
        look.resume_worker(worker.identity)
        eventually(lambda: not is_quiet(redis, app, worker))


def test_a_full_server_can_be_steered(tmp_path):
    with server(tmp_path) as own:
        own.start()
        app = Cogworker(redis_url=own.url)
        look = Inspector(app)
        with app.worker(**QUICK) as worker:
            assert worker.wait_until_ready(30)
            own.client.config_set("maxmemory", 1)
            assert look.pause_queue("default")
            assert look.pause_intake()
            assert look.resume_intake()
            assert look.resume_queue("default")
            assert look.stop_worker(worker.identity) == "ordered"
            assert worker.join(30)
        own.client.config_set("maxmemory", 0)
        app.close()


@pytest.mark.parametrize("name", ["", "a,b", 3, "x" * 201])
def test_what_can_t_be_a_queue_is_refused(look, name):
    with pytest.raises(CogworkerError, match="the name of a queue must have"):
        look.pause_queue(name)
    assert look.paused_queues() == {}


def test_all_are_told_to_stop_though_one_order_fails(app, look, redis):
    redis.zadd(app.client.keys.workers, {"a": 1, "b": 2, "c": 3})
    redis.set(app.client.keys.orders("b"), "mess")
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        look.stop_workers()
    for name in "ac":
        assert redis.hget(app.client.keys.orders(name), "order") == b"stop"


def test_the_log_says_who_ordered_what(app, look, caplog):
    caplog.set_level(logging.INFO, "cogworker.worker")
    with app.worker(**QUICK) as worker:
        assert worker.wait_until_ready(30)
        look.quiet_worker(worker.identity, by="ada\n")
        eventually(lambda: "told from afar: quiet by='ada\\n'" in caplog.text)
