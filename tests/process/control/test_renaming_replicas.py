"""Renames while replicas write or lag, and the feed of changes before a rename."""

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
from tests.process.control.renaming import SYSTEMS, classes, fill_database, rename, update
from tests.process.service import Service, field_on, service


@pytest.fixture
async def late(mediator: Service, system_configs: Sequence[SystemConfig]) -> AsyncIterator[Service]:
    """A replica that follows the catalogue only on a test's request."""
    async with AsyncExitStack() as stack:
        instance = await stack.enter_async_context(service(system_configs, mediator.catalogue_url))
        await instance.mediator.scheduler.stop()
        yield instance


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_a_replica_that_is_behind_writes_to_the_same_fields(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    database = await fill_database(mediator, system)
    await late.get(database, "products", "a")
    await late.mediator.membership.renew()
    await rename(mediator, database, system)
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
async def test_a_name_is_reused_only_after_all_replicas_have_dropped_it(
    mediator: Service,
    late: Service,
    monkeypatch: pytest.MonkeyPatch,
    options: ChangeOptions,
    number: str,
) -> None:
    """Also a name that is no stored name: else two fields would share their values."""
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    database = await fill_database(mediator, "redis")

    async def put(*names: str, options: ChangeOptions = CAREFUL) -> None:
        added = {name: field_on("redis", "integer") for name in names}
        document = {"classes": classes("redis", number, "tags", **added)}
        await mediator.mediator.control.set_schema(database, document, options=options)

    await late.mediator.membership.renew()
    document = {"classes": classes("redis", "unit_price", other=field_on("redis", "integer"))}
    to_unit_price = ChangeOptions(rename={"products": {"price": "unit_price"}})
    await mediator.mediator.control.set_schema(database, document, options=to_unit_price)
    await late.mediator.membership.renew()
    await put("other", options=options)
    await put("other", "colour")  # no replica has had a field of this name
    with pytest.raises(Unavailable, match="do not confirm"):
        await put("other", "colour", "unit_price")
    await update(late, database, "a", values={"unit_price": 10})
    await late.mediator.membership.renew()
    await put("other", "colour", "unit_price")
    kept = {} if options is DROP else {number: 10}
    expected = {"name": "a", "tags": ["x"], **kept}
    assert await mediator.values(database, "products", "a") == expected
    await update(mediator, database, "a", values={"unit_price": 7})
    assert await mediator.values(database, "products", "a") == {**expected, "unit_price": 7}


async def test_no_write_is_lost_while_fields_are_renamed(
    mediator: Service, replica: Service
) -> None:
    """Writers that use the names of their replica's schema lose no increment."""
    database = await fill_database(mediator, "all")
    stop = asyncio.Event()
    names = ("price", "unit_price", "cost")

    async def write(plane: Service) -> int:
        count = 0
        while not stop.is_set():
            for name in names:
                try:
                    await update(plane, database, "a", OperatorCall(name, Operator.INC, 1))
                except MediatorError:
                    continue
                count += 1
        return count

    writers = [asyncio.create_task(write(plane)) for plane in (mediator, replica) for _ in range(2)]
    await rename(mediator, database, "all")
    await replica.mediator.control.set_schema(
        database,
        {"classes": classes("all", "cost", "labels")},
        options=ChangeOptions(rename={"products": {"unit_price": "cost"}}),
    )
    stop.set()
    total = sum(await asyncio.gather(*writers))
    assert total > 0
    assert (await mediator.values(database, "products", "a") or {})["cost"] == 1 + total


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_changes_have_the_current_names(with_feed: Service, system: str) -> None:
    """Also changes before the rename: records agree with their histories."""
    database = await fill_database(with_feed, system)
    await rename(with_feed, database, system)
    await update(with_feed, database, "a", values={"unit_price": 8})
    integrity: Integrity = with_feed.mediator.integrity
    report = await integrity.check(database, 10_000)
    assert report.compared
    assert not report.counts, report.examples
    images = await _images(with_feed, database)
    assert {name for image in images for name in image} == {"name", "unit_price", "labels"}
    assert {image["unit_price"] for image in images if "unit_price" in image} == {1, 2, 3, 8}


async def _images(mediator: Service, database: str) -> list[dict[str, Any]]:
    """Return all images in the feed, unordered."""
    coordination = mediator.mediator.coordination
    assert coordination is not None
    database_id = mediator.mediator.data.model.databases[database].id
    images = []
    for partition in range(4):
        for _, change in await coordination.feed.read(database_id, partition, "0-0", 1000):
            images += [dict(image) for image in (change.before, change.after) if image]
    return images
