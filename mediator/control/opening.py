"""Opening of systems: a store is made, opened, and examined if nothing is known of its server."""

from __future__ import annotations

import asyncio
from typing import Final

from mediator.base.concurrency import end
from mediator.control.known_systems import Findings, findings_of, not_understood
from mediator.placement.calibration import calibrate
from mediator.schema.annotations import Capability
from mediator.stores.port import Store, StoreUnavailable, SystemConfig
from mediator.stores.probe import probe
from mediator.stores.systems import StoreFactory

__all__ = ["Opening", "Retirement"]


BEFORE_S: Final = 10.0
"""What passes at most between finding a store and calling it."""


class Opening:
    """Opens systems; the factory makes a store of the right kind."""

    def __init__(self, factory: StoreFactory) -> None:
        self._factory = factory
        self._examining = asyncio.Lock()

    async def open(
        self, config: SystemConfig, findings: Findings | None = None
    ) -> tuple[Store, Findings]:
        """Return an open store, and the findings about its server, known or new.

        What is known holds for one version of the server (guarantee 6).

        Raises:
            Invalid: There is no such kind, or no such URL.
            StoreError: It does not answer.
        """
        try:
            store = self._factory(config)
        except ValueError:
            raise not_understood(config) from None
        try:
            await store.open()
            facts = await store.facts()
            if findings is None or findings.server != f"{facts.server} {facts.version}":
                findings = await self.examine(store)
        except BaseException as error:
            await store.close()
            if isinstance(error, ValueError):
                raise not_understood(config) from None
            raise
        return store, findings

    async def examine(self, store: Store) -> Findings:
        """Probe and calibrate an open store; raises `StoreError`."""
        # One at a time: two systems measured at once would measure each other.
        async with self._examining:
            report = await probe(store)
            updates = report.capabilities[Capability.CONDITIONAL_UPDATES]
            if report.facts is None or updates.state == "unknown":
                raise StoreUnavailable(f"it could not be probed: {updates.detail}")
            calibration = await calibrate(store) if report.acceptable else None
            return findings_of(report, report.facts, calibration)


class Retirement:
    """Replaced stores, which are closed once nothing can be using them.

    A caller uses a store for one call, which is bounded by the store's deadline; a write calls the
    guard before, which is bounded as well. So a replaced store is left open for both together, and
    no call is cut off.
    """

    def __init__(self) -> None:
        self._leaving: dict[asyncio.Task[None], Store] = {}

    def retire(self, store: Store) -> None:
        """Close a store that nobody can find any more, after a while."""
        task = asyncio.create_task(_close(store))
        self._leaving[task] = store
        task.add_done_callback(lambda done: self._leaving.pop(done, None))

    async def close(self) -> None:
        """Close all of them now."""
        leaving = dict(self._leaving)
        await end(leaving)
        await asyncio.gather(*(store.close() for store in leaving.values()))


async def _close(store: Store) -> None:
    await asyncio.sleep(BEFORE_S + store.config.deadline_s)
    await store.close()
