"""The choice of probe orders for all queries together: candidates, costs and validity.

A choice has one probe order for each relation of each query, and of each intermediate result that a
chosen order probes; the latter orders fill it.
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

__all__ = ["MAX_CANDIDATES", "Choice", "Problem", "Start", "build_problem", "prune", "steps_of"]

MAX_CANDIDATES: Final = 100_000
"""Maximum probe orders compared; listing them takes some seconds."""

Start: TypeAlias = tuple[Join, str]
"""A join, and its relation whose tuples arrive."""

Choice: TypeAlias = Mapping[Start, ProbeOrder]


@dataclass(frozen=True, slots=True)
class Problem:
    """A workload with its candidates.

    Attributes:
        queries: The joins of the queries.
        intermediates: Joins that can be materialised and are not queries.
        candidates: The probe orders of each start.
        costs: By probe order and prefix, the cost of its last step in tuples a second.
        replicas: Whether a store can have several layouts, by different attributes.
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
        """Return the tuples sent a second; shared steps count once."""
        return sum(self.costs[step] for step in steps_of(choice))


def build_problem(workload: Workload, *, materialise: bool, replicas: bool) -> Problem:
    """List the candidates.

    Args:
        materialise: Whether intermediate results can be kept.

    Raises:
        Invalid: There are too many candidates.
    """
    queries = workload.joins
    subjoins = dict.fromkeys(
        subjoin for query in queries if materialise for subjoin in intermediates(query)
    )
    streams = [stream_store(name) for name in sorted(workload.streams)]
    partitions = partition_candidates(workload, [*streams, *subjoins])
    candidates: dict[Start, list[ProbeOrder]] = {}
    remaining = MAX_CANDIDATES
    for join in dict.fromkeys([*queries, *subjoins]):
        materialised = intermediates(join) if materialise else []
        stores = [stream_store(name) for name in sorted(join.relations)] + materialised
        for start in sorted(join.relations):
            orders = candidates[join, start] = []
            for order in probe_orders(join, start, stores, partitions):
                orders.append(order)
                remaining -= 1
                if remaining < 0:
                    raise Invalid(_TOO_MANY)
    costs: dict[ProbeOrder, float] = {}
    for order in (order for orders in candidates.values() for order in orders):
        for prefix in reversed(order.prefixes):
            if prefix in costs:
                break
            costs[prefix] = step_cost(prefix, workload.statistics, workload.parallelism)
    extra = [subjoin for subjoin in subjoins if subjoin not in set(queries)]
    return Problem(queries, extra, candidates, costs, replicas)


_TOO_MANY: Final = (
    f"The queries have more than {MAX_CANDIDATES:,} candidate probe orders together. Plan fewer at"
    " once, join fewer relations, or do without intermediate results."
)


def prune(queries: Iterable[Join], chosen: Choice) -> dict[Start, ProbeOrder]:
    """Return the orders that queries need: their own, and the orders that fill probed stores.

    Raises:
        KeyError: The choice lacks one, so it is invalid.
    """
    orders: dict[Start, ProbeOrder] = {}
    pending = list(queries)
    while pending:
        join = pending.pop()
        if len(join.relations) == 1:
            continue
        for relation in sorted(join.relations):
            if (join, relation) not in orders:
                order = orders[join, relation] = chosen[join, relation]
                pending += order.probed
    return orders


def steps_of(choice: Choice) -> set[ProbeOrder]:
    """Return the distinct prefixes that a choice executes."""
    return {prefix for order in choice.values() for prefix in order.prefixes}
