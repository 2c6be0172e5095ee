"""The placement of a shop on real stores with measured figures is the one a person would choose."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, Final

import pytest

from mediator.stores.port import SystemConfig
from tests.process.service import Service, inc, scratch_catalogue, service

SHOP: Final[dict[str, Any]] = {
    "customers": {
        "fields": {"name": {"type": "string", "index": True}, "address": {"type": "document"}}
    },
    "products": {
        "fields": {
            "name": {"type": "string", "required": True},
            "price": {"type": "integer", "index": True},
            "views": {
                "type": "integer",
                "default": 0,
                "annotations": [
                    {"require": "atomic_updates"},
                    {"metric": "write_throughput", "goal": 10_000},
                ],
            },
        }
    },
    "orders": {
        "annotations": [{"require": "durability"}],
        "fields": {
            "customer": {"type": "reference", "to": "customers"},
            "lines": {"type": "list", "items": "document"},
        },
    },
    "carts": {
        "ttl_s": 3600,
        "annotations": [{"metric": "write_latency", "goal": 0.001}],
        "fields": {"customer": {"type": "string"}, "lines": {"type": "map", "items": "integer"}},
    },
    "reviews": {
        "fields": {
            "product": {"type": "reference", "to": "products"},
            "text": {"type": "string", "max_length": 10_000},
        }
    },
}
ON_REDIS: Final = {"products.views", "carts", "carts.customer", "carts.lines"}
STATED: Final[dict[str, dict[str, float | None]]] = {
    "redis": {"write_throughput": 8_000, "write_latency": 0.0004},
    "postgres": {"write_throughput": 4_000, "write_latency": 0.0016},
    "mongo": {"write_throughput": 1_000, "write_latency": 0.0032},
}
"""Stated figures, which replace the measurements of a busy machine."""
BURST_S: Final = 3.0
"""Short against the minutes that a latency is averaged over, however slow the machine is."""
CONCURRENCY: Final = 16


@pytest.fixture
async def newcomer(
    system_configs: Sequence[SystemConfig], postgresql_config: SystemConfig
) -> AsyncIterator[Service]:
    """A new service on the three stores, PostgreSQL with its default: synchronous commits."""
    configs = [
        replace(config, durability="full") if config.kind == "postgresql" else config
        for config in system_configs
    ]
    async with (
        scratch_catalogue(postgresql_config) as catalogue_url,
        service(configs, catalogue_url) as started,
    ):
        yield started


async def _declare(shop: Service) -> None:
    """Declare a capability that stays unknown if the probe times out."""
    for name in STATED:
        await shop.mediator.control.amend(name, declared=["atomic_updates"])


async def _placements(shop: Service) -> dict[str, dict[str, Any]]:
    change = await shop.mediator.control.set_schema("shop", {"classes": SHOP}, dry_run=True)
    return dict(change.placements)


async def _burst(shop: Service) -> None:
    """Count views and fill carts as fast as the service allows, for some seconds."""
    database = await shop.put_schema(SHOP)
    await shop.create(database, "products", "p", name="Lamp", price=30)
    numbers, ends_at = itertools.count(), monotonic() + BURST_S

    async def write() -> None:
        while monotonic() < ends_at:
            await shop.mediator.data.write(inc(database, "products", "p", "views"))
            await shop.create(database, "carts", f"c{next(numbers)}", customer="ada")

    await asyncio.gather(*(write() for _ in range(CONCURRENCY)))
    await shop.mediator.control.delete_schema(database)


async def test_a_shop_is_placed_as_a_person_would_and_a_burst_changes_nothing(
    newcomer: Service,
) -> None:
    await _declare(newcomer)
    before = await _placements(newcomer)
    systems = {node: placement["system"] for node, placement in before.items() if node != "*"}
    assert {node for node, system in systems.items() if system == "redis"} == ON_REDIS
    assert set(systems.values()) == {"redis", "postgres"}
    await _burst(newcomer)
    after = await _placements(newcomer)
    assert {
        node: placement["system"] for node, placement in after.items() if node != "*"
    } == systems


async def test_the_placement_of_a_shop_is_explained(newcomer: Service) -> None:
    await _declare(newcomer)
    for name, metrics in STATED.items():
        await newcomer.mediator.control.amend(name, metrics=metrics)
    reasons = {node: placement["why"] for node, placement in (await _placements(newcomer)).items()}
    default = (
        "nothing is required of it, so it is on the default system: of the systems that can do all"
        " that is required of customers, postgres loses least in a crash (0 s; "
    )
    assert reasons["customers.address"].startswith(default)
    views = reasons["products.views"]
    assert views == (
        "products.views requires atomic_updates: redis writes twice as fast as postgres (8,000/s,"
        " 4,000/s), and write throughput is 100 % of the score."
    )
    assert reasons["products"].startswith(
        "products has fields without goals, so it is on the default"
    )
    assert "redis writes 4 times as fast as postgres (400 µs, 1.6 ms)" in reasons["carts.lines"]
    assert reasons["orders.lines"].startswith(
        "orders stays on one system, as it requires durability: "
    )
    candidates = "score alike, and of the systems that can do all that is required of orders, "
    assert candidates in reasons["orders"]
