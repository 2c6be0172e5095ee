"""Renames while replicas write or are behind, and the feed of what was written before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from mediator.base.errors import MediatorError, Unavailable
from mediator.control import membership
from mediator.control.port import CAREFUL, ChangeOptions
from mediator.integrity.check import Integrity
from mediator.model.operators import Operator, OperatorCall
from mediator.stores.port import SystemConfig
from tests.process.control.renaming import SYSTEMS, classes, filled, renamed, update
from tests.process.service import Service, field_on, service


@pytest.fixture
async def late(mediator: Service, system_configs: Sequence[SystemConfig]) -> AsyncIterator[Service]:
    """A replica that follows only when a test lets it."""
    async with AsyncExitStack() as stack:
        started = await stack.enter_async_context(service(system_configs, mediator.catalogue_url))
        await started.mediator.scheduler.stop()
        yield started


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_a_replica_that_is_behind_writes_to_the_same_fields(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    database = await filled(mediator, system)
    await late.get(database, "products", "a")
    await late.mediator.membership.renew()
    await renamed(mediator, database, system)
    await update(late, database, "a", values={"price": 10, "tags": ["late"]})
    await late.create(database, "products", "d", price=11)
    assert (await late.values(database, "products", "a") or {})["price"] == 10
    assert await mediator.values(database, "products", "a") == {
        "name": "a",
        "unit_price": 10,
        "labels": ["late"],
    }
    assert await mediator.values(database, "products", "d") == {"unit_price": 11}
    with pytest.raises(Unavailable, match="do not confirm"):  # it would be two changes behind
        await mediator.mediator.control.set_schema(
            database,
            {"classes": classes(system, "cost", "labels")},
            options=ChangeOptions(rename={"products": {"unit_price": "cost"}}),
        )
    await late.mediator.membership.renew()
    assert await late.values(database, "products", "d") == {"unit_price": 11}


COST: Final = ChangeOptions(rename={"products": {"unit_price": "cost"}})
BACK: Final = ChangeOptions(rename={"products": {"unit_price": "price"}})
DROP: Final = ChangeOptions(drop=frozenset({"products.unit_price"}))


@pytest.mark.parametrize(("options", "number"), [(COST, "cost"), (BACK, "price"), (DROP, "other")])
async def test_a_name_is_given_again_when_no_replica_means_another_field_by_it(
    mediator: Service,
    late: Service,
    monkeypatch: pytest.MonkeyPatch,
    options: ChangeOptions,
    number: str,
) -> None:
    """Also one that no system has as a stored name: else the values of two fields would be one."""
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    database = await filled(mediator, "redis")

    async def put(*names: str, options: ChangeOptions = CAREFUL) -> None:
        added = {name: field_on("redis", "integer") for name in names}
        document = {"classes": classes("redis", number, "tags", **added)}
        await mediator.mediator.control.set_schema(database, document, options=options)

    await late.mediator.membership.renew()
    document = {"classes": classes("redis", "unit_price", other=field_on("redis", "integer"))}
    rename = ChangeOptions(rename={"products": {"price": "unit_price"}})
    await mediator.mediator.control.set_schema(database, document, options=rename)
    await late.mediator.membership.renew()
    await put("other", options=options)
    await put("other", "colour")  # nobody has known a field of this name
    with pytest.raises(Unavailable, match="do not confirm"):
        await put("other", "colour", "unit_price")
    await update(late, database, "a", values={"unit_price": 10})
    await late.mediator.membership.renew()
    await put("other", "colour", "unit_price")
    kept = {} if options is DROP else {number: 10}
    whole = {"name": "a", "tags": ["x"], **kept}
    assert await mediator.values(database, "products", "a") == whole
    await update(mediator, database, "a", values={"unit_price": 7})
    assert await mediator.values(database, "products", "a") == {**whole, "unit_price": 7}


async def test_no_write_is_lost_while_fields_are_renamed(
    mediator: Service, replica: Service
) -> None:
    """Writers that go on with the names that their replica knows see all their increments."""
    database = await filled(mediator, "all")
    done = asyncio.Event()
    names = ("price", "unit_price", "cost")

    async def write(of: Service) -> int:
        count = 0
        while not done.is_set():
            for name in names:
                try:
                    await update(of, database, "a", OperatorCall(name, Operator.INC, 1))
                except MediatorError:
                    continue
                count += 1
        return count

    writers = [asyncio.create_task(write(of)) for of in (mediator, replica) for _ in range(2)]
    await renamed(mediator, database, "all")
    await replica.mediator.control.set_schema(
        database,
        {"classes": classes("all", "cost", "labels")},
        options=ChangeOptions(rename={"products": {"unit_price": "cost"}}),
    )
    done.set()
    total = sum(await asyncio.gather(*writers))
    assert total > 0
    assert (await mediator.values(database, "products", "a") or {})["cost"] == 1 + total


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_changes_have_the_names_of_now(with_feed: Service, system: str) -> None:
    """Those before the rename, too: so records agree with their histories."""
    database = await filled(with_feed, system)
    await renamed(with_feed, database, system)
    await update(with_feed, database, "a", values={"unit_price": 8})
    integrity: Integrity = with_feed.mediator.integrity
    report = await integrity.check(database, 10_000)
    assert report.compared
    assert not report.counts, report.examples
    images = await _images(with_feed, database)
    assert {name for image in images for name in image} == {"name", "unit_price", "labels"}
    assert {image["unit_price"] for image in images if "unit_price" in image} == {1, 2, 3, 8}


async def _images(of: Service, database: str) -> list[dict[str, Any]]:
    """Return all that the feed has, in no order."""
    coordination = of.mediator.coordination
    assert coordination is not None
    database_id = of.mediator.data.model.databases[database].id
    images = []
    for partition in range(4):
        for _, change in await coordination.feed.read(database_id, partition, "0-0", 1000):
            images += [dict(image) for image in (change.before, change.after) if image]
    return images
