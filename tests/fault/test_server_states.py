"""A server that restarts, forgets, freezes, fills up or refuses, under workers in mid-work.

Nobody dies in these tests, so no job may be lost or run twice but for what the server itself lost.
Workers say in a few lines what is the matter and go on by themselves.
"""

import os
import signal
import threading
import time

import pytest
import redis as redis_client

from cogworker import Cogworker, RedisRefused, RedisUnavailable
from cogworker._worker.loops.heartbeat import BEATS_A_PRESENCE

from support.books import Books
from support.processes import eventually, freeze
from support.server import free_port, server

QUICK = {
    "heartbeat_interval": 0.4,
    "orphan_threshold": 600,  # nobody dies here
    "poll_interval": 0.1,
    "redis_timeout": 0.5,
    "concurrency": 4,
}
AWAY = "redis is away, trying again: site=dispatcher"
BACK = "redis is back: site=dispatcher"
REFUSES = "redis refuses, trying again: site=dispatcher"


@pytest.fixture
def own(tmp_path):
    """A server that was started with the right to be maltreated."""
    folder = tmp_path / "server"
    folder.mkdir()
    with server(folder) as own:
        own.extra["--enable-debug-command"] = "yes"
        own.start()
        yield own


@pytest.fixture
def books(own, namespace, workers, tmp_path):
    app = Cogworker(redis_url=own.url, namespace=namespace)
    yield Books(app, workers, tmp_path)
    app.close()


@pytest.fixture
def start(own, workers):
    def start(*options, **settings):
        return workers.start(*options, **{**QUICK, "redis_url": own.url, **settings})

    return start


def make_busy(books):
    """Two slots hold jobs until they are released, and the others have work."""
    books.hold(2)
    books.push(300)
    books.push(100, "coroutine")
    books.wait_until_begun(20)


def finish(books, worker, *, lost=0, lost_claims=0):
    """All is done; the worker has said little, stops cleanly, and the books balance."""
    books.wait_until_done(lost=lost)
    assert worker.stop() == 0
    said = [line for line in worker.log.splitlines() if " INFO " not in line]
    assert "Traceback" not in worker.log
    assert len(said) <= 20, worker.log
    books.check(lost=lost, lost_claims=lost_claims)


# A server that stops.


def test_a_restart_with_its_data_costs_a_busy_worker_nothing(own, books, start):
    worker = start()
    make_busy(books)
    own.stop()
    books.release()
    worker.wait_for(AWAY)
    own.start()
    finish(books, worker)


def test_a_restart_with_its_data_costs_an_idle_worker_nothing(own, books, start):
    worker = start()
    books.push(10)
    books.wait_until_done()
    own.stop()
    worker.wait_for(AWAY)
    own.start()
    books.push(10)
    finish(books, worker)


def test_a_restart_without_its_data_costs_only_what_the_server_had(own, books, start):
    """A job that runs meanwhile ends as a lost claim; those that come later are run as ever."""
    worker = start()
    books.push(20)
    books.wait_until_done()
    books.hold(2)
    own.stop()
    own.forget()
    own.start()
    books.release()
    worker.wait_for("lost claim", times=2)
    books.push(20)
    finish(books, worker, lost=22, lost_claims=2)


def test_a_server_frozen_for_longer_than_the_time_out_keeps_all_jobs(own, books, start):
    worker = start()
    make_busy(books)
    freeze(own.pid)
    try:
        books.release()
        worker.wait_for(AWAY)
        worker.wait_for("redis is away, trying again: site=heartbeat")
    finally:
        os.kill(own.pid, signal.SIGCONT)
    finish(books, worker)


@pytest.mark.long
def test_after_a_freeze_longer_than_any_threshold_no_worker_is_taken_for_dead(own, books, start):
    """All presences have expired then, and all beats are old; one worker beats before the other."""
    settings = {"heartbeat_interval": 1.5, "orphan_threshold": 3, "orphan_check_interval": 0.2}
    slow, quick = crew = [start("-c", "2", **settings), start("-c", "2", **settings)]
    presence_s = BEATS_A_PRESENCE * settings["heartbeat_interval"]
    books.hold(4)
    books.push(300)
    freeze(own.pid)
    try:
        for worker in crew:
            worker.wait_for("redis is away, trying again: site=heartbeat")
        time.sleep(presence_s + 2)  # not to wait for anything: this is the freeze
        slow.freeze()
    finally:
        os.kill(own.pid, signal.SIGCONT)
    quick.wait_for("redis is back: site=rescuer")
    slow.signal(signal.SIGCONT)
    slow.wait_for("redis is back: site=rescuer")
    books.release()
    books.wait_until_done()
    for worker in crew:
        assert worker.stop() == 0
        assert "rescued:" not in worker.log
        assert "lost claim" not in worker.log
    books.check()


def test_a_server_that_sleeps_keeps_all_jobs(own, books, start):
    worker = start()
    make_busy(books)
    sleep = threading.Thread(target=own.client.execute_command, args=("DEBUG", "SLEEP", "2"))
    sleep.start()
    books.release()
    worker.wait_for(AWAY)
    sleep.join()
    finish(books, worker)


# A server that forgets scripts and connections.


def test_flushed_scripts_and_killed_connections_in_mid_work_cost_nothing(own, books, start):
    worker = start()
    for _ in range(20):
        books.push(40)
        books.push(10, "coroutine")
        books.wait_until_begun()
        own.client.script_flush()
        own.client.client_kill_filter(_type="normal", skipme=True)
    finish(books, worker)


# A server that can't serve now.


def test_while_it_loads_its_data_the_server_is_waited_for(own, books, start):
    worker = start()
    make_busy(books)
    # Many keys in another database, each of which takes a millisecond to load.
    with redis_client.Redis(port=own.port, db=1) as client:
        client.execute_command("DEBUG", "POPULATE", 100_000)
    own.client.bgrewriteaof()
    eventually(lambda: own.client.info("persistence")["aof_rewrite_in_progress"] == 0)
    own.stop()
    own.extra |= {"--key-load-delay": "1000", "--loading-process-events-interval-bytes": "1024"}
    own.launch()
    books.release()
    eventually(lambda: refusals(own, "LOADING") >= 3)
    with pytest.raises(RedisUnavailable, match="loading"):
        books.push()
    own.client.config_set("key-load-delay", 0)
    finish(books, worker)


def test_a_server_that_became_a_replica_is_waited_for(own, books, start):
    worker = start()
    make_busy(books)
    own.client.replicaof("127.0.0.1", free_port())
    books.release()
    worker.wait_for(AWAY)
    with pytest.raises(RedisUnavailable, match="read only replica"):
        books.push()
    own.client.replicaof("NO", "ONE")
    finish(books, worker)
    assert books.in_doubt[0] not in books.ran()


def test_a_server_that_can_not_save_is_waited_for(own, books, start):
    worker = start()
    make_busy(books)
    own.client.config_set("save", "3600 1000000")
    in_the_way = own.folder / "dump.rdb"
    in_the_way.mkdir()
    save(own.client, "err")
    books.release()
    worker.wait_for(AWAY)
    with pytest.raises(RedisUnavailable, match="MISCONF"):
        books.push()
    in_the_way.rmdir()
    save(own.client, "ok")
    finish(books, worker)
    assert books.in_doubt[0] not in books.ran()


def save(client, outcome):
    client.bgsave()
    eventually(lambda: client.info("persistence")["rdb_bgsave_in_progress"] == 0)
    assert client.info("persistence")["rdb_last_bgsave_status"] == outcome


def test_a_server_busy_with_somebody_s_script_is_waited_for(own, books, start):
    worker = start()
    own.client.config_set("busy-reply-threshold", 50)
    make_busy(books)

    def occupy():
        with (
            redis_client.Redis(port=own.port) as client,
            pytest.raises(redis_client.ResponseError, match="killed"),
        ):
            client.eval("while true do end", 0)

    occupation = threading.Thread(target=occupy)
    occupation.start()
    books.release()
    worker.wait_for(AWAY)
    own.client.script_kill()
    occupation.join()
    finish(books, worker)


def test_a_full_server_is_emptied(own, books, start):
    """Workers take, settle and beat; only pushes are refused."""
    worker = start()
    make_busy(books)
    own.client.config_set("maxmemory", 1)
    with pytest.raises(RedisRefused, match="OOM"):
        books.push()
    books.release()
    books.wait_until_done()
    assert "redis is away" not in worker.log
    own.client.config_set("maxmemory", 0)
    books.push(10)
    finish(books, worker)
    assert books.in_doubt[0] not in books.ran()


def test_a_worker_waits_for_a_connection_while_there_are_too_many(own, books, start):
    worker = start()
    make_busy(books)
    own.client.config_set("maxclients", 1)
    own.client.client_kill_filter(_type="normal", skipme=True)
    books.release()
    worker.wait_for(AWAY)
    worker.wait_for("max number of clients")
    own.client.config_set("maxclients", 1000)
    finish(books, worker)


def test_a_worker_that_has_no_connection_for_wake_ups_looks_for_jobs_anyway(own, books, start):
    worker = start()
    books.push()
    books.wait_until_done()
    own.client.config_set("maxclients", 1)
    eventually(lambda: any(client["cmd"] == "blpop" for client in own.client.client_list()))
    for client in own.client.client_list():
        if client["cmd"] == "blpop":
            own.client.client_kill_filter(_id=client["id"])
    worker.wait_for("redis is away, trying again: site=doorbell")
    for _ in range(3):
        books.push()
        books.wait_until_done()
    own.client.config_set("maxclients", 1000)

    def is_woken_again():
        books.push()
        return "redis is back: site=doorbell" in worker.log

    eventually(is_woken_again)
    finish(books, worker)


def refusals(own, code):
    """How often a server has answered with an error; 0 as long as it does not listen."""
    try:
        return own.client.info("errorstats").get(f"errorstat_{code}", {"count": 0})["count"]
    except redis_client.ConnectionError:
        return 0


# A server that refuses.


class User:
    """The server's user ``worker``, whose rights and password change."""

    def __init__(self, own, namespace):
        self._own = own
        self._admin = own.client
        self.namespace = namespace
        self.url = own.url.replace("://", "://worker:first@")
        self.may("+@all")
        self.change_password("first")

    def may(self, *rights):
        """Give rights, or take them, as ACL SETUSER does."""
        self._admin.execute_command("ACL", "SETUSER", "worker", "on", "~*", *rights)

    def change_password(self, password):
        self._admin.execute_command("ACL", "SETUSER", "worker", "resetpass", f">{password}")
        self._admin.client_kill_filter(_type="normal", skipme=True)

    def app(self):
        return Cogworker(redis_url=self.url, namespace=self.namespace)


@pytest.fixture
def user(own, namespace):
    return User(own, namespace)


def test_a_rotated_password_is_waited_for(user, books, start):
    worker = start(redis_url=user.url)
    make_busy(books)
    user.change_password("second")
    books.release()
    worker.wait_for(REFUSES)
    worker.wait_for("redis refuses, trying again: site=heartbeat")
    worker.wait_for("check the user name and the password")
    user.change_password("first")
    worker.wait_for(BACK)
    finish(books, worker)
    assert "first@" not in worker.log


def test_a_server_that_restarts_with_another_password_is_told_from_one_that_is_away(
    own, books, start
):
    worker = start()
    make_busy(books)
    own.stop()
    worker.wait_for(AWAY)
    own.extra["--requirepass"] = "secret"
    own.launch()
    books.release()
    worker.wait_for(REFUSES)
    with redis_client.Redis(port=own.port, password="secret") as admin:
        eventually(lambda: admin.config_set("requirepass", ""))
    finish(books, worker)


NEEDED = ("+@scripting", "+@read", "+@write", "+@connection", "+time")


def test_the_rights_that_a_refusal_names_are_enough(own, user, books, start):
    user.may("-@all")
    app = user.app()
    with pytest.raises(RedisRefused) as refused:
        books.push(app=app)
    assert " ".join(NEEDED) in str(refused.value)
    user.may("resetkeys", f"~{user.namespace}:*", *NEEDED)
    worker = start(redis_url=user.url)
    books.push(20, app=app)
    books.push(20, "coroutine", app=app)
    finish(books, worker)
    assert "redis refuses" not in worker.log
    app.close()


def test_without_the_right_to_info_all_works(own, user, books, start):
    user.may("-info")
    worker = start(redis_url=user.url)
    books.push(20)
    finish(books, worker)
    assert "redis refuses" not in worker.log


def test_a_worker_without_the_right_to_scripts_says_so_waits_and_can_be_stopped(
    own, user, books, start
):
    user.may("-eval", "-evalsha")
    worker = start(redis_url=user.url, ready=False)
    worker.wait_for("redis refuses, trying again: site=first beat")
    worker.wait_for("'evalsha'")
    worker.wait_for("+@scripting")
    eventually(lambda: refusals(own, "NOPERM") >= 3)
    assert len(worker.log.splitlines()) <= 3, worker.log
    assert worker.stop(10) == 0

    worker = start(redis_url=user.url, ready=False)
    worker.wait_for("redis refuses, trying again: site=first beat")
    user.may("+eval", "+evalsha")
    worker.wait_for("ready: worker=")
    books.push(20)
    finish(books, worker)


@pytest.mark.parametrize("right", ["evalsha", "hset", "hdel"])
def test_a_right_that_is_taken_away_in_mid_work_is_waited_for(right, user, books, start):
    """Of calling scripts, or of a command that they call."""
    worker = start(redis_url=user.url)
    make_busy(books)
    user.may(f"-{right}")
    books.release()
    worker.wait_for(REFUSES)
    worker.wait_for(f"'{right}'")
    worker.wait_for(" ".join(NEEDED))
    user.may(f"+{right}")
    worker.wait_for(BACK)
    finish(books, worker)


def test_a_worker_that_may_not_wait_for_wake_ups_works_and_complains_once(own, user, books, start):
    user.may("-blpop")
    worker = start(redis_url=user.url)
    for _ in range(3):
        books.push(5)
        books.wait_until_done()
        seen = refusals(own, "NOPERM")
        eventually(lambda seen=seen: refusals(own, "NOPERM") >= seen + 2)
    finish(books, worker)
    assert worker.log.count("redis refuses") <= 2, worker.log
