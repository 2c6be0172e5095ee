"""The service under measurement: embedded stores, in this process, on free ports."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import httpx

from app.commands.demo.failed import Failed
from app.service.interruption import interruptible
from app.service.serving import Serving, serving
from app.settings.main import CacheSettings, HttpSettings, MediatorSettings

__all__ = ["RequestFailed", "Service", "portolan", "serving_here", "succeed"]

_TIMEOUT_S = 60.0
_BATCH = 1_000
_LAG = re.compile(r"^portolan_feed_lag_seconds\{.*\} (\S+)$", re.MULTILINE)
_LAG_S = 2.0
"""The gauges are measured once a second: a feed with nothing to do shows a little more than one."""


class RequestFailed(Failed):
    def __init__(self, answer: httpx.Response) -> None:
        self.detail: str = answer.json().get("detail", "")
        request = answer.request
        super().__init__(f"{request.method} {request.url}: {answer.status_code} {self.detail}")


@dataclass(frozen=True, slots=True)
class Service:
    data: httpx.AsyncClient
    admin: httpx.AsyncClient

    @classmethod
    @contextlib.asynccontextmanager
    async def at(cls, data: str, admin: str) -> AsyncIterator[Self]:
        """Connect to the addresses of the data API and the admin API, without their paths."""
        async with (
            httpx.AsyncClient(base_url=f"{data}/v1/", timeout=_TIMEOUT_S) as to_data,
            httpx.AsyncClient(base_url=f"{admin}/admin/v1/", timeout=_TIMEOUT_S) as to_admin,
        ):
            yield cls(to_data, to_admin)

    @property
    def host(self) -> str:
        return self.data.base_url.host

    @property
    def port(self) -> int:
        port = urlsplit(str(self.data.base_url)).port
        assert port is not None
        return port

    async def systems(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await succeed(self.admin.get("systems")))["items"]
        return items

    async def versions(self) -> dict[str, str]:
        """Return product and version of each system's server."""
        return {s["name"]: s["findings"]["server"] for s in await self.systems() if s["findings"]}

    async def declare(self, capabilities: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        """Declare capabilities for all systems of a kind, as an operator does."""
        for system in await self.systems():
            declared = {*system["declared"], *capabilities.get(system["kind"], ())}
            if declared != set(system["declared"]):
                body = {"declared": sorted(declared)}
                await succeed(self.admin.patch(f"systems/{system['name']}", json=body))
        return await self.systems()

    async def state(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        """State metrics for all systems of a kind; they replace measured ones."""
        for system in await self.systems():
            body = {"metrics": dict(metrics[system["kind"]])}
            await succeed(self.admin.patch(f"systems/{system['name']}", json=body))

    async def set_schema(self, database: str, document: Any) -> dict[str, Any]:
        answer: dict[str, Any] = await succeed(self.admin.put(f"schemas/{database}", json=document))
        return answer

    async def create(self, database: str, objects: Mapping[str, Mapping[str, Any]]) -> None:
        """Create or replace objects, by class and id, in batches."""
        for class_name, members in objects.items():
            operations = [
                {"op": "put", "class": class_name, "id": id_, "body": body}
                for id_, body in members.items()
            ]
            for start in range(0, len(operations), _BATCH):
                await self._put(database, operations[start : start + _BATCH])

    async def caught_up(self) -> None:
        """Wait until the feeds have caught up, so that no measurement pays for an earlier one."""
        lag_s = math.inf
        while lag_s > _LAG_S:
            await asyncio.sleep(1.1 * _LAG_S)
            metrics = await self.admin.get(self.admin.base_url.join("/metrics"))
            lags = _LAG.findall(metrics.raise_for_status().text)
            lag_s = max(map(float, lags), default=0.0)

    async def _put(self, database: str, operations: Sequence[Mapping[str, Any]]) -> None:
        batch = self.data.post(f"{database}/batch", json={"operations": operations})
        refusals = [r for r in await succeed(batch) if r["status"] >= httpx.codes.BAD_REQUEST]
        if refusals:
            raise Failed(f"an object was refused: {refusals[0]}")


async def succeed(request: Any) -> Any:
    """Await a request; return its JSON, or raise `RequestFailed`."""
    answer: httpx.Response = await request
    if answer.is_error:
        raise RequestFailed(answer)
    return answer.json()


@contextlib.asynccontextmanager
async def portolan(durability: Literal["second", "full"] = "second") -> AsyncIterator[Service]:
    """Run the service on embedded stores in a scratch directory, until the end or a signal."""
    with tempfile.TemporaryDirectory(prefix="portolan-bench-") as scratch:
        settings = MediatorSettings(embedded=True, data_dir=Path(scratch), durability=durability)
        async with serving_here(settings) as (_, service):
            yield service


@contextlib.asynccontextmanager
async def serving_here(
    settings: MediatorSettings, caching: CacheSettings | None = None
) -> AsyncIterator[tuple[Serving, Service]]:
    """Run a service in this process, on free ports; without `caching` it has no sketch.

    Raises:
        Interrupted: SIGINT or SIGTERM arrived.
    """
    http = HttpSettings(port=0, admin_port=0, log_level="warning")
    async with (
        serving(http, settings, caching) as running,
        interruptible(running.ended),
        Service.at(running.addresses.data, running.addresses.admin) as service,
    ):
        yield running, service
