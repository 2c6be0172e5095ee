"""The declaration shared by the participants of a cluster, and the participants created from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from mediator.relocation.join_states import JoinStates
from mediator.relocation.manager import Manager
from mediator.relocation.plans import JoinOrders, cheapest_order
from mediator.relocation.split import Layout, Split
from mediator.relocation.worker import Worker
from mediator.standing.co_partitioning import partition_attributes
from mediator.standing.model import Workload
from mediator.standing.parser import parse_workload

__all__ = [
    "MAX_PARTITIONS",
    "MAX_WORKERS",
    "Cluster",
    "Declared",
    "make_cluster",
    "worker_address",
]

MAX_WORKERS: Final = 64
MAX_PARTITIONS: Final = 1_024

_HEARTBEATS: Final = 50
"""Steps in which a watermark advances by the shortest window."""


def worker_address(number: int) -> str:
    return f"worker:{number}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Splits, workers and a manager.

    Attributes:
        orders: The plan with which each worker starts.
        adaptive: Whether workers change their plans as rates change.
    """

    workload: Workload
    layout: Layout
    orders: Mapping[str, JoinOrders]
    adaptive: bool

    def split(self, relation: str) -> Split:
        return Split(relation, self.layout)

    def worker(self, address: str) -> Worker:
        states = JoinStates(self.workload, self.orders[address])
        window_s = max(query.window_s for query in self.workload.joins)
        return Worker(address, self.layout, states, window_s, adaptive=self.adaptive)

    def manager(self) -> Manager:
        return Manager(self.layout)


class Declared(BaseModel):
    """A cluster's stored declaration.

    Attributes:
        queries: Streams, queries and statistics: docs/standing-queries.md.
        owners: The number of each partition's initial worker.
    """

    model_config = ConfigDict(extra="forbid")

    queries: dict[str, Any]
    workers: int = Field(ge=1, le=MAX_WORKERS)
    owners: list[int] = Field(min_length=1, max_length=MAX_PARTITIONS)
    lateness_s: float = Field(ge=0, le=86_400)
    adaptive: bool

    @classmethod
    def even(
        cls,
        queries: dict[str, Any],
        workers: int,
        partitions: int,
        lateness_s: float,
        *,
        adaptive: bool,
    ) -> Declared:
        """Return a cluster whose workers start with equal shares."""
        owners = [at % workers for at in range(partitions)]
        return cls(
            queries=queries,
            workers=workers,
            owners=owners,
            lateness_s=lateness_s,
            adaptive=adaptive,
        )

    def cluster(self) -> Cluster:
        """Return the declared cluster.

        Raises:
            Invalid: The queries are invalid.
            NotCoPartitioned: The queries cannot be partitioned by value.
        """
        return make_cluster(
            parse_workload(self.queries),
            self.owners,
            self.workers,
            lateness_s=self.lateness_s,
            adaptive=self.adaptive,
        )


def make_cluster(
    workload: Workload,
    owners: Sequence[int],
    workers: int,
    *,
    lateness_s: float = 0.0,
    adaptive: bool = False,
    orders: Mapping[str, JoinOrders] | None = None,
) -> Cluster:
    """Create a cluster from its layout.

    Args:
        owners: The number of the worker of each partition.
        orders: By worker; by default, the orders with the fewest intermediate results.

    Raises:
        NotCoPartitioned: The queries cannot be partitioned by value.
    """
    addresses = [worker_address(number) for number in range(workers)]
    cheapest = {
        name: cheapest_order(query, workload.statistics) for name, query in workload.queries.items()
    }
    layout = Layout(
        partition_attributes(workload.joins),
        addresses,
        [addresses[number] for number in owners],
        lateness_s,
        min(query.window_s for query in workload.joins) / _HEARTBEATS,
    )
    return Cluster(workload, layout, orders or dict.fromkeys(addresses, cheapest), adaptive)
