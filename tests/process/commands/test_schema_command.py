"""`portolan schema`: a shop is modelled and looked at from the command line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson

from tests.faults.caching.http_client import Connection
from tests.process.commands.shop import SHOP, Shop, changed


async def test_a_shop_is_applied_and_shown(shop: Shop) -> None:
    applied = await shop.done(
        *("schema", "apply", shop.database, shop.file("shop.json", SHOP), "--yes")
    )
    assert "+ customers" in applied.lines
    [stock] = [line for line in applied.lines if line.startswith("+ products.stock")]
    assert 'type: "integer"' in stock
    assert "minimum: 0" in stock
    [placed] = [line for line in applied.lines if line.startswith("products.stock is placed on")]
    assert placed.startswith("products.stock is placed on redis: ")
    assert not any(line.startswith("products.name is placed") for line in applied.lines)
    assert "requires atomic_updates" in placed
    assert f"{shop.database} has version 1 " in applied.stderr
    shown = await shop.done("schema", "show", shop.database)
    document = orjson.loads(shown.stdout)
    assert document["classes"]["products"]["fields"]["stock"]["minimum"] == 0
    same = await shop.done("schema", "diff", shop.database, shop.file("shown.json", document))
    assert same.lines == [f"{shop.database} has this schema already, in version 1."]
    again = await shop.done("schema", "apply", shop.database, shop.file("a.json", document))
    assert again.lines == same.lines


async def test_a_difference_is_shown_and_nothing_happens(opened: Shop) -> None:
    colour = {"colour": {"type": "string", "max_length": 20}, "price": {"type": "decimal"}}
    file = opened.file("more.json", changed(**colour))
    before = await opened.done("schema", "show", opened.database)
    for words in (["diff"], ["apply", "--dry-run"]):
        result = await opened.done("schema", *words, opened.database, file)
        assert result.lines[:2] == [
            '+ products.colour  type: "string", max_length: 20',
            "~ products.price  index: true → false",
        ]
        assert result.lines[2].startswith("products.colour is placed on postgres: ")
    as_json = await opened.done("schema", "diff", opened.database, file, "--json")
    added, index = orjson.loads(as_json.stdout)["differences"]
    assert (added["kind"], added["node"], added["member"]) == ("added", "products.colour", None)
    assert (index["member"], index["before"], index["after"]) == ("index", True, False)
    assert (await opened.done("schema", "show", opened.database)).stdout == before.stdout


async def test_a_required_system_is_shown_with_what_it_costs(opened: Shop) -> None:
    stock = {**SHOP["classes"]["products"]["fields"]["stock"], "system": "postgres"}
    file = opened.file("required.json", changed(stock=stock))
    cost = "products.stock requires the system postgres, though redis would score "
    shown = (await opened.done("schema", "diff", opened.database, file)).lines
    assert shown[0] == '+ products.stock  system: "postgres"'
    assert shown[1].startswith(f"products.stock is placed on postgres instead of redis: {cost}")
    assert shown[2].startswith(f"Note: {cost}")
    await opened.done("schema", "apply", opened.database, file, "--yes")
    document = orjson.loads((await opened.done("schema", "show", opened.database)).stdout)
    assert document["classes"]["products"]["fields"]["stock"]["system"] == "postgres"
    page = (await opened.done("why", f"{opened.database}.products.stock")).lines
    assert page[0] == f"{opened.database}.products.stock is placed on postgres."
    assert page[1].startswith(cost)
    assert not [line for line in page if "runner-up" in line or "would be chosen" in line]


async def test_former_versions_are_listed_shown_and_compared(opened: Shop) -> None:
    before = orjson.loads((await opened.done("schema", "show", opened.database)).stdout)
    for fields in ({"colour": {"type": "string"}}, {"price": {"type": "decimal"}}):
        file = opened.file("more.json", changed(**fields))
        await opened.done("schema", "apply", opened.database, file, "--yes")
    listed = [
        line.split() for line in (await opened.done("schema", "history", opened.database)).lines
    ]
    assert [(version, *changes) for version, _, *changes, _ in listed] == [
        ("3", "-1", "~1"),
        ("2", "+1"),
        ("1", "+9"),
    ]
    as_json = orjson.loads(
        (await opened.done("schema", "history", opened.database, "--json")).stdout
    )
    assert [each["version"] for each in as_json] == [3, 2, 1]
    assert [each["at"] for each in as_json] == [at for _, at, *_ in listed]
    first = ("--revision", "1")
    shown = await opened.done("schema", "show", opened.database, *first)
    assert orjson.loads(shown.stdout) == before
    diff = ("schema", "diff", opened.database)
    assert (await opened.done(*diff, *first)).lines == ["~ products.price  index: true → false"]
    [difference] = orjson.loads((await opened.done(*diff, *first, "--json")).stdout)["differences"]
    assert difference["node"] == "products.price"
    same = await opened.done(*diff, "--revision", "3")
    assert same.lines == [f"{opened.database} has the schema of revision 3."]
    assert (await opened.call(*diff, "--revision", "4")).exit_code == 1
    for words in ([], [opened.file("shop.json", SHOP), *first]):
        assert (await opened.call(*diff, *words)).exit_code == 2


async def test_contracts_are_written(opened: Shop) -> None:
    shown = await opened.done("schema", "openapi", opened.database)
    async with Connection(opened.service.data) as data:
        answer = await data.request("GET", f"/v1/{opened.database}/openapi.json")
    assert orjson.loads(shown.stdout) == orjson.loads(answer.body)
    some = await opened.done("schema", "openapi", opened.database, "--class", "orders")
    assert [tag["name"] for tag in orjson.loads(some.stdout)["tags"]] == ["orders"]
    file = opened.path("shop.d.ts")
    for words, printed in (((), True), (("-o", file), False)):
        written = await opened.done("schema", "typescript", opened.database, *words)
        assert ("export interface Products {" in written.lines) is printed
    types = await asyncio.to_thread(Path(file).read_text)
    assert "stock?: number | null;" in types
    refused = await opened.call("schema", "typescript", opened.database, "--class", "toys")
    assert refused.exit_code == 1
    assert "There is no such class" in refused.stderr


async def test_mistakes_are_reported_with_their_locations(opened: Shop) -> None:
    file = opened.file("wrong.json", changed(colour={"type": "paint"}))
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


async def test_a_change_is_made_by_a_key(opened: Shop) -> None:
    """A key in a file is sent; a service without authentication ignores it, so it is seen here."""
    seen = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        key = opened.file("key", b"secret-key\n")
        words = ("schema", "show", opened.database, "--url", url, "--key-file", key)
        refused = await opened.call(*words)
    assert refused.exit_code == 1
    assert refused.stderr == "That was not done: The service answered 401.\n"
    assert b"authorization: bearer secret-key" in (await seen).lower()
