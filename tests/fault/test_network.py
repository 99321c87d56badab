"""The network between workers, producers and the server stalls, cuts, loses, splits and delays.

Nobody dies in these tests, so nothing may be lost and nothing may run twice.
"""

import asyncio
from urllib.parse import quote

import pytest

from cogworker import Cogworker, RedisUnavailable

from support.books import Books
from support.inline import InlineWorker
from support.processes import eventually
from support.proxy import REPLIES, REQUESTS, proxy
from support.server import server

QUICK = {
    "heartbeat_interval": 0.4,
    "orphan_threshold": 600,  # nobody dies here
    "poll_interval": 0.1,
    "redis_timeout": 0.5,
    "concurrency": 4,
}


@pytest.fixture
def net(server_url):
    with proxy(server_url) as between:
        yield between


@pytest.fixture
def books(app, workers, tmp_path):
    return Books(app, workers, tmp_path)


@pytest.fixture
def far(net, settings):
    """The application, reached over the network."""
    far = Cogworker(**{**settings, "redis_url": net.url, "redis_timeout": 0.5})
    yield far
    far.close()


@pytest.fixture
def arun(far):
    """Runs a coroutine in one event loop, which keeps its connections."""
    with asyncio.Runner() as runner:
        yield runner.run
        runner.run(far.aclose())


def is_calm(worker):
    """Whether the log of a worker that has seen faults is a few lines, and no stack traces."""
    lines = [line for line in worker.log.splitlines() if " INFO " not in line]
    return "Traceback" not in worker.log and len(lines) <= 20


# A connection that is half open.


def test_a_stall_while_busy_loses_nothing_and_runs_nothing_twice(net, books, workers):
    worker = workers.start(**QUICK, redis_url=net.url)
    books.hold(2)
    books.push(600)
    books.push(300, "coroutine")
    books.wait_until_begun(50)
    net.stall()
    books.release()
    worker.wait_for("redis is away, trying again: site=dispatcher")
    worker.wait_for("redis is away, trying again: site=heartbeat")
    assert books.look.stats().processed < len(books.pushed), "it was over before the stall"
    net.heal()
    worker.wait_for("redis is back: site=dispatcher")
    books.wait_until_done()

    assert worker.stop() == 0
    assert is_calm(worker)
    books.check()


def test_a_stall_while_idle_is_noticed_and_then_jobs_run_again(net, books, workers):
    worker = workers.start(**QUICK, redis_url=net.url)
    books.push()
    books.wait_until_done()
    net.stall()
    worker.wait_for("redis is away, trying again: site=dispatcher")
    books.push(20)
    net.heal()
    books.wait_until_done()

    assert worker.stop() == 0
    assert is_calm(worker)
    books.check()


def test_stalls_one_after_another_lose_nothing_and_run_nothing_twice(net, books, workers):
    worker = workers.start(**QUICK, redis_url=net.url)
    for times in (1, 2):
        books.push(300)
        books.wait_until_begun(20)
        net.stall()
        worker.wait_for("redis is away, trying again: site=dispatcher", times)
        net.heal()
        worker.wait_for("redis is back: site=dispatcher", times)
    books.wait_until_done()

    assert worker.stop() == 0
    books.check()


def test_turns_that_arrive_long_after_later_ones_change_nothing(net, books, workers):
    """A turn that would take for all slots lies in a dead connection while its repetition works."""
    worker = workers.start(**QUICK, redis_url=net.url)
    books.push()
    books.wait_until_done()
    net.stall()
    worker.wait_for("redis is away, trying again: site=dispatcher")
    net.renew()
    worker.wait_for("redis is back: site=dispatcher")
    books.hold(QUICK["concurrency"])
    books.push(20)
    assert net.late > 0
    net.heal()
    eventually(lambda: net.late == 0)
    assert books.look.stats()[4:6] == (20, QUICK["concurrency"])
    books.release()
    books.wait_until_done()

    assert worker.stop() == 0
    books.check()


@pytest.mark.long
def test_connections_that_are_dead_without_saying_so_are_replaced(net, books, workers, redis):
    """Those on which a worker only waits to be woken, too; meanwhile it looks for jobs anyway."""

    def bells():
        clients = redis.client_list()
        return {each["id"] for each in clients if each["cmd"] == "blpop" and "b" in each["flags"]}

    worker = workers.start(**QUICK, redis_url=net.url)
    dead = eventually(lambda: len(bells()) == 2 and bells())  # for its queues, and for orders
    net.stall()
    net.renew()
    books.push(20)
    books.wait_until_done()
    eventually(lambda: len(bells() - dead) == 2)

    net.heal()
    eventually(lambda: net.late == 0)
    assert worker.stop() == 0
    books.check()


@pytest.mark.long
def test_jobs_taken_by_a_turn_that_arrives_after_its_worker_s_end_are_rescued(net, books, workers):
    worker = workers.start(**QUICK, redis_url=net.url)
    books.push()
    books.wait_until_done()
    net.stall()
    worker.wait_for("redis is away, trying again: site=dispatcher")
    net.renew()
    worker.wait_for("redis is back: site=dispatcher")
    assert worker.stop() == 0
    books.push(20)
    net.heal()
    eventually(lambda: net.late == 0)
    assert books.look.stats().in_flight > 0, "nothing was taken"

    other = workers.start(**{**QUICK, "orphan_threshold": 2, "orphan_check_interval": 0.2})
    books.wait_until_done()
    eventually(lambda: len(books.look.workers()) == 1)
    assert other.stop() == 0
    assert sorted(books.ran()) == books.pushed
    assert books.look.stats() == (21, 0, 0, 0, 0, 0, 0, 0, 0)


def test_a_cut_network_is_waited_for(net, books, workers):
    worker = workers.start(**QUICK, redis_url=net.url)
    books.hold(2)
    books.push(300)
    books.wait_until_begun(20)
    net.cut()
    books.release()
    worker.wait_for("redis is away, trying again: site=dispatcher")
    net.heal()
    books.wait_until_done()

    assert worker.stop() == 0
    assert is_calm(worker)
    books.check()


@pytest.mark.parametrize("fault", ["stall", "cut"])
def test_a_push_without_an_answer_says_so_and_is_made_at_most_once(
    fault, net, far, books, workers, arun
):
    books.push(app=far)
    arun(books.apush(far))
    getattr(net, fault)()
    with pytest.raises(RedisUnavailable):
        books.push(app=far)
    with pytest.raises(RedisUnavailable):
        arun(books.apush(far))
    net.heal()
    books.push(app=far)
    arun(books.apush(far))

    worker = workers.start(**QUICK, redis_url=net.url)
    books.wait_until_done()
    # What was sent into the stall may have arrived since: those jobs, too, are done.
    eventually(lambda: books.look.stats()[4:6] == (0, 0))
    assert worker.stop() == 0
    books.check()


# A reply that is lost.


@pytest.mark.parametrize("close", [True, False], ids=["and closed", "silently"])
def test_a_push_whose_reply_is_lost_makes_one_job(close, net, far, books, workers, arun):
    books.push(app=far)
    arun(books.apush(far))
    for _ in range(3):
        net.drop_replies(1, close=close)
        books.push(app=far)
        net.drop_replies(1, close=close)
        arun(books.apush(far))

    assert books.look.stats().enqueued == len(books.pushed) == 8
    worker = workers.start(**QUICK, redis_url=net.url)
    books.wait_until_done()
    assert worker.stop() == 0
    books.check()


@pytest.mark.parametrize("close", [True, False], ids=["and closed", "silently"])
def test_a_worker_whose_replies_are_lost_loses_nothing_and_runs_nothing_twice(
    close, net, books, workers
):
    worker = workers.start(**QUICK, redis_url=net.url)
    for times in range(1, 4):
        books.push(200)
        books.wait_until_begun(20)
        net.drop_replies(close=close)
        worker.wait_for("redis is away, trying again: site=dispatcher", times)
        net.heal()
        worker.wait_for("redis is back: site=dispatcher", times)
    books.wait_until_done()

    assert worker.stop() == 0
    assert is_calm(worker)
    books.check()


# A stream that is cut after each of its bytes.


class Inline:
    """Jobs that run where the test is, over the network, and a count of their runs."""

    def __init__(self, far):
        self.ran = []

        @far.job
        def job(number):
            self.ran.append(number)

        self.job = job


@pytest.mark.parametrize("way", [REQUESTS, REPLIES])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_push_that_is_cut_after_any_byte_makes_one_job(kind, way, net, far, arun, books):
    job = Inline(far).job

    def exchange():
        """On a new connection, so that its handshake is cut, too."""
        if kind == "sync":
            far.close()
            job.enqueue(1)
        else:
            arun(far.aclose())
            arun(job.aenqueue(1))

    pushed = cut_everywhere(net, way, exchange)

    assert books.look.stats().enqueued == pushed
    assert len(set(books.look.waiting("default", pushed + 1))) == pushed


@pytest.mark.parametrize("way", [REQUESTS, REPLIES])
def test_a_job_whose_take_and_settling_are_cut_after_any_byte_runs_once(way, net, far, app, books):
    inline = Inline(far)
    worker = InlineWorker(far)
    worker.beat()
    numbers = iter(range(1_000_000))

    def exchange():
        app.push({"class": inline.job.name, "args": [next(numbers)]})
        worker.work_off()

    times = cut_everywhere(net, way, exchange)
    worker.leave()

    assert inline.ran == list(range(times))
    assert books.look.stats() == (times, 0, 0, 0, 0, 0, 0, 0, 0)
    assert books.look.workers() == []


def cut_everywhere(net, way, exchange):
    """Do an exchange over and over, cut after each of its bytes; answers how often it was done."""
    exchange()
    exchange()
    before = net.passed[way]
    exchange()
    length = net.passed[way] - before
    assert length > 30  # an exchange was seen
    cut = net.cut_request_after if way == REQUESTS else net.cut_reply_after
    for n_bytes in range(length):
        cut(n_bytes)
        exchange()
    net.heal()
    return 3 + length


# A network that is slow, or carries little at a time.


def test_what_comes_byte_by_byte_is_understood(net, far, books, workers, arun):
    net.split(1)
    worker = workers.start(**QUICK, redis_url=net.url)
    books.push(50, app=far)
    arun(books.apush(far, 50, "coroutine"))
    books.wait_until_done()

    assert worker.stop() == 0
    assert "redis is away" not in worker.log
    books.check()


def test_with_a_latency_of_200_ms_jobs_are_taken_and_settled_together(
    net, books, workers, settings, redis, app
):
    slow = Cogworker(**{**settings, "redis_url": net.url})
    net.delay(0.1)
    worker = workers.start(**{**QUICK, "redis_timeout": 5, "concurrency": 10}, redis_url=net.url)
    books.push(app=slow)
    books.push(99)
    books.wait_until_done()
    [identity] = books.look.identities()
    turns = int(redis.hget(app.client.keys.in_flight(identity), "@turn").split()[0])

    assert turns < 100 / 2
    assert worker.stop() == 0
    assert "redis is away" not in worker.log
    books.check()
    slow.close()


# Addresses other than a host's name.


def test_over_ipv6_jobs_are_pushed_and_run(server_url, settings, books, workers):
    with proxy(server_url, "::1") as net, asyncio.Runner() as runner:
        assert net.url.startswith("redis://[::1]:")
        far = Cogworker(**{**settings, "redis_url": net.url})
        worker = workers.start(**QUICK, redis_url=net.url)
        books.push(app=far)
        runner.run(books.apush(far))
        books.wait_until_done()

        assert net.passed[REPLIES] > 0
        assert worker.stop() == 0
        books.check()
        far.close()
        runner.run(far.aclose())


def test_over_a_unix_socket_jobs_are_pushed_and_run(tmp_path, namespace, workers):
    with server(tmp_path) as own, asyncio.Runner() as runner:
        own.extra["--unixsocket"] = str(tmp_path / "a socket")
        own.start()
        url = f"unix://{quote(str(tmp_path / 'a socket'))}?db=3"
        near = Cogworker(redis_url=url, namespace=namespace)
        books = Books(near, workers, tmp_path)
        worker = workers.start(**QUICK, redis_url=url)
        books.push()
        runner.run(books.apush(near))
        books.wait_until_done()

        assert own.client.info("keyspace").keys() == {"db3"}
        assert worker.stop() == 0
        books.check()
        near.close()
        runner.run(near.aclose())
