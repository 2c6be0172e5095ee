"""`portolan schema`: a shop is modelled, looked at and changed from the command line."""

from __future__ import annotations

import asyncio
import os
import pty
import re
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.faults.caching.http_client import Connection
from tests.process.commands.shop import SHOP, Shop
from tests.process.service import unique


def changed(**fields: Any) -> dict[str, Any]:
    """Return the shop with other fields of its products."""
    schema = deepcopy(SHOP)
    schema["classes"]["products"]["fields"] |= fields
    return schema


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


async def test_a_schema_is_read_and_written_as_yaml(shop: Shop) -> None:
    text = b"""\
    classes:
      customers: {fields: {name: {type: string, index: true}}}
      # A comment.
      orders:
        fields:
          customer: {type: reference, to: customers}
          sent: {type: string, enum: [no, yes], default: no}
    """
    file = shop.file("shop.yaml", text)
    await shop.done("schema", "apply", shop.database, file, "--yes")
    document = orjson.loads((await shop.done("schema", "show", shop.database)).stdout)
    assert document["classes"]["orders"]["fields"]["sent"]["enum"] == ["no", "yes"]
    shown = await shop.done("schema", "show", shop.database, "--yaml")
    again = shop.file("again.yml", shown.stdout.encode())
    same = await shop.done("schema", "diff", shop.database, again)
    assert same.lines == [f"{shop.database} has this schema already, in version 1."]
    aliased = shop.file("aliased.yaml", b"classes: &all {}\ndefault: *all")
    refused = await shop.call("schema", "diff", shop.database, aliased)
    assert refused.exit_code == 2
    assert "line 1, column 10: anchors" in " ".join(refused.stderr.split())


async def test_the_schemas_of_a_directory_are_applied_and_again(shop: Shop) -> None:
    other = unique("news")
    folder = shop.scratch / "schemas"
    folder.mkdir()
    (folder / f"{shop.database}.json").write_bytes(orjson.dumps(SHOP))
    (folder / f"{other}.yaml").write_text("classes: {articles: {}}")
    (folder / "..data").mkdir()  # Kubernetes mounts such links
    apply = ("schema", "deploy", str(folder), "--yes")
    first = await shop.done(*apply)
    for database in (shop.database, other):
        assert f"{database} has version 1 of its schema now." in first.stderr
    again = await shop.done(*apply)
    assert sorted(again.lines) == sorted(
        f"{database} has this schema already, in version 1." for database in (shop.database, other)
    )
    (folder / f"{other}.json").write_bytes(b"{}")
    assert "has two files" in (await shop.call(*apply)).stderr
    (folder / f"{other}.json").write_bytes(b"[]")
    (folder / f"{other}.yaml").unlink()
    assert (await shop.call(*apply)).exit_code == 2
    (folder / f"{other}.json").write_bytes(orjson.dumps({"classes": {"articles": {"no": 1}}}))
    refused = await shop.call(*apply)
    assert refused.exit_code == 1
    assert "/classes/articles/no" in refused.stderr


async def test_a_service_that_does_not_answer_yet_is_waited_for(shop: Shop) -> None:
    """It has a port that nobody listens at, and then a proxy's; a refusal is not waited for."""
    answers = [b"HTTP/1.1 503 Busy", b"HTTP/1.1 401 Unauthorized"]
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        head = answers[min(len(requests), len(answers)) - 1]
        writer.write(head + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    folder = Path(shop.file("shop.json", SHOP)).parent
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        words = ("schema", "deploy", str(folder), "--yes", "--url", url)
        assert (await shop.call(*words)).stderr == "That was not done: The service answered 503.\n"
        requests.clear()
        waited = await shop.call(*words, "--wait", "60")
    assert waited.stderr == "That was not done: The service answered 401.\n"
    assert len(requests) == 2


async def test_a_schema_in_several_files_is_one(shop: Shop) -> None:
    files = [
        shop.file(f"{name}.json", {"classes": {name: class_}})
        for name, class_ in SHOP["classes"].items()
    ]
    mode = shop.file("mode.json", {"mode": "entity"})
    await shop.done("schema", "apply", shop.database, *files, mode, "--yes")
    shown = orjson.loads((await shop.done("schema", "show", shop.database)).stdout)
    assert (shown["mode"], shown["classes"].keys()) == ("entity", SHOP["classes"].keys())
    one = shop.file("shop.json", {**SHOP, "mode": "entity"})
    same = await shop.done("schema", "diff", shop.database, one)
    assert same.lines == [f"{shop.database} has this schema already, in version 1."]
    for again, what in ((files[0], "/classes/customers"), (mode, "/mode")):
        refused = await shop.call("schema", "diff", shop.database, one, again)
        assert refused.exit_code == 2
        assert f"has {what}, which a file before it has too" in " ".join(refused.stderr.split())


async def test_a_change_is_asked_about(opened: Shop) -> None:
    file = opened.file("more.json", changed(colour={"type": "string"}))
    apply = ("schema", "apply", opened.database, file)
    without = await opened.call(*apply)
    assert without.exit_code == 2
    assert "--yes" in without.stderr
    for answer, version in ((b"n\n", 1), (b"y\n", 2)):
        ours, theirs = pty.openpty()
        try:
            process = await opened.start(*apply, stdin=theirs)
            os.write(ours, answer)
            _, err = await process.communicate()
        finally:
            os.close(ours)
            os.close(theirs)
        assert process.returncode == 2 - version, err
        assert b"Put it in force?" in err
        assert (b"has version 2" in err) is (version == 2)


async def test_a_concurrent_change_is_refused(opened: Shop) -> None:
    """What was shown and agreed to is what is put in force, or nothing is."""
    mine = opened.file("mine.json", changed(colour={"type": "string"}))
    theirs = opened.file("theirs.json", changed(size={"type": "string"}))
    ours, end = pty.openpty()
    try:
        process = await opened.start("schema", "apply", opened.database, mine, stdin=end)
        assert process.stderr is not None
        await process.stderr.readuntil(b"Put it in force?")
        await opened.done("schema", "apply", opened.database, theirs, "--yes")
        os.write(ours, b"y\n")
        _, err = await process.communicate()
    finally:
        os.close(ours)
        os.close(end)
    assert process.returncode == 1
    assert f"That was not done: The schema of {opened.database} has version 2 now." in err.decode()
    fields = orjson.loads((await opened.done("schema", "show", opened.database)).stdout)
    assert {"size"} == fields["classes"]["products"]["fields"].keys() & {"size", "colour"}


async def test_a_change_that_would_move_data_is_not_tried(opened: Shop) -> None:
    await opened.put("customers", "ada", {"name": "Ada"})
    file = opened.file("gone.json", {"classes": {**SHOP["classes"], "customers": {"fields": {}}}})
    for words in (["diff"], ["apply", "--yes"]):
        refused = await opened.call("schema", *words, opened.database, file)
        assert refused.exit_code == 1
        assert '- customers.name  type: "string"' in refused.stdout
        assert "customers.name holds data that the change would move: " in refused.stdout


async def test_objects_that_would_break_a_constraint_are_named(opened: Shop) -> None:
    await opened.put("products", "lamp", {"name": "Lamp", "price": "1"})
    required = {"colour": {"type": "string", "required": True, "default": "white"}}
    file = opened.file("more.json", changed(**required))
    named = "Objects that break /classes/products/fields/colour/required: 1 of 1, such as lamp"
    for words in (["diff"], ["apply", "--yes"]):
        refused = await opened.call("schema", *words, opened.database, file)
        assert refused.exit_code == 1
        assert named in refused.lines
    await opened.done("schema", "apply", opened.database, file, "--yes", "--unchecked")
    lamp = ("query", opened.database, "products", "--fields", "colour")
    assert (await opened.done(*lamp)).objects == [{"id": "lamp"}]
    await opened.done("schema", "apply", opened.database, file, "--yes", "--backfill")
    assert (await opened.done(*lamp)).objects == [{"id": "lamp", "colour": "white"}]


async def test_a_database_is_dropped_after_its_objects_were_counted(opened: Shop) -> None:
    await opened.put("customers", "ada", {"name": "Ada"})
    listed = await opened.done("schema", "list")
    [line] = [line for line in listed.lines if line.startswith(f"{opened.database} ")]
    assert line.split() == [opened.database, "1", "mixed", "customers,", "orders,", "products"]
    asked = await opened.call("schema", "drop", opened.database)
    assert asked.exit_code == 2
    assert "- customers, objects: 1" in asked.lines
    await opened.done("schema", "drop", opened.database, "--yes")
    assert (await opened.call("schema", "show", opened.database)).exit_code == 1


@pytest.mark.parametrize("typed", ["y", "other", None])
async def test_a_database_is_dropped_if_its_name_is_typed(opened: Shop, typed: str | None) -> None:
    ours, theirs = pty.openpty()
    try:
        process = await opened.start("schema", "drop", opened.database, stdin=theirs)
        os.write(ours, f"{typed or opened.database}\n".encode())
        _, err = await process.communicate()
    finally:
        os.close(ours)
        os.close(theirs)
    assert f"Type {opened.database} to drop it with all of that".encode() in err
    assert process.returncode == (0 if typed is None else 1), err
    shown = await opened.call("schema", "show", opened.database)
    assert shown.exit_code == (1 if typed is None else 0)


async def test_a_class_is_dropped_with_its_objects_if_that_is_said(opened: Shop) -> None:
    await opened.put("orders", "o1", {"customer": "ada"})
    kept = {name: class_ for name, class_ in SHOP["classes"].items() if name != "orders"}
    file = opened.file("less.json", {"classes": kept})
    refused = await opened.call("schema", "apply", opened.database, file, "--yes")
    assert refused.exit_code == 1
    apply = ("schema", "apply", opened.database, file, "--yes", "--drop", "orders")
    applied = await opened.done(*apply)
    assert "Note: The class orders is dropped; objects: 1." in applied.lines
    assert (await opened.call("query", opened.database, "orders")).exit_code == 1
    again = await opened.call(*apply)
    assert "drop: there is no class orders." in again.stderr


async def test_a_field_is_renamed_and_another_one_dropped(opened: Shop) -> None:
    await opened.put("products", "lamp", {"name": "Lamp", "price": "1", "stock": 3})
    schema = changed()
    products = schema["classes"]["products"]["fields"]
    products["unit_price"] = products.pop("price")
    del products["stock"]
    file = opened.file("renamed.json", schema)
    refused = await opened.call("schema", "diff", opened.database, file)
    assert refused.exit_code == 1
    assert "to rename it, pass rename=products.price:unit_price" in refused.stdout
    said = ("--rename", "products.price:unit_price", "--drop", "products.stock")
    shown = await opened.done("schema", "diff", opened.database, file, *said)
    assert shown.lines[0] == '~ products.unit_price  name: "price" → "unit_price"'
    assert shown.lines[1].startswith("- products.stock")
    lost = "Note: The field products.stock is dropped; objects that lose a value: 1."
    assert lost in shown.lines
    await opened.done("schema", "apply", opened.database, file, "--yes", *said)
    lamp = await opened.done("query", opened.database, "products")
    assert lamp.objects == [{"id": "lamp", "name": "Lamp", "unit_price": "1"}]
    history = await opened.done("schema", "history", opened.database)
    assert "-1 →1" in history.lines[0]


async def test_versions_that_clients_have_pinned_are_listed_and_retired(opened: Shop) -> None:
    await opened.put("products", "lamp", {"name": "Lamp", "price": "1", "stock": 3})
    schema = changed()
    products = schema["classes"]["products"]["fields"]
    products["unit_price"] = products.pop("price")
    rename = ("--rename", "products.price:unit_price", "--yes")
    file = opened.file("renamed.json", schema)
    await opened.done("schema", "apply", opened.database, file, *rename)
    assert (await opened.done("schema", "pinned", opened.database)).lines == []
    url = f"{opened.service.data}/v1/{opened.database}/products/lamp"
    async with httpx.AsyncClient(headers={"portolan-schema": "1"}) as pinned:
        assert (await pinned.get(url)).json()["price"] == "1"
        [line] = (await opened.done("schema", "pinned", opened.database)).lines
        assert line.split()[:2] == ["1", "1"]
        words = ("schema", "retire", opened.database, "--before")
        unasked = await opened.call(*words, "2")
        assert unasked.exit_code == 2
        assert (await pinned.get(url)).status_code == 200
        retired = await opened.done(*words, "2", "--yes")
        assert retired.lines[0].split()[:2] == ["1", "2"]
        assert (await pinned.get(url)).status_code == 410
        shown = await opened.done("schema", "pinned", opened.database)
        assert shown.lines[0] == "Versions before 2 are retired."
        as_json = await opened.done("schema", "pinned", opened.database, "--json")
        assert orjson.loads(as_json.stdout)["retired_before"] == 2
        none = await opened.done(*words, "0", "--yes")
        assert none.lines == ["This replica has seen no client of these versions since it started."]
        assert (await pinned.get(url)).status_code == 200
        refused = await opened.call(*words, "9", "--yes")
        assert refused.exit_code == 1
        assert "/retired_before: is greater than 2" in refused.stderr


async def test_an_index_is_proposed_and_added(opened: Shop) -> None:
    none = await opened.done("schema", "index", opened.database)
    assert none.lines == []
    assert f"No index is proposed for {opened.database}" in none.stderr
    await opened.put("products", "lamp", {"name": "Lamp", "price": "1", "stock": 3})
    url = f"{opened.service.data}/v1/{opened.database}/products/query"
    query = {"filter": {"ge": ["stock", 2]}}
    async with httpx.AsyncClient() as client:
        for _ in range(2):
            assert (await client.post(url, json=query)).status_code == 422
        listed = await opened.done("schema", "index", opened.database)
        assert listed.lines == [
            "products.stock",
            '  refused 2 times: needs a scan  {"filter":{"ge":["stock","?"]}}',
        ]
        [as_json] = orjson.loads((await opened.done(*listed_as_json(opened))).stdout)
        assert as_json["index"] == "products.stock"
        assert as_json["patch"] == {"classes": {"products": {"fields": {"stock": {"index": True}}}}}
        assert as_json["queries"][0]["refused"] == 2
        add = ("schema", "index", opened.database, "products.stock")
        difference = "~ products.stock  index: false → true"
        assert (await opened.done(*add, "--dry-run")).lines[0] == difference
        unasked = await opened.call(*add)
        assert unasked.exit_code == 2
        assert (await client.post(url, json=query)).status_code == 422
        added = await opened.done(*add, "--yes")
        assert added.lines[0] == difference
        assert f"{opened.database} has version 2 of its schema now." in added.stderr
        found = await client.post(url, json=query)
        assert [each["id"] for each in found.json()["items"]] == ["lamp"]
    assert orjson.loads((await opened.done(*listed_as_json(opened))).stdout) == []


def listed_as_json(shop: Shop) -> tuple[str, ...]:
    return ("schema", "index", shop.database, "--json")


async def test_an_index_that_takes_long_is_waited_for(opened: Shop) -> None:
    """The service refuses after a minute, with what it still builds: so it is asked again."""
    present = orjson.loads((await opened.done("schema", "show", opened.database)).stdout)
    build = {"class": "products", "system": "redis", "indexes": ["stock"], "share": None}
    late = {"type": "/problems/conflict", "detail": "Not all indexes are built.", "builds": [build]}
    taken = {"type": "/problems/conflict", "detail": "Somebody else is at it."}
    answers, requests = iter(((409, late), (200, None), (409, taken))), []
    change = {"schema": present, "placements": {}, "moves": [], "violations": [], "notes": []}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                status, document = 200, {**change, "version": 1}
                if head.startswith(b"PUT") and b"dry_run=true" not in head:
                    requests.append(head)
                    status, given = next(answers)
                    document = given or document
                body = orjson.dumps(document)
                type_ = "application/problem+json" if status >= 400 else "application/json"
                lines = (
                    f"HTTP/1.1 {status} -\r\nContent-Type: {type_}\r\nContent-Length: {len(body)}"
                )
                writer.write(f"{lines}\r\n\r\n".encode() + body)
        writer.close()
        await writer.wait_closed()

    file = opened.file("more.json", present)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        apply = ("schema", "apply", opened.database, file, "--yes", "--backfill", "--url", url)
        done = await opened.done(*apply)
        assert f"{opened.database} has version 1 of its schema now." in done.stderr
        assert len(requests) == 2
        refused = await opened.call(*apply)
    assert (refused.exit_code, len(requests)) == (1, 3)
    assert "Somebody else is at it." in refused.stderr


async def test_only_an_index_that_is_proposed_is_added(opened: Shop) -> None:
    refused = await opened.call("schema", "index", opened.database, "products.stock", "--yes")
    assert refused.exit_code == 2
    assert "products.stock is not proposed; what is: none." in " ".join(refused.stderr.split())
    nowhere = await opened.call("schema", "index", "nowhere")
    assert nowhere.exit_code == 1
    assert "There is no database nowhere." in nowhere.stderr


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
