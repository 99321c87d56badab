"""How a worker's log looks: one line an event, as text or JSON."""

import json
import logging
import logging.handlers
import os
import time
from pathlib import Path

from cogworker.errors import ConfigError
from cogworker.job import CurrentJob, running


class TextFormatter(logging.Formatter):
    """``time pid= thread= LEVEL message``, and the job's id on lines that a job writes."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a stack trace below it where there is one."""
        job = _job_of(record)
        parts = [
            _time(record),
            f"pid={os.getpid()}",
            f"thread={record.threadName}",
            record.levelname,
            record.getMessage(),
        ]
        if job is not None:
            parts.append(f"jid={job.jid}")
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The same facts as the text has, by name."""
        job = _job_of(record)
        fields: dict[str, object] = {
            "time": _time(record),
            "pid": os.getpid(),
            "thread": record.threadName,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if job is not None:
            fields |= {"jid": job.jid, "job": job.name}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


_handler: logging.Handler | None = None


def set_up(level: str, form: str, file: Path | None) -> None:
    """Send the process's log to standard error, or append it to a file. Raises ConfigError.

    A file that is moved away, as by logrotate, is made anew.

    A second call replaces the first: a swarm's worker has more settings than its parent.
    """
    global _handler
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler()
    else:
        try:
            handler = logging.handlers.WatchedFileHandler(file, encoding="utf-8")
        except OSError as error:
            raise ConfigError("-L/--logfile", f"can't write to {file}: {error.strerror}") from error
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    if _handler is not None:
        root.removeHandler(_handler)
        _handler.close()
    _handler = handler
    root.addHandler(handler)
    root.setLevel(level.upper())


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _job_of(record: logging.LogRecord) -> CurrentJob | None:
    """The job that wrote a line; our own lines name theirs by themselves."""
    run = None if record.name.startswith("cogworker.") else running.get(None)
    return None if run is None else run.current
