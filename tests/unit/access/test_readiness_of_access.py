"""Readiness if requests need keys: none is admitted once it is unknown which keys are valid."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.security.security import Security
from app.settings.access import AccessSettings
from mediator.access.cache import VALID_S, AccessCache
from mediator.base.errors import Unavailable
from mediator.base.observation import Observation
from tests.unit.access.issuers import SetClock, Source


async def _count(database: str) -> int:
    raise AssertionError(f"the objects of {database} are not limited")


def _observe(observation: Observation) -> None:
    """Ignore events."""


async def _readiness() -> dict[str, Any]:
    """Return the readiness of a catalogue and a system that answer."""
    ok = {"ok": True}
    return {"ready": True, "degraded": [], "catalogue": ok, "systems": {"redis": ok}}


async def test_a_replica_is_not_ready_once_it_refuses_all_requests() -> None:
    clock, source = SetClock(), Source()
    cache = AccessCache(source, clock)
    security = Security(AccessSettings(), cache, clock, _count, _observe)
    control: Any = SimpleNamespace(readiness=_readiness)
    app = create_admin_app(control, CollectorRegistry(), AdminContext(security=security))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as admin:

        async def statuses() -> list[int]:
            return [(await admin.get(path)).status_code for path in ("/startup", "/ready")]

        source.snapshot_, snapshot = None, source.snapshot_
        clock.since_s += VALID_S + 1
        assert await statuses() == [503, 503], "it was never able to serve"
        source.snapshot_ = snapshot
        await cache.refresh()
        assert await statuses() == [200, 200]
        source.snapshot_ = None
        clock.since_s += VALID_S
        with pytest.raises(Unavailable):
            await cache.refresh()
        assert await statuses() == [200, 200], "keys are known for a while"
        clock.since_s += 1
        assert await statuses() == [200, 503]
        answer = await admin.get("/ready")
        assert answer.headers["portolan-degraded"] == "catalogue"
        assert answer.json()["degraded"] == ["catalogue"]
        assert answer.json()["catalogue"] == {"ok": False}
        source.snapshot_ = snapshot
        await cache.refresh()
        assert await statuses() == [200, 200]
