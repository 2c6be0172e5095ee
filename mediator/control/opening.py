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
"""The longest time between finding a store and calling it."""


class Opening:
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
            try:
                await store.open()
                facts = await store.facts()
                if findings is None or findings.server != f"{facts.server} {facts.version}":
                    findings = await self.examine(store)
            except BaseException:
                await store.close()
                raise
        except ValueError:
            raise not_understood(config) from None
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
    """Replaced stores, which are closed once no call can be using them."""

    def __init__(self) -> None:
        self._leaving: dict[asyncio.Task[None], Store] = {}

    def retire(self, store: Store) -> None:
        """Close a store after a while; it must not be found any more."""
        task = asyncio.create_task(_close(store))
        self._leaving[task] = store
        task.add_done_callback(lambda done: self._leaving.pop(done, None))

    async def close(self) -> None:
        leaving = dict(self._leaving)
        await end(leaving)
        await asyncio.gather(*(store.close() for store in leaving.values()))


async def _close(store: Store) -> None:
    # A caller that has found the store calls it once, within its deadline, after a bounded call of
    # the guard: nothing is cut off.
    await asyncio.sleep(BEFORE_S + store.config.deadline_s)
    await store.close()
