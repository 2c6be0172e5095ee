"""`portolan schema copy`: counts first, asks, and copies what rules allow."""

from __future__ import annotations

from typing import Any

import orjson

from tests.process.commands.shop import SHOP, Shop

ALONG = "orders.customer.name:customer_name"


async def test_a_value_is_moved_along_a_reference(shop: Shop) -> None:
    orders = SHOP["classes"]["orders"]["fields"]
    named: dict[str, Any] = {**orders, "customer_name": {"type": "string", "max_length": 10}}
    document = {"classes": {**SHOP["classes"], "orders": {"fields": named}}}
    apply = ("schema", "apply", shop.database, shop.file("shop.json", document), "--yes")
    await shop.done(*apply)
    await shop.put("customers", "ada", {"name": "Ada"})
    await shop.put("customers", "long", {"name": "A name that does not fit"})
    await shop.put("orders", "1", {"customer": "ada"})
    await shop.put("orders", "2", {"customer": "ada", "customer_name": "Countess"})
    await shop.put("orders", "3", {})
    of = ("schema", "copy", shop.database, ALONG)
    seen = await shop.done(*of, "--dry-run")
    expected = ["get the value: 1", "keep another value: 1", "have nothing to copy: 1"]
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
    moved = await shop.done(*apply, "--drop", "customers.name")
    assert "objects that lose a value: 2" in moved.stdout


async def test_what_cannot_be_copied_is_said(opened: Shop) -> None:
    refused = await opened.call("schema", "copy", opened.database, "orders.customer")
    assert refused.exit_code == 1
    assert "is written as class.source:target" in refused.stderr
