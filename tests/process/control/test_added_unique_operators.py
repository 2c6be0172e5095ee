"""Operators on fields that have meanwhile become unique: they would claim nothing."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import Conflict, NotUnique
from mediator.model.operations import Create
from mediator.schema.types import Values
from mediator.transactions.model import CommitRequest, WriteBlocked
from tests.process.control.unique_building import SPLIT, SYSTEMS
from tests.process.service import Service, error_of, field_on, inc, unique

BEFORE: Values = {"number": 1, "line": 1, "note": "x"}


def orders(system: str, *constraints: list[str]) -> dict[str, Any]:
    fields = {
        "number": field_on(system, "integer", group="keys"),
        "line": field_on(system, "integer", group="keys"),
        "note": field_on(SPLIT[system], group="note"),
    }
    return {"orders": {"fields": fields, "unique": list(constraints)}}


async def add(mediator: Service, database: str, system: str, *constraints: list[str]) -> None:
    document = {"classes": orders(system, *constraints)}
    await mediator.mediator.control.set_schema(database, document)


async def is_unchanged_and_claimed(mediator: Service, database: str) -> bool:
    """Whether an object is unchanged, and no other can take its values."""
    assert await mediator.values(database, "orders", "a") == BEFORE
    twin = Create(database, "orders", unique(), unique(), values=BEFORE)
    return isinstance(await error_of(mediator, twin), NotUnique)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("constraint", [["number"], ["number", "line"]], ids="+".join)
async def test_an_operator_that_arrives_after_the_constraint_is_refused(
    mediator: Service, system: str, constraint: list[str]
) -> None:
    """Alone, in a write to several systems, in a batch and in a transaction."""
    database = await mediator.put_schema(orders(system))
    await mediator.create(database, "orders", "a", **BEFORE)
    await add(mediator, database, system, constraint)
    data = mediator.mediator.data
    updates = [
        inc(database, "orders", "a", "number"),
        inc(database, "orders", "a", "number", values={"line": 2}),
        inc(database, "orders", "a", "number", values={"note": "y"}),
    ]
    assert [type(await error_of(mediator, update)) for update in updates] == [Conflict] * 3
    assert [type(result) for result in await data.batch(updates)] == [Conflict] * 3
    for update in updates:
        with pytest.raises(Conflict):
            await mediator.mediator.transactions.run(
                CommitRequest(database, unique("tx"), (), (update,))
            )
    assert await is_unchanged_and_claimed(mediator, database)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_transaction_that_is_retried_is_refused_if_its_field_is_unique_by_then(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    database = await mediator.put_schema(orders(system))
    await mediator.create(database, "orders", "a", **BEFORE)
    phases = mediator.mediator.transactions.phases
    begin, calls = phases.begin, []

    async def block_first(*args: Any, **more: Any) -> Any:
        calls.append(args)
        if len(calls) > 1:
            return await begin(*args, **more)
        await add(mediator, database, system, ["number"])
        raise WriteBlocked

    monkeypatch.setattr(phases, "begin", block_first)
    write = inc(database, "orders", "a", "number")
    with pytest.raises(Conflict, match="number of orders no longer takes operators"):
        await mediator.mediator.transactions.run(
            CommitRequest(database, unique("tx"), (), (write,))
        )
    assert len(calls) > 1
    assert await is_unchanged_and_claimed(mediator, database)
