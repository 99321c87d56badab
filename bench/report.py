"""Cases, what they measure, and how it is shown."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """One number of a case. ``raw`` names the machine's limit that it is compared with."""

    name: str
    unit: str
    target: float | None = None
    at_least: bool = False
    raw: str | None = None


class Case(NamedTuple):
    """``run`` runs a case once and answers with a number for each metric."""

    run: Callable[[Any], Sequence[float]]
    metrics: Sequence[Metric]


cases: dict[str, Case] = {}


def case(*metrics: Metric) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the case of its name."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        cases[function.__name__] = Case(function, metrics)
        return function

    return register


def percentile(values: Sequence[float], percent: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def result(case: str, metric: Metric, values: Sequence[float]) -> dict[str, Any]:
    """What becomes one row of the table and one entry of the JSON file."""
    median, met = statistics.median(values), None
    if metric.target is not None:
        met = median >= metric.target if metric.at_least else median <= metric.target
    numbers = {"median": median, "min": min(values), "max": max(values), "values": values}
    return {"case": case, "measure": metric.name, **metric._asdict(), **numbers, "met": met}


def table(results: Sequence[dict[str, Any]]) -> str:
    raws = {each["name"]: each["median"] for each in results if each["case"] == "raw"}
    rows = [["case", "measure", "median", "min", "max", "unit", "target", "", "raw limit"]]
    for each in results:
        target, raw = each["target"], each["raw"]
        rows.append([each["case"], each["name"], *(_short(each[x]) for x in rows[0][2:5])])
        rows[-1].append(each["unit"])
        rows[-1].append(f"{'≥' if each['at_least'] else '≤'} {_short(target)}" if target else "")
        rows[-1].append({None: "", True: "ok", False: "MISSED"}[each["met"]])
        rows[-1].append(f"{_short(raws[raw])} {raw}" if raw in raws else "")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    form = "  ".join(f"{{:{'>' if i in (2, 3, 4, 6) else '<'}{w}}}" for i, w in enumerate(widths))
    return "\n".join(form.format(*row).rstrip() for row in rows)


def _short(number: float) -> str:
    if number == int(number) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 100 else f"{number:.3g}"
