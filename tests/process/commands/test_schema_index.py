"""`portolan schema index`: indexes are proposed, added, and waited for."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

import httpx
import orjson

from tests.faults.conditions import WITHIN_S
from tests.process.commands.shop import Shop


async def test_an_index_is_proposed_and_added(opened: Shop) -> None:
    none = await opened.done("schema", "index", opened.database)
    assert none.lines == []
    assert f"No index is proposed for {opened.database}" in none.stderr
    await opened.put("products", "lamp", {"name": "Lamp", "price": "1", "stock": 3})
    url = f"{opened.service.data}/v1/{opened.database}/products/query"
    query = {"filter": {"ge": ["stock", 2]}}
    async with httpx.AsyncClient(timeout=WITHIN_S) as client:
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
