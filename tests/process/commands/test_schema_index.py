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
    empty = await opened.run("schema", "index", opened.database)
    assert empty.lines == []
    assert f"No index is proposed for {opened.database}" in empty.stderr
    await opened.put("products", "lamp", {"name": "Lamp", "price": "1", "stock": 3})
    url = f"{opened.service.data}/v1/{opened.database}/products/query"
    query = {"filter": {"ge": ["stock", 2]}}
    async with httpx.AsyncClient(timeout=WITHIN_S) as client:
        for _ in range(2):
            assert (await client.post(url, json=query)).status_code == 422
        proposed = await opened.run("schema", "index", opened.database)
        assert proposed.lines == [
            "products.stock",
            '  refused 2 times: needs a scan  {"filter":{"ge":["stock","?"]}}',
        ]
        [as_json] = orjson.loads((await opened.run(*listed_as_json(opened))).stdout)
        assert as_json["index"] == "products.stock"
        assert as_json["patch"] == {"classes": {"products": {"fields": {"stock": {"index": True}}}}}
        assert as_json["queries"][0]["refused"] == 2
        add = ("schema", "index", opened.database, "products.stock")
        difference = "~ products.stock  index: false → true"
        assert (await opened.run(*add, "--dry-run")).lines[0] == difference
        unconfirmed = await opened.call(*add)
        assert unconfirmed.exit_code == 2
        assert (await client.post(url, json=query)).status_code == 422
        result = await opened.run(*add, "--yes")
        assert result.lines[0] == difference
        assert f"{opened.database} has version 2 of its schema now." in result.stderr
        response = await client.post(url, json=query)
        assert [object_["id"] for object_ in response.json()["items"]] == ["lamp"]
    assert orjson.loads((await opened.run(*listed_as_json(opened))).stdout) == []


def listed_as_json(shop: Shop) -> tuple[str, ...]:
    return ("schema", "index", shop.database, "--json")


async def test_an_index_that_takes_long_is_waited_for(opened: Shop) -> None:
    """The service refuses after a minute while it builds the index; the command retries."""
    present = orjson.loads((await opened.run("schema", "show", opened.database)).stdout)
    build = {"class": "products", "system": "redis", "indexes": ["stock"], "share": None}
    building = {
        "type": "/problems/conflict",
        "detail": "Not all indexes are built.",
        "builds": [build],
    }
    conflict = {"type": "/problems/conflict", "detail": "Somebody else is at it."}
    answers, requests = iter(((409, building), (200, None), (409, conflict))), []
    change = {"schema": present, "placements": {}, "moves": [], "violations": [], "notes": []}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                status, document = 200, {**change, "version": 1}
                if head.startswith(b"PUT") and b"dry_run=true" not in head:
                    requests.append(head)
                    status, content = next(answers)
                    document = content or document
                body = orjson.dumps(document)
                type_ = "application/problem+json" if status >= 400 else "application/json"
                lines = (
                    f"HTTP/1.1 {status} -\r\nContent-Type: {type_}\r\nContent-Length: {len(body)}"
                )
                writer.write(f"{lines}\r\n\r\n".encode() + body)
        writer.close()
        await writer.wait_closed()

    file = opened.file("more.json", present)
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        apply = ("schema", "apply", opened.database, file, "--yes", "--backfill", "--url", url)
        result = await opened.run(*apply)
        assert f"{opened.database} has version 1 of its schema now." in result.stderr
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
