"""Committed transactions that are applied under a schema with tighter bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from mediator.base.observation import RedoRecovered
from mediator.model.operations import Update
from mediator.model.operators import Operator, OperatorCall
from mediator.stores.port import Status, Write, WriteResult
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, unique
from tests.process.transactions.committing.shop import has_intent, run, transaction, values
from tests.process.transactions.crashable import Killed
from tests.process.transactions.open_writes import expire, let_overdue, open_writes

SYSTEMS = ("postgres", "redis", "mongo")
BEFORE = {"stock": 0, "low": 0, "tags": ["a"]}
AFTER = {"stock": 5, "low": -5, "tags": ["a", "b"]}


def classes(**bounds: dict[str, Any]) -> dict[str, Any]:
    """Return one class on each system; its fields have the given bounds."""
    return {
        f"on_{system}": {
            "fields": {
                "stock": field_on(system, "integer", **bounds.get("stock", {})),
                "low": field_on(system, "integer", **bounds.get("low", {})),
                "tags": field_on(system, "list", items="string", **bounds.get("tags", {})),
            }
        }
        for system in SYSTEMS
    }


LOOSE = classes(stock={"maximum": 9}, low={"minimum": -9}, tags={"max_length": 9})
TIGHT = classes(stock={"maximum": 4}, low={"minimum": -4}, tags={"max_length": 1})


async def commit(mediator: Service, database: str, name: str) -> None:
    """Kill a coordinator after it has committed operators on an object."""
    operators = (
        OperatorCall("stock", Operator.INC, 5),
        OperatorCall("low", Operator.INC, -5),
        OperatorCall("tags", Operator.PUSH, "b"),
    )
    await mediator.create(database, name, "x", **BEFORE)
    update = Update(database, name, "x", unique(), operators=operators)
    request = transaction(database, update)
    with pytest.MonkeyPatch.context() as patched:

        async def die(*_: Any) -> None:
            raise Killed

        patched.setattr(mediator.mediator.transactions.resolver.applier, "apply", die)
        with suppress(Killed):
            await asyncio.create_task(run(mediator, request))


@pytest.mark.parametrize("system", SYSTEMS)
async def test_operators_committed_before_bounds_were_tightened_are_applied(
    mediator: Service, system: str
) -> None:
    database, name = await mediator.put_schema(LOOSE), f"on_{system}"
    assert mediator.systems_of(database, name) == (system,)
    await commit(mediator, database, name)
    assert await values(mediator, database, name, "x") == BEFORE
    await mediator.mediator.control.set_schema(database, {"classes": TIGHT})
    await expire(mediator)
    assert await values(mediator, database, name, "x") == AFTER
    assert not await has_intent(mediator, database, name, "x")


async def test_a_refused_step_is_never_given_up_and_blocks_no_other_write(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses it for a reason that an operator has to find."""
    database = await mediator.put_schema(LOOSE)
    for name in ("on_postgres", "on_redis"):
        await commit(mediator, database, name)
    [postgres] = [system.store for system in mediator.mediator.systems if system.name == "postgres"]

    async def refuse(calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        return [WriteResult(Status.REFUSED) for _ in calls]

    async def has_recovered_the_other() -> bool:
        await let_overdue(mediator)
        await mediator.mediator.transactions.resolver.recover()
        current: object = await values(mediator, database, "on_redis", "x")
        return current == AFTER

    async def is_only_the_refused_one_open() -> bool:
        return await open_writes(mediator) == ["committed"]

    with monkeypatch.context() as patched:
        patched.setattr(postgres, "write", refuse)
        await eventually(has_recovered_the_other)
        recoveries = [o for o in mediator.observed if isinstance(o, RedoRecovered)]
        database_recoveries = [recovery for recovery in recoveries if recovery.database == database]
        assert {recovery.outcome for recovery in database_recoveries} == {"applied", "refused"}
        assert any("on_postgres/x" in recovery.reason for recovery in database_recoveries)
        await eventually(is_only_the_refused_one_open)
        assert await has_intent(mediator, database, "on_postgres", "x")
        assert await values(mediator, database, "on_postgres", "x") == BEFORE
    await expire(mediator)
    assert await values(mediator, database, "on_postgres", "x") == AFTER
