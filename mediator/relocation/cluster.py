"""What all who take part in a standing query agree on, and the participants made of it."""

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
    "MOST_PARTITIONS",
    "MOST_WORKERS",
    "Cluster",
    "Declared",
    "make_cluster",
    "worker_address",
]

MOST_WORKERS: Final = 64
MOST_PARTITIONS: Final = 1_024

_HEARTBEATS: Final = 50
"""In so many steps a watermark advances by the shortest window."""


def worker_address(number: int) -> str:
    return f"worker:{number}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Splits, workers and a manager.

    Attributes:
        orders: The plan that each worker begins with.
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
    """A cluster as it is written down.

    Attributes:
        queries: Streams, queries and statistics: docs/standing-queries.md.
        owners: The number of the worker of each partition, when all begins.
    """

    model_config = ConfigDict(extra="forbid")

    queries: dict[str, Any]
    workers: int = Field(ge=1, le=MOST_WORKERS)
    owners: list[int] = Field(min_length=1, max_length=MOST_PARTITIONS)
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
        """Return a cluster whose workers begin with equal shares."""
        owners = [at % workers for at in range(partitions)]
        return cls(
            queries=queries,
            workers=workers,
            owners=owners,
            lateness_s=lateness_s,
            adaptive=adaptive,
        )

    def cluster(self) -> Cluster:
        """Return what it describes.

        Raises:
            Invalid: The queries have a mistake.
            NotCoPartitioned: They cannot be divided by value.
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
    """Lay a cluster out.

    Args:
        owners: The number of the worker of each partition.
        orders: By worker; those with the fewest intermediate results if they are not given.

    Raises:
        NotCoPartitioned: The queries cannot be divided by value.
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
