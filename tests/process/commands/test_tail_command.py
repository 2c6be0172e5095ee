"""`portolan tail`: changes of a shop, as they happen."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson

from tests.faults.operation.forked import Forked
from tests.process.commands.shop import Shop


@asynccontextmanager
async def follow(shop: Shop, *arguments: str) -> AsyncIterator[Forked]:
    """Follow all changes of a shop; kill the command at the end."""
    process = await shop.start("tail", shop.database, *arguments, "--after", "beginning")
    try:
        yield process
    finally:
        process.send(signal.SIGKILL)
        await process.ended()


async def line_of(process: Forked) -> str:
    async with asyncio.timeout(120):
        return (await process.output.readline()).decode()


async def test_changes_are_printed_until_an_interrupt(opened: Shop) -> None:
    async with follow(opened, "customers") as process:
        await opened.put("products", "lamp", {"name": "Lamp"})
        await opened.put("customers", "ada", {"name": "Ada"})
        assert re.fullmatch(r'\S+Z  create   customers/ada  name: "Ada"\n', await line_of(process))
        await opened.put("customers", "ada", {"name": "A\x1b[31m"})
        line = await line_of(process)
        assert line.endswith('  replace  customers/ada  name: "Ada" → "A\\u001b[31m"\n')
        process.send(signal.SIGINT)
        async with asyncio.timeout(120):
            status, output = await process.ended()
    assert status == 0
    [position] = re.findall(r"To go on: --after (\S+)\n", output)
    await opened.put("customers", "ben", {"name": "Ben"})
    resume = ("tail", opened.database, "customers", "--json", "--after", position)
    process = await opened.start(*resume)
    change = orjson.loads(await line_of(process))
    if change["object"] == "ada":  # the last change is repeated if its end had not been read
        change = orjson.loads(await line_of(process))
    process.send(signal.SIGKILL)
    await process.ended()
    assert (change["object"], change["after"]) == ("ben", {"name": "Ben"})


async def test_several_classes_are_followed(opened: Shop) -> None:
    async with follow(opened, "customers", "orders", "--json") as process:
        await opened.put("products", "lamp", {"name": "Lamp"})
        for id_ in ("ada", "ben"):
            await opened.put("customers", id_, {"name": id_})
            assert orjson.loads(await line_of(process))["object"] == id_


async def test_tail_goes_on_after_a_restart_of_the_service(opened: Shop) -> None:
    async with follow(opened, "customers") as process:
        await opened.put("customers", "ada", {"name": "Ada"})
        assert "customers/ada" in await line_of(process)
        await opened.service.kill()
        await opened.service.start()
        await opened.put("customers", "ben", {"name": "Ben"})
        while "customers/ben" not in (line := await line_of(process)):
            # The change can be printed again, after the reason for the wait.
            assert "customers/ada" in line or "Trying again" in line


async def test_unknown_classes_databases_and_positions_are_refused(opened: Shop) -> None:
    for arguments in ([opened.database, "toys"], ["nowhere"], [opened.database, "--after", "x"]):
        refused = await opened.call("tail", *arguments)
        assert refused.exit_code == 1
        assert refused.stderr.startswith("That was not done: ")
    assert (await opened.call("tail", opened.database, "Toys")).exit_code == 2
