"""Documents of queries for tests."""

from __future__ import annotations

from typing import Any

__all__ = ["NEAR_PEAK", "averages"]

NEAR_PEAK: dict[str, Any] = {
    "streams": {
        "readings": {
            "fields": {"plug": "integer", "property": "string", "load": "number"},
            "rate": 2000,
        }
    },
    "slide_s": 1,
    "distinct": {"plug": 1000},
    "operators": {
        "recent": {"window": "readings", "range_s": 300},
        "loads": {"select": [{"eq": ["property", "load"]}], "of": "recent", "selectivity": 0.5},
        "recent_again": {"window": "readings", "range_s": 300},
        "loads_again": {
            "select": [{"eq": ["property", "load"]}],
            "of": "recent_again",
            "selectivity": 0.5,
        },
        "peaks": {
            "aggregate": {"peak": {"maximum": "load"}},
            "by": ["plug"],
            "of": "loads_again",
        },
        "compared": {"join": ["loads", "peaks"]},
        "near": {
            "select": [{"gt": ["load", {"field": "peak", "times": 0.9}]}],
            "of": "compared",
            "selectivity": 0.1,
        },
        "counts": {"aggregate": {"n": {"count": "*"}}, "by": ["plug"], "of": "near"},
    },
    "root": "counts",
}
"""The paper's CQ1: how many loads of a plug are above 90 % of its maximum, in five minutes."""


def averages(minutes: list[int]) -> dict[str, Any]:
    """Return the averages of plugs over several windows, joined one after the other."""
    operators: dict[str, Any] = {}
    for minute in minutes:
        operators |= {
            f"window_{minute}": {"window": "readings", "range_s": 60 * minute},
            f"loads_{minute}": {
                "select": [{"eq": ["property", "load"]}],
                "of": f"window_{minute}",
                "selectivity": 0.5,
            },
            f"average_{minute}": {
                "aggregate": {f"load_{minute}": {"average": "load"}},
                "by": ["plug"],
                "of": f"loads_{minute}",
            },
        }
    root = f"average_{minutes[0]}"
    for minute in minutes[1:]:
        operators[f"with_{minute}"] = {"join": [root, f"average_{minute}"]}
        root = f"with_{minute}"
    return {**NEAR_PEAK, "operators": operators, "root": root}
