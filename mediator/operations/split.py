"""Writes over several systems: carried out under a redo record, and rolled forward after a crash.

`mediator.operations.redo` tells the order of events and what each crash leaves behind.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from mediator.errors import Locked, MediatorError, OperatorRefused, Unavailable
from mediator.observation import Observer, RedoRecovered
from mediator.operations.calls import StoreCalls
from mediator.operations.merge import failure_of
from mediator.operations.model import WriteOperation
from mediator.operations.parts import add_part, check_operators
from mediator.operations.plan import Steps, with_birth
from mediator.operations.redo import RedoLog, RedoRecord, record_of, steps_of
from mediator.placement.routing import ClassRoute, RoutingModel
from mediator.stores.port import Status, StoreError, Write, WriteKind, WriteResult
from mediator.systems import unavailable

__all__ = ["SplitWriter"]

RECOVERED_AT_ONCE = 50

CATALOGUE_S = 6.0
"""What a lease allows for the catalogue, beside the deadlines of the stores."""

RETRY_S = 1.0
"""Seconds until recovery tries a record again whose system was away."""

FIRST_PAUSE_S, LONGEST_PAUSE_S, PATIENCE_S = 0.002, 0.1, 3.0
"""How a write waits for another one over several systems on the same object."""


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
            OperatorRefused: A store refuses an operator. What the first store refuses leaves
                nothing behind, and what the others would refuse is found by reading beforehand;
                only if the value changes between that and the write has the first step happened.
            Unavailable: A system did not answer. The write is not acknowledged; if its first step
                has taken effect, the others will follow.
        """
        self._need_all(steps)
        await check_operators(self._calls, steps.rest)
        first = await self._begin(record_of(route, operation.database, steps), steps.first)
        if failure_of(operation, first) is not None:
            await self._redo.remove(operation.operation)
            return [first]
        rest = await self._follow(steps, first)
        await self._forget(operation.operation)
        _raise_refused(operation, rest)
        return [first, *rest]

    async def recover(self, newest: Callable[[], Awaitable[RoutingModel]]) -> int:
        """Roll forward the writes whose writers have gone; return how many were settled.

        Args:
            newest: Returns a routing model that is not older than the records taken: by an older
                one, a record of a new class would seem to have lost it.
        """
        records = await self._redo.take(RECOVERED_AT_ONCE, self._longest_lease_s())
        model = await newest() if records else None
        settled = 0
        for record in records:
            assert model is not None
            try:
                await self._recover(model, record)
            except Unavailable:
                await self._redo.postpone(record.operation, RETRY_S)
            else:
                settled += 1
        return settled

    async def resume(self, model: RoutingModel, operation: str) -> None:
        """Carry on with a write whose client has come back, whether its writer lives or not.

        The steps of a live writer are only repeated. If the first one cannot be applied any more,
        the record is left to its lease.
        """
        record = await self._redo.find(operation)
        steps = _steps(model, record) if record else None
        if record is None or steps is None:
            return
        first = _decided(record) or await self._calls.write(steps.first)
        if first.status in (Status.APPLIED, Status.REPLAYED):
            await self._finish(record, steps, first)

    async def unsettled(self, database: str, class_name: str, ids: Sequence[str]) -> set[str]:
        """Return those of the objects that a write over several systems is under way on."""
        return await self._redo.unsettled(database, class_name, ids)

    async def _recover(self, model: RoutingModel, record: RedoRecord) -> None:
        steps = _steps(model, record)
        first = _decided(record) or (await self._remembered(steps.first) if steps else None)
        if steps is not None and first is not None:
            await self._finish(record, steps, first)
        else:
            await self._redo.remove(record.operation)
            self._tell(record, applied=False)

    async def _finish(self, record: RedoRecord, steps: Steps, first: WriteResult) -> None:
        await self._follow(steps, first)
        await self._redo.remove(record.operation)
        self._tell(record, applied=True)

    def _tell(self, record: RedoRecord, *, applied: bool) -> None:
        self._observe(
            RedoRecovered(
                record.database,
                record.class_name,
                record.operation,
                "applied" if applied else "dropped",
            )
        )

    async def _remembered(self, write: Write) -> WriteResult | None:
        """Return the result of a write, if it ever took effect."""
        store = self._calls.systems.get(write.fragment.system)
        try:
            recalled = await store.recall(write.fragment, write.id, write.operation)
        except StoreError as error:
            raise unavailable(store, error, "read") from error
        return recalled.result if recalled else None

    async def _follow(self, steps: Steps, first: WriteResult) -> list[WriteResult]:
        writes = [with_birth(write, first) for write in steps.rest]
        done = []
        for write, result in zip(writes, await self._calls.write_each(writes), strict=True):
            try:
                done.append(await self._complete(write, result, first.birth))
            except MediatorError as error:
                await self._redo.decide(write.operation, first.birth)
                raise _still_to_come(write, error) from error
        return done

    async def _complete(
        self, write: Write, result: WriteResult | MediatorError, birth: int
    ) -> WriteResult:
        """Give an object the part that it lacks, if the update has found none."""
        if isinstance(result, MediatorError):
            raise result
        if write.kind is not WriteKind.UPDATE or result.status is not Status.MISSING:
            return result
        await self._calls.write(add_part(write, birth))
        return await self._calls.write(write)

    async def _begin(self, record: RedoRecord, first: Write) -> WriteResult:
        """Add the record and apply the first step, once no transaction has marked its object.

        Who waits for a mark has no record meanwhile: the transaction waits for that in turn.
        """
        loop = asyncio.get_running_loop()
        patience, pause = loop.time() + PATIENCE_S, FIRST_PAUSE_S
        while True:
            await self._claim(record)
            try:
                return await self._calls.write_now(first)
            except Locked:
                await self._redo.remove(record.operation)
                if loop.time() > patience:
                    raise
            await asyncio.sleep(pause * random.random())  # noqa: S311 - spreads those who wait
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _claim(self, record: RedoRecord) -> None:
        """Add the record, once no other write over several systems is under way on the object."""
        loop = asyncio.get_running_loop()
        patience, pause = loop.time() + PATIENCE_S, FIRST_PAUSE_S
        while not await self._redo.add(record, self._longest_lease_s()):
            if loop.time() > patience:
                system = record.steps[0]["system"]
                raise Unavailable("An earlier write to the object goes on.", system=system)
            await asyncio.sleep(pause * random.random())  # noqa: S311 - spreads those who wait
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _longest_lease_s(self) -> float:
        """Return more seconds than a live writer can need for both of its round trips."""
        deadlines = [guarded.store.config.deadline_s for guarded in self._calls.systems]
        return CATALOGUE_S + 2 * max(deadlines, default=0.0)

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
            await self._redo.remove(operation)
        except Unavailable:
            return


def _still_to_come(write: Write, error: MediatorError) -> MediatorError:
    """Tell why a step that will follow has not yet: the write is neither refused nor done."""
    if isinstance(error, Unavailable):
        return error
    return Unavailable(error.detail, system=write.fragment.system)


def _decided(record: RedoRecord) -> WriteResult | None:
    if record.birth is None:
        return None
    return WriteResult(Status.REPLAYED, birth=record.birth)


def _raise_refused(operation: WriteOperation, results: Sequence[WriteResult]) -> None:
    """Tell what happened between the check and the write, rather than acknowledge half of it."""
    for result in results:
        if result.status is Status.REFUSED:
            failure = failure_of(operation, result)
            assert isinstance(failure, OperatorRefused)
            raise OperatorRefused(
                f"{failure.detail} The rest of the operation has taken effect.",
                places=failure.places,
            )


def _steps(model: RoutingModel, record: RedoRecord) -> Steps | None:
    """Read the steps back; None if the class or a part of it is no longer there."""
    database = model.databases.get(record.database)
    route = database.classes.get(record.class_name) if database else None
    try:
        return steps_of(route, record) if route else None
    except KeyError:
        return None
