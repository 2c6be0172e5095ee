"""Fields that are renamed keep their values, on every store, and whichever replica is behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from mediator.base.errors import Conflict, DataWouldMove, Invalid, MediatorError, Unavailable
from mediator.control import membership
from mediator.control.port import ChangeOptions, SchemaChange
from mediator.integrity.check import Integrity
from mediator.model.filters import And, Compare, Comparison, Exists
from mediator.model.operations import Delete, Put, ReadModifyWrite, Update
from mediator.model.operators import Operator, OperatorCall
from mediator.model.query import Aggregate, Computation, Function, Join, OrderBy, Query
from mediator.routing.freshness import STRONG
from mediator.schema.overrides import Override
from mediator.schema.types import Values
from mediator.stores.port import SystemConfig
from tests.process.service import (
    Service,
    field_on,
    service,
    unique,
)

SYSTEMS: Final = ("redis", "postgres", "mongo")
PRICES: Final = {"a": 1, "b": 2, "c": 3}


def fields(system: str, number: str, words: str, **more: Any) -> dict[str, Any]:
    """Return fields on one system, or on all three: a name, a number and a set of words."""
    groups = system == "all"
    on = dict.fromkeys(("name", "price", "tags"), system)
    if groups:
        on = {"name": "redis", "price": "postgres", "tags": "mongo"}
    members = {role: {"group": f"g_{role}"} if groups else {} for role in on}
    return {
        "name": field_on(on["name"], **members["name"]),
        number: field_on(on["price"], "integer", index=True, **members["price"]),
        words: field_on(on["tags"], "set", items="string", **members["tags"]),
        **more,
    }


def classes(system: str, number: str = "price", words: str = "tags", **more: Any) -> dict[str, Any]:
    return {"products": {"fields": fields(system, number, words, **more)}}


RENAME: Final = ChangeOptions(rename={"products": {"price": "unit_price", "tags": "labels"}})


async def renamed(
    of: Service, database: str, system: str, options: ChangeOptions = RENAME, **more: Any
) -> SchemaChange:
    document = {"classes": classes(system, "unit_price", "labels", **more)}
    return await of.mediator.control.set_schema(database, document, options=options)


async def filled(of: Service, system: str) -> str:
    database = await of.put_schema(classes(system))
    for id_, price in PRICES.items():
        await of.create(database, "products", id_, name=id_, price=price, tags=["x"])
    return database


async def found(of: Service, database: str, **members: Any) -> list[str]:
    query = Query(database, "products", allow_scan=True, **members)
    return [item.outcome.id for item in (await of.mediator.data.query(query, STRONG)).items]


async def update(of: Service, database: str, id_: str, *calls: OperatorCall, **of_: Any) -> None:
    await of.mediator.data.write(
        Update(database, "products", id_, unique("op"), operators=calls, **of_)
    )


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_objects_have_the_new_names_and_none_is_written(
    mediator: Service, system: str
) -> None:
    database = await filled(mediator, system)
    before = await mediator.get(database, "products", "b")
    fragments = mediator.mediator.data.model.databases[database].classes["products"].fragments
    change = await renamed(mediator, database, system)
    assert not change.moves
    after = await mediator.get(database, "products", "b")
    assert after.values == {"name": "b", "unit_price": 2, "labels": ["x"]}
    assert after.versions == before.versions
    assert after.schema_version == before.schema_version + 1
    route = mediator.mediator.data.model.databases[database].classes["products"]
    assert [f.stored_as for f in route.fragments] == [f.stored_as for f in fragments]
    for each in ("unit_price", "labels"):
        one = await mediator.get(database, "products", "b", (each,))
        assert one.values == {each: after.values[each]}


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_queries_go_by_the_new_names(mediator: Service, system: str) -> None:
    database = await filled(mediator, system)
    await renamed(mediator, database, system)
    price = ("unit_price",)
    atleast = Compare(Comparison.GE, price, 2)
    assert await found(mediator, database, filter=atleast, order=(OrderBy(price),)) == ["b", "c"]
    both = And((atleast, Exists(("labels",)), Compare(Comparison.NE, ("name",), "c")))
    assert await found(mediator, database, filter=both) == ["b"]
    assert await found(mediator, database, order=(OrderBy(price, True),), limit=2) == ["c", "b"]
    aggregate = Aggregate(
        (), {"sum": Computation(Function.SUM, price), "n": Computation(Function.COUNT)}
    )
    query = Query(database, "products", filter=atleast, aggregate=aggregate, allow_scan=True)
    (row,) = (await mediator.mediator.data.query(query, STRONG)).rows
    assert row.computed == {"sum": 5, "n": 2}
    # As of a request that was read under the former schema.
    with pytest.raises(Conflict, match="no field price any more"):
        await mediator.get(database, "products", "a", ("price",))
    with pytest.raises(Conflict, match="no field price any more"):
        await found(mediator, database, filter=Exists(("price",)))


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_writes_go_by_the_new_names(mediator: Service, system: str) -> None:
    database = await filled(mediator, system)
    await renamed(mediator, database, system)
    inc, add = (
        OperatorCall("unit_price", Operator.INC, 5),
        OperatorCall("labels", Operator.ADD_TO_SET, "y"),
    )
    await update(mediator, database, "a", inc, add)
    assert await mediator.values(database, "products", "a") == {
        "name": "a",
        "unit_price": 6,
        "labels": ["x", "y"],
    }
    await update(mediator, database, "a", values={"unit_price": None}, unset=("labels",))
    assert await mediator.values(database, "products", "a") == {"name": "a", "unit_price": None}
    new: Values = {"name": "n", "unit_price": 9, "labels": []}
    await mediator.mediator.data.write(Put(database, "products", "b", unique("op"), values=new))
    assert await mediator.values(database, "products", "b") == new
    await mediator.mediator.data.write(
        ReadModifyWrite(
            database,
            "products",
            "c",
            unique("op"),
            compute=lambda body: {**body, "unit_price": body["unit_price"] * 2},
        )
    )
    assert (await mediator.values(database, "products", "c") or {})["unit_price"] == 6
    for late in (
        Put(database, "products", "a", unique("op"), values={"price": 1}),
        Update(database, "products", "a", unique("op"), values={"price": 1}),
    ):
        with pytest.raises(Conflict, match="no field price any more"):
            await mediator.mediator.data.write(late)
    await mediator.mediator.data.write(Delete(database, "products", "b", unique("op")))
    await mediator.create(database, "products", "d", unit_price=7)
    assert await found(mediator, database, filter=Compare(Comparison.GE, ("unit_price",), 0)) == [
        "c",
        "d",
    ]


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_retry_is_answered_by_the_new_names(mediator: Service, system: str) -> None:
    database = await filled(mediator, system)
    call = OperatorCall("price", Operator.INC, 1)
    operation = Update(database, "products", "a", unique("op"), fingerprint="f", operators=(call,))
    await mediator.mediator.data.write(operation)
    await renamed(mediator, database, system)
    remembered = await mediator.mediator.data.recall(operation)
    assert remembered is not None
    assert remembered.values == {"unit_price": 2}


@pytest.mark.parametrize("system", SYSTEMS)
async def test_joins_follow_renamed_references(mediator: Service, system: str) -> None:
    def schema(reference: str, title: str) -> dict[str, Any]:
        return {
            "shops": {"fields": {title: field_on(system, index=True)}},
            "products": {
                "fields": {
                    reference: field_on(system, "reference", to="shops", index=True),
                    "price": field_on(system, "integer"),
                }
            },
        }

    database = await mediator.put_schema(schema("shop", "title"))
    await mediator.create(database, "shops", "s", title="corner")
    await mediator.create(database, "products", "p", shop="s", price=1)
    await mediator.mediator.control.set_schema(
        database,
        {"classes": schema("seller", "label")},
        options=ChangeOptions(rename={"products": {"shop": "seller"}, "shops": {"title": "label"}}),
    )
    query = Query(
        database,
        "products",
        filter=Compare(Comparison.EQ, ("s", "label"), "corner"),
        joins=(Join("s", ("seller",), "shops"),),
        allow_scan=True,
        as_documents=True,
    )
    result = await mediator.mediator.data.query(query, STRONG)
    (item,) = result.items
    assert item.outcome.values == {"seller": "s", "price": 1}
    joined = item.joined["s"]
    assert joined is not None
    assert joined.values == {"label": "corner"}


async def test_names_go_round(mediator: Service) -> None:
    """A name that has become free is that of another field, whose values are its own."""
    database = await filled(mediator, "redis")
    control = mediator.mediator.control
    await renamed(mediator, database, "redis")
    await renamed(mediator, database, "redis", ChangeOptions(), price=field_on("redis", "integer"))
    assert (await mediator.values(database, "products", "a") or {}).keys() == {
        "name",
        "unit_price",
        "labels",
    }
    await mediator.create(database, "products", "d", unit_price=4, price=40)
    document = {"classes": classes("redis", "price", "labels", cost=_integer())}
    with pytest.raises(Invalid, match="renamed"):
        await control.set_schema(
            database,
            document,
            options=ChangeOptions(rename={"products": {"price": "cost", "unit_price": "price"}}),
        )
    for names, schema in (
        ({"price": "cost"}, classes("redis", "unit_price", "labels", cost=_integer())),
        ({"unit_price": "price"}, classes("redis", "price", "labels", cost=_integer())),
    ):
        await control.set_schema(
            database, {"classes": schema}, options=ChangeOptions(rename={"products": names})
        )
    assert await mediator.values(database, "products", "d") == {"price": 4, "cost": 40}
    assert await mediator.values(database, "products", "a") == {
        "name": "a",
        "price": 1,
        "labels": ["x"],
    }


def _integer() -> dict[str, Any]:
    return field_on("redis", "integer")


async def test_a_field_that_goes_while_one_comes_may_be_meant_to_be_renamed(
    mediator: Service,
) -> None:
    database = await filled(mediator, "mongo")
    with pytest.raises(DataWouldMove) as refused:
        await renamed(mediator, database, "mongo", ChangeOptions())
    plan = {each["node"]: each["reason"] for each in refused.value.extra["plan"]}
    assert plan["products.price"].endswith("to rename it, pass rename=products.price:unit_price")
    assert plan["products.tags"].endswith("to rename it, pass rename=products.tags:labels")


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"products": {"prize": "unit_price"}}, 'no field products.prize; did you mean "price"?'),
        ({"products": {"name": "unit_price"}}, "products.name is in the new schema"),
        ({"products": {"price": "name"}}, "products.name is another field so far"),
        ({"products": {"price": "cost"}}, "products.cost is not in the new schema"),
        ({"goods": {"price": "unit_price"}}, "there is no class goods"),
        (
            {"products": {"price": "unit_price", "tags": "unit_price"}},
            "two fields of products would get one name",
        ),
    ],
)
async def test_renames_that_do_not_fit_are_refused(
    mediator: Service, names: dict[str, dict[str, str]], reason: str
) -> None:
    database = await filled(mediator, "redis")
    with pytest.raises(Invalid) as refused:
        await renamed(mediator, database, "redis", ChangeOptions(rename=names))
    assert [each.pointer for each in refused.value.locations] == ["rename"]
    assert reason in refused.value.locations[0].detail


async def test_constraints_of_a_renamed_field_are_checked(mediator: Service) -> None:
    database = await filled(mediator, "redis")
    document = {"classes": classes("redis", "unit_price", "labels")}
    document["classes"]["products"]["fields"]["unit_price"]["minimum"] = 2
    change = await mediator.mediator.control.set_schema(
        database, document, options=RENAME, dry_run=True
    )
    (violation,) = change.violations
    assert (violation["location"], violation["count"]) == (
        "/classes/products/fields/unit_price",
        1,
    )


async def test_a_renamed_field_keeps_its_override(mediator: Service) -> None:
    database = await filled(mediator, "redis")
    until = datetime.now(UTC) + timedelta(days=1)
    override = Override("redis", "until the audit", until)
    options = ChangeOptions(overrides={"products.price": override})
    control = mediator.mediator.control
    await control.set_schema(database, {"classes": classes("redis")}, options=options)
    change = await renamed(mediator, database, "redis")
    assert change.overrides.keys() == {"products.unit_price"}
    assert change.placements["products.unit_price"]["kind"] == "overridden"


async def test_the_history_says_what_was_renamed(mediator: Service) -> None:
    database = await filled(mediator, "postgres")
    await renamed(mediator, database, "postgres")
    (newest,) = await mediator.mediator.control.schema_revisions(database, None, 1)
    assert newest.changes == {"added": 0, "removed": 0, "changed": 0, "renamed": 2}


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
