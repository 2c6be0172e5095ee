"""Fields that are renamed keep their values, on every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mediator.base.errors import Conflict, DataWouldMove, Invalid
from mediator.control.port import ChangeOptions
from mediator.model.filters import And, Compare, Comparison, Exists
from mediator.model.operations import Delete, Put, ReadModifyWrite, Update
from mediator.model.operators import Operator, OperatorCall
from mediator.model.query import Aggregate, Computation, Function, Join, OrderBy, Query
from mediator.routing.freshness import STRONG
from mediator.schema.overrides import Override
from mediator.schema.types import Values
from tests.process.control.renaming import (
    RENAME,
    SYSTEMS,
    classes,
    fill_database,
    query_ids,
    rename,
    update,
)
from tests.process.service import Service, field_on, unique


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_objects_have_the_new_names_without_being_written(
    mediator: Service, system: str
) -> None:
    database = await fill_database(mediator, system)
    before = await mediator.get(database, "products", "b")
    fragments = mediator.mediator.data.model.databases[database].classes["products"].fragments
    change = await rename(mediator, database, system)
    assert not change.moves
    after = await mediator.get(database, "products", "b")
    assert after.values == {"name": "b", "unit_price": 2, "labels": ["x"]}
    assert after.versions == before.versions
    assert after.schema_version == before.schema_version + 1
    route = mediator.mediator.data.model.databases[database].classes["products"]
    assert [f.stored_as for f in route.fragments] == [f.stored_as for f in fragments]
    for field in ("unit_price", "labels"):
        outcome = await mediator.get(database, "products", "b", (field,))
        assert outcome.values == {field: after.values[field]}


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_queries_use_the_new_names(mediator: Service, system: str) -> None:
    database = await fill_database(mediator, system)
    await rename(mediator, database, system)
    price = ("unit_price",)
    at_least = Compare(Comparison.GE, price, 2)
    assert await query_ids(mediator, database, filter=at_least, order=(OrderBy(price),)) == [
        "b",
        "c",
    ]
    both = And((at_least, Exists(("labels",)), Compare(Comparison.NE, ("name",), "c")))
    assert await query_ids(mediator, database, filter=both) == ["b"]
    assert await query_ids(mediator, database, order=(OrderBy(price, True),), limit=2) == ["c", "b"]
    aggregate = Aggregate(
        (), {"sum": Computation(Function.SUM, price), "n": Computation(Function.COUNT)}
    )
    query = Query(database, "products", filter=at_least, aggregate=aggregate, allow_scan=True)
    (row,) = (await mediator.mediator.data.query(query, STRONG)).rows
    assert row.computed == {"sum": 5, "n": 2}
    # As for a request that was parsed under the former schema.
    with pytest.raises(Conflict, match="no longer has the field price"):
        await mediator.get(database, "products", "a", ("price",))
    with pytest.raises(Conflict, match="no longer has the field price"):
        await query_ids(mediator, database, filter=Exists(("price",)))


@pytest.mark.parametrize("system", [*SYSTEMS, "all"])
async def test_writes_use_the_new_names(mediator: Service, system: str) -> None:
    database = await fill_database(mediator, system)
    await rename(mediator, database, system)
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
    for write in (
        Put(database, "products", "a", unique("op"), values={"price": 1}),
        Update(database, "products", "a", unique("op"), values={"price": 1}),
    ):
        with pytest.raises(Conflict, match="no longer has the field price"):
            await mediator.mediator.data.write(write)
    await mediator.mediator.data.write(Delete(database, "products", "b", unique("op")))
    await mediator.create(database, "products", "d", unit_price=7)
    assert await query_ids(
        mediator, database, filter=Compare(Comparison.GE, ("unit_price",), 0)
    ) == [
        "c",
        "d",
    ]


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_retry_is_answered_with_the_new_names(mediator: Service, system: str) -> None:
    database = await fill_database(mediator, system)
    call = OperatorCall("price", Operator.INC, 1)
    operation = Update(database, "products", "a", unique("op"), fingerprint="f", operators=(call,))
    await mediator.mediator.data.write(operation)
    await rename(mediator, database, system)
    result = await mediator.mediator.data.recall(operation)
    assert result is not None
    assert result.values == {"unit_price": 2}


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


async def test_former_names_can_be_reused(mediator: Service) -> None:
    """A field that reuses a former name has its own values."""
    database = await fill_database(mediator, "redis")
    control = mediator.mediator.control
    await rename(mediator, database, "redis")
    await rename(mediator, database, "redis", ChangeOptions(), price=field_on("redis", "integer"))
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


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_class_without_objects_gives_a_former_name_to_a_field_of_another_type(
    mediator: Service, system: str
) -> None:
    """One change drops the field with this stored name and adds another one."""
    database = await mediator.put_schema(classes(system))
    await rename(mediator, database, system)
    document = {"classes": classes(system, "name", "labels", price=field_on(system))}
    await mediator.mediator.control.set_schema(database, document)
    await mediator.create(database, "products", "a", price="one")
    assert await mediator.values(database, "products", "a") == {"price": "one"}


async def test_a_refused_drop_with_an_added_field_suggests_a_rename(
    mediator: Service,
) -> None:
    database = await fill_database(mediator, "mongo")
    with pytest.raises(DataWouldMove) as refused:
        await rename(mediator, database, "mongo", ChangeOptions())
    plan = {move["node"]: move["reason"] for move in refused.value.extra["plan"]}
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
    database = await fill_database(mediator, "redis")
    with pytest.raises(Invalid) as refused:
        await rename(mediator, database, "redis", ChangeOptions(rename=names))
    assert [location.pointer for location in refused.value.locations] == ["rename"]
    assert reason in refused.value.locations[0].detail


async def test_constraints_of_a_renamed_field_are_checked(mediator: Service) -> None:
    database = await fill_database(mediator, "redis")
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
    database = await fill_database(mediator, "redis")
    until = datetime.now(UTC) + timedelta(days=1)
    override = Override("redis", "until the audit", until)
    options = ChangeOptions(overrides={"products.price": override})
    control = mediator.mediator.control
    await control.set_schema(database, {"classes": classes("redis")}, options=options)
    change = await rename(mediator, database, "redis")
    assert change.overrides.keys() == {"products.unit_price"}
    assert change.placements["products.unit_price"]["kind"] == "overridden"


async def test_the_history_counts_renamed_fields(mediator: Service) -> None:
    database = await fill_database(mediator, "postgres")
    await rename(mediator, database, "postgres")
    (newest,) = await mediator.mediator.control.schema_revisions(database, None, 1)
    assert newest.changes == {"added": 0, "removed": 0, "changed": 0, "renamed": 2}
