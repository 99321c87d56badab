"""Every key: its name, its type, who writes it, when it goes.

The keys marked *shared* are the Ruby system's too, byte for byte; the rest is ours. All of them
lie under one namespace; with a hash tag as namespace, such as ``{cogworker}``, they lie in one
slot of a cluster. No other module knows a key's name.
"""


class Keys:
    """The keys of one installation."""

    __slots__ = (
        "_namespace",
        "_producer",
        "_queue",
        "_wake",
        "_worker",
        "dead",
        "discarded",
        "failed",
        "intake",
        "logged_failures",
        "logged_successes",
        "lost_claims",
        "paused_queues",
        "pauses",
        "periodic_disabled",
        "periodic_disablings",
        "periodic_entries",
        "periodic_runs",
        "periodic_seen",
        "periodic_skips",
        "periodic_slots",
        "processed",
        "queues",
        "retry",
        "schedule",
        "status_ends",
        "workers",
    )

    def __init__(self, namespace: str) -> None:
        #: SET, shared: names of queues ever used. Written by every put into a queue.
        self.queues = f"{namespace}:queues"
        #: SET, shared: queues that no worker takes from. Written by pause and resume.
        self.paused_queues = f"{namespace}:paused_queues"
        #: HASH: when a queue was paused, epoch seconds, and by whom. Written by pause and resume.
        self.pauses = f"{namespace}:pauses"
        #: HASH: ``by`` and ``at`` (epoch seconds) while no worker may take. Written by pause and
        #: resume of the intake.
        self.intake = f"{namespace}:intake"
        #: ZSET, shared: payloads by due time, epoch seconds. Written by push, emptied by promote.
        self.schedule = f"{namespace}:schedule"
        #: ZSET, shared: payloads by due time, epoch seconds. Written by settle, emptied by promote.
        self.retry = f"{namespace}:retry"
        #: ZSET, shared: payloads by time of death; trimmed by count and age with each death.
        self.dead = f"{namespace}:dead"
        #: STRING, shared: number of runs that succeeded.
        self.processed = f"{namespace}:stats:processed"
        #: STRING, shared: number of runs that failed.
        self.failed = f"{namespace}:stats:failed"
        #: STRING: number of jobs that were dropped on purpose, by themselves or as too old.
        self.discarded = f"{namespace}:stats:discarded"
        #: STREAM: runs that succeeded, see ``include/log.lua``; trimmed by count and age with each
        #: entry, and expires when nothing was added for as long as runs are kept.
        self.logged_successes = f"{namespace}:log:success"
        #: STREAM: the same of runs that failed.
        self.logged_failures = f"{namespace}:log:failed"
        #: STRING: number of settlements that came too late, because the job had been rescued.
        self.lost_claims = f"{namespace}:stats:lost_claims"
        #: ZSET: worker identities by last beat, epoch seconds on the server's clock. Written by
        #: each beat; a member goes with a clean stop, or when a dead worker's jobs are rescued.
        self.workers = f"{namespace}:workers"
        #: HASH: periodic entries, JSON, by their ids. Written by each worker that has them, at its
        #: start and once a minute; dropped 90 days after the last time.
        self.periodic_entries = f"{namespace}:periodic:entries"
        #: HASH: when an entry was last written, epoch seconds, and by which worker. As above.
        self.periodic_seen = f"{namespace}:periodic:seen"
        #: HASH: the latest time slot of each entry that was decided, epoch seconds. Written by the
        #: claim of a time slot; dropped with its entry.
        self.periodic_slots = f"{namespace}:periodic:slots"
        #: HASH: the last time slot that an entry has fired for, and the job's id. As above.
        self.periodic_runs = f"{namespace}:periodic:runs"
        #: HASH: the last time slot that was skipped, and the job that was in the way. Written after
        #: the claim; dropped with its entry.
        self.periodic_skips = f"{namespace}:periodic:skips"
        #: SET: entries that are disabled. Written by disable and enable; it outlasts the entries.
        self.periodic_disabled = f"{namespace}:periodic:disabled"
        #: HASH: when an entry was disabled, epoch seconds, and by whom. As above.
        self.periodic_disablings = f"{namespace}:periodic:disablings"
        #: STREAM: ids of jobs with a status, as they end. Written with the end of each, read by
        #: those who wait for one; about the last minute's.
        self.status_ends = f"{namespace}:status_ends"
        self._queue = f"{namespace}:queue:"
        self._wake = f"{namespace}:wake:"
        self._worker = f"{namespace}:worker:"
        self._producer = f"{namespace}:producer:"
        self._namespace = f"{namespace}:"

    def queue(self, name: str) -> str:
        """LIST, shared: payloads; pushed at the left, taken at the right."""
        return self._queue + name

    def wake(self, queue: str) -> str:
        """LIST: tokens that wake idle workers; deleted by the take that empties the queue."""
        return self._wake + queue

    def presence(self, worker: str) -> str:
        """HASH: what a live worker says of itself; expires when it stops beating."""
        return self._worker + worker

    def in_flight(self, worker: str) -> str:
        """HASH: payloads by delivery tag, and the field ``@turn`` (see ``turn.lua``).

        Goes with a clean stop, or an hour after its worker was rescued.
        """
        return f"{self._worker}{worker}:in_flight"

    def lock(self, name: str) -> str:
        """STRING: the id of the job that owns a lock; expires when its job seems lost."""
        return f"{self._namespace}unique:{name}"

    def status(self, jid: str) -> str:
        """HASH, shared: a job's status, see ``features/status.py``; for as long as its job says.

        Written with every move of a job that asks for it, and while it runs.
        """
        return f"{self._namespace}status:{jid}"

    def attempts(self, jid: str) -> str:
        """LIST: a job's failures, JSON, oldest first; expires 30 days after the last one."""
        return f"{self._namespace}attempts:{jid}"

    def throughput(self, hour: int) -> str:
        """HASH: the runs of an hour since the epoch, see ``features/stats.py``; for 25 hours."""
        return f"{self._namespace}throughput:{hour}"

    def runs_of_day(self, day: str) -> str:
        """HASH: ``processed`` and ``failed`` runs of a day in UTC, ``YYYY-MM-DD``; 400 days."""
        return f"{self._namespace}runs:{day}"

    def orders(self, worker: str) -> str:
        """HASH: the last order that a worker was given: ``id``, ``order``, ``by``, ``at``.

        Goes with its worker, or a day after it was given.
        """
        return f"{self._worker}{worker}:orders"

    def order_bell(self, worker: str) -> str:
        """LIST: a token that tells a worker to look for orders; goes when heard, or in a minute."""
        return f"{self._worker}{worker}:bell"

    def call(self, call_id: str) -> str:
        """STRING: the answer to a call that steers, should it be sent again; for 15 minutes."""
        return f"{self._namespace}call:{call_id}"

    def quarantine(self, key: str, number: int) -> str:
        """Any type: what was found under a key where it did not belong; expires after 30 days."""
        return f"{self._namespace}quarantine:{key.removeprefix(self._namespace)}:{number}"

    def producer(self, lane: str) -> str:
        """STRING: number and first job id of a producer's last push; expires after 15 minutes."""
        return self._producer + lane
