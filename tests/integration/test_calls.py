"""What jobs cost in calls to the server, with features and without."""

import pytest

from cogworker import Cogworker

from support.dump import clear
from support.flaky import Fault, FlakyConnector
from support.inline import InlineWorker

JOBS = 100
ALL = {
    "unique": "until_executed",
    "status": True,
    "history": True,
    "tags": ["tag"],
    "expires_in": 3600,
}


@pytest.fixture
def calls(settings, redis):
    """The calls of a worker that takes and settles jobs with some options."""

    def calls(options):
        app = Cogworker(**settings)
        fault = Fault()

        @app.job(name="job", **options)
        def job(number):
            return number

        job.enqueue_many([(number,) for number in range(JOBS)])
        app.client.runner.connector = FlakyConnector(app.config, fault)
        worker = InlineWorker(app, concurrency=JOBS)
        worker.work_off()
        assert int(redis.get(app.client.keys.processed)) == JOBS
        clear(redis, settings["namespace"])
        return fault.count

    return calls


def test_a_job_with_every_feature_is_settled_with_the_turns_that_there_are_anyway(calls):
    assert calls(ALL) == calls({}) == 2


@pytest.mark.parametrize("mode", ["until_executing", "while_executing"])
def test_a_job_that_is_asked_about_costs_one_turn_more_for_all_together(calls, mode):
    assert calls({**ALL, "unique": mode}) == 3
