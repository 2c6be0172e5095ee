"""Plans of standing queries as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["measured_text", "plan_text"]


def plan_text(report: Mapping[str, Any]) -> str:
    """Return a report of plans as lines."""
    how = "greedy" if report["is_greedy"] else f"gap {report['gap']:.2%}"
    summary = (
        f"{report['mode']}: {report['cost']:,.6g} tuples/s sent ({how};"
        f" {report['variables']:,} variables, {report['solved_s']:.2f} s),"
        f" {report['stored_tuples']:,.6g} tuples stored"
    )
    lines = [summary]
    for plan in report["plans"]:
        lines += ["", ", ".join(plan["queries"])]
        lines += [_hop_line(hop) for hop in plan["hops"]]
        lines += [
            f"  {store['store']:24} {store['tuples']:14,.6g} tuples      for"
            f" {', '.join(store['queries']) or 'queries to come'}"
            for store in plan["stores"]
        ]
    return "\n".join(lines)


def measured_text(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return what was measured in runs, beside what was predicted."""
    lines = []
    for run in runs:
        lines.append(
            f"{', '.join(run['queries'])}: {run['measured']:,.6g} tuples/s sent,"
            f" {run['predicted']:,.6g} predicted; {run['late']:,} late"
        )
        lines += [
            f"  {hop['order']:24} {hop['measured']:14,.6g} tuples/s,"
            f" {hop['predicted']:,.6g} predicted"
            for hop in run["hops"]
        ]
    return "\n".join(lines)


def _hop_line(hop: Mapping[str, Any]) -> str:
    shared = f"    for {', '.join(hop['joins'])}" if len(hop["joins"]) > 1 else ""
    return f"  {hop['order']:24} {hop['cost']:14,.6g} tuples/s{shared}"
