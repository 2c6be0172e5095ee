"""Several replicas on one catalogue: each adopts the changes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from mediator.base.errors import (
    NotFound,
)
from mediator.coordination.metrics_exchange import KEY
from mediator.model.operations import Outcome
from mediator.schema.parse import parse_schema
from mediator.schema.tree import Schema
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.control.classes import class_on
from tests.process.service import Service, service


async def test_a_restart_serves_the_same_model_without_probing(
    mediator: Service, replica: Service
) -> None:
    await mediator.mediator.registry.reconnect()

    async def agree() -> bool:  # the erasure of fields can put another epoch in force
        for instance in (mediator, replica):
            await instance.mediator.schemas.refresh()
        return replica.mediator.data.model.epoch == mediator.mediator.data.model.epoch

    await eventually(agree)
    model = mediator.mediator.data.model
    for name, database in model.databases.items():
        for class_name in database.classes:
            assert replica.systems_of(name, class_name) == mediator.systems_of(name, class_name)
    for system in await replica.mediator.control.systems():
        described = await mediator.mediator.control.system(system["name"])
        assert system["findings"] == described["findings"]
        assert system["stated_metrics"] == described["stated_metrics"]


async def test_a_replica_adopts_the_changes_of_another(mediator: Service, replica: Service) -> None:
    name = await mediator.put_schema({"notes": class_on("postgres")})
    await mediator.create(name, "notes", "x", title="t")
    assert await replica.values(name, "notes", "x") == {"title": "t"}
    more = {"classes": {"notes": class_on("postgres"), "more": class_on("redis")}}
    await mediator.mediator.control.set_schema(name, more)
    await replica.create(name, "more", "y", title="u")
    assert await mediator.values(name, "more", "y") == {"title": "u"}
    await mediator.mediator.control.amend("redis", declared=["elasticity"])
    await replica.mediator.registry.reconnect()
    assert "elasticity" in (await replica.mediator.control.system("redis"))["capabilities"]
    await mediator.mediator.control.amend("redis", declared=[])


async def test_only_the_schema_that_changes_is_parsed(
    mediator: Service, replica: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, parsed = await mediator.put_schema({"notes": class_on("postgres")}), []
    await replica.mediator.schemas.refresh()
    await replica.mediator.scheduler.stop()  # it follows on demand only, at known times

    def count_parse(database: str, document: Any) -> Schema:
        parsed.append(database)
        return parse_schema(database, document)

    for module in ("layout", "schema_planner"):
        monkeypatch.setattr(f"mediator.control.{module}.parse_schema", count_parse)
    more = {"classes": {"notes": class_on("postgres"), "more": class_on("redis")}}
    await mediator.mediator.control.set_schema(name, more)
    assert parsed == [name, name]  # as received, and as stored
    await replica.create(name, "more", "y", title="u")
    assert parsed == [name] * 3
    for plane in (mediator, replica):
        assert (await plane.mediator.control.schema(name)).version == 2
        assert name in [described["name"] for described in await plane.mediator.control.databases()]
        with pytest.raises(NotFound):
            await plane.mediator.control.schema("nobody")
    assert parsed == [name] * 3


async def test_of_two_changes_on_one_version_one_wins(mediator: Service, replica: Service) -> None:
    name = await mediator.put_schema({"notes": class_on("postgres")})
    one = {"classes": {"notes": class_on("postgres"), "one": class_on("redis")}}
    two = {"classes": {"notes": class_on("postgres"), "two": class_on("redis")}}
    results = await asyncio.gather(
        mediator.mediator.control.set_schema(name, one, version=1),
        replica.mediator.control.set_schema(name, two, version=1),
        return_exceptions=True,
    )
    assert sorted(type(result).__name__ for result in results) == [
        "PreconditionFailed",
        "SchemaChange",
    ]
    stored = await mediator.mediator.control.schema(name)
    assert stored.version == 2
    assert ("one" in stored.document["classes"]) == (not isinstance(results[0], Exception))


async def test_concurrent_changes_of_two_replicas_to_their_databases_are_kept(
    mediator: Service, replica: Service
) -> None:
    names = await asyncio.gather(
        *(plane.put_schema({"notes": class_on("redis")}) for plane in (mediator, replica) * 4)
    )
    for plane in (mediator, replica):
        for name in names:
            with pytest.raises(NotFound, match="notes/nobody"):
                await plane.get(name, "notes", "nobody")
        await plane.mediator.schemas.refresh()
        assert set(names) <= set(plane.mediator.data.model.databases)


async def test_replicas_share_their_metrics(
    mediator: Service, system_configs: Sequence[SystemConfig], redis_config: SystemConfig
) -> None:
    url = redis_config.url
    options = {"coordination_url": url}
    catalogue = mediator.catalogue_url
    async with (
        service(system_configs, catalogue, **options) as one,  # type: ignore[arg-type]  # the url
        service(system_configs, catalogue, **options) as two,  # type: ignore[arg-type]  # the url
    ):
        name = await one.put_schema({"notes": class_on("redis")})
        outcome = await one.create(name, "notes", "x", title="t")
        assert isinstance(outcome, Outcome)
        await one.mediator.share_metrics()
        await two.mediator.share_metrics()
        rows = (await two.mediator.control.system("redis"))["traffic"]
        assert any(row["database"] == name for row in rows)
        await one.mediator.control.delete_schema(name)


async def test_a_replica_that_has_ended_shares_nothing(
    mediator: Service, redis_config: SystemConfig
) -> None:
    """Other replicas serve its load by then; it would count twice."""
    url = redis_config.url
    async with Redis.from_url(url) as shared:
        async with service([], mediator.catalogue_url, coordination_url=url) as one:
            replica = one.mediator.replica
            await one.mediator.share_metrics()
            assert await shared.hexists(KEY, replica)
        assert not await shared.hexists(KEY, replica)
