"""Both Python clients follow the feed through a gateway that loses the service."""

from __future__ import annotations

import pytest

from portolan_client import BEGINNING, AsyncClient, ServerError
from tests.faults.service import Service
from tests.process.clients.both import Kind, follow, next_change, open_client
from tests.process.clients.gateway import refusal, run_gateway

PROBLEM = b'{"type": "/problems/bad-gateway", "status": 502}'
REFUSALS = [
    refusal(502),
    refusal(504, b""),
    refusal(502, PROBLEM, "Content-Type: application/problem+json"),
    refusal(504, b"no gzip", "Content-Encoding: gzip", "Retry-After: 0"),
]


async def test_the_feed_continues_once_a_gateway_reaches_the_service_again(
    started: Service, database: str, kind: Kind
) -> None:
    async with (
        run_gateway(started.data) as gateway,
        open_client(kind, gateway.url, database) as shop,
        AsyncClient(started.data, database) as direct_client,
        follow(shop, after=BEGINNING) as changes,
    ):
        await direct_client.put("customers", "c0", {"name": "0"})
        assert (await next_change(changes)).object_id == "c0"
        gateway.refusals += REFUSALS
        gateway.cut()
        await direct_client.put("customers", "c1", {"name": "1"})
        while (change := await next_change(changes)).object_id != "c1":
            assert change.object_id == "c0"  # it can be delivered twice
        assert not gateway.refusals


async def test_a_gateway_that_cannot_reach_the_service_ends_the_feed(
    started: Service, database: str, kind: Kind
) -> None:
    async with (
        run_gateway(started.data) as gateway,
        open_client(kind, gateway.url, database) as shop,
    ):
        gateway.refusals += [refusal(502)] * 9
        async with follow(shop, reconnects=2) as changes:
            with pytest.raises(ServerError, match="502"):
                await next_change(changes)
        assert len(gateway.refusals) == 6


async def test_a_500_ends_the_feed_immediately(started: Service, database: str, kind: Kind) -> None:
    async with (
        run_gateway(started.data) as gateway,
        open_client(kind, gateway.url, database) as shop,
    ):
        gateway.refusals += [refusal(500)] * 2
        async with follow(shop, reconnects=1) as changes:
            with pytest.raises(ServerError, match="500"):
                await next_change(changes)
        assert len(gateway.refusals) == 1
