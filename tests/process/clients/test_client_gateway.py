"""Both Python clients follow the feed through a gateway that loses the service."""

from __future__ import annotations

import pytest

from portolan_client import BEGINNING, AsyncClient, ServerError
from tests.faults.service import Service
from tests.process.clients.both import Kind, following, next_of, opened
from tests.process.clients.gateway import gateway, refusal

PROBLEM = b'{"type": "/problems/bad-gateway", "status": 502}'
REFUSALS = [
    refusal(502),
    refusal(504, b""),
    refusal(502, PROBLEM, "Content-Type: application/problem+json"),
    refusal(504, b"no gzip", "Content-Encoding: gzip", "Retry-After: 0"),
]


async def test_the_feed_goes_on_once_a_gateway_has_found_the_service_again(
    started: Service, database: str, kind: Kind
) -> None:
    async with (
        gateway(started.data) as between,
        opened(kind, between.url, database) as shop,
        AsyncClient(started.data, database) as other,
        following(shop, after=BEGINNING) as changes,
    ):
        await other.put("customers", "c0", {"name": "0"})
        assert (await next_of(changes)).object_id == "c0"
        between.refusals += REFUSALS
        between.cut()
        await other.put("customers", "c1", {"name": "1"})
        while (change := await next_of(changes)).object_id != "c1":
            assert change.object_id == "c0"  # it may come again
        assert not between.refusals


async def test_a_gateway_that_does_not_find_the_service_ends_the_feed(
    started: Service, database: str, kind: Kind
) -> None:
    async with gateway(started.data) as between, opened(kind, between.url, database) as shop:
        between.refusals += [refusal(502)] * 9
        async with following(shop, reconnects=2) as changes:
            with pytest.raises(ServerError, match="502"):
                await next_of(changes)
        assert len(between.refusals) == 6


async def test_what_is_no_gateways_trouble_ends_the_feed_at_once(
    started: Service, database: str, kind: Kind
) -> None:
    async with gateway(started.data) as between, opened(kind, between.url, database) as shop:
        between.refusals += [refusal(500)] * 2
        async with following(shop, reconnects=1) as changes:
            with pytest.raises(ServerError, match="500"):
                await next_of(changes)
        assert len(between.refusals) == 1
