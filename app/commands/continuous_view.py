"""Plans of continuous queries as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["plan_text", "summary", "sweep_text"]


def plan_text(report: Mapping[str, Any]) -> str:
    """Format a plan as lines: each operator after its inputs."""
    planning_ms = 1e3 * (report["phase_one_s"] + report["phase_two_s"])
    lines = [
        f"{summary(report['cost'])}; {report['plans_examined']:,} plans, {planning_ms:.1f} ms",
        "",
    ]
    lines.append(
        f"  {'operator':20} {'kind':10} {'engine':10} {'received/s':>12} {'produced/s':>12}"
        f" {'size':>12} {'utilisation':>12}"
    )
    lines += [_operator_line(operator) for operator in report["operators"]]
    return "\n".join(lines)


def sweep_text(report: Mapping[str, Any]) -> str:
    """Format plans at several rates as lines."""
    lines = [f"  {'rate':>10} {'best':>8} {'spark':>8} {'database':>8}   in the database"]
    for rate in report["rates"]:
        bottlenecks = [rate[plan]["bottleneck"] for plan in ("cost", "all_spark", "all_database")]
        figures = " ".join(f"{value:8.3f}" for value in bottlenecks)
        lines.append(f"  {rate['factor']:10.4g} {figures}   {_names(rate['in_database'])}")
    lines.append("")
    lines += [
        f"at {switch['factor']:.4g}: from {_names(switch['from'])} to {_names(switch['to'])}"
        for switch in report["switches"]
    ]
    return "\n".join(lines if report["switches"] else [*lines, "the placement stays the same"])


def summary(cost: Mapping[str, Any]) -> str:
    keeps_up = "keeps up" if cost["is_feasible"] else "does not keep up"
    return f"{keeps_up}: bottleneck {cost['bottleneck']:.3f}, total {cost['total']:.3f}"


def _operator_line(operator: Mapping[str, Any]) -> str:
    utilisation = operator["utilisation"]
    cost = f"{'in ' + operator['statement']:>12}" if utilisation is None else f"{utilisation:12.3f}"
    return (
        f"  {operator['name']:20} {operator['kind']:10} {operator['engine']:10}"
        f" {sum(operator['received']):12,.6g} {operator['produced']:12,.6g}"
        f" {operator['size']:12,.6g} {cost}"
    )


def _names(names: list[str]) -> str:
    return ", ".join(names) or "nothing"
