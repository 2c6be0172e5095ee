"""The choice of probe orders for all queries together: candidates, costs, and what is valid.

A choice has one probe order for each relation of each query, and of each intermediate result that
a chosen order probes, which is filled by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mediator.base.errors import Invalid
from mediator.standing.model import Join, Workload, stream_store
from mediator.standing.probe_orders import (
    ProbeOrder,
    intermediates,
    partition_candidates,
    probe_orders,
    step_cost,
)

__all__ = ["MOST_CANDIDATES", "Choice", "Problem", "Start", "build_problem", "needed", "steps_of"]

MOST_CANDIDATES: Final = 100_000
"""Probe orders that are compared at most, which takes some seconds to list."""

Start: TypeAlias = tuple[Join, str]
"""A join, and the relation of it whose tuples arrive."""

Choice: TypeAlias = Mapping[Start, ProbeOrder]


@dataclass(frozen=True, slots=True)
class Problem:
    """A workload with everything that may be chosen for it.

    Attributes:
        queries: The joins that are asked for.
        intermediates: Those that may be materialised, and are not asked for.
        candidates: The probe orders of each start.
        costs: Of the last step of each probe order and of each prefix, in tuples a second.
        replicas: Whether a store may be kept several times, by different attributes.
    """

    queries: Sequence[Join]
    intermediates: Sequence[Join]
    candidates: Mapping[Start, Sequence[ProbeOrder]]
    costs: Mapping[ProbeOrder, float]
    replicas: bool

    @property
    def variables(self) -> int:
        """Probe orders and prefixes of two stores or more: each a variable of the program."""
        return sum(len(orders) for orders in self.candidates.values()) + len(self.costs)

    def cost(self, choice: Choice) -> float:
        """Return the tuples a second that are sent: shared steps count once."""
        return sum(self.costs[step] for step in steps_of(choice))


def build_problem(workload: Workload, *, materialise: bool, replicas: bool) -> Problem:
    """List what may be chosen.

    Args:
        materialise: Whether intermediate results may be kept.

    Raises:
        Invalid: There are too many candidates.
    """
    queries = workload.joins
    parts = dict.fromkeys(part for query in queries if materialise for part in intermediates(query))
    streams = [stream_store(name) for name in sorted(workload.streams)]
    partitions = partition_candidates(workload, [*streams, *parts])
    candidates: dict[Start, list[ProbeOrder]] = {}
    left = MOST_CANDIDATES
    for join in dict.fromkeys([*queries, *parts]):
        kept = intermediates(join) if materialise else []
        stores = [stream_store(name) for name in sorted(join.relations)] + kept
        for start in sorted(join.relations):
            orders = candidates[join, start] = []
            for order in probe_orders(join, start, stores, partitions):
                orders.append(order)
                left -= 1
                if left < 0:
                    raise Invalid(_TOO_MANY)
    costs: dict[ProbeOrder, float] = {}
    for order in (each for orders in candidates.values() for each in orders):
        for prefix in reversed(order.prefixes):
            if prefix in costs:
                break
            costs[prefix] = step_cost(prefix, workload.statistics, workload.parallelism)
    unasked = [part for part in parts if part not in set(queries)]
    return Problem(queries, unasked, candidates, costs, replicas)


_TOO_MANY: Final = (
    f"The queries have more than {MOST_CANDIDATES:,} candidate probe orders together. Plan fewer at"
    " once, join fewer relations, or do without intermediate results."
)


def needed(queries: Iterable[Join], chosen: Choice) -> dict[Start, ProbeOrder]:
    """Return what queries need of a choice: their own orders, and those that fill what they probe.

    Raises:
        KeyError: The choice lacks one: it is not valid.
    """
    found: dict[Start, ProbeOrder] = {}
    pending = list(queries)
    while pending:
        join = pending.pop()
        if len(join.relations) == 1:
            continue
        for relation in sorted(join.relations):
            if (join, relation) not in found:
                order = found[join, relation] = chosen[join, relation]
                pending += order.probed
    return found


def steps_of(choice: Choice) -> set[ProbeOrder]:
    """Return the prefixes that a choice executes, each of them once."""
    return {prefix for order in choice.values() for prefix in order.prefixes}
