"""Writes over several systems: carried out under a redo record, and rolled forward after a crash.

`mediator.operations.redo` tells the order of events and what each crash leaves behind.
"""

from __future__ import annotations

import asyncio

from mediator.errors import MediatorError, Unavailable
from mediator.observation import Observer, RedoRecovered
from mediator.operations.calls import StoreCalls
from mediator.operations.merge import failure_of
from mediator.operations.model import WriteOperation
from mediator.operations.plan import Steps, with_birth
from mediator.operations.redo import LEASE_S, RedoLog, RedoRecord, record_of, steps_of
from mediator.placement.routing import ClassRoute, RoutingModel
from mediator.stores.port import Status, WriteResult

__all__ = ["SplitWriter"]

RECOVERED_AT_ONCE = 50


class SplitWriter:
    """Carries out writes whose steps go to several systems."""

    def __init__(self, calls: StoreCalls, redo: RedoLog, observe: Observer) -> None:
        self._calls = calls
        self._redo = redo
        self._observe = observe

    async def write(
        self, route: ClassRoute, operation: WriteOperation, steps: Steps
    ) -> list[WriteResult]:
        """Apply all steps, or none if the first one is refused: then its result is the only one.

        Raises:
            Unavailable: A system did not answer. The write is not acknowledged; if its first step
                has taken effect, the others will follow.
        """
        self._need_all(steps)
        await self._redo.add(record_of(route, operation.database, steps), LEASE_S)
        first = await self._calls.write(steps.first)
        if failure_of(operation, first) is not None:
            await self._redo.remove(operation.operation)
            return [first]
        rest = await self._follow(operation.operation, steps, first)
        await self._forget(operation.operation)
        return [first, *rest]

    async def recover(self, model: RoutingModel) -> int:
        """Roll forward the writes whose writers have gone; return how many were settled."""
        records = await self._redo.take(RECOVERED_AT_ONCE, LEASE_S)
        settled = 0
        for record in records:
            try:
                await self.settle(model, record)
            except Unavailable:
                continue  # its lease passes again; the systems may be back then
            settled += 1
        return settled

    async def settle(self, model: RoutingModel, record: RedoRecord) -> None:
        """Carry a recorded write to its end."""
        steps = _steps(model, record)
        applied = steps is not None and await self._repeat(record, steps)
        await self._redo.remove(record.operation)
        self._observe(
            RedoRecovered(
                record.database,
                record.class_name,
                record.operation,
                "applied" if applied else "dropped",
            )
        )

    async def find(self, operation: str) -> RedoRecord | None:
        """Return the record of an operation that is not settled yet."""
        return await self._redo.find(operation)

    async def _repeat(self, record: RedoRecord, steps: Steps) -> bool:
        if record.birth is None:
            first = await self._calls.write(steps.first)
            if first.status not in (Status.APPLIED, Status.REPLAYED):
                return False
        else:
            first = WriteResult(Status.REPLAYED, birth=record.birth)
        await self._follow(record.operation, steps, first)
        return True

    async def _follow(self, operation: str, steps: Steps, first: WriteResult) -> list[WriteResult]:
        results = await self._calls.write_each([with_birth(w, first) for w in steps.rest])
        done = [result for result in results if isinstance(result, WriteResult)]
        for result in results:
            if isinstance(result, MediatorError):
                await self._redo.decide(operation, first.birth)
                raise result
        return done

    def _need_all(self, steps: Steps) -> None:
        """Refuse before anything is written if a system is known to be away."""
        for write in steps.all:
            store = self._calls.systems.get(write.fragment.system)
            if store.breaker.retry_after_s > 0:
                raise Unavailable(
                    f"The system {store.name} does not answer.",
                    system=store.name,
                    retry_after_s=max(1.0, store.breaker.retry_after_s),
                )

    async def _forget(self, operation: str) -> None:
        # Everything is applied and remembered: a record left behind is repeated without effect.
        try:
            async with asyncio.timeout(LEASE_S):
                await self._redo.remove(operation)
        except (Unavailable, TimeoutError):
            return


def _steps(model: RoutingModel, record: RedoRecord) -> Steps | None:
    """Read the steps back; None if the class or a part of it is no longer there."""
    database = model.databases.get(record.database)
    route = database.classes.get(record.class_name) if database else None
    try:
        return steps_of(route, record) if route else None
    except KeyError:
        return None
