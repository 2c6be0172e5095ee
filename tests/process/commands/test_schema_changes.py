"""`portolan schema apply` and `drop`: confirmations, refusals, and effects on the data."""

from __future__ import annotations

import os
import pty

import httpx
import orjson
import pytest

from tests.faults.conditions import WITHIN_S
from tests.process.commands.shop import SHOP, Shop, changed_schema


async def test_a_change_is_confirmed(opened: Shop) -> None:
    file = opened.file("more.json", changed_schema(colour={"type": "string"}))
    apply = ("schema", "apply", opened.database, file)
    unconfirmed = await opened.call(*apply)
    assert unconfirmed.exit_code == 2
    assert "--yes" in unconfirmed.stderr
    for answer, version in ((b"n\n", 1), (b"y\n", 2)):
        ours, theirs = pty.openpty()
        try:
            process = await opened.start(*apply, stdin=theirs)
            os.write(ours, answer)
            status, output = await process.ended()
        finally:
            os.close(ours)
            os.close(theirs)
        assert status == 2 - version, output
        assert "Put it in force?" in output
        assert ("has version 2" in output) is (version == 2)


async def test_a_concurrent_change_is_refused(opened: Shop) -> None:
    """Only the confirmed difference is put in force."""
    mine = opened.file("mine.json", changed_schema(colour={"type": "string"}))
    theirs = opened.file("theirs.json", changed_schema(size={"type": "string"}))
    ours, end = pty.openpty()
    try:
        process = await opened.start("schema", "apply", opened.database, mine, stdin=end)
        await process.output.readuntil(b"Put it in force?")
        await opened.run("schema", "apply", opened.database, theirs, "--yes")
        os.write(ours, b"y\n")
        status, output = await process.ended()
    finally:
        os.close(ours)
        os.close(end)
    assert status == 1
    assert f"That was not done: The schema of {opened.database} has version 2 now." in output
    fields = orjson.loads((await opened.run("schema", "show", opened.database)).stdout)
    assert {"size"} == fields["classes"]["products"]["fields"].keys() & {"size", "colour"}


async def test_a_change_that_would_move_data_is_not_tried(opened: Shop) -> None:
    await opened.put("customers", "ada", {"name": "Ada"})
    file = opened.file("gone.json", {"classes": {**SHOP["classes"], "customers": {"fields": {}}}})
    for arguments in (["diff"], ["apply", "--yes"]):
        refused = await opened.call("schema", *arguments, opened.database, file)
        assert refused.exit_code == 1
        assert '- customers.name  type: "string"' in refused.stdout
        assert "customers.name holds data that the change would move: " in refused.stdout


async def test_objects_that_would_break_a_constraint_are_named(opened: Shop) -> None:
    await opened.put("products", "lamp", {"name": "Lamp", "price": "1"})
    required = {"colour": {"type": "string", "required": True, "default": "white"}}
    file = opened.file("more.json", changed_schema(**required))
    violation = "Objects that break /classes/products/fields/colour/required: 1 of 1, such as lamp"
    for arguments in (["diff"], ["apply", "--yes"]):
        refused = await opened.call("schema", *arguments, opened.database, file)
        assert refused.exit_code == 1
        assert violation in refused.lines
    await opened.run("schema", "apply", opened.database, file, "--yes", "--unchecked")
    lamp = ("query", opened.database, "products", "--fields", "colour")
    assert (await opened.run(*lamp)).objects == [{"id": "lamp"}]
    await opened.run("schema", "apply", opened.database, file, "--yes", "--backfill")
    assert (await opened.run(*lamp)).objects == [{"id": "lamp", "colour": "white"}]


async def test_a_database_is_dropped_after_its_objects_were_counted(opened: Shop) -> None:
    await opened.put("customers", "ada", {"name": "Ada"})
    databases = await opened.run("schema", "list")
    [line] = [line for line in databases.lines if line.startswith(f"{opened.database} ")]
    assert line.split() == [opened.database, "1", "mixed", "customers,", "orders,", "products"]
    unconfirmed = await opened.call("schema", "drop", opened.database)
    assert unconfirmed.exit_code == 2
    assert "- customers, objects: 1" in unconfirmed.lines
    await opened.run("schema", "drop", opened.database, "--yes")
    assert (await opened.call("schema", "show", opened.database)).exit_code == 1


@pytest.mark.parametrize("typed", ["y", "other", None])
async def test_a_database_is_dropped_if_its_name_is_typed(opened: Shop, typed: str | None) -> None:
    ours, theirs = pty.openpty()
    try:
        process = await opened.start("schema", "drop", opened.database, stdin=theirs)
        os.write(ours, f"{typed or opened.database}\n".encode())
        status, output = await process.ended()
    finally:
        os.close(ours)
        os.close(theirs)
    assert f"Type {opened.database} to drop it with all of that" in output
    assert status == (0 if typed is None else 1), output
    result = await opened.call("schema", "show", opened.database)
    assert result.exit_code == (1 if typed is None else 0)


async def test_a_class_is_dropped_with_its_objects_on_request(opened: Shop) -> None:
    await opened.put("orders", "o1", {"customer": "ada"})
    remaining = {name: class_ for name, class_ in SHOP["classes"].items() if name != "orders"}
    file = opened.file("less.json", {"classes": remaining})
    refused = await opened.call("schema", "apply", opened.database, file, "--yes")
    assert refused.exit_code == 1
    apply = ("schema", "apply", opened.database, file, "--yes", "--drop", "orders")
    result = await opened.run(*apply)
    assert "Note: The class orders is dropped; objects: 1." in result.lines
    assert (await opened.call("query", opened.database, "orders")).exit_code == 1
    repeated = await opened.call(*apply)
    assert "drop: there is no class orders." in repeated.stderr


async def test_a_field_is_renamed_and_another_one_dropped(opened: Shop) -> None:
    await opened.put("products", "lamp", {"name": "Lamp", "price": "1", "stock": 3})
    schema = changed_schema()
    products = schema["classes"]["products"]["fields"]
    products["unit_price"] = products.pop("price")
    del products["stock"]
    file = opened.file("renamed.json", schema)
    refused = await opened.call("schema", "diff", opened.database, file)
    assert refused.exit_code == 1
    assert "to rename it, pass rename=products.price:unit_price" in refused.stdout
    options = ("--rename", "products.price:unit_price", "--drop", "products.stock")
    difference = await opened.run("schema", "diff", opened.database, file, *options)
    assert difference.lines[0] == '~ products.unit_price  name: "price" → "unit_price"'
    assert difference.lines[1].startswith("- products.stock")
    note = "Note: The field products.stock is dropped; objects that lose a value: 1."
    assert note in difference.lines
    await opened.run("schema", "apply", opened.database, file, "--yes", *options)
    lamp = await opened.run("query", opened.database, "products")
    assert lamp.objects == [{"id": "lamp", "name": "Lamp", "unit_price": "1"}]
    history = await opened.run("schema", "history", opened.database)
    assert "-1 →1" in history.lines[0]


async def test_versions_that_clients_have_pinned_are_listed_and_retired(opened: Shop) -> None:
    await opened.put("products", "lamp", {"name": "Lamp", "price": "1", "stock": 3})
    schema = changed_schema()
    products = schema["classes"]["products"]["fields"]
    products["unit_price"] = products.pop("price")
    rename = ("--rename", "products.price:unit_price", "--yes")
    file = opened.file("renamed.json", schema)
    await opened.run("schema", "apply", opened.database, file, *rename)
    assert (await opened.run("schema", "pinned", opened.database)).lines == []
    url = f"{opened.service.data}/v1/{opened.database}/products/lamp"
    headers = {"portolan-schema": "1"}
    async with httpx.AsyncClient(headers=headers, timeout=WITHIN_S) as pinned:
        assert (await pinned.get(url)).json()["price"] == "1"
        [line] = (await opened.run("schema", "pinned", opened.database)).lines
        assert line.split()[:2] == ["1", "1"]
        arguments = ("schema", "retire", opened.database, "--before")
        unconfirmed = await opened.call(*arguments, "2")
        assert unconfirmed.exit_code == 2
        assert (await pinned.get(url)).status_code == 200
        result = await opened.run(*arguments, "2", "--yes")
        assert result.lines[0].split()[:2] == ["1", "2"]
        assert (await pinned.get(url)).status_code == 410
        versions = await opened.run("schema", "pinned", opened.database)
        assert versions.lines[0] == "Versions before 2 are retired."
        as_json = await opened.run("schema", "pinned", opened.database, "--json")
        assert orjson.loads(as_json.stdout)["retired_before"] == 2
        restored = await opened.run(*arguments, "0", "--yes")
        assert restored.lines == [
            "This replica has seen no client of these versions since it started."
        ]
        assert (await pinned.get(url)).status_code == 200
        refused = await opened.call(*arguments, "9", "--yes")
        assert refused.exit_code == 1
        assert "/retired_before: is greater than 2" in refused.stderr
