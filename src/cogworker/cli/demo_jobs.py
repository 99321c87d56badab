"""The application of ``cogworker demo``, which counts what Python files define.

Its settings come from the environment, and so does the path of its database, in DEMO_RESULTS.
"""

import ast
import os
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

from cogworker import Cogworker
from cogworker.retry import RetryPolicy

# What Python says of "\d" and the like. For good: threads share what catch_warnings changes.
warnings.simplefilter("ignore")

cog = Cogworker()


@cog.job(retry=RetryPolicy(max_retries=2, delay=(0.2, 0.5)))
def count_file(path: str) -> None:
    """Count what a file defines, and its lines, and store it. Raises what ``ast.parse`` raises."""
    source = Path(path).read_bytes()
    functions = classes = 0
    for node in ast.walk(ast.parse(source, Path(path).name)):
        functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        classes += isinstance(node, ast.ClassDef)
    row = (path, functions, classes, len(source.splitlines()))
    # A worker that dies between this statement and the settlement of the job leaves the job to
    # another one, which stores the same row under the same key: running twice changes nothing.
    with results() as db:
        db.execute("INSERT OR REPLACE INTO counts VALUES (?, ?, ?, ?)", row)


def results() -> closing[sqlite3.Connection]:
    """Open the database; each statement is a transaction, and waits while others write."""
    db = sqlite3.connect(os.environ["DEMO_RESULTS"], timeout=30.0, isolation_level=None)
    # It guards against a crash of the machine, not of a worker: a demo can do without.
    db.execute("PRAGMA synchronous = OFF")
    db.execute("CREATE TABLE IF NOT EXISTS counts (path PRIMARY KEY, functions, classes, lines)")
    return closing(db)


def sums() -> dict[str, int]:
    """What is in the database, all files together."""
    query = "SELECT count(*), total(functions), total(classes), total(lines) FROM counts"
    with results() as db:
        numbers = map(int, db.execute(query).fetchone())
    return dict(zip(("parsed", "functions", "classes", "lines"), numbers, strict=True))
