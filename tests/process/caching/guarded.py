"""An installation that requires keys: two tenants, a database with a class of each visibility."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from app.service.container import Container, build
from app.settings.access import AccessSettings
from app.settings.main import CacheSettings, HttpSettings, MediatorSettings, SystemSettings
from mediator.stores.port import SystemConfig
from tests.process.access.examinations import recall, remember
from tests.process.caching.cached_paper import MARGIN_S
from tests.process.jobs.idle_worker import idle_worker
from tests.process.service import unique

__all__ = ["CALLERS", "CLASSES", "COUNTS", "FIELDS", "Guarded", "bearer", "guarded"]

FIELDS = {"title": {"type": "string", "index": True}, "kin": {"type": "reference", "to": "secrets"}}
COUNTS = {
    "fields": {
        "value": {"type": "string"},
        "rows": {"type": "integer"},
        "share": {"type": "float"},
    }
}
"""A class for the result of `example.count`."""

CLASSES: dict[str, Any] = {
    "articles": {"cache": {"visibility": "public"}, "fields": FIELDS},
    "notes": {"cache": {"visibility": "private"}, "fields": FIELDS},
    "secrets": {"fields": FIELDS},
}

CALLERS = ("anonymous", "stranger", "bare", "own", "operator")
"""Without a key; with all rights of another tenant; of the owner's tenant with a scope other than
the required one; with the required scope; and with all rights of the operator."""


@dataclass
class Guarded:
    """A running installation, and keys of its callers.

    Attributes:
        container: The services.
        database: The database, owned by ``owner``.
        owner: Its tenant.
        other_tenant: Another tenant, which owns a database without a schema.
        keys: The texts of keys by tenant and grants.
    """

    container: Container
    database: str
    owner: str
    other_tenant: str
    keys: dict[str, str] = field(default_factory=dict)
    data: httpx.AsyncClient = field(init=False)
    admin: httpx.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        self.data = _client(self.container.data)
        self.admin = _client(self.container.admin)

    async def key(self, *grants: str, tenant: str | None = None) -> str:
        """Return the text of a key with these grants, which the first call creates."""
        tenant = tenant or self.owner
        name = f"{tenant} {' '.join(grants)}"
        if name not in self.keys:
            tenancy = self.container.mediator.tenancy
            created = await tenancy.create_key(tenant, "somebody", grants)
            self.keys[name] = created["key"]
        return self.keys[name]

    async def headers(self, caller: str, scope: str) -> dict[str, str]:
        """Return the Authorization field of one of `CALLERS` where `scope` is required."""
        match caller:
            case "anonymous":
                return {}
            case "stranger":
                return bearer(await self.key("admin", tenant=self.other_tenant))
            case "bare":
                return bearer(await self.key("jobs" if scope != "jobs" else "read"))
            case "own":
                grants = {"read": ("read",), "jobs": ("jobs", "read", "write")}
                return bearer(await self.key(*grants.get(scope, (scope,))))
        return bearer(await self.key("admin", tenant="operator"))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@asynccontextmanager
async def guarded(
    configs: Sequence[SystemConfig],
    catalogue_url: str,
    redis_url: str,
    jobs_dir: Path,
    **access: Any,
) -> AsyncIterator[Guarded]:
    """Run an installation."""
    names = ("name", "kind", "url", "deadline_s", "namespace")
    systems = [
        SystemSettings.model_validate({name: getattr(config, name) for name in names})
        for config in configs
    ]
    settings = MediatorSettings(
        catalogue_url=SecretStr(catalogue_url),
        coordination_url=SecretStr(redis_url),
        relays="here",
        systems=systems,
        data_dir=jobs_dir,
    )
    caching = CacheSettings(sketch="redis", cache_margin_s=MARGIN_S)
    access_settings = AccessSettings(authentication="required", **access)
    await recall(configs, catalogue_url)
    container = await build(HttpSettings(), settings, caching, access_settings)
    try:
        await remember(configs, catalogue_url)
        async with idle_worker(container.mediator.workers):
            yield await _fill(container)
    finally:
        await container.stop()


async def _fill(container: Container) -> Guarded:
    running = Guarded(container, unique("db"), unique("acme"), unique("globex"))
    tenancy = container.mediator.tenancy
    for tenant in (running.owner, running.other_tenant):
        await tenancy.put_tenant(tenant, {})
    await tenancy.own(running.owner, running.database)
    await tenancy.own(running.other_tenant, unique("db"))
    operator = await running.headers("operator", "write")
    # Over HTTP, so that the sketch is notified of the classes and lets answers be kept at once.
    path = f"/admin/v1/schemas/{running.database}"
    schema_reply = await running.admin.put(path, json={"classes": CLASSES}, headers=operator)
    assert schema_reply.status_code == 200, schema_reply.text
    for name in CLASSES:
        path = f"/v1/{running.database}/{name}/there"
        object_reply = await running.data.put(path, json={"title": name}, headers=operator)
        assert object_reply.status_code == 201, object_reply.text
    return running


def _client(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://portolan", timeout=60)
