"""Both Python clients continue after the service was killed."""

from __future__ import annotations

from portolan_client import BEGINNING, AsyncClient
from tests.faults.service import Service
from tests.process.clients.both import follow, next_change


async def test_a_client_continues_after_a_restart_of_the_service(
    started: Service, shop: AsyncClient
) -> None:
    await shop.put("customers", "ada", {"name": "Ada"})
    await started.kill()
    await started.start()
    assert (await shop.get("customers", "ada")).value["name"] == "Ada"
    assert (await shop.update("customers", "ada", {"name": {"set": "A"}})).replayed is False


async def test_a_feed_continues_after_a_restart_of_the_service(
    started: Service, shop: AsyncClient
) -> None:
    await shop.put("customers", "c0", {"name": "0"})
    async with follow(shop, after=BEGINNING) as changes:
        assert (await next_change(changes)).object_id == "c0"
        await started.kill()
        await started.start()
        await shop.put("customers", "c1", {"name": "1"})
        while (change := await next_change(changes)).object_id != "c1":
            assert change.object_id == "c0"  # it can be delivered twice
