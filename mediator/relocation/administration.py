"""Administration of clusters: declaring, reporting, rebalancing and dropping them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mediator.base.errors import AlreadyExists, Invalid, Location, NotFound, TooManyRequests
from mediator.relocation.cluster import Cluster, Declared
from mediator.relocation.messages import MANAGER, OPERATOR, Cancel, Message, Relocate
from mediator.relocation.participant import addresses
from mediator.relocation.port import Clusters, ClusterStore

__all__ = ["ClusterAdministration"]

_MAX_WAITING: Final = 100
"""Maximum requests that the manager has not taken."""


@dataclass(eq=False)
class ClusterAdministration:
    """Declares clusters, and requests relocations. Every method raises `Unavailable`."""

    _clusters: Clusters

    async def names(self) -> list[str]:
        return await self._clusters.names()

    async def declare(self, name: str, declared: Declared) -> None:
        """Store a valid declaration for all participants; raises `AlreadyExists`."""
        if not await self._clusters.of(name).declare(declared.model_dump()):
            raise AlreadyExists(f"There is a cluster {name} already.")

    async def find(self, name: str) -> tuple[ClusterStore, Cluster]:
        """Return a cluster's store and its declaration; raises `NotFound`."""
        store = self._clusters.of(name)
        document = await store.layout()
        if document is None:
            raise NotFound(f"There is no cluster {name}.")
        return store, Declared.model_validate(document).cluster()

    async def report(self, name: str) -> dict[str, Any]:
        """Return relocations, and the state of each worker, as JSON; raises `NotFound`."""
        store, cluster = await self.find(name)
        workers = {}
        for address in cluster.layout.workers:
            steps, record = await store.recorded(address)
            workers[address] = {
                "steps": steps,
                "rows": record.get("rows", {}),
                "orders": record.get("shape", cluster.orders[address]),
            }
        _, record = await store.recorded(MANAGER)
        relocations = [fields for key, fields in record.items() if key.startswith("relocation/")]
        return {
            "workers": workers,
            "relocations": sorted(relocations, key=lambda fields: -fields["id"]),
        }

    async def relocate(self, name: str, request: Relocate) -> None:
        """Request the manager to move partition groups; `report` shows the progress.

        Raises:
            Invalid: There is no such worker.
            NotFound: There is no such cluster.
            TooManyRequests: The manager does not take its requests.
        """
        store, cluster = await self.find(name)
        workers = cluster.layout.workers
        if locations := [
            Location(f"/{member}", f"must be one of {', '.join(workers)}, or empty")
            for member, worker in (("sender", request.sender), ("receiver", request.receiver))
            if worker and worker not in workers
        ]:
            raise Invalid("The cluster has no such worker.", locations=locations)
        await _request(store, request)

    async def cancel(self, name: str, relocation: int) -> None:
        """Cancel a relocation if it is not past its point of no return; raises as `relocate`."""
        store, _ = await self.find(name)
        await _request(store, Cancel(relocation))

    async def drop(self, name: str) -> None:
        """Remove a cluster with its logs and results; raises `NotFound`.

        Running participants end, as if replaced by others.
        """
        _, cluster = await self.find(name)
        await self._clusters.drop(name, addresses(cluster), list(cluster.layout.attributes))


async def _request(store: ClusterStore, message: Message) -> None:
    if await store.waiting(OPERATOR, [MANAGER]) >= _MAX_WAITING:
        raise TooManyRequests("The manager does not run, or is too slow: start it first.")
    await store.request(message)
