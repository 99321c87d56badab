"""Background jobs for Python on Redis or Valkey."""

from cogworker._version import __version__
from cogworker.app import Cogworker
from cogworker.errors import (
    BulkRefused,
    CogworkerError,
    ConfigError,
    DeclarationError,
    DuplicateJob,
    EmbeddedServerError,
    EnqueueError,
    InvalidArguments,
    InvalidPayload,
    JobAbandoned,
    JobInterrupted,
    JobOrphaned,
    NoCurrentJob,
    PayloadTooLarge,
    RedisError,
    RedisRefused,
    RedisUnavailable,
    UnknownJob,
)
from cogworker.job import CurrentJob, Job, current_job
from cogworker.retry import RetryPolicy

__all__ = [
    "BulkRefused",
    "Cogworker",
    "CogworkerError",
    "ConfigError",
    "CurrentJob",
    "DeclarationError",
    "DuplicateJob",
    "EmbeddedServerError",
    "EnqueueError",
    "InvalidArguments",
    "InvalidPayload",
    "Job",
    "JobAbandoned",
    "JobInterrupted",
    "JobOrphaned",
    "NoCurrentJob",
    "PayloadTooLarge",
    "RedisError",
    "RedisRefused",
    "RedisUnavailable",
    "RetryPolicy",
    "UnknownJob",
    "__version__",
    "current_job",
]
