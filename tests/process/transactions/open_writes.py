"""What the log of writes over several systems still holds open, and letting it come to an end."""

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
"""Neither only remembered, nor noted for being unknown, which it stays for an hour."""


async def open_writes(replica: Service) -> list[str]:
    """Return the states of the writes that are not over."""
    async with replica.mediator.catalogue.begin() as connection:
        found = await connection.execute(select(table.c.state).where(_OPEN))
        return list(found.scalars())


async def let_overdue(replica: Service, in_s: float = 0.0) -> None:
    """End the leases of all open writes, as if their coordinators had failed long ago.

    Args:
        replica: The replica that accesses the log.
        in_s: In how many seconds they end; recovery leaves them alone until then.
    """
    ends = func.now() + func.make_interval(0, 0, 0, 0, 0, 0, in_s)
    async with replica.mediator.catalogue.begin() as connection:
        await connection.execute(update(table).where(_OPEN).values(leased_until=ends))


async def expire(replica: Service) -> None:
    """Let the leases of killed coordinators expire, and those of what died with them as well.

    What removes finished writes runs in the context of one of them: if that one is killed, the
    write that recovery has just finished stays in the log until its new lease expires.
    """

    async def over() -> bool:
        await let_overdue(replica)
        await replica.mediator.transactions.resolver.recover()
        return not await open_writes(replica)

    await eventually(over)


async def all_over(replica: Service) -> None:
    """Wait until nothing is open: what is over is forgotten a moment later, many at a time."""

    async def over() -> bool:
        return not await open_writes(replica)

    await eventually(over)


async def intents_on(replica: Service, operation: WriteOperation) -> dict[str, list[RecordKey]]:
    """Return the intents on the object of an operation, each with the records that have it."""
    route = await replica.mediator.data.route(operation.database, operation.class_name)
    target = LockTarget(route, operation.id)
    states = await replica.mediator.transactions.resolver.intents.record_states(target.keys)
    return LockedObject(target, dict(zip(route.fragments, states, strict=True))).foreign("")


async def meet(replica: Service, operation: WriteOperation) -> None:
    """Resolve the writes that have intents on an object, as all do who meet them."""
    while met := await intents_on(replica, operation):
        await replica.mediator.transactions.resolver.resolve(met)
