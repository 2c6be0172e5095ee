"""Steps of committed transactions that a server refuses: they stay open and are reported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from app.telemetry.recent_events import RecentEvents
from mediator.base.errors import OutcomeUnknown
from mediator.base.observation import RedoRecovered
from mediator.stores.postgres.layout import table_name
from tests.process.service import Service, field_on
from tests.process.transactions.committing.shop import run, transaction, update, values
from tests.process.transactions.open_writes import expire

CLASSES = {"users": {"fields": {"n": field_on("postgres", "integer", default=0)}}}


@asynccontextmanager
async def refusing(mediator: Service, database: str, n: int) -> AsyncIterator[None]:
    """Make the server refuse users with a number, as after a foreign schema change."""
    config = mediator.configs["postgres"]
    [fragment] = (await mediator.mediator.data.route(database, "users")).fragments
    table = f'"{config.namespace}"."{table_name(fragment.database, fragment.stored_as)}"'
    connection = await asyncpg.connect(config.url)
    try:
        await connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT other CHECK (n <> {n})")
        yield
        await connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT other")
    finally:
        await connection.close()


def refusals(mediator: Service, database: str) -> list[RedoRecovered]:
    recoveries = [event for event in mediator.observed if isinstance(event, RedoRecovered)]
    return [
        event for event in recoveries if (event.database, event.outcome) == (database, "refused")
    ]


async def test_the_other_steps_are_applied_and_the_refused_one_is_reported(
    mediator: Service,
) -> None:
    """The server received them together and does not report which one it refuses."""
    database = await mediator.put_schema(CLASSES)
    for id_ in ("x", "y"):
        await mediator.create(database, "users", id_, n=0)
    writes = [update(database, "users", "x", n=1), update(database, "users", "y", n=2)]
    async with refusing(mediator, database, 2):
        with pytest.raises(OutcomeUnknown):
            await run(mediator, transaction(database, *writes))
        assert await values(mediator, database, "users", "x") == {"n": 1}
        assert await values(mediator, database, "users", "y") == {"n": 0}
        [refused] = refusals(mediator, database)
        assert "users/y" in refused.reason
        assert "CheckViolationError" in refused.reason
        log = mediator.mediator.transactions.log
        [entry] = (await log.find_open(database, [["users", "y"]])).values()
        assert not entry.overdue, "it is retried in a minute, not at once"
    await expire(mediator)
    assert await values(mediator, database, "users", "y") == {"n": 2}


def test_a_refused_step_is_among_the_latest_events_once() -> None:
    recent = RecentEvents()
    refused = RedoRecovered("shop", "i", "refused", "postgres refuses a step")
    for event in (refused, RedoRecovered("shop", "j", "applied"), refused):
        recent.observe(event)
    assert [event.observation for event in recent.events] == [refused]
