"""`portolan query`: objects found from the command line, as lines or as tables."""

from __future__ import annotations

import os
import pty
import re
from collections.abc import Iterator
from contextlib import suppress

import orjson
import pytest

from tests.process.commands.shop import Shop

PRODUCTS = [("lamp", "30", 3), ("chair", "80", 0), ("table", "120.5", 7)]


@pytest.fixture
async def stocked(opened: Shop) -> Shop:
    for name, price, stock in PRODUCTS:
        await opened.put("products", name, {"name": name, "price": price, "stock": stock})
    return opened


async def test_conditions_and_orders(stocked: Shop) -> None:
    query = ("query", stocked.database, "products")
    expensive = await stocked.run(*query, "--where", "price.gt=50", "--order", "-price")
    assert [object_["id"] for object_ in expensive.objects] == ["table", "chair"]
    assert expensive.objects[0] == {"id": "table", "name": "table", "price": "120.5", "stock": 7}
    conditions = (
        "--where",
        "price.gt=50",
        "--filter",
        '{"lt": ["price", "100"]}',
        "--fields",
        "name",
    )
    assert (await stocked.run(*query, *conditions)).objects == [{"id": "chair", "name": "chair"}]
    scan = await stocked.run(*query, "--where", "name.like=t%", "--allow-scan")
    assert [object_["id"] for object_ in scan.objects] == ["table"]


async def test_pages_are_followed(stocked: Shop) -> None:
    query = ("query", stocked.database, "products", "--limit", "2")
    first_page = await stocked.run(*query)
    assert [object_["id"] for object_ in first_page.objects] == ["chair", "lamp"]
    assert first_page.stderr == "There are more; --limit or --all shows them.\n"
    lines = b"".join(b'{"id": "c%04d", "name": "C"}\n' % number for number in range(1_500))
    await stocked.run("import", stocked.database, "customers", text=lines)
    customers = ("query", stocked.database, "customers")
    all_customers = await stocked.run(*customers, "--all", "--fields", "id")
    assert [object_["id"] for object_ in all_customers.objects] == [
        f"c{n:04}" for n in range(1_500)
    ]
    assert all_customers.stderr == ""
    assert len((await stocked.run(*customers, "--limit", "1200")).lines) == 1_200


async def test_a_count_is_printed_instead_of_objects(stocked: Shop) -> None:
    query = ("query", stocked.database, "products", "--where", "price.gt=20")
    exact = await stocked.run(*query, "--limit", "2", "--order", "name", "--count", "exact")
    assert exact.stdout == "3\n"
    estimated = await stocked.run(*query, "--count", "estimated", "--json")
    document = orjson.loads(estimated.stdout)
    assert document.keys() == {"total", "count"}
    assert document["total"] >= 2
    refused = await stocked.call(*query, "--count", "all")
    assert (refused.exit_code, refused.stdout) == (2, "")


def read_terminal(terminal: int) -> Iterator[bytes]:
    """Read the output of an ended process from its terminal, piece by piece."""
    with suppress(OSError):  # the end of the output
        while piece := os.read(terminal, 65_536):
            yield piece


async def test_a_terminal_gets_a_table_without_escape_sequences(stocked: Shop) -> None:
    await stocked.put("products", "red", {"name": "\x1b[31mred", "price": "1"})
    ours, theirs = pty.openpty()
    process = await stocked.start("query", stocked.database, "products", stdout=theirs)
    await process.ended()
    os.close(theirs)
    output = b"".join(read_terminal(ours)).decode()
    os.close(ours)
    head, *rows = re.sub(r"\x1b\[[01]m", "", output).splitlines()
    assert head.split() == ["id", "name", "price", "stock"]
    assert [row.split() for row in rows if "table" in row] == [["table", "table", "120.5", "7"]]
    assert "\\x1b[31mred" in output
    assert "\x1b[31m" not in output


async def test_mistakes_are_reported(stocked: Shop) -> None:
    query = ("query", stocked.database, "products")
    for arguments, status in (
        (["--where", "colour=red"], 1),
        (["--filter", "{"], 1),
        (["--where", "price"], 2),
        (["--limit", "0"], 2),
    ):
        result = await stocked.call(*query, *arguments)
        assert result.exit_code == status, result
        assert result.stdout == ""
    refused = await stocked.call(*query, "--where", "colour=red")
    assert refused.stderr.count("colour") == 1
    assert len(refused.stderr.splitlines()) == 1


async def test_a_field_with_the_name_of_a_parameter_is_found(shop: Shop) -> None:
    fields = {"limit": {"type": "integer", "index": True}}
    file = shop.file("coupons.json", {"classes": {"coupons": {"fields": fields}}})
    await shop.run("schema", "apply", shop.database, file, "--yes")
    for limit in (1, 2):
        await shop.put("coupons", f"c{limit}", {"limit": limit})
    result = await shop.run("query", shop.database, "coupons", "--where", "limit=2")
    assert result.objects == [{"id": "c2", "limit": 2}]
