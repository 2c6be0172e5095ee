"""The demo's tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

__all__ = ["Comparison", "placements_table", "systems_table", "throughput_table"]


_NONE = "-"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same work on the placed database, and on the one that is wholly on one system.

    Rates are operations per second, latencies the 99th percentile in seconds.
    """

    work: str
    placed: float
    single: float
    placed_p99_s: float
    single_p99_s: float


def systems_table(systems: Iterable[Mapping[str, Any]]) -> Table:
    """Show the systems with what was observed and measured of them."""
    table = Table(title="Systems, as probed, observed, calibrated and declared")
    table.add_column("system")
    table.add_column("server")
    for heading in ("loses at most", "writes/s", "write", "reads/s", "read"):
        table.add_column(heading, justify="right")
    for system in systems:
        metrics = system["metrics"]
        table.add_row(
            system["name"],
            system["findings"]["server"],
            _seconds(system["findings"]["durability_s"]),
            _rate(metrics.get("write_throughput")),
            _milliseconds(metrics.get("write_latency")),
            _rate(metrics.get("read_throughput")),
            _milliseconds(metrics.get("read_latency")),
        )
    return table


def placements_table(explained: Iterable[Mapping[str, Any]]) -> Table:
    """Show where each field is, and why; fields that share a place share a row, unless scored."""
    table = Table(title="Placements of the newspaper")
    table.add_column("nodes")
    table.add_column("system", no_wrap=True)
    for heading in ("score", "runner-up", "margin"):
        table.add_column(heading, justify="right")
    table.add_column("why")
    for names, node in _by_place(explained):
        table.add_row(
            names,
            node["system"],
            _score(node["score"]),
            *_margin(node["margin"]),
            node["why"],
        )
    return table


def throughput_table(measured: Sequence[Comparison], servers: Sequence[str]) -> Table:
    """Show what was measured there and then, with and without polyglot placement."""
    table = Table(
        title="Throughput, measured here and now (medians of rounds in turns)",
        caption=f"Equal declared durability; {', '.join(servers)}.",
    )
    table.add_column("work")
    for heading in ("placed, ops/s", "p99", "all on PostgreSQL, ops/s", "p99", "ratio"):
        table.add_column(heading, justify="right")
    for each in measured:
        table.add_row(
            each.work,
            _rate(each.placed),
            _milliseconds(each.placed_p99_s),
            _rate(each.single),
            _milliseconds(each.single_p99_s),
            f"{each.placed / each.single:.2f}" if each.single else _NONE,
        )
    return table


def _by_place(
    explained: Iterable[Mapping[str, Any]],
) -> list[tuple[str, Mapping[str, Any]]]:
    """Name the fields that share a class and a system; one that was scored stands alone."""
    rows: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for node in explained:
        class_name = node["node"].partition(".")[0]
        scored = node["node"] if node["score"] is not None else ""
        rows.setdefault((class_name, node["system"], scored), []).append(node)
    return [
        (
            f"{class_name}: {', '.join(node['node'].partition('.')[2] for node in nodes)}",
            nodes[0],
        )
        for (class_name, _, _), nodes in rows.items()
    ]


def _margin(margin: Mapping[str, Any] | None) -> tuple[str, str]:
    return (margin["runner_up"], f"{margin['ratio']:.0%}") if margin else (_NONE, _NONE)


def _score(score: float | None) -> str:
    return _NONE if score is None else f"{score:.3f}"


def _rate(rate: float | None) -> str:
    return _NONE if rate is None else f"{rate:,.0f}"


def _milliseconds(seconds: float | None) -> str:
    return _NONE if seconds is None else f"{seconds * 1000:.2f} ms"


def _seconds(seconds: float | None) -> str:
    return _NONE if seconds is None else f"{seconds:g} s"
