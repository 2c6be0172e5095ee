"""Opens systems: creates and opens a store, and examines a server without findings."""

from __future__ import annotations

import asyncio
from typing import Final

from mediator.base.concurrency import end
from mediator.control.known_systems import Findings, findings_of, unsupported_system
from mediator.placement.calibration import calibrate
from mediator.schema.annotations import Capability
from mediator.stores.port import Store, StoreUnavailable, SystemConfig
from mediator.stores.probe import probe
from mediator.stores.systems import StoreFactory

__all__ = ["Opening", "Retirement"]


BEFORE_S: Final = 10.0
"""Maximum time between finding a store and calling it."""


class Opening:
    def __init__(self, factory: StoreFactory) -> None:
        self._factory = factory
        self._examining = asyncio.Lock()

    async def open(
        self, config: SystemConfig, findings: Findings | None = None
    ) -> tuple[Store, Findings]:
        """Return an open store, and the findings about its server, existing or new.

        Findings hold for one version of the server (guarantee 6).

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
            raise unsupported_system(config) from None
        return store, findings

    async def examine(self, store: Store) -> Findings:
        """Probe and calibrate an open store; raises `StoreError`."""
        # One at a time: concurrent measurements would distort each other.
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
        self._retiring: dict[asyncio.Task[None], Store] = {}

    def retire(self, store: Store) -> None:
        """Close a store after a while; it must no longer be found."""
        task = asyncio.create_task(_close(store))
        self._retiring[task] = store
        task.add_done_callback(lambda done: self._retiring.pop(done, None))

    async def close(self) -> None:
        retiring = dict(self._retiring)
        await end(retiring)
        await asyncio.gather(*(store.close() for store in retiring.values()))


async def _close(store: Store) -> None:
    # A caller that has found the store calls it once, within its deadline, after a bounded call of
    # the guard: no call is cut off.
    await asyncio.sleep(BEFORE_S + store.config.deadline_s)
    await store.close()
