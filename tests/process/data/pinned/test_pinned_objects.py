"""Requests that are pinned to a version of the schema: objects, one and many."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from mediator.base.errors import Conflict
from mediator.data_plane.pinned_plane import PinnedPlane
from mediator.model.operations import Get, Put, ReadModifyWrite, Update, WriteOperation
from mediator.model.operators import Operator, OperatorCall
from mediator.model.query import Query
from mediator.operations.json_patch import parse_json_patch
from mediator.schema.documents import merge_patch
from mediator.transactions.model import CommitRequest
from tests.process.caching.newspaper import assert_problem
from tests.process.data.pinned.shop import Shop, goods
from tests.process.service import Service, field_on, unique


@pytest.fixture
def shop(mediator: Service) -> Shop:
    return Shop.of(mediator)


async def rename_price(shop: Shop) -> None:
    """Create version 1 with `price`, and version 2 in which it is called `cost`."""
    assert await shop.change(goods("price", "stock")) == 1
    await shop.send("PUT", "goods/a", json={"price": 5, "stock": 1})
    assert await shop.change(goods("cost", "stock"), "goods.price:cost") == 2


async def test_a_pinned_client_goes_on_using_the_names_of_its_version(shop: Shop) -> None:
    await rename_price(shop)
    assert await shop.shown("goods/a") == {"id": "a", "cost": 5, "stock": 1}
    assert await shop.shown("goods/a", 1) == {"id": "a", "price": 5, "stock": 1}
    assert await shop.shown("goods/a", 2) == {"id": "a", "cost": 5, "stock": 1}
    assert await shop.shown("goods/a?fields=price", 1) == {"id": "a", "price": 5}
    unknown = await shop.send("GET", "goods/a?fields=cost", 1)
    assert_problem(unknown, 400, "invalid")
    assert unknown.json()["errors"][0]["pointer"] == "fields"


@pytest.mark.parametrize(
    ("method", "type_", "body", "expected"),
    [
        ("PUT", "application/json", {"price": 7, "stock": 2}, {"cost": 7, "stock": 2}),
        ("PUT", "application/json", {"price": 7}, {"cost": 7}),
        ("PATCH", "application/merge-patch+json", {"price": 7}, {"cost": 7, "stock": 1}),
        ("PATCH", "application/merge-patch+json", {"price": None}, {"cost": None, "stock": 1}),
        (
            "PATCH",
            "application/json-patch+json",
            [{"op": "replace", "path": "/price", "value": 7}, {"op": "remove", "path": "/stock"}],
            {"cost": 7},
        ),
        (
            "PATCH",
            "application/vnd.portolan.update+json",
            {"price": {"inc": 2}, "stock": {"unset": True}},
            {"cost": 7},
        ),
    ],
)
async def test_writes_of_a_pinned_client_change_the_present_object(
    shop: Shop, method: str, type_: str, body: Any, expected: dict[str, Any]
) -> None:
    await rename_price(shop)
    headers = {"content-type": type_}
    answer = await shop.send(method, "goods/a", 1, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert "cost" not in answer.json()
    assert answer.headers["portolan-schema"] == "1"
    present = await shop.shown("goods/a")
    assert {name: value for name, value in present.items() if value is not None} == {
        "id": "a",
        **{name: value for name, value in expected.items() if value is not None},
    }


async def test_errors_have_the_clients_names_of_fields(shop: Shop) -> None:
    await shop.change(goods("price", "stock"))
    await shop.send("PUT", "goods/a", json={"price": 2**63 - 1})
    await shop.change(goods("cost", "stock"), "goods.price:cost")
    update = {"content-type": "application/vnd.portolan.update+json"}
    overflow = await shop.send("PATCH", "goods/a", 1, json={"price": {"inc": 1}}, headers=update)
    assert_problem(overflow, 409, "operator-refused")
    assert overflow.json()["errors"][0]["pointer"] == "/price"
    steps = [{"op": "add", "path": "/price", "value": "much"}]
    patch = {"content-type": "application/json-patch+json"}
    wrong = await shop.send("PATCH", "goods/a", 1, json=steps, headers=patch)
    assert_problem(wrong, 400, "invalid")
    assert wrong.json()["errors"][0]["pointer"] == "/price"
    unknown = [{"op": "add", "path": "/cost", "value": 1}]
    refused = await shop.send("PATCH", "goods/a", 1, json=unknown, headers=patch)
    assert_problem(refused, 400, "invalid")
    assert refused.json()["errors"][0]["pointer"] == "/cost"


async def test_names_are_followed_through_chains_swaps_and_fields_of_the_same_name(
    shop: Shop,
) -> None:
    await shop.change(goods("a", "b", "c"))
    await shop.send("PUT", "goods/x", json={"a": 1, "b": 2, "c": 3})
    for fields, rename in [
        (("t", "b", "c"), "goods.a:t"),
        (("t", "a", "c"), "goods.b:a"),
        (("b", "a", "c"), "goods.t:b"),
    ]:
        await shop.change(goods(*fields), rename)
    assert await shop.shown("goods/x") == {"id": "x", "a": 2, "b": 1, "c": 3}
    assert await shop.shown("goods/x", 1) == {"id": "x", "a": 1, "b": 2, "c": 3}
    assert await shop.shown("goods/x", 3) == {"id": "x", "t": 1, "a": 2, "c": 3}
    await shop.change(goods("a", "b"), drop=("goods.c",))
    version = await shop.change(goods("a", "b", "c"))
    await shop.send("PATCH", "goods/x", json={"c": 30})
    assert await shop.shown("goods/x", 1) == {"id": "x", "a": 1, "b": 2}
    assert await shop.shown("goods/x", version) == {"id": "x", "a": 2, "b": 1, "c": 30}
    refused = await shop.send("PATCH", "goods/x", 1, json={"c": 4})
    assert_problem(refused, 400, "invalid")
    assert refused.json()["errors"][0]["pointer"] == "/c"
    assert (await shop.shown("goods/x"))["c"] == 30


async def test_a_class_that_was_dropped_and_recreated_is_another(shop: Shop) -> None:
    await shop.change(goods("price"))
    await shop.send("PUT", "goods/a", json={"price": 5})
    await shop.change({}, drop=("goods",))
    new_version = await shop.change(goods("price"))
    await shop.send("PUT", "goods/b", json={"price": 6})
    assert_problem(await shop.send("GET", "goods/b", 1), 404, "not-found")
    assert await shop.shown("goods/b", new_version) == {"id": "b", "price": 6}
    gets = {"operations": [{"op": "get", "class": "goods", "id": "b"}]}
    batch = await shop.send("POST", "batch", 1, json=gets)
    assert [item["status"] for item in batch.json()] == [404]


async def test_a_put_keeps_fields_that_its_version_lacks(shop: Shop) -> None:
    await shop.change(goods("price", "stock"))
    await shop.change(goods("cost", "stock", "size"), "goods.price:cost")
    await shop.send("PUT", "goods/a", json={"cost": 1, "stock": 2, "size": 3})
    answer = await shop.send("PUT", "goods/a", 1, json={"price": 5})
    assert (answer.status_code, answer.json()) == (200, {"id": "a", "price": 5})
    assert await shop.shown("goods/a") == {"id": "a", "cost": 5, "size": 3}
    created = await shop.send("PUT", "goods/b", 1, json={"price": 6})
    assert created.status_code == 201, created.text
    assert await shop.shown("goods/b") == {"id": "b", "cost": 6}
    only_new = await shop.send("PUT", "goods/b", 1, json={}, headers={"if-none-match": "*"})
    assert_problem(only_new, 412, "precondition-failed")
    steps = [{"op": "put", "class": "goods", "id": id_, "body": {"price": 8}} for id_ in ("a", "c")]
    after = {"op": "patch", "class": "goods", "id": "c", "body": {"stock": 9}}
    batch = await shop.send("POST", "batch", 1, json={"operations": [*steps, after]})
    assert [item["status"] for item in batch.json()] == [200, 201, 200], batch.text
    assert await shop.shown("goods/a") == {"id": "a", "cost": 8, "size": 3}
    assert await shop.shown("goods/c") == {"id": "c", "cost": 8, "stock": 9}


async def test_new_objects_get_the_defaults_of_fields_that_were_added(shop: Shop) -> None:
    await shop.change(goods("price"))
    sizes = {"type": "integer", "required": True, "default": 3}
    at = {"type": "timestamp", "updated": True}
    await shop.change(goods("price", size=sizes, at=at))
    created = await shop.send("POST", "goods", 1, json={"id": "a", "price": 5})
    assert created.json() == {"id": "a", "price": 5}
    first = await shop.shown("goods/a")
    assert first["size"] == 3
    await shop.send("PATCH", "goods/a", 1, json={"price": 6})
    assert (await shop.shown("goods/a"))["at"] > first["at"]


async def test_nothing_is_created_without_fields_that_are_required_now(shop: Shop) -> None:
    await shop.change(goods("price"))
    await shop.change(goods("price", size={"type": "integer", "required": True}))
    await shop.send("PUT", "goods/a", json={"price": 1, "size": 2})
    for method, path, body in [
        ("POST", "goods", {"price": 5}),
        ("PUT", "goods/b", {"price": 5}),
    ]:
        refused = await shop.send(method, path, 1, json=body)
        assert_problem(refused, 409, "conflict")
        assert refused.json()["errors"] == [
            {"pointer": "/size", "detail": "is required, and version 1 does not have it"}
        ]
    creation = {"operations": [{"op": "create", "class": "goods", "body": {"price": 5}}]}
    batch = await shop.send("POST", "batch", 1, json=creation)
    assert [item["status"] for item in batch.json()] == [409]
    assert (await shop.send("PUT", "goods/a", 1, json={"price": 5})).status_code == 200
    assert await shop.shown("goods/a") == {"id": "a", "price": 5, "size": 2}


async def test_an_object_over_several_systems(shop: Shop) -> None:
    await shop.service.favour()
    before = {"title": field_on("postgres"), "hits": field_on("redis", "integer", group="hits")}
    await shop.change({"goods": {"fields": before}})
    await shop.send("PUT", "goods/a", json={"title": "x", "hits": 1})
    after = {
        "name": field_on("postgres"),
        "hits": field_on("redis", "integer", group="hits"),
        "note": field_on("mongo", group="note"),
    }
    await shop.change({"goods": {"fields": after}}, "goods.title:name")
    await shop.send("PATCH", "goods/a", json={"note": "kept"})
    read = await shop.send("GET", "goods/a", 1)
    assert read.json() == {"id": "a", "hits": 1, "title": "x"}
    put = await shop.send(
        "PUT", "goods/a", 1, json={"title": "y"}, headers={"if-match": read.headers["etag"]}
    )
    assert put.status_code == 200, put.text
    assert await shop.shown("goods/a") == {"id": "a", "name": "y", "note": "kept"}


async def test_a_transaction_has_the_names_of_its_version(shop: Shop) -> None:
    await shop.change(goods("price", "stock"))
    await shop.change(goods("cost", "stock", "size"), "goods.price:cost")
    await shop.send("PUT", "goods/a", json={"cost": 1, "size": 3})
    tag = (await shop.send("GET", "goods/a", 1)).headers["etag"]
    operations = [
        {"op": "put", "class": "goods", "id": "a", "body": {"price": 5}},
        {"op": "put", "class": "goods", "id": "b", "body": {"price": 6}},
        {"op": "create", "class": "goods", "body": {"id": "c", "price": 7}},
    ]
    body = {"reads": [{"class": "goods", "id": "a", "etag": tag}], "operations": operations}
    answer = await shop.send("POST", "transactions", 1, json=body)
    assert answer.status_code == 200, answer.text
    assert [item["body"]["price"] for item in answer.json()["results"]] == [5, 6, 7]
    assert await shop.shown("goods/a") == {"id": "a", "cost": 5, "size": 3}
    assert await shop.shown("goods/b") == {"id": "b", "cost": 6}
    stale = {**body, "operations": operations[:1]}
    repeated = await shop.send("POST", "transactions", 1, json=stale)
    assert_problem(repeated, 409, "transaction-aborted")


async def test_a_key_repeats_only_the_request_of_the_same_version(shop: Shop) -> None:
    await shop.change(goods("a", "b"))
    for fields, rename in [(("t", "b"), "a:t"), (("t", "a"), "b:a"), (("b", "a"), "t:b")]:
        await shop.change(goods(*fields), f"goods.{rename}")
    key = {"idempotency-key": '"once"'}
    first = await shop.send("PUT", "goods/x", 1, json={"a": 1}, headers=key)
    assert first.status_code == 201, first.text
    repeated = await shop.send("PUT", "goods/x", 1, json={"a": 1}, headers=key)
    assert repeated.json() == first.json()
    assert repeated.headers["idempotency-replayed"] == "true"
    other = await shop.send("PUT", "goods/x", json={"a": 1}, headers=key)
    assert_problem(other, 422, "idempotency-key-reused")
    assert await shop.shown("goods/x") == {"id": "x", "b": 1}


async def test_a_key_repeats_no_write_by_conditions_of_another_version(shop: Shop) -> None:
    await rename_price(shop)
    assert await shop.change(goods("cost", "stock", "price")) == 3
    key, body = {"idempotency-key": "once"}, {"price": 7}
    first = await shop.send("PATCH", "goods?stock=1", 1, json=body, headers=key)
    assert first.json()["written"] == 1, first.text
    # The name stands for another field now.
    other = await shop.send("PATCH", "goods?stock=1", json=body, headers=key)
    assert other.json()["problems"][0]["type"] == "/problems/idempotency-key-reused", other.text
    repeated = await shop.send("PATCH", "goods?stock=1", 1, json=body, headers=key)
    assert (repeated.json()["written"], repeated.json()["failed"]) == (1, 0)
    assert await shop.shown("goods/a") == {"id": "a", "cost": 7, "stock": 1}


async def test_a_key_repeats_no_line_of_an_import_of_another_version(shop: Shop) -> None:
    await rename_price(shop)
    assert await shop.change(goods("cost", "stock", "price")) == 3
    headers = {"idempotency-key": "once", "content-type": "application/x-ndjson"}
    line: dict[str, Any] = {"content": b'{"id": "b", "price": 7}\n', "headers": headers}
    first = await shop.send("POST", "goods/import", 1, **line)
    assert first.json()["imported"] == 1, first.text
    other = await shop.send("POST", "goods/import", **line)
    assert other.json()["problems"][0]["type"] == "/problems/idempotency-key-reused", other.text
    assert await shop.shown("goods/b") == {"id": "b", "cost": 7}


async def test_import_and_export_have_the_names_of_the_version(shop: Shop) -> None:
    await shop.change(goods("price"))
    await shop.change(goods("cost", "size"), "goods.price:cost")
    await shop.send("PUT", "goods/a", json={"cost": 1, "size": 3})
    ndjson = {"content-type": "application/x-ndjson"}
    lines = b'{"id":"a","price":5}\n{"id":"b","price":6}\n'
    answer = await shop.send("POST", "goods/import", 1, content=lines, headers=ndjson)
    assert answer.json()["imported"] == 2, answer.text
    assert await shop.shown("goods/a") == {"id": "a", "cost": 5, "size": 3}
    assert (await shop.send("GET", "goods/export", 1)).content == lines


async def test_a_pinned_import_may_refer_to_later_lines(shop: Shop) -> None:
    """It may, as any import, also in an existing object with a field that the version lacks."""
    key = {"type": "reference", "to": "goods", "on_delete": "refuse", "index": True}
    await shop.change(goods("price", part_of=key))
    await shop.change(goods("price", "size", part_of=key))
    await shop.send("PUT", "goods/a", json={"price": 1, "size": 3})
    ndjson = {"content-type": "application/x-ndjson"}
    lines = b'{"id":"a","part_of":"later","price":5}\n{"id":"b","part_of":"later","price":6}\n'
    answer = await shop.send("POST", "goods/import", 1, content=lines, headers=ndjson)
    assert answer.json()["imported"] == 2, answer.text
    assert await shop.shown("goods/a") == {"id": "a", "part_of": "later", "price": 5, "size": 3}
    dangling = await shop.send("PUT", "goods/a", 1, json={"part_of": "nobody"})
    assert_problem(dangling, 409, "dangling-reference")


async def test_what_is_read_by_a_newer_schema_is_not_shown_without_its_fields(shop: Shop) -> None:
    await rename_price(shop)
    mediator = shop.service.mediator
    stale = PinnedPlane(mediator.data, await mediator.former_schemas.find(shop.database, 1))
    await shop.change(goods("fee", "stock"), "goods.cost:fee")
    get = Get(shop.database, "goods", "a")
    with pytest.raises(Conflict):
        await stale.read(get)
    [answer] = await stale.batch([get])
    assert isinstance(answer, Conflict)
    with pytest.raises(Conflict):
        await stale.query(Query(shop.database, "goods"))
    assert await shop.shown("goods/a", 1) == {"id": "a", "price": 5, "stock": 1}


def stale_writes(database: str) -> dict[str, WriteOperation]:
    """Return writes of each kind by the names of version 1, one of which was renamed since."""
    head = (database, "goods", "a", unique("op"))
    patch = parse_json_patch([{"op": "replace", "path": "/stock", "value": 2}])
    merge = partial(merge_patch, patch={"stock": 2, "more": {"x": 2}})
    return {
        "JSON Patch": ReadModifyWrite(*head, compute=patch),
        "merge patch": ReadModifyWrite(*head, compute=merge),
        "update": Update(*head, values={"price": 2}),
        "operator": Update(*head, operators=(OperatorCall("price", Operator.INC, 1),)),
        "put": Put(*head, values={"price": 2, "stock": 2}),
    }


@pytest.mark.parametrize("kind", stale_writes(""))
@pytest.mark.parametrize("added", ["a field", "a name"])
async def test_writes_by_a_former_schema_remove_nothing_of_a_newer_one(
    shop: Shop, kind: str, added: str
) -> None:
    """The schema is changed, and another client writes, while the request is under way."""
    more = {"more": {"type": "document"}}
    assert await shop.change(goods("price", "stock", **more)) == 1
    await shop.send("PUT", "goods/a", json={"price": 5, "stock": 1, "more": {"x": 1}})
    await shop.change(goods("cost", "stock", **more), "goods.price:cost")
    mediator = shop.service.mediator
    stale = PinnedPlane(mediator.data, await mediator.former_schemas.find(shop.database, 1))
    if added == "a name":
        await shop.change(goods("fee", "stock", **more), "goods.cost:fee")
        present = {"id": "a", "fee": 5, "stock": 1, "more": {"x": 1}}
    else:
        await shop.change(goods("cost", "stock", "size", **more))
        assert (await shop.send("PATCH", "goods/a", json={"size": 3})).status_code == 200
        present = {"id": "a", "cost": 5, "stock": 1, "more": {"x": 1}, "size": 3}
    write = stale_writes(shop.database)[kind]
    if added == "a field" and isinstance(write, Update):
        await stale.write(write)
        assert (await shop.shown("goods/a"))["size"] == 3
        return
    with pytest.raises(Conflict):
        await stale.write(write)
    [answer] = await stale.batch([write])
    assert isinstance(answer, Conflict)
    transact = stale.transact(mediator.transactions.run)
    with pytest.raises(Conflict):
        await transact(CommitRequest(shop.database, unique("tx"), (), (write,)))
    assert await shop.shown("goods/a") == present


@pytest.mark.usefixtures("patient")
async def test_puts_at_the_same_time_create_one_object(shop: Shop) -> None:
    await shop.change(goods("price"))
    await shop.change(goods("price", "size"))
    puts = [shop.send("PUT", "goods/a", 1, json={"price": n}) for n in range(8)]
    answers = await asyncio.gather(*puts)
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]


async def test_constraints_and_indexes_of_several_fields_hold_under_former_names(
    shop: Shop,
) -> None:
    rules = {"unique": [["price", "stock"]], "indexes": [{"fields": ["price", "stock"]}]}
    await shop.change({"goods": {**goods("price", "stock")["goods"], **rules}})
    await shop.send("PUT", "goods/a", json={"price": 5, "stock": 1})
    renamed_rules = {"unique": [["cost", "stock"]], "indexes": [{"fields": ["cost", "stock"]}]}
    after = {"goods": {**goods("cost", "stock", "size")["goods"], **renamed_rules}}
    await shop.change(after, "goods.price:cost")
    duplicate = await shop.send("POST", "goods", 1, json={"price": 5, "stock": 1})
    assert_problem(duplicate, 409, "not-unique")
    assert [item["pointer"] for item in duplicate.json()["errors"]] == ["/price", "/stock"]
    page = await shop.shown("goods?price=5&stock=1", 1)
    assert page["items"] == [{"id": "a", "price": 5, "stock": 1}]
    path = "goods?price=6&stock=2&upsert=true"
    for status in (201, 200):
        upserted = await shop.send("PATCH", path, 1, json={})
        assert upserted.status_code == status, upserted.text
    items = (await shop.shown("goods?cost=6"))["items"]
    assert [(item["cost"], item["stock"]) for item in items] == [(6, 2)]


async def test_operators_change_no_values_that_are_unique_with_hidden_ones(shop: Shop) -> None:
    await shop.change(goods("slot", "seats"))
    await shop.send("PUT", "goods/a", json={"slot": 1, "seats": 1})
    mediator = shop.service.mediator
    stale = PinnedPlane(mediator.data, await mediator.former_schemas.find(shop.database, 1))
    rules = {"unique": [["room", "slot"]]}
    await shop.change({"goods": {**goods("slot", "seats", "room")["goods"], **rules}})
    await shop.send("PATCH", "goods/a", json={"room": 7})
    update = {"content-type": "application/vnd.portolan.update+json"}
    refused = await shop.send("PATCH", "goods/a", 1, json={"slot": {"inc": 1}}, headers=update)
    assert_problem(refused, 400, "invalid")
    assert [item["pointer"] for item in refused.json()["errors"]] == ["/slot/inc"]
    operators = (OperatorCall("slot", Operator.INC, 1),)
    stale_update = Update(shop.database, "goods", "a", unique("op"), operators=operators)
    with pytest.raises(Conflict):
        await stale.write(stale_update)
    allowed = {"slot": {"set": 2}, "seats": {"inc": 1}}
    answer = await shop.send("PATCH", "goods/a", 1, json=allowed, headers=update)
    assert answer.status_code == 200, answer.text
    assert await shop.shown("goods/a") == {"id": "a", "slot": 2, "seats": 2, "room": 7}
    twin = await shop.send("POST", "goods", json={"slot": 2, "room": 7})
    assert_problem(twin, 409, "not-unique")
    assert (await shop.send("POST", "goods", json={"slot": 1, "room": 7})).status_code == 201
