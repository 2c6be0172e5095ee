"""Smart plugs that report their loads, and continuous queries over them.

The queries are those of the paper on federated stream and database systems (BTW 2015), over the
data of the DEBS 2014 challenge: here loads are drawn, and windows are shorter by a factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from spark_jobs.continuous.log import Tuple

__all__ = ["QUERIES", "averages", "plug_loads", "query_document"]

PLUGS: Final = 1_000
_SECONDS: Final = {"long": 10.0, "short": 2.0}
"""Lengths of the windows; in the paper five minutes and one minute."""

_LOAD: Final = [{"eq": ["property", "load"]}]

QUERIES: Final = {
    "CQ1": "loads above 90 % of the long maximum",
    "CQ2": "loads above the long average",
    "CQ3": "long maximum and average against the short ones",
    "CQ4": "long average against the short one",
}


def query_document(name: str, rate: float) -> dict[str, Any]:
    """Return a query at a rate of tuples a second, half of which are loads."""
    if name in {"CQ1", "CQ2"}:
        function, times = ("maximum", 0.9) if name == "CQ1" else ("average", 1.0)
        operators = {
            **_branch("long", "long"),
            **_branch("again", "long"),
            "limits": _by_plug("loads_again", {"limit": {function: "load"}}),
            "compared": {"join": ["loads_long", "limits"]},
            "above": {
                "select": [{"gt": ["load", {"field": "limit", "times": times}]}],
                "of": "compared",
                "selectivity": 0.1 if name == "CQ1" else 0.5,
            },
            "root": _by_plug("above", {"n": {"count": "*"}}),
        }
    else:
        functions = ("average", "maximum") if name == "CQ3" else ("average",)
        operators = {
            **_average("long", "long", functions),
            **_average("short", "short", functions),
            "compared": {"join": ["of_long", "of_short"]},
            "root": {
                "select": [{"gt": ["average_short", {"field": "average_long", "times": 1.1}]}],
                "of": "compared",
                "selectivity": 0.2,
            },
        }
    return _document(operators, rate)


def averages(ways: int, rate: float) -> dict[str, Any]:
    """Return a join of averages over as many windows, in the shape of the paper's counts.

    One more operator is above the join of all.
    """
    operators: dict[str, Any] = {}
    for way in range(ways):
        operators |= _average(f"w{way}", "long", ("average",))
    names = [f"of_w{way}" for way in range(ways)]
    five = 5
    if ways >= five:
        left = _join(operators, names[:3], "first")
        right = _join(operators, names[3:five], "second")
        operators["five"] = {"join": [left, right]}
        names = ["five", *names[five:]]
    top = _join(operators, names, "more")
    operators["root"] = {"project": {"plug": "plug"}, "of": top}
    return _document(operators, rate)


def plug_loads(rate: float, seconds: float, draw: Random) -> Iterator[Tuple]:
    """Draw tuples: each plug reports its load and its work in turn."""
    for number in range(round(rate * seconds)):
        values = {
            "plug": draw.randrange(PLUGS),
            "property": "load" if number % 2 else "work",
            "load": float(draw.randrange(1, 4_000)) / 4,
        }
        yield "readings", (number + 1) / rate, values


def _document(operators: dict[str, Any], rate: float) -> dict[str, Any]:
    fields = {"plug": "integer", "property": "string", "load": "number"}
    return {
        "streams": {"readings": {"fields": fields, "rate": rate}},
        "slide_s": 1,
        "distinct": {"plug": PLUGS},
        "operators": operators,
        "root": "root",
    }


def _branch(name: str, window: str) -> dict[str, Any]:
    return {
        f"recent_{name}": {"window": "readings", "range_s": _SECONDS[window]},
        f"loads_{name}": {"select": _LOAD, "of": f"recent_{name}", "selectivity": 0.5},
    }


def _average(name: str, window: str, functions: tuple[str, ...]) -> dict[str, Any]:
    columns = {f"{function}_{name}": {function: "load"} for function in functions}
    return {**_branch(name, window), f"of_{name}": _by_plug(f"loads_{name}", columns)}


def _by_plug(source: str, columns: dict[str, Any]) -> dict[str, Any]:
    return {"aggregate": columns, "by": ["plug"], "of": source}


def _join(operators: dict[str, Any], names: list[str], prefix: str) -> str:
    joined = names[0]
    for number, name in enumerate(names[1:]):
        operators[f"{prefix}_{number}"] = {"join": [joined, name]}
        joined = f"{prefix}_{number}"
    return joined
