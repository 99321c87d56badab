"""Jobs that do to their worker what no job should: the others run, and the worker stops cleanly."""

import signal
import subprocess
import sys

import pytest

from cogworker.inspector import Inspector

from support.processes import eventually

QUICK = {"heartbeat_interval": 0.4, "orphan_threshold": 2, "poll_interval": 0.1}

HOSTILE = {
    "stops_the_loop": """
@cog.job(retry=0)
async def bad():
    asyncio.get_running_loop().stop()
""",
    "exits_in_a_task": """
@cog.job(retry=0)
async def bad():
    async def leave():
        sys.exit(3)
    await asyncio.wait([asyncio.ensure_future(leave())], timeout=0.1)
""",
    "cancels_all_tasks": """
@cog.job(retry=0)
async def bad():
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
""",
    "delay_function_exits": """
def delay(retry, error):
    sys.exit(4)
@cog.job(retry=RetryPolicy(1, delay=delay))
def bad():
    raise ValueError
""",
    "delay_function_exits_async": """
def delay(retry, error):
    sys.exit(4)
@cog.job(retry=RetryPolicy(1, delay=delay))
async def bad():
    raise ValueError
""",
    "error_with_a_hostile_class": """
class Meta(type):
    def __getattribute__(cls, name):
        if name == "__qualname__":
            raise SystemExit
        return super().__getattribute__(name)
class Bad(Exception, metaclass=Meta):
    pass
@cog.job(retry=0)
def bad():
    raise Bad
""",
    "error_with_a_hostile_traceback": """
class Bad(Exception):
    @property
    def __traceback__(self):
        raise SystemExit
@cog.job(retry=0)
def bad():
    raise Bad
""",
    "raises_in_its_thread_later": """
@cog.job(retry=0)
def bad():
    thread = threading.get_ident()
    def later():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(ValueError))
    threading.Timer(0.1, later).start()
""",
    "forks_and_returns_in_the_child": """
@cog.job(retry=0)
def bad():
    os.fork()
""",
    "uses_a_pool_of_processes": """
@cog.job(retry=0)
def bad():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(abs, [1, -2])
""",
    "runs_a_loop_of_its_own": """
@cog.job(retry=0)
def bad():
    asyncio.run(asyncio.sleep(0))
""",
    "closes_standard_output": """
@cog.job(retry=0)
def bad():
    sys.stdout.close()
""",
}

OTHERS = """
@cog.job
def plain():
    pass
@cog.job
async def coroutine():
    await asyncio.sleep(0)
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_the_others_run_and_the_worker_stops(name, workers, app):
    imports = "import asyncio, ctypes, multiprocessing, os, sys, threading\n"
    workers.write(imports + "from cogworker import RetryPolicy\n" + HOSTILE[name] + OTHERS)
    look = Inspector(app)
    worker = workers.start("-c", "4", **QUICK)
    for _ in range(8):
        app.push({"class": "tasks.bad", "retry": 0})
        for _ in range(10):
            app.push({"class": "tasks.plain", "retry": 0})
            app.push({"class": "tasks.coroutine", "retry": 0})

    def over():
        stats = look.stats()
        return stats.enqueued == stats.in_flight == stats.retrying == 0

    eventually(over)
    for _ in range(20):  # all slots are still there
        app.push({"class": "tasks.plain", "retry": 0})
        app.push({"class": "tasks.coroutine", "retry": 0})
    eventually(over)
    assert worker.stop() == 0

    stats = look.stats()
    # One that another job has cancelled has failed.
    assert stats.processed + stats.dead == 8 + 160 + 40
    assert stats.lost_claims == 0
    assert look.workers() == []


def test_a_stop_does_not_wait_for_threads_that_a_job_has_left(workers, app, tmp_path):
    workers.write(
        f"""
import asyncio, pathlib, time
@cog.job
async def job():
    pathlib.Path({str(tmp_path / "began")!r}).touch()
    await asyncio.to_thread(time.sleep, 600)
"""
    )
    worker = workers.start("-t", "0.2", **QUICK)
    app.push({"class": "tasks.job"})
    eventually((tmp_path / "began").exists)

    assert worker.stop(20) == 0
    assert Inspector(app).stats().enqueued == 1


def test_a_quiet_before_the_first_beat_is_not_forgotten(workers, tmp_path, namespace):
    from cogworker import Cogworker

    from support.server import server

    workers.write("@cog.job\ndef job(): pass\n")
    with server(tmp_path) as own:
        worker = workers.start(**{**QUICK, "redis_url": own.url}, ready=False)
        worker.wait_for("redis is away")
        worker.signal(signal.SIGTSTP)
        worker.wait_for("quiet: takes no more jobs")
        own.start()
        worker.wait_for("ready: worker=")
        app = Cogworker(redis_url=own.url, namespace=namespace)
        look = Inspector(app)
        app.push({"class": "tasks.job"})
        eventually(lambda: look.workers())
        assert look.stats().enqueued == 1
        worker.signal(signal.SIGCONT)
        eventually(lambda: look.stats().processed == 1)
        assert worker.stop() == 0
        app.close()


def test_a_job_that_runs_out_of_memory_fails_and_its_worker_goes_on(workers, app):
    look = Inspector(app)
    workers.write(
        """
import resource
def limit():
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, resource.RLIM_INFINITY))
@cog.job(retry=1)
def greedy():
    limit()
    held = []
    while True:
        held.append(bytearray(2**20))
@cog.job
def modest(): pass
"""
    )
    worker = workers.start("-c", "2", **QUICK)
    for _ in range(3):
        app.push({"class": "tasks.greedy", "retry": 1})
        app.push({"class": "tasks.modest"})
    eventually(lambda: look.stats()[:2] == (3, 3))
    assert worker.stop() == 0
    assert look.stats() == (3, 3, 0, 0, 0, 0, 0, 3, 0)
    assert look.workers() == []


def test_a_child_that_a_job_forks_obeys_a_term_from_its_first_moment_on(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
import os, signal, time
os.register_at_fork(after_in_child=lambda: time.sleep(0.5))  # a slow start, as on a busy machine
from cogworker._worker.signals import Requests
with Requests().from_signals():
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(3)
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
print(os.waitstatus_to_exitcode(status))
"""
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("-15\n", "")
