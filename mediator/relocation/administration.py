"""Clusters as operators see them: declared, shown, rebalanced, dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mediator.base.errors import AlreadyExists, Invalid, Location, NotFound, TooManyRequests
from mediator.relocation.cluster import Cluster, Declared
from mediator.relocation.messages import MANAGER, OPERATOR, Cancel, Message, Relocate
from mediator.relocation.participant import addresses
from mediator.relocation.port import Clusters, ClusterStore

__all__ = ["ClusterAdministration"]

_MOST_WAITING: Final = 100
"""Requests that the manager has not taken."""


@dataclass(eq=False)
class ClusterAdministration:
    """Declares clusters, and asks their managers for relocations. All raises `Unavailable`."""

    _clusters: Clusters

    async def names(self) -> list[str]:
        return await self._clusters.names()

    async def declare(self, name: str, declared: Declared) -> None:
        """Write down what all participants agree on, which is right; raises `AlreadyExists`."""
        if not await self._clusters.of(name).declare(declared.model_dump()):
            raise AlreadyExists(f"There is a cluster {name} already.")

    async def find(self, name: str) -> tuple[ClusterStore, Cluster]:
        """Return where a cluster is kept, and what was declared; raises `NotFound`."""
        store = self._clusters.of(name)
        document = await store.layout()
        if document is None:
            raise NotFound(f"There is no cluster {name}.")
        return store, Declared.model_validate(document).cluster()

    async def report(self, name: str) -> dict[str, Any]:
        """Return relocations, and what each worker holds, as JSON; raises `NotFound`."""
        store, agreed = await self.find(name)
        workers = {}
        for address in agreed.layout.workers:
            steps, record = await store.recorded(address)
            workers[address] = {
                "steps": steps,
                "rows": record.get("rows", {}),
                "orders": record.get("shape", agreed.orders[address]),
            }
        _, record = await store.recorded(MANAGER)
        relocations = [each for at, each in record.items() if at.startswith("relocation/")]
        return {
            "workers": workers,
            "relocations": sorted(relocations, key=lambda each: -each["id"]),
        }

    async def relocate(self, name: str, wanted: Relocate) -> None:
        """Ask the manager to move partition groups; `report` says how far it is.

        Raises:
            Invalid: There is no such worker.
            NotFound: There is no such cluster.
            TooManyRequests: The manager does not take what it is asked for.
        """
        store, agreed = await self.find(name)
        workers = agreed.layout.workers
        if wrong := [
            Location(f"/{member}", f"must be one of {', '.join(workers)}, or empty")
            for member, worker in (("sender", wanted.sender), ("receiver", wanted.receiver))
            if worker and worker not in workers
        ]:
            raise Invalid("The cluster has no such worker.", locations=wrong)
        await _request(store, wanted)

    async def cancel(self, name: str, relocation: int) -> None:
        """Give a relocation up, if it is not past its point of no return; raises as `relocate`."""
        store, _ = await self.find(name)
        await _request(store, Cancel(relocation))

    async def drop(self, name: str) -> None:
        """Remove a cluster with its logs and results; raises `NotFound`.

        Participants that still run end, as if others had taken their place.
        """
        _, agreed = await self.find(name)
        await self._clusters.drop(name, addresses(agreed), list(agreed.layout.attributes))


async def _request(store: ClusterStore, message: Message) -> None:
    if await store.waiting(OPERATOR, [MANAGER]) >= _MOST_WAITING:
        raise TooManyRequests("The manager does not run, or is too slow: start it first.")
    await store.request(message)
