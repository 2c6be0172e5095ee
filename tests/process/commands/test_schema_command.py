"""`portolan schema`: a shop is modelled and inspected from the command line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson

from tests.faults.caching.http_client import Connection
from tests.process.commands.shop import SHOP, Shop, changed_schema


async def test_a_shop_is_applied_and_shown(shop: Shop) -> None:
    result = await shop.run(
        *("schema", "apply", shop.database, shop.file("shop.json", SHOP), "--yes")
    )
    assert "+ customers" in result.lines
    [stock] = [line for line in result.lines if line.startswith("+ products.stock")]
    assert 'type: "integer"' in stock
    assert "minimum: 0" in stock
    [placement] = [line for line in result.lines if line.startswith("products.stock is placed on")]
    assert placement.startswith("products.stock is placed on redis: ")
    assert not any(line.startswith("products.name is placed") for line in result.lines)
    assert "requires atomic_updates" in placement
    assert f"{shop.database} has version 1 " in result.stderr
    output = await shop.run("schema", "show", shop.database)
    document = orjson.loads(output.stdout)
    assert document["classes"]["products"]["fields"]["stock"]["minimum"] == 0
    same = await shop.run("schema", "diff", shop.database, shop.file("shown.json", document))
    assert same.lines == [f"{shop.database} has this schema already, in version 1."]
    second = await shop.run("schema", "apply", shop.database, shop.file("a.json", document))
    assert second.lines == same.lines


async def test_a_difference_is_shown_and_nothing_happens(opened: Shop) -> None:
    colour = {"colour": {"type": "string", "max_length": 20}, "price": {"type": "decimal"}}
    file = opened.file("more.json", changed_schema(**colour))
    before = await opened.run("schema", "show", opened.database)
    for arguments in (["diff"], ["apply", "--dry-run"]):
        result = await opened.run("schema", *arguments, opened.database, file)
        assert result.lines[:2] == [
            '+ products.colour  type: "string", max_length: 20',
            "~ products.price  index: true → false",
        ]
        assert result.lines[2].startswith("products.colour is placed on postgres: ")
    as_json = await opened.run("schema", "diff", opened.database, file, "--json")
    added, index = orjson.loads(as_json.stdout)["differences"]
    assert (added["kind"], added["node"], added["member"]) == ("added", "products.colour", None)
    assert (index["member"], index["before"], index["after"]) == ("index", True, False)
    assert (await opened.run("schema", "show", opened.database)).stdout == before.stdout


async def test_a_required_system_is_shown_with_its_cost(opened: Shop) -> None:
    stock = {**SHOP["classes"]["products"]["fields"]["stock"], "system": "postgres"}
    file = opened.file("required.json", changed_schema(stock=stock))
    cost = "products.stock requires the system postgres, though redis would score "
    difference = (await opened.run("schema", "diff", opened.database, file)).lines
    assert difference[0] == '+ products.stock  system: "postgres"'
    assert difference[1].startswith(
        f"products.stock is placed on postgres instead of redis: {cost}"
    )
    assert difference[2].startswith(f"Note: {cost}")
    await opened.run("schema", "apply", opened.database, file, "--yes")
    document = orjson.loads((await opened.run("schema", "show", opened.database)).stdout)
    assert document["classes"]["products"]["fields"]["stock"]["system"] == "postgres"
    page = (await opened.run("why", f"{opened.database}.products.stock")).lines
    assert page[0] == f"{opened.database}.products.stock is placed on postgres."
    assert page[1].startswith(cost)
    assert not [line for line in page if "runner-up" in line or "would be chosen" in line]


async def test_former_versions_are_listed_shown_and_compared(opened: Shop) -> None:
    before = orjson.loads((await opened.run("schema", "show", opened.database)).stdout)
    for fields in ({"colour": {"type": "string"}}, {"price": {"type": "decimal"}}):
        file = opened.file("more.json", changed_schema(**fields))
        await opened.run("schema", "apply", opened.database, file, "--yes")
    rows = [line.split() for line in (await opened.run("schema", "history", opened.database)).lines]
    assert [(version, *changes) for version, _, *changes, _ in rows] == [
        ("3", "-1", "~1"),
        ("2", "+1"),
        ("1", "+9"),
    ]
    as_json = orjson.loads(
        (await opened.run("schema", "history", opened.database, "--json")).stdout
    )
    assert [revision["version"] for revision in as_json] == [3, 2, 1]
    assert [revision["at"] for revision in as_json] == [at for _, at, *_ in rows]
    first = ("--revision", "1")
    output = await opened.run("schema", "show", opened.database, *first)
    assert orjson.loads(output.stdout) == before
    diff = ("schema", "diff", opened.database)
    assert (await opened.run(*diff, *first)).lines == ["~ products.price  index: true → false"]
    [difference] = orjson.loads((await opened.run(*diff, *first, "--json")).stdout)["differences"]
    assert difference["node"] == "products.price"
    same = await opened.run(*diff, "--revision", "3")
    assert same.lines == [f"{opened.database} has the schema of revision 3."]
    assert (await opened.call(*diff, "--revision", "4")).exit_code == 1
    for arguments in ([], [opened.file("shop.json", SHOP), *first]):
        assert (await opened.call(*diff, *arguments)).exit_code == 2


async def test_contracts_are_written(opened: Shop) -> None:
    document = await opened.run("schema", "openapi", opened.database)
    async with Connection(opened.service.data) as data:
        answer = await data.request("GET", f"/v1/{opened.database}/openapi.json")
    assert orjson.loads(document.stdout) == orjson.loads(answer.body)
    subset = await opened.run("schema", "openapi", opened.database, "--class", "orders")
    assert [tag["name"] for tag in orjson.loads(subset.stdout)["tags"]] == ["orders"]
    file = opened.path("shop.d.ts")
    for arguments, is_printed in (((), True), (("-o", file), False)):
        result = await opened.run("schema", "typescript", opened.database, *arguments)
        assert ("export interface Products {" in result.lines) is is_printed
    types = await asyncio.to_thread(Path(file).read_text)
    assert "stock?: number | null;" in types
    refused = await opened.call("schema", "typescript", opened.database, "--class", "toys")
    assert refused.exit_code == 1
    assert "There is no such class" in refused.stderr


async def test_mistakes_are_reported_with_their_locations(opened: Shop) -> None:
    file = opened.file("wrong.json", changed_schema(colour={"type": "paint"}))
    results = [
        await opened.call("schema", "apply", opened.database, file, "--yes"),
        await opened.call("schema", "show", "nowhere"),
        await opened.call("schema", "show", opened.database, "--url", "http://127.0.0.1:1"),
    ]
    assert [result.exit_code for result in results] == [1, 1, 1]
    messages = [result.stderr.splitlines() for result in results]
    assert all(len(lines) == 1 for lines in messages)
    assert all(lines[0].startswith("That was not done: ") for lines in messages)
    assert messages[0][0].count("/classes/products/fields/colour/type") == 1
    broken = opened.file("broken.json", b'{"classes": ')
    list_ = opened.file("list.json", b"[]")
    for database, path in ((opened.database, broken), (opened.database, list_), ("../x", file)):
        assert (await opened.call("schema", "diff", database, path)).exit_code == 2


async def test_a_key_in_a_file_is_sent(opened: Shop) -> None:
    """A stub records the key: a service without authentication ignores it."""
    request = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request.set_result(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        key = opened.file("key", b"secret-key\n")
        arguments = ("schema", "show", opened.database, "--url", url, "--key-file", key)
        refused = await opened.call(*arguments)
    assert refused.exit_code == 1
    assert refused.stderr == "That was not done: The service answered 401.\n"
    assert b"authorization: bearer secret-key" in (await request).lower()
