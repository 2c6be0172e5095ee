"""A replica with admission control on a separate catalogue, and its admin API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.telemetry.metrics import Metrics
from mediator.admission.load import Load
from mediator.base.periodic_tasks import Scheduler
from mediator.catalogue.runs import StoredRun
from mediator.service import Mediator
from tests.process.service import Service

__all__ = ["RULES", "Replica", "following"]

RULES = """\
SET timer = 1
ON EVENT RunStarted e
IF workerCpuLoad() > 70 AND e.run.prio < 10 THEN stopRun(e.run)
ON EVENT Timer e
IF workerCpuLoad() < 70 AND existsRun(state = INACTIVE)
THEN startRun(selectRandomRun(state = INACTIVE))
"""


@dataclass
class Replica:
    """A replica, its admin client, and calls on behalf of its workers."""

    service: Service
    catalogue_url: str
    client: httpx.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        context = AdminContext(admission=self.mediator.admission)
        app = create_admin_app(self.mediator.control, Metrics().registry, context)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        base = "http://admin/admin/v1/admission/"
        self.client = httpx.AsyncClient(transport=transport, base_url=base)

    @property
    def mediator(self) -> Mediator:
        return self.service.mediator

    async def put(self, text: str, **request: Any) -> httpx.Response:
        headers = {"content-type": "text/plain", **request.pop("headers", {})}
        return await self.client.put("rules", content=text.encode(), headers=headers, **request)

    async def log(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await self.client.get("log")).json()["items"]
        return items

    async def report(self, cpu: float) -> None:
        await self.mediator.workers.heartbeat("worker", None, Load(cpu, 50.0))

    async def submit(self, priority: int = 0) -> str:
        document = {
            "version": 1,
            "job": {"kind": "example.count", "spec": {}, "priority": priority},
        }
        run, _ = await self.mediator.runs.submit(
            uuid4().hex, ("club", "club"), document, dry_run=False, key=None, fingerprint=None
        )
        return run.id

    async def find(self, run: str) -> StoredRun:
        return await self.mediator.runs.find("club", run)

    def held(self, run: str, held: bool = True) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            return (await self.find(run)).held is held

        return check

    def logged(self, run: str) -> Callable[[], Awaitable[bool]]:
        """Return a condition: the log has an entry for the run, written after the action."""

        async def check() -> bool:
            return any(entry["event"].get("run", {}).get("id") == run for entry in await self.log())

        return check


@asynccontextmanager
async def following(replica: Service) -> AsyncIterator[None]:
    """Let a replica follow the rules, as a serving replica does."""
    scheduler = Scheduler(replica.mediator.admission.periodic_tasks())
    scheduler.start()
    try:
        yield
    finally:
        await scheduler.stop()
