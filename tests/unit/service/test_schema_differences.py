"""What two schemas differ in: every node and member, and nothing where they are equal."""

from __future__ import annotations

from typing import Any

from app.commands.schema_differences import differences
from mediator.schema.parse import parse_schema, schema_document

SHOP: dict[str, Any] = {
    "classes": {
        "products": {"fields": {"stock": {"type": "integer"}, "name": {"type": "string"}}},
        "carts": {"fields": {"items": {"type": "map", "items": "integer"}}},
    }
}


def complete(classes: dict[str, Any], **members: Any) -> dict[str, Any]:
    return schema_document(parse_schema("shop", {"classes": classes, **members}))


def shown(before: dict[str, Any] | None, after: dict[str, Any]) -> list[str]:
    return [str(each) for each in differences(before, after)]


def test_equal_schemas_do_not_differ() -> None:
    assert shown(complete(SHOP["classes"]), complete(SHOP["classes"])) == []


def test_nodes_that_come_and_go_are_named() -> None:
    products = SHOP["classes"]["products"]["fields"]
    after = complete(
        {
            "products": {"fields": {"name": products["name"], "price": {"type": "decimal"}}},
            "orders": {"fields": {"product": {"type": "reference", "to": "products"}}},
        }
    )
    assert shown(complete(SHOP["classes"]), after) == [
        "- products.stock",
        "- carts",
        "- carts.items",
        '+ products.price {"type":"decimal","group":"main"}',
        "+ orders",
        '+ orders.product {"type":"reference","to":"products","group":"main"}',
    ]


def test_members_that_change_are_shown_as_they_were_and_are() -> None:
    stock = {"type": "integer", "minimum": 0, "index": True}
    products = {"cache": {"max_ttl_s": 5}, "fields": {"name": {"type": "string"}, "stock": stock}}
    after = complete({"products": products, "carts": SHOP["classes"]["carts"]}, mode="entity")
    assert shown(complete(SHOP["classes"]), after) == [
        '~ the database mode: "mixed" → "entity"',
        "~ products cache.max_ttl_s: 600.0 → 5.0",
        "~ products.stock index: false → true",
        "~ products.stock minimum: none → 0",
    ]


def test_of_a_new_database_everything_is_added() -> None:
    found = differences(None, complete(SHOP["classes"]))
    assert {each.kind for each in found} == {"+"}
    nodes = ["", "products", "products.stock", "products.name", "carts", "carts.items"]
    assert [each.node for each in found] == nodes
