"""Run the benchmarks, print a table, write JSON. A slow number is a number, not a failure."""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

for name in [name for name in os.environ if name.startswith(("COGWORKER_", "REDIS_", "BENCH_"))]:
    if name != "COGWORKER_EMBEDDED_SERVER":
        del os.environ[name]  # somebody's settings are not to change what is measured

from bench import delay, features, raw, ready, report, rig, speed  # noqa: E402

__all__ = ["delay", "features", "raw", "ready", "speed"]  # imported for their cases


def main() -> int:
    """Run what was asked for; 1 when a case broke."""
    names = [name for name in report.cases if name != "raw"]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each case  [3]")
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and end what was started
    with (
        tempfile.TemporaryDirectory(prefix="cogworker-bench-") as directory,
        rig.server(Path(directory)) as bench,
    ):
        machine = _machine(bench)
        print("\n".join(f"{name}: {value}" for name, value in machine.items()), flush=True)
        results: list[dict[str, Any]] = []
        for name in ["raw", *(options.only or names)]:
            results += _results(bench, name, max(1, options.runs))
    notes = list(dict.fromkeys(bench.notes))
    print("", report.table(results), *(f"note: {note}" for note in notes), sep="\n")
    if options.json:
        document = {"machine": machine, "results": results, "notes": notes}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(any("broke: " in note for note in notes))


def _results(bench: rig.Rig, name: str, runs: int) -> list[dict[str, Any]]:
    case = report.cases[name]
    rows = []
    for number in range(1, runs + 1):
        print(f"{name} {number}/{runs}", file=sys.stderr, flush=True)
        noted = len(bench.notes)
        try:
            bench.ask("FLUSHALL")
            rows.append(case.run(bench))
        except rig.TooSlow as error:
            bench.notes.append(f"gave up: {error}")
        except Exception as error:
            bench.notes.append(f"broke: {type(error).__name__}: {error}")
        bench.notes[noted:] = [f"{name}: {note}" for note in bench.notes[noted:]]
    columns = zip(case.metrics, zip(*rows, strict=True), strict=bool(rows))
    return [report.result(name, metric, values) for metric, values in columns]


def _machine(bench: rig.Rig) -> dict[str, Any]:
    said = bench.info("server")
    product = "valkey" if "valkey_version" in said else "redis"
    command = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(command, cwd=rig.ROOT, capture_output=True, text=True, check=False)
    return {
        "python": platform.python_version(),
        "server": f"{product} {said.get(f'{product}_version', '?')}",
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "load before": round(os.getloadavg()[0], 2),
        "commit": commit.stdout.strip(),
    }


if __name__ == "__main__":
    sys.exit(main())
