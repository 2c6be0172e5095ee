"""Objects, queries, batches and schemas in both Python clients."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx
import pytest

from portolan_client import (
    AdminClient,
    Aggregate,
    AlreadyExists,
    AsyncAdminClient,
    AsyncClient,
    Conflict,
    ConstraintViolated,
    Freshness,
    Invalid,
    Join,
    NotFound,
    Operation,
    PreconditionFailed,
    Read,
    ReverseJoin,
    SchemaRetired,
    field,
)
from tests.faults.conditions import WITHIN_S
from tests.faults.service import Service
from tests.process.clients.both import Kind, open_client
from tests.process.commands.shop import SHOP
from tests.process.service import unique

LAMP = {"name": "Lamp", "price": "30", "stock": 12}


async def test_an_object_is_put_read_changed_and_deleted(shop: AsyncClient) -> None:
    written = await shop.put("products", "lamp", LAMP)
    assert written.value == {"id": "lamp", **LAMP}
    read = await shop.get("products", "lamp")
    assert (read.value, read.etag) == (written.value, written.etag)
    assert (await shop.get("products", "lamp", fields=["stock", "name"])).value == {
        "id": "lamp",
        "name": "Lamp",
        "stock": 12,
    }
    patched = await shop.patch("products", "lamp", {"price": None})
    assert patched.value == {"id": "lamp"}
    operations = [{"op": "replace", "path": "/name", "value": "Lantern"}]
    assert (await shop.patch("products", "lamp", operations)).value == {
        "id": "lamp",
        "name": "Lantern",
    }
    assert (await shop.update("products", "lamp", {"stock": {"inc": -2}})).value == {
        "id": "lamp",
        "stock": 10,
    }
    assert (await shop.delete("products", "lamp")).value is None
    with pytest.raises(NotFound) as absent:
        await shop.get("products", "lamp")
    assert absent.value.kind == "not-found"


@pytest.mark.parametrize("id_", ["query", "a:b", "50%", "ä,ö", "+ ?&=#"])
async def test_every_id_has_an_address(shop: AsyncClient, id_: str) -> None:
    await shop.put("customers", id_, {"name": id_})
    assert (await shop.get("customers", id_)).value == {"id": id_, "name": id_}
    result = await shop.get_many("customers", [id_, "none", "c,d"], fields=["name"])
    assert result.items == [{"id": id_, "name": id_}]
    assert set(result.missing) == {"none", "c,d"}


async def test_the_service_chooses_an_id(shop: AsyncClient) -> None:
    created = await shop.create("customers", {"name": "Ada"})
    assert (await shop.get("customers", created.id)).value == created.value
    await shop.create("customers", {"id": "ben", "name": "Ben"})
    with pytest.raises(AlreadyExists):
        await shop.create("customers", {"id": "ben", "name": "Benjamin"})


async def test_patches_create_what_does_not_exist(shop: AsyncClient) -> None:
    with pytest.raises(NotFound):
        await shop.patch("customers", "ada", {"name": "Ada"})
    await shop.patch("customers", "ada", {"name": "Ada"}, upsert=True)
    written = await shop.patch("customers", "ada", {"name": "Augusta"}, upsert=True)
    assert written.value == {"id": "ada", "name": "Augusta"}
    operators: dict[str, dict[str, Any]] = {"name": {"set": "Lamp"}, "stock": {"inc": 3}}
    for stock in (3, 6):
        await shop.update("products", "lamp", operators, upsert=True)
        assert (await shop.get("products", "lamp")).value["stock"] == stock


async def test_writes_are_conditional(shop: AsyncClient) -> None:
    first = await shop.put("products", "lamp", LAMP, if_none_match="*")
    with pytest.raises(PreconditionFailed):
        await shop.put("products", "lamp", LAMP, if_none_match="*")
    second = await shop.patch("products", "lamp", {"price": "31"}, if_match=first.etag)
    assert second.etag is None  # a patch of one system does not know the version of the other
    for write in (
        shop.put("products", "lamp", LAMP, if_match=first.etag),
        shop.patch("products", "lamp", {"price": "1"}, if_match=first.etag),
        shop.update("products", "lamp", {"stock": {"inc": 1}}, if_match=first.etag),
        shop.delete("products", "lamp", if_match=first.etag),
    ):
        with pytest.raises(PreconditionFailed):
            await write
    assert (await shop.get("products", "lamp")).value == {"id": "lamp", **LAMP, "price": "31"}


async def test_a_known_object_is_not_transferred_again(shop: AsyncClient) -> None:
    await shop.put("customers", "ada", {"name": "Ada"})
    known = await shop.get("customers", "ada")
    assert await shop.get("customers", "ada", known=known) is known
    await shop.put("customers", "ada", {"name": "Augusta"})
    assert (await shop.get("customers", "ada", known=known)).value["name"] == "Augusta"
    with pytest.raises(ValueError, match="something else"):
        await shop.get("customers", "ben", known=known)


async def test_a_read_contains_the_write_whose_position_it_names(shop: AsyncClient) -> None:
    written = await shop.put("customers", "ada", {"name": "Ada"})
    bounded = Freshness("bounded", max_staleness_s=5, at_least=written.position)
    assert (await shop.get("customers", "ada", freshness=bounded)).value["name"] == "Ada"
    strong = Freshness("strong")
    assert len((await shop.get_many("customers", ["ada"], freshness=strong)).items) == 1
    assert len((await shop.query("customers", freshness=strong, allow_scan=True)).items) == 1
    with pytest.raises(Invalid) as refused:
        await shop.get("customers", "ada", freshness=Freshness(at_least="not a position"))
    assert refused.value.locations[0].pointer == "Prefer"


async def test_a_refusal_has_the_locations_of_the_mistakes(shop: AsyncClient) -> None:
    with pytest.raises(Invalid) as refused:
        await shop.put("products", "lamp", {"name": "Lamp", "stock": "many", "colour": "red"})
    assert {location.pointer for location in refused.value.locations} == {"/stock", "/colour"}
    assert refused.value.instance
    await shop.put("products", "lamp", {**LAMP, "stock": 0})
    with pytest.raises(Conflict) as broken:
        await shop.update("products", "lamp", {"stock": {"inc": -1}})
    assert broken.value.kind == "operator-refused"


async def fill_shop(shop: AsyncClient) -> None:
    products = [
        Operation.put("products", f"p{i}", {"name": f"P{i}", "price": Decimal(i), "stock": i % 3})
        for i in range(10)
    ]
    orders = [Operation.put("orders", "o1", {"customer": "ada"}), Operation.put("orders", "o2", {})]
    customers = [Operation.put("customers", "ada", {"name": "Ada"})]
    for result in await shop.batch([*products, *orders, *customers]):
        result.raise_for_problem()


async def test_objects_are_found_by_conditions(shop: AsyncClient) -> None:
    await fill_shop(shop)
    price, stock = field("price"), field("stock")
    condition = (
        (price >= Decimal(2)) & (price < Decimal(9)) & ~(stock == 0) & (field("name") != "P4")
    )
    page = await shop.query("products", where=condition, order=["-stock", "id"], fields=["stock"])
    assert page.items == [
        {"id": id_, "stock": number} for id_, number in (("p2", 2), ("p5", 2), ("p8", 2), ("p7", 1))
    ]
    for where, ids in (
        (price.between(Decimal(3), Decimal(4)) | (price > Decimal(8)), ["p3", "p4", "p9"]),
        (price.is_in([Decimal(1), Decimal(5)]) & price.exists(), ["p1", "p5"]),
        ((price <= Decimal(1)) & field("name").like("P%") & field("name").contains("1"), ["p1"]),
        ({"eq": ["id", "p6"]}, ["p6"]),
    ):
        matches = await shop.query(
            "products", where=where, order="price", fields=(), allow_scan=True
        )
        assert [item["id"] for item in matches.items] == ids


async def test_pages_are_read_on_demand(shop: AsyncClient) -> None:
    await fill_shop(shop)
    ids = [item["id"] async for item in shop.iterate("products", order="-price", limit=3)]
    assert ids == [f"p{i}" for i in reversed(range(10))]
    first = await shop.query("products", order="-price", limit=3)
    assert first.following is not None
    second = await shop.send(first.following)
    assert [item["id"] for item in second.items] == ids[3:6]
    by_cursor = await shop.query("products", order="-price", limit=3, after=first.next)
    assert by_cursor == second


async def test_objects_are_joined_and_grouped(shop: AsyncClient) -> None:
    await fill_shop(shop)
    join = Join("buyer", "customer", ["name"])
    page = await shop.query("orders", join=join, explain=True, allow_scan=True)
    buyers = {item["id"]: item["buyer"] for item in page.items}
    assert buyers == {"o1": {"id": "ada", "name": "Ada"}, "o2": None}
    assert page.explain is not None
    assert page.explain["joins"][0]["as"] == "buyer"
    orders = ReverseJoin("orders", "orders", "customer", order="-id", limit=3, fields=["id"])
    customers = await shop.query("customers", join=orders, allow_scan=True)
    orders_by_customer = {item["id"]: item["orders"] for item in customers.items}
    assert orders_by_customer["ada"] == [{"id": "o1"}]
    aggregate = Aggregate({"n": ("count", "*")}, group=["stock"], having=field("n") > 3)
    groups = await shop.query("products", aggregate=aggregate, allow_scan=True)
    assert groups.items == [{"stock": 0, "n": 4}]


async def test_operations_of_a_batch_succeed_and_fail_independently(shop: AsyncClient) -> None:
    written = await shop.put("customers", "ada", {"name": "Ada"})
    operations = [
        Operation.get("customers", "ada"),
        Operation.get("customers", "ada", if_none_match=written.etag),
        Operation.create("customers", {"name": "Ben"}),
        Operation.create("customers", {"name": "A"}, "ada"),
        Operation.put("products", "lamp", LAMP),
        Operation.update("products", "lamp", {"stock": {"inc": 1}}),
        Operation.patch("customers", "cy", {"name": "Cy"}),
        Operation.delete("customers", "ada", if_match=written.etag),
    ]
    results = await shop.batch(operations)
    statuses = [200, 304, 201, 409, 201, 200, 404, 204]
    assert [result.status for result in results] == statuses
    assert results[0].raise_for_problem().value == {"id": "ada", "name": "Ada"}
    with pytest.raises(AlreadyExists):
        results[3].raise_for_problem()
    assert isinstance(results[6].problem, NotFound)


async def test_values_are_encoded_by_their_types(started: Service, kind: Kind) -> None:
    types = {"at": "timestamp", "price": "decimal", "raw": "binary"}
    fields = {name: {"type": type_} for name, type_ in types.items()}
    tags = {"tags": {"type": "set", "items": "string"}}
    database = unique("typed")
    async with AsyncAdminClient(started.admin) as admin:
        await admin.put_schema(database, {"classes": {"things": {"fields": {**fields, **tags}}}})
    at = datetime(2026, 11, 27, 12, tzinfo=UTC)
    value = {"at": at, "price": Decimal("1.50"), "raw": b"\x00\xff", "tags": {"b", "a"}}
    async with open_client(kind, started.data, database) as client:
        written = await client.put("things", "t", value)
        assert written.value is not None
        assert datetime.fromisoformat(written.value.pop("at")) == at
        assert written.value == {"id": "t", "price": "1.5", "raw": "AP8=", "tags": ["a", "b"]}
        with pytest.raises(ValueError, match="no time zone"):
            await client.put("things", "t", {"at": at.replace(tzinfo=None)})


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_schema_is_put_read_and_dropped(started: Service, *, blocking: bool) -> None:
    database = unique("declared")

    async def call(name: str, *args: object, **options: object) -> object:
        if blocking:
            with AdminClient(started.admin) as admin:
                return await asyncio.to_thread(getattr(admin, name), *args, **options)
        async with AsyncAdminClient(started.admin) as async_admin:
            return await getattr(async_admin, name)(*args, **options)

    await call("put_schema", database, SHOP, dry_run=True)
    with pytest.raises(NotFound):
        await call("schema", database)
    put = await call("put_schema", database, SHOP, if_version=0)
    read = await call("schema", database)
    assert getattr(read, "version", None) == getattr(put, "version", 0) == 1
    assert "products.stock" in getattr(read, "placements", {})
    with pytest.raises(PreconditionFailed):
        await call("put_schema", database, SHOP, if_version=0)
    with pytest.raises(Invalid) as mistaken:
        await call("put_schema", database, {"classes": {"Shop": {}}})
    assert mistaken.value.locations
    async with AsyncClient(started.data, database) as shop:
        await shop.put("customers", "ada", {"name": "Ada"})
    bounded = {
        **SHOP["classes"],
        "customers": {"fields": {"name": {"type": "string", "max_length": 1}}},
    }
    with pytest.raises(ConstraintViolated) as violated:
        await call("put_schema", database, {"classes": bounded})
    assert violated.value.violations[0]["sample"] == ["ada"]
    remaining = {name: class_ for name, class_ in SHOP["classes"].items() if name != "customers"}
    del remaining["orders"]
    await call("put_schema", database, {"classes": remaining}, drop=["customers", "orders"])
    assert await call("drop_database", database) == {"products": 0}


async def test_a_read_is_a_value(shop: AsyncClient) -> None:
    await shop.put("customers", "ada", {"name": "Ada"})
    read = await shop.get("customers", "ada", fields=["name"])
    assert read == Read("customers", "ada", ("name",), {"id": "ada", "name": "Ada"}, read.etag)


async def test_objects_that_meet_a_condition_are_written(
    shop: AsyncClient,
) -> None:
    for number in range(4):
        product = {"name": f"n{number}", "price": str(number), "stock": number % 2}
        await shop.put("products", f"p{number}", product)
    cheap = field("price") < Decimal(3)
    preview = await shop.delete_where("products", cheap, dry_run=True)
    assert (preview.matched, preview.written, preview.sample) == (3, 0, ["p0", "p1", "p2"])
    patched = await shop.patch_where("products", cheap, {"name": "cheap"})
    assert (patched.matched, patched.written, patched.failed) == (3, 3, 0)
    updated = await shop.update_where("products", cheap, {"stock": {"inc": -1}})
    assert (updated.written, [problem["id"] for problem in updated.problems]) == (1, ["p0", "p2"])
    assert (
        await shop.delete_where("products", {"eq": ["name", "cheap"]}, allow_scan=True)
    ).written == 3
    assert (await shop.delete_where("products", "all")).written == 1
    assert (await shop.query("products")).items == []


async def test_an_object_is_written_by_a_unique_key(shop: AsyncClient) -> None:
    ada = {"email": "ada+x@example.org"}
    created = await shop.patch_by("accounts", ada, {"tenant": "t", "number": Decimal("1.50")})
    read = await shop.get("accounts", created.id)
    assert read.value == {"id": created.id, **ada, "tenant": "t", "number": "1.5"}
    key = {"tenant": "t", "number": Decimal("1.5")}
    for visits in (1, 2):
        written = await shop.update_by("accounts", key, {"visits": {"inc": 1}})
        assert (written.id, written.value) == (created.id, {"id": created.id, "visits": visits})
    with pytest.raises(Invalid):
        await shop.patch_by("accounts", {"tenant": "t"}, {"visits": 1})


async def test_a_client_is_pinned_to_a_version(
    started: Service, shop: AsyncClient, database: str, kind: Kind
) -> None:
    await shop.put("products", "lamp", LAMP)
    fields = {**SHOP["classes"]["products"]["fields"]}
    fields["unit_price"] = fields.pop("price")
    products = {**SHOP["classes"]["products"], "fields": fields}
    schema = {**SHOP, "classes": {**SHOP["classes"], "products": products}}
    url = f"{started.admin}/admin/v1/schemas/{database}"
    async with httpx.AsyncClient(timeout=WITHIN_S) as admin:
        rename = {"rename": "products.price:unit_price"}
        answer = await admin.put(url, json=schema, params=rename)
        assert answer.status_code == 200, answer.text
        async with open_client(kind, started.data, database, schema_version=1) as pinned:
            assert (await pinned.get("products", "lamp")).value == {"id": "lamp", **LAMP}
            await pinned.patch("products", "lamp", {"price": "31"})
            assert (await shop.get("products", "lamp")).value["unit_price"] == "31"
            body = {"retired_before": 2}
            await admin.put(f"{url}/pinned-versions", json=body)
            with pytest.raises(SchemaRetired) as gone:
                await pinned.get("products", "lamp")
    assert gone.value.present == 2
