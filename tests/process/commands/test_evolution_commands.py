"""Schemas of classes in use: values that are copied and moved, and a class under another name."""

from __future__ import annotations

from copy import deepcopy

import orjson

from tests.process.commands.shop import SHOP, Shop

ALONG = "orders.customer.name:customer_name"


async def test_a_value_is_moved_along_a_reference(shop: Shop) -> None:
    document = deepcopy(SHOP)
    orders = document["classes"]["orders"]["fields"]
    orders["customer_name"] = {"type": "string", "max_length": 10}
    apply = ("schema", "apply", shop.database, shop.file("shop.json", document), "--yes")
    await shop.done(*apply)
    await shop.put("customers", "ada", {"name": "Ada"})
    await shop.put("customers", "long", {"name": "A name that does not fit"})
    await shop.put("orders", "1", {"customer": "ada"})
    await shop.put("orders", "2", {"customer": "ada", "customer_name": "Countess"})
    await shop.put("orders", "3", {})
    of = ("schema", "copy", shop.database, ALONG)
    seen = await shop.done(*of, "--dry-run")
    expected = ["get the value: 1, such as 1", "keep another value: 1", "have nothing to copy: 1"]
    assert seen.lines == [f"{ALONG}: objects 3", *(f"- {line}" for line in expected)]

    await shop.put("orders", "4", {"customer": "nobody"})
    await shop.put("orders", "5", {"customer": "long"})
    refused = await shop.call(*of, "--yes", "--orphans", "keep")
    assert refused.exit_code == 1
    assert "a rule is needed, --conflicts" in refused.stderr
    assert "- would get a value that does not fit: 1, such as 5" in refused.lines
    careful = await shop.call(*of, "--orphans", "keep", "--conflicts", "null")
    assert careful.exit_code == 2
    assert "--yes is required" in careful.stderr
    done = await shop.done(*of, "--yes", "--orphans", "keep", "--conflicts", "null", "--json")
    counts = orjson.loads(done.stdout)
    assert (counts["objects"], counts["changed"], counts["conflicts"]) == (5, 1, 1)
    again = await shop.done(*of, "--orphans", "keep", "--after", "3")
    assert "- lead to an object that does not exist: 1, such as 4" in again.lines
    everything = await shop.done("query", shop.database, "orders", "--json")
    names = {each["id"]: each.get("customer_name", "") for each in everything.objects}
    assert names == {"1": "Ada", "2": "Countess", "3": "", "4": "", "5": None}

    del document["classes"]["customers"]["fields"]["name"]
    shop.file("shop.json", document)
    move = (*apply, "--move", ALONG)
    refused = await shop.call(*move)
    assert refused.exit_code == 1
    broken = "/classes/customers/fields/name/move: 2 of 5, such as 2, 5"
    assert f"Objects that break {broken}" in refused.stdout
    await shop.done(*of, "--yes", "--overwrite", "--orphans", "keep", "--conflicts", "null")
    await shop.put("orders", "5", {"customer": "ada", "customer_name": "Ada"})
    dry = await shop.done(*move, "--dry-run")
    assert "The field customers.name is dropped; objects that lose a value: 2." in dry.stdout
    await shop.done(*move)
    shown = await shop.done("schema", "show", shop.database)
    assert orjson.loads(shown.stdout)["classes"]["customers"]["fields"] == {}


async def test_what_cannot_be_copied_is_said(opened: Shop) -> None:
    refused = await opened.call("schema", "copy", opened.database, "orders.customer")
    assert refused.exit_code == 1
    assert "is written as class.source:target" in refused.stderr


async def test_a_class_gets_another_name_by_export_and_import(opened: Shop) -> None:
    """As docs/schema.md says, with a foreign key that leads to it."""
    document = deepcopy(SHOP)
    orders, customers = document["classes"]["orders"], document["classes"]["customers"]
    orders["fields"]["customer"] |= {"on_delete": "refuse", "index": True}
    document["classes"]["clients"] = customers
    apply = ("schema", "apply", opened.database, "--yes")
    await opened.done(*apply, opened.file("more.json", document))
    await opened.put("customers", "ada", {"name": "Ada"})
    await opened.put("orders", "1", {"customer": "ada"})
    saved = opened.path("customers.ndjson")
    await opened.done("export", opened.database, "customers", "--output", saved)
    await opened.done("import", opened.database, "clients", saved)
    del document["classes"]["customers"]
    orders["fields"]["customer"]["to"] = "clients"
    await opened.done(*apply, opened.file("less.json", document), "--drop", "customers")
    found = await opened.done("query", opened.database, "clients", "--json")
    assert [(each["id"], each["name"]) for each in found.objects] == [("ada", "Ada")]
    verified = await opened.done("verify-references", opened.database)
    assert verified.lines == ["orders.customer: objects 1; dangling 0"]
