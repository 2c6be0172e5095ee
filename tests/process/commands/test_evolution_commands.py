"""Schemas of classes in use: values are copied and moved, and a class is renamed."""

from __future__ import annotations

from copy import deepcopy

import orjson

from tests.process.commands.shop import SHOP, Shop

COPY = "orders.customer.name:customer_name"


async def test_a_value_is_moved_along_a_reference(shop: Shop) -> None:
    document = deepcopy(SHOP)
    orders = document["classes"]["orders"]["fields"]
    orders["customer_name"] = {"type": "string", "max_length": 10}
    apply = ("schema", "apply", shop.database, shop.file("shop.json", document), "--yes")
    await shop.run(*apply)
    await shop.put("customers", "ada", {"name": "Ada"})
    await shop.put("customers", "long", {"name": "A name that does not fit"})
    await shop.put("orders", "1", {"customer": "ada"})
    await shop.put("orders", "2", {"customer": "ada", "customer_name": "Countess"})
    await shop.put("orders", "3", {})
    command = ("schema", "copy", shop.database, COPY)
    preview = await shop.run(*command, "--dry-run")
    expected = ["get the value: 1, such as 1", "keep another value: 1", "have nothing to copy: 1"]
    assert preview.lines == [f"{COPY}: objects 3", *(f"- {line}" for line in expected)]

    await shop.put("orders", "4", {"customer": "nobody"})
    await shop.put("orders", "5", {"customer": "long"})
    refused = await shop.call(*command, "--yes", "--orphans", "keep")
    assert refused.exit_code == 1
    assert "a rule is needed, --conflicts" in refused.stderr
    assert "- would get a value that does not fit: 1, such as 5" in refused.lines
    unconfirmed = await shop.call(*command, "--orphans", "keep", "--conflicts", "null")
    assert unconfirmed.exit_code == 2
    assert "--yes is required" in unconfirmed.stderr
    result = await shop.run(*command, "--yes", "--orphans", "keep", "--conflicts", "null", "--json")
    counts = orjson.loads(result.stdout)
    assert (counts["objects"], counts["changed"], counts["conflicts"]) == (5, 1, 1)
    resumed = await shop.run(*command, "--orphans", "keep", "--after", "3")
    assert "- lead to an object that does not exist: 1, such as 4" in resumed.lines
    everything = await shop.run("query", shop.database, "orders", "--json")
    names = {order["id"]: order.get("customer_name", "") for order in everything.objects}
    assert names == {"1": "Ada", "2": "Countess", "3": "", "4": "", "5": None}

    del document["classes"]["customers"]["fields"]["name"]
    shop.file("shop.json", document)
    move = (*apply, "--move", COPY)
    refused = await shop.call(*move)
    assert refused.exit_code == 1
    violation = "/classes/customers/fields/name/move: 2 of 5, such as 2, 5"
    assert f"Objects that break {violation}" in refused.stdout
    await shop.run(*command, "--yes", "--overwrite", "--orphans", "keep", "--conflicts", "null")
    await shop.put("orders", "5", {"customer": "ada", "customer_name": "Ada"})
    move_preview = await shop.run(*move, "--dry-run")
    assert (
        "The field customers.name is dropped; objects that lose a value: 2." in move_preview.stdout
    )
    await shop.run(*move)
    schema = await shop.run("schema", "show", shop.database)
    assert orjson.loads(schema.stdout)["classes"]["customers"]["fields"] == {}


async def test_an_invalid_copy_is_reported(opened: Shop) -> None:
    refused = await opened.call("schema", "copy", opened.database, "orders.customer")
    assert refused.exit_code == 1
    assert "is written as class.source:target" in refused.stderr


async def test_a_class_gets_another_name_by_export_and_import(opened: Shop) -> None:
    """As in docs/schema.md, with a foreign key to the class."""
    document = deepcopy(SHOP)
    orders, customers = document["classes"]["orders"], document["classes"]["customers"]
    orders["fields"]["customer"] |= {"on_delete": "refuse", "index": True}
    document["classes"]["clients"] = customers
    apply = ("schema", "apply", opened.database, "--yes")
    await opened.run(*apply, opened.file("more.json", document))
    await opened.put("customers", "ada", {"name": "Ada"})
    await opened.put("orders", "1", {"customer": "ada"})
    saved = opened.path("customers.ndjson")
    await opened.run("export", opened.database, "customers", "--output", saved)
    await opened.run("import", opened.database, "clients", saved)
    del document["classes"]["customers"]
    orders["fields"]["customer"]["to"] = "clients"
    await opened.run(*apply, opened.file("less.json", document), "--drop", "customers")
    clients = await opened.run("query", opened.database, "clients", "--json")
    assert [(client["id"], client["name"]) for client in clients.objects] == [("ada", "Ada")]
    result = await opened.run("verify-references", opened.database)
    assert result.lines == ["orders.customer: objects 1; dangling 0"]
