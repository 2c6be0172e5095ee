"""The open entries of the log of joint writes, and how to finish them."""

from __future__ import annotations

from sqlalchemy import and_, func, select, update

from mediator.catalogue.tables import transactions as table
from mediator.model.operations import WriteOperation
from mediator.stores.port import RecordKey
from mediator.transactions.log import State
from mediator.transactions.targets import LockedObject, LockTarget
from tests.faults.conditions import eventually
from tests.process.service import Service

__all__ = ["all_over", "expire", "intents_on", "let_overdue", "meet", "open_writes"]

_OPEN = and_(table.c.state != State.DONE, table.c.database != "")
"""Neither remembered results, nor entries of unknown intents, which stay for an hour."""


async def open_writes(replica: Service) -> list[str]:
    """Return the states of the open writes."""
    async with replica.mediator.catalogue.begin() as connection:
        rows = await connection.execute(select(table.c.state).where(_OPEN))
        return list(rows.scalars())


async def let_overdue(replica: Service, in_s: float = 0.0) -> None:
    """End the leases of all open writes, as if their coordinators had failed long ago.

    Args:
        replica: The replica that accesses the log.
        in_s: The seconds until they end; recovery leaves them alone until then.
    """
    lease_end = func.now() + func.make_interval(0, 0, 0, 0, 0, 0, in_s)
    async with replica.mediator.catalogue.begin() as connection:
        await connection.execute(update(table).where(_OPEN).values(leased_until=lease_end))


async def expire(replica: Service) -> None:
    """Expire the leases of killed coordinators and recover, until no write is open.

    The task that removes finished writes runs in the context of one of them: if that one is killed,
    a write that recovery has just finished stays in the log until its new lease expires.
    """

    async def is_over() -> bool:
        await let_overdue(replica)
        await replica.mediator.transactions.resolver.recover()
        return not await open_writes(replica)

    await eventually(is_over)


async def all_over(replica: Service) -> None:
    """Wait until no write is open: finished writes are removed a moment later, in batches."""

    async def is_over() -> bool:
        return not await open_writes(replica)

    await eventually(is_over)


async def intents_on(replica: Service, operation: WriteOperation) -> dict[str, list[RecordKey]]:
    """Return the intents on the object of an operation, each with its records."""
    route = await replica.mediator.data.route(operation.database, operation.class_name)
    target = LockTarget(route, operation.id)
    states = await replica.mediator.transactions.resolver.intents.record_states(target.keys)
    return LockedObject(target, dict(zip(route.fragments, states, strict=True))).foreign("")


async def meet(replica: Service, operation: WriteOperation) -> None:
    """Resolve the writes that have intents on an object, as any write that meets them does."""
    while intents := await intents_on(replica, operation):
        await replica.mediator.transactions.resolver.resolve(intents)
