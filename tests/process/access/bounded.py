"""A tenant with its own limits, and its database, in a running service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from tests.process.caching.guarded import COUNTS, FIELDS, Guarded

__all__ = ["CLASSES", "GENERAL_BYTES", "Bounded"]

CLASSES: dict[str, Any] = {
    "notes": {"fields": FIELDS},
    "secrets": {"fields": FIELDS},
    "counts": COUNTS,
    "strict": {"require_if_match": True, "fields": FIELDS},
}
GENERAL_BYTES = 10_000


@dataclass
class Bounded:
    """A tenant with its own limits, and its database."""

    running: Guarded
    tenant: str
    database: str
    key: dict[str, str]

    async def request(self, method: str, path: str, **request: Any) -> httpx.Response:
        headers = {**self.key, **request.pop("headers", {})}
        path = f"/v1/{self.database}/{path}"
        return await self.running.data.request(method, path, headers=headers, **request)

    async def put(self, id_: str, title: str = "x", **request: Any) -> httpx.Response:
        return await self.request("PUT", f"notes/{id_}", json={"title": title}, **request)

    async def limit(self, **limits: Any) -> None:
        headers = await self.running.headers("operator", "admin")
        path = f"/admin/v1/tenants/{self.tenant}"
        answer = await self.running.admin.put(path, json={"limits": limits}, headers=headers)
        assert answer.json()["limits"] == limits

    async def figure(self, series: str) -> float | None:
        """Return the value of a series of the tenant in /metrics, or None if it has none."""
        headers = await self.running.headers("operator", "read")
        text = (await self.running.admin.get("/metrics", headers=headers)).text
        lines = [line for line in text.splitlines() if line.startswith(series)]
        lines = [line for line in lines if f'tenant="{self.tenant}"' in line]
        return float(lines[0].rpartition(" ")[2]) if lines else None

    async def refusals(self, limit: str) -> float | None:
        return await self.figure(f'portolan_tenant_refusals_total{{limit="{limit}"')
