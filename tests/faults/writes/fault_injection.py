"""Faults of a cluster; each is repaired before the next."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import chain, repeat

from tests.faults.cluster import Cluster
from tests.faults.service import Service
from tests.faults.stores import KINDS

__all__ = ["Faults"]


class Faults:
    """Draws faults and injects them.

    Args:
        cluster: The cluster.
        rng: Draws faults and durations.
        max_hang_s: The maximum time a process or link hangs; beyond the leases to cover them.
    """

    def __init__(self, cluster: Cluster, rng: random.Random, max_hang_s: float) -> None:
        self._cluster = cluster
        self._rng = rng
        self._max_hang_s = max_hang_s
        per_store: dict[str, Callable[[str], Awaitable[None]]] = {
            "link held": self._hold_link,
            "link held, and its replica killed": self._hold_link_and_kill,
            "link cut": self._cut_link,
            "stopped": self._stop_store,
            "killed": self._kill_store,
        }
        self._faults: dict[str, Callable[[], Awaitable[None]]] = {
            "replica killed": self._kill_replica,
            "replica stopped": self._stop_replica,
            **{
                f"{store} {name}": partial(fault, store)
                for store in KINDS
                for name, fault in per_store.items()
            },
        }

    def draw(self, kill_count: int, other_count: int) -> list[str]:
        """Draw replica kills, and other faults round robin, in a random order."""
        others = [name for name in self._faults if name != "replica killed"]
        self._rng.shuffle(others)
        round_robin = chain.from_iterable(repeat(others))
        names = ["replica killed"] * kill_count + [next(round_robin) for _ in range(other_count)]
        self._rng.shuffle(names)
        return names

    async def inject(self, name: str) -> None:
        """Inject a fault and repair it."""
        await self._faults[name]()

    async def _kill_replica(self) -> None:
        replica = self._draw_replica()
        await replica.kill()
        await replica.start()

    async def _stop_replica(self) -> None:
        replica = self._draw_replica()
        replica.send(signal.SIGSTOP)
        await self._wait()
        replica.send(signal.SIGCONT)

    async def _hold_link(self, store: str) -> None:
        link = self._cluster.links[store]
        link.hold()
        await self._wait()
        await link.release()

    async def _hold_link_and_kill(self, store: str) -> None:
        """Writes arrive after their replica was killed; another replica may have resolved them."""
        link, replica = self._cluster.links[store], self._cluster.replicas[0]
        link.hold()
        await asyncio.sleep(self._rng.uniform(0.1, 1.0))
        await replica.kill()
        await self._wait()
        await link.release()
        await replica.start()

    async def _cut_link(self, store: str) -> None:
        self._cluster.links[store].disconnect()

    async def _stop_store(self, store: str) -> None:
        with self._cluster.stores.silent(store):
            await self._wait()

    async def _kill_store(self, store: str) -> None:
        with self._cluster.stores.killed(store):
            await self._wait()

    def _draw_replica(self) -> Service:
        return self._rng.choice(self._cluster.replicas)

    async def _wait(self) -> None:
        await asyncio.sleep(self._rng.choice((0.5, 1.0, 3.0, self._max_hang_s)))
