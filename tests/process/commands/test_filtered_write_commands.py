"""`portolan update` and `portolan delete`: objects that meet conditions, from the command line."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from mediator.stores.port import SystemConfig
from tests.faults.conditions import WITHIN_S, eventually
from tests.faults.holding import Holding, proxied
from tests.faults.operation.forked import Forked, Result
from tests.faults.service import Service
from tests.process.commands.shop import Shop
from tests.process.service import scratch_catalogue, scratch_systems, unique

INCREMENT = ("--operators", '{"hits": {"inc": 1}}')
COUNTED = {"fields": {"name": {"type": "string", "index": True}, "hits": {"type": "integer"}}}


@pytest.fixture(scope="module")
async def held(
    redis_config: SystemConfig, postgresql_config: SystemConfig
) -> AsyncIterator[tuple[Service, Holding]]:
    """A service, and the proxy that holds the requests to its only store."""
    async with (
        proxied(replace(redis_config, deadline_s=60.0)) as (holding, through),
        scratch_systems(through) as configs,
        scratch_catalogue(postgresql_config) as url,
        Service.on(configs, url, sketch="off").running() as service,
    ):
        yield service, holding
        await holding.release()


async def read_until(process: Forked, text: str) -> None:
    """Read the lines of a command until one has a text."""
    async with asyncio.timeout(WITHIN_S):
        while text not in (line := (await process.output.readline()).decode()):
            assert line, "it has ended"


async def test_objects_are_counted_changed_and_deleted(opened: Shop) -> None:
    for number in range(6):
        body = {"name": f"n{number}", "price": str(number), "stock": number % 2}
        await opened.put("products", f"p{number}", body)
    target = (opened.database, "products", "--where", "price.lt=4")
    preview = await opened.run("update", *target, "--dry-run", '{"name": "cheap"}')
    assert preview.stdout == "Objects that would be changed: 4: p0, p1, p2, p3\n"
    result = await opened.run("update", *target, '{"name": "cheap"}')
    assert result.stdout == "Objects changed: 4; refused: 0.\n"

    sold = await opened.call("update", *target, "--operators", "--json", '{"stock": {"inc": -1}}')
    assert sold.exit_code == 1
    counts = {"matched": 4, "written": 2, "failed": 2, "sample": []}
    assert orjson.loads(sold.stdout) == counts
    assert [line.split(":")[0] for line in sold.stderr.splitlines()] == ["p0", "p2"]

    deleted = await opened.run("delete", *target, "--after", "p1")
    assert deleted.stdout == "Objects deleted: 2; refused: 0.\n"
    unfiltered = await opened.call("delete", opened.database, "products")
    assert unfiltered.exit_code == 1
    assert "all must be true to write every object" in unfiltered.stderr
    assert (await opened.run("delete", opened.database, "products", "--all")).lines == [
        "Objects deleted: 4; refused: 0."
    ]


async def test_a_write_that_is_interrupted_goes_on_under_its_key(
    held: tuple[Service, Holding], tmp_path: Path
) -> None:
    """The first request still holds the key when the second one arrives."""
    service, holding = held
    shop = Shop(service, tmp_path, unique("shop"))
    await service.put_schema(shop.database, {"pages": COUNTED})
    for id_ in "ab":
        await shop.put("pages", id_, {"name": "chosen", "hits": 0})
    arguments = ("update", shop.database, "pages", "--where", "name=chosen", *INCREMENT)
    holding.sent.clear()
    holding.hold()

    async def is_sent() -> bool:
        return any(b"chosen" in request for request in holding.sent)

    first = await shop.start(*arguments)
    await eventually(is_sent)
    first.send(signal.SIGINT)
    async with asyncio.timeout(WITHIN_S):
        status, output = await first.ended()
    assert status == 130
    [key] = re.findall(r"Interrupted\. To go on: --idempotency-key (\w+)\n", output)

    second = await shop.start(*arguments, "--idempotency-key", key)
    await read_until(second, "has not been answered yet. Trying again")
    await holding.release()
    async with asyncio.timeout(WITHIN_S):
        status, output = await second.ended()
    assert (status, output) == (0, "Objects changed: 2; refused: 0.\n")
    pages = (await shop.run("export", shop.database, "pages")).objects
    assert [page["hits"] for page in pages] == [1, 1]


IN_USE = {"type": "/problems/idempotency-key-in-use", "detail": "It is under way."}
DONE = {"matched": 1, "written": 1, "failed": 0, "next": None}
FULL = {"type": "/problems/insufficient-storage", "detail": "no room", "next": "a b"}


def answer(status: int, document: object) -> bytes:
    body = orjson.dumps(document)
    head = f"HTTP/1.1 {status} X\r\nRetry-After: 1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def update_through(
    shop: Shop, answers: list[bytes], *arguments: str
) -> tuple[Result, set[str]]:
    """Update at a server that loses its first answer, then sends these; also return the keys."""
    keys: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        keys.extend(re.findall(rb"idempotency-key: ([^\r]+)\r", head.lower()))
        length = re.findall(rb"content-length: (\d+)", head.lower())[0]
        await reader.readexactly(int(length))
        if len(keys) > 1:
            writer.write(answers.pop(0))
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        command = ("update", "shop", "pages", "--all", *INCREMENT, "--url", url)
        result = await shop.call(*command, *arguments)
    return result, {key.decode() for key in keys}


async def test_a_write_whose_connection_is_lost_waits_until_it_has_ended(shop: Shop) -> None:
    answers = [answer(409, IN_USE), answer(409, IN_USE), answer(200, DONE)]
    result, keys = await update_through(shop, answers)
    assert (result.exit_code, answers, len(keys)) == (0, [], 1), result
    assert result.stdout == "Objects changed: 1; refused: 0.\n"


async def test_a_write_that_gives_up_says_under_which_key_it_goes_on(shop: Shop) -> None:
    """Even if it knows of no object written."""
    result, [key] = await update_through(shop, [answer(403, {"detail": "No."})])
    assert result.exit_code == 1
    assert result.stderr.endswith(f"That was not done: No. To go on: --idempotency-key {key}\n")
    options = ("--idempotency-key", '"a b"')
    result, keys = await update_through(shop, [answer(507, FULL)], *options)
    assert keys == {'"a b"'}
    assert result.stderr.endswith("""no room To go on: --idempotency-key '"a b"' --after 'a b'\n""")


@pytest.mark.parametrize("key", ["", "a b", "ä", '"', "a" * 256, "a\nb"])
async def test_a_key_that_the_service_does_not_take_is_refused(shop: Shop, key: str) -> None:
    result = await shop.call("delete", "shop", "pages", "--all", "--idempotency-key", key)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "1 to 255 visible ASCII characters are expected." in result.stderr
