"""A schema that is refused, or a database that never existed, leaves nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import func, select

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.coherence.caches import make_caches
from app.settings.main import CacheSettings
from mediator.catalogue.tables import secrets
from mediator.stores.port import SystemConfig
from tests.process.service import Service, field_on, unique

PLACED = {"fields": {"title": field_on("redis")}}
UNPLACEABLE = {
    "fields": {"title": {"type": "string", "annotations": [{"require": "full_text_search"}]}}
}
WRONG = {"fields": {"title": {"type": "strin"}}}


@pytest.fixture
async def admin(
    mediator: Service, redis_config: SystemConfig
) -> AsyncIterator[tuple[httpx.AsyncClient, list[str]]]:
    """A client of the admin API, and the classes that its sketch was notified of."""
    caches = make_caches(CacheSettings(sketch="redis"), redis_config.url)
    assert caches is not None
    announced: list[str] = []
    create = caches.sketch.create

    async def record(partition: Any) -> None:
        announced.append(partition.class_name)
        await create(partition)

    caches.sketch.create = record  # type: ignore[method-assign]  # recorded, and created
    control = caches.coherent(mediator.mediator.control, mediator.mediator.registrations.secret)
    app = create_admin_app(control, CollectorRegistry(), AdminContext(caches=caches))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
        yield client, announced
    await caches.close()


async def count_secrets(service: Service, database: str) -> int:
    """Count the secrets of the sketch for the classes of a database."""
    condition = secrets.c.name.like(f"sketch:{database}/%")
    async with service.mediator.catalogue.begin() as connection:
        result = await connection.execute(select(func.count()).where(condition))
        return int(result.scalar_one())


@pytest.mark.parametrize("refused", [UNPLACEABLE, WRONG])
async def test_a_refused_schema_notifies_no_sketch(
    mediator: Service, admin: tuple[httpx.AsyncClient, list[str]], refused: dict[str, Any]
) -> None:
    client, announced = admin
    database = unique("db")
    path = f"/admin/v1/schemas/{database}"
    answer = await client.put(path, json={"classes": {"fine": PLACED, "not": refused}})
    assert answer.status_code in (400, 409, 422), answer.text
    assert (announced, await count_secrets(mediator, database)) == ([], 0)
    assert (await client.put(path, json={"classes": {"fine": PLACED}})).status_code == 200
    assert (announced, await count_secrets(mediator, database)) == (["fine"], 1)
    patch = {"classes": {"more": refused}}
    headers = {"content-type": "application/merge-patch+json"}
    answer = await client.patch(path, json=patch, headers=headers)
    assert answer.status_code in (400, 409, 422), answer.text
    assert (announced, await count_secrets(mediator, database)) == (["fine"], 1)
