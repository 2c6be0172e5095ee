"""Parsing workloads from JSON, or naming every mistake with its location."""

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

__all__ = ["LEAST_RUNS", "PARTS", "MemoryEstimate", "fitted", "parse_workload"]


LEAST_RUNS = 3


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """``constant_mb + mb_per_tuple * tuples + margin_mb``.

    Too little memory ends a process, so the margin is how far the run that needed most was above
    the line.
    """

    constant_mb: float
    mb_per_tuple: float
    margin_mb: float

    def of(self, tuples: float) -> float:
        return self.constant_mb + self.mb_per_tuple * tuples + self.margin_mb


def fitted(runs: Sequence[tuple[float, float]]) -> MemoryEstimate:
    """Fit a line to runs, each of normalised tuples and MB.

    Raises:
        ValueError: There are fewer than `LEAST_RUNS`, or all have as many tuples.
    """
    tuples, memory = np.array(runs, np.float64).reshape(-1, 2).T
    if len(runs) < LEAST_RUNS or np.ptp(tuples) == 0:
        raise ValueError(f"must have {LEAST_RUNS} runs with different numbers of tuples")
    slope, constant = np.polyfit(tuples, memory, 1)
    residuals = memory - (constant + slope * tuples)
    return MemoryEstimate(float(constant), float(slope), float(residuals.max()))


PARTS: Final = ("api", "worker")
"""Parts of the chart whose pods can be bound to machines."""

MOST_PROCESSES: Final = 500
MOST_EDGES: Final = 5_000
MOST_MACHINES: Final = 200
MOST_RUNS: Final = 10_000
LARGEST: Final = 1e12
"""Of any number."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOCAL, _REMOTE = 1.0, 5.2
"""Overheads unless given: the paper measured 0.0017 and 0.0089 ms for a tuple."""


def parse_workload(document: Any) -> Workload:
    """Read processes, traffic and machines; raises `Invalid`."""
    node = Node(document, "", [])
    node.shape("traffic", "overheads", "measured", required=("processes", "machines"))
    estimate = _estimate(node["measured"])
    processes = {
        name: _process(each, estimate)
        for name, each in node["processes"].members(MOST_PROCESSES, _NAME)
    }
    machines = {
        name: _machine(each) for name, each in node["machines"].members(MOST_MACHINES, _NAME)
    }
    for name in ("processes", "machines"):
        if node[name].value == {}:
            node[name].error("must have at least one member")
    edges = tuple(_edge(each, processes) for each in node["traffic"].elements(MOST_EDGES))
    overheads = _overheads(node["overheads"], machines)
    if node.errors:
        raise invalid(node.errors)
    return Workload(processes, edges, machines, overheads)


def _estimate(node: Node) -> MemoryEstimate | None:
    runs = []
    for each in node.elements(MOST_RUNS):
        each.shape(required=("tuples", "memory_mb"))
        runs.append((_number(each["tuples"], 0.0), _number(each["memory_mb"], 0.0)))
    if not node.given or node.errors:
        return None
    try:
        return fitted(runs)
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
    names = [_known(node[end], processes) for end in ("from", "to")]
    if names[0] == names[1]:
        node["to"].error("must be another process")
    return Edge(names[0], names[1], _number(node["tuples"], 0.0))


def _overheads(node: Node, machines: Iterable[str]) -> Mapping[tuple[str, str], float]:
    """Read what links cost: of the same machine, of others, and of single links."""
    if node.given:
        node.shape("local", "remote", "links")
    local, remote = _number(node["local"], _LOCAL), _number(node["remote"], _REMOTE)
    links = product(machines, machines)
    costs = {(one, other): local if one == other else remote for one, other in links}
    for each in node["links"].elements(MOST_MACHINES**2):
        each.shape(required=("from", "to", "overhead"))
        link = _known(each["from"], machines), _known(each["to"], machines)
        costs[link] = _number(each["overhead"], remote)
    return costs


def _known(node: Node, names: Iterable[str]) -> str:
    name = node.value if isinstance(node.value, str) else ""
    if name not in names:
        node.unknown(f"there is no {name}", name, names)
    return name


def _number(node: Node, default: float) -> float:
    wanted = f"a number from 0 to {LARGEST:g}"
    return float(node.read(default, _is_number, wanted))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= LARGEST
