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
    dear = await stocked.done(*query, "--where", "price.gt=50", "--order", "-price")
    assert [each["id"] for each in dear.objects] == ["table", "chair"]
    assert dear.objects[0] == {"id": "table", "name": "table", "price": "120.5", "stock": 7}
    both = ("--where", "price.gt=50", "--filter", '{"lt": ["price", "100"]}', "--fields", "name")
    assert (await stocked.done(*query, *both)).objects == [{"id": "chair", "name": "chair"}]
    scanned = await stocked.done(*query, "--where", "name.like=t%", "--allow-scan")
    assert [each["id"] for each in scanned.objects] == ["table"]


async def test_pages_are_followed(stocked: Shop) -> None:
    query = ("query", stocked.database, "products", "--limit", "2")
    two = await stocked.done(*query)
    assert [each["id"] for each in two.objects] == ["chair", "lamp"]
    assert two.stderr == "There are more; --limit or --all shows them.\n"
    several = b"".join(b'{"id": "c%04d", "name": "C"}\n' % number for number in range(1_500))
    await stocked.done("import", stocked.database, "customers", text=several)
    customers = ("query", stocked.database, "customers")
    everyone = await stocked.done(*customers, "--all", "--fields", "id")
    assert [each["id"] for each in everyone.objects] == [f"c{n:04}" for n in range(1_500)]
    assert everyone.stderr == ""
    assert len((await stocked.done(*customers, "--limit", "1200")).lines) == 1_200


async def test_a_count_is_printed_instead_of_objects(stocked: Shop) -> None:
    query = ("query", stocked.database, "products", "--where", "price.gt=20")
    found = await stocked.done(*query, "--limit", "2", "--order", "name", "--count", "exact")
    assert found.stdout == "3\n"
    estimated = await stocked.done(*query, "--count", "estimated", "--json")
    document = orjson.loads(estimated.stdout)
    assert document.keys() == {"total", "count"}
    assert document["total"] >= 2
    wrong = await stocked.call(*query, "--count", "all")
    assert (wrong.exit_code, wrong.stdout) == (2, "")


def printed(terminal: int) -> Iterator[bytes]:
    """Read what a process that has ended wrote to a terminal, which hands it over in pieces."""
    with suppress(OSError):  # it is at its end
        while piece := os.read(terminal, 65_536):
            yield piece


async def test_a_terminal_gets_a_table_without_what_it_would_obey(stocked: Shop) -> None:
    await stocked.put("products", "red", {"name": "\x1b[31mred", "price": "1"})
    ours, theirs = pty.openpty()
    process = await stocked.start("query", stocked.database, "products", stdout=theirs)
    await process.ended()
    os.close(theirs)
    shown = b"".join(printed(ours)).decode()
    os.close(ours)
    head, *rows = re.sub(r"\x1b\[[01]m", "", shown).splitlines()
    assert head.split() == ["id", "name", "price", "stock"]
    assert [row.split() for row in rows if "table" in row] == [["table", "table", "120.5", "7"]]
    assert "\\x1b[31mred" in shown
    assert "\x1b[31m" not in shown


async def test_mistakes_are_reported(stocked: Shop) -> None:
    query = ("query", stocked.database, "products")
    for words, status in (
        (["--where", "colour=red"], 1),
        (["--filter", "{"], 1),
        (["--where", "price"], 2),
        (["--limit", "0"], 2),
    ):
        result = await stocked.call(*query, *words)
        assert result.exit_code == status, result
        assert result.stdout == ""
    refused = await stocked.call(*query, "--where", "colour=red")
    assert refused.stderr.count("colour") == 1
    assert len(refused.stderr.splitlines()) == 1


async def test_a_field_with_the_name_of_a_parameter_is_found(shop: Shop) -> None:
    fields = {"limit": {"type": "integer", "index": True}}
    file = shop.file("coupons.json", {"classes": {"coupons": {"fields": fields}}})
    await shop.done("schema", "apply", shop.database, file, "--yes")
    for limit in (1, 2):
        await shop.put("coupons", f"c{limit}", {"limit": limit})
    found = await shop.done("query", shop.database, "coupons", "--where", "limit=2")
    assert found.objects == [{"id": "c2", "limit": 2}]
