"""The inspector from ``async`` code: nothing is missing, and it does the same."""

import asyncio
import inspect
from datetime import UTC, datetime

import pytest

from cogworker import Cogworker, CogworkerError
from cogworker.async_inspector import PORTION, AsyncInspector, AsyncJobsAt
from cogworker.inspector import Inspector
from cogworker.jobs_at import JobsAt


@pytest.fixture
def app(settings):
    app = Cogworker(**settings)
    yield app
    app.close()


@pytest.fixture
def job(app):
    @app.job(name="job")
    def job(number): ...

    return job


def public(cls):
    return {name for name, value in inspect.getmembers(cls, callable) if not name.startswith("_")}


@pytest.mark.parametrize(("sync", "twin"), [(Inspector, AsyncInspector), (JobsAt, AsyncJobsAt)])
def test_each_method_has_its_twin(sync, twin):
    assert public(sync) == public(twin) - {"size", "bulk"}
    for name in public(sync):
        assert inspect.getdoc(getattr(twin, name)) == inspect.getdoc(getattr(sync, name))


def test_it_looks_and_steers(app, job):
    jids = [job.enqueue(number) for number in range(2 * PORTION + 5)]
    job.enqueue_at(datetime(2100, 1, 1, tzinfo=UTC), 0)

    async def program():
        look = AsyncInspector(app)
        queue = look.jobs_in("default")
        assert await queue.size() == len(jids)
        assert [entry.jid async for entry in queue.each()] == jids[::-1]
        page = await queue.page(limit=3)
        assert [entry.jid for entry in page.entries] == jids[:-4:-1]
        assert (await queue.kill(jids[0])).word == "killed"
        assert (await queue.kill(jids[0])).word == "gone"
        assert (await look.jobs("dead").revive(jids[0])).word == "requeued"
        assert await look.jobs("scheduled").clear() == 1
        assert await look.pause_queue("default", by="ada")
        [info] = await look.queues()
        assert (info.size, info.paused.by) == (len(jids), "ada")
        assert (await look.stats()).enqueued == len(jids)
        assert [each async for each in look.running()] == []
        with pytest.raises(CogworkerError, match="limit must be"):
            await queue.page(limit=0)

    asyncio.run(program())


def test_the_event_loop_goes_on_meanwhile(app, job, monkeypatch):
    async def program():
        look, went_on = AsyncInspector(app), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slowly(self):
            loop.call_soon_threadsafe(went_on.set)
            return asyncio.run_coroutine_threadsafe(went_on.wait(), loop).result(10)

        monkeypatch.setattr(look._sync, "_run", slowly)
        return await look.identities()

    assert asyncio.run(program()) is True
