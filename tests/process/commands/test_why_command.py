"""`portolan why`: a placement explained on one page."""

from __future__ import annotations

import orjson
import pytest

from tests.faults.caching.http_client import Connection
from tests.process.commands.shop import SHOP, Shop


async def test_a_field_is_explained(opened: Shop) -> None:
    node = f"{opened.database}.products.stock"
    page = (await opened.run("why", node)).lines
    assert page[0] == f"{node} is placed on redis."
    assert "requires atomic_updates" in page[1]
    assert page[2] == "It requires atomic updates."
    candidates = {line.split()[0]: line for line in page if line.startswith("  ")}
    assert candidates.keys() == {"redis", "postgres", "mongo"}
    assert (
        "write throughput 1,000,000/s for a goal of 1,000/s: 1,000, weight 1"
        in (candidates["redis"])
    )
    assert any(line.startswith("The runner-up is ") for line in page)
    [threshold] = [line for line in page if "if redis had" in line]
    assert "a write throughput below 1/s instead of 1,000,000/s" in threshold
    answer = orjson.loads((await opened.run("why", node, "--json")).stdout)
    assert (answer["node"], answer["system"]) == ("products.stock", "redis")


async def test_the_page_says_why_a_candidate_is_out(opened: Shop) -> None:
    async with Connection(opened.service.admin) as admin:
        body = {"declared": ["joins"]}
        answer = await admin.request("PATCH", "/admin/v1/systems/postgres", body)
        assert answer.status == 200
    bills = {"annotations": [{"require": "joins"}], "fields": {"sum": {"type": "decimal"}}}
    file = opened.file("bills.json", {"classes": {**SHOP["classes"], "bills": bills}})
    await opened.run("schema", "apply", opened.database, file, "--yes")
    page = (await opened.run("why", f"{opened.database}.bills")).lines
    assert [line for line in page if line.startswith("  ") and " out: " in line] == [
        "  redis     out: lacks joins, required by bills",
        "  mongo     out: lacks joins, required by bills",
    ]


async def test_a_class_and_a_database_are_explained(opened: Shop) -> None:
    customers = (await opened.run("why", f"{opened.database}.customers")).lines
    assert customers[0] == f"{opened.database}.customers is placed on postgres."
    assert "default system" in customers[1]
    database = (await opened.run("why", opened.database)).lines
    assert database[0].startswith(f"{opened.database} is placed on ")


@pytest.mark.parametrize("below", [".products.colour", ".others"])
async def test_a_missing_node_is_refused(opened: Shop, below: str) -> None:
    refused = await opened.call("why", opened.database + below)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("That was not done: ")


@pytest.mark.parametrize("node", ["a.b.c.d", "A", "a..b", "a/../b", ""])
async def test_an_invalid_node_is_refused(shop: Shop, node: str) -> None:
    assert (await shop.call("why", node)).exit_code == 2
