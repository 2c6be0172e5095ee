"""Parser of workloads in JSON, which reports every mistake with its location."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from mediator.allocation.model import Edge, Machine, Process, Workload
from mediator.query.json_node import Node
from mediator.schema.errors import invalid

__all__ = ["MIN_RUNS", "PARTS", "MemoryEstimate", "fit_memory", "parse_workload"]


MIN_RUNS = 3


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """``constant_mb + mb_per_tuple * tuples + margin_mb``.

    Too little memory kills a process, so the margin is the largest excess of a run over the line.
    """

    constant_mb: float
    mb_per_tuple: float
    margin_mb: float

    def of(self, tuples: float) -> float:
        return self.constant_mb + self.mb_per_tuple * tuples + self.margin_mb


def fit_memory(runs: Sequence[tuple[float, float]]) -> MemoryEstimate:
    """Fit a line to runs, each with normalised tuples and MB.

    Raises:
        ValueError: There are fewer than `MIN_RUNS`, or all have the same number of tuples.
    """
    tuples, memory = np.array(runs, np.float64).reshape(-1, 2).T
    if len(runs) < MIN_RUNS or np.ptp(tuples) == 0:
        raise ValueError(f"must have {MIN_RUNS} runs with different numbers of tuples")
    slope, constant = np.polyfit(tuples, memory, 1)
    residuals = memory - (constant + slope * tuples)
    return MemoryEstimate(float(constant), float(slope), float(residuals.max()))


PARTS: Final = ("api", "worker")
"""Parts of the Helm chart whose pods can be bound to machines."""

MAX_PROCESSES: Final = 500
MAX_EDGES: Final = 5_000
MAX_MACHINES: Final = 200
MAX_RUNS: Final = 10_000
MAX_NUMBER: Final = 1e12
"""Limit of every number."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOCAL_OVERHEAD, _REMOTE_OVERHEAD = 1.0, 5.2
"""Default overheads: the paper measured 0.0017 and 0.0089 ms for a tuple."""


def parse_workload(document: Any) -> Workload:
    """Read processes, traffic and machines; raises `Invalid`."""
    node = Node(document, "", [])
    node.shape("traffic", "overheads", "measured", required=("processes", "machines"))
    estimate = _estimate(node["measured"])
    processes = {
        name: _process(member, estimate)
        for name, member in node["processes"].members(MAX_PROCESSES, _NAME)
    }
    machines = {
        name: _machine(member) for name, member in node["machines"].members(MAX_MACHINES, _NAME)
    }
    for name in ("processes", "machines"):
        if node[name].value == {}:
            node[name].error("must have at least one member")
    edges = tuple(_edge(element, processes) for element in node["traffic"].elements(MAX_EDGES))
    overheads = _overheads(node["overheads"], machines)
    if node.errors:
        raise invalid(node.errors)
    return Workload(processes, edges, machines, overheads)


def _estimate(node: Node) -> MemoryEstimate | None:
    runs = []
    for element in node.elements(MAX_RUNS):
        element.shape(required=("tuples", "memory_mb"))
        runs.append((_number(element["tuples"], 0.0), _number(element["memory_mb"], 0.0)))
    if not node.given or node.errors:
        return None
    try:
        return fit_memory(runs)
    except ValueError as error:
        node.error(str(error))
        return None


def _process(node: Node, estimate: MemoryEstimate | None) -> Process:
    node.shape("memory_mb", "tuples", "part")
    part = node["part"].read(None, PARTS.__contains__, f"one of {', '.join(PARTS)}")
    if node["memory_mb"].given == node["tuples"].given:
        node.error("must have either memory_mb, or tuples, whose memory is estimated")
    if not node["tuples"].given:
        return Process(_number(node["memory_mb"], 1.0), part)
    tuples = _number(node["tuples"], 0.0)
    if estimate is None and not node.errors:
        node["tuples"].error("needs measured runs in /measured")
    return Process(max(1.0, estimate.of(tuples)) if estimate else 1.0, part)


def _machine(node: Node) -> Machine:
    node.shape("price", required=("memory_mb",))
    return Machine(_number(node["memory_mb"], 1.0), _number(node["price"], 1.0))


def _edge(node: Node, processes: Iterable[str]) -> Edge:
    node.shape(required=("from", "to", "tuples"))
    names = [_read_name(node[end], processes) for end in ("from", "to")]
    if names[0] == names[1]:
        node["to"].error("must be another process")
    return Edge(names[0], names[1], _number(node["tuples"], 0.0))


def _overheads(node: Node, machines: Iterable[str]) -> Mapping[tuple[str, str], float]:
    """Read overheads of links: within a machine, between machines, and of single links."""
    if node.given:
        node.shape("local", "remote", "links")
    local, remote = (
        _number(node["local"], _LOCAL_OVERHEAD),
        _number(node["remote"], _REMOTE_OVERHEAD),
    )
    links = product(machines, machines)
    costs = {(one, other): local if one == other else remote for one, other in links}
    for element in node["links"].elements(MAX_MACHINES**2):
        element.shape(required=("from", "to", "overhead"))
        link = _read_name(element["from"], machines), _read_name(element["to"], machines)
        costs[link] = _number(element["overhead"], remote)
    return costs


def _read_name(node: Node, names: Iterable[str]) -> str:
    name = node.value if isinstance(node.value, str) else ""
    if name not in names:
        node.unknown(f"there is no {name}", name, names)
    return name


def _number(node: Node, default: float) -> float:
    description = f"a number from 0 to {MAX_NUMBER:g}"
    return float(node.read(default, _is_number, description))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= MAX_NUMBER
