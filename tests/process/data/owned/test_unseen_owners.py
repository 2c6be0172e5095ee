"""Definitions over a class with owners that a replica has not seen yet, and that exists."""

from __future__ import annotations

from typing import Any, Final, cast

import httpx
import pytest

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from app.security.data_port import RequestAuthoriser
from mediator.access.authorisation import Access
from mediator.access.cache import AccessCache
from mediator.access.metering import UNLIMITED
from mediator.access.model import Principal, parse_grants
from mediator.base.clock import SystemClock
from mediator.catalogue.tenants import CatalogueTenants
from mediator.data_plane.port import DataPlane
from tests.process.data.owned.drafts import Drafts
from tests.process.data.owned.notes import OWNED, QUERY, notes_of
from tests.process.late_plane import LatePlane


class LateAuthoriser:
    """Authorises every request as Ada's, by the schema of the late replica."""

    def __init__(self, tenant: str, cache: AccessCache, plane: LatePlane) -> None:
        grants = parse_grants(["read", "write"])
        self._access = Access(
            Principal("ada", tenant, grants), cache, lambda: plane.model, UNLIMITED
        )

    async def authorise(self, _: str | None) -> Access:
        return self._access

    async def revalidate(self, *_: Any) -> None:
        """Accept her credentials."""

    async def is_valid(self, *_: Any) -> bool:
        return True

    def release(self, _: Access) -> None:
        """Count nothing."""


BODIES: Final[dict[str, dict[str, Any]]] = {
    "incremental-views": {"class": "letters"},
    "standing-queries": {
        **QUERY,
        "relations": {"n": {"class": "letters"}, "w": {"stream": "words"}},
    },
    "message-flows": {
        "latency_s": 1,
        "plan": [
            {"op": "receive", "attributes": {"title": "string"}},
            {"op": "invoke", "query": {"class": "letters"}, "to": "letters"},
        ],
    },
}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("kind", BODIES)
async def test_a_class_that_another_replica_has_created_is_looked_up(
    drafts: Drafts, kind: str, method: str
) -> None:
    notes = await notes_of(drafts.running, OWNED)
    mediator = drafts.running.container.mediator
    plane = LatePlane(mediator.data)
    cache = AccessCache(CatalogueTenants(mediator.catalogue), SystemClock())
    await cache.refresh()
    api = DataApi(
        cast(DataPlane, plane),
        DataOptions(cursor_key=b"key"),
        lambda _: None,
        DataServices(
            flows=mediator.flows,
            views=mediator.incremental_views,
            standing=mediator.standing_queries,
        ),
        authoriser=cast(RequestAuthoriser, LateAuthoriser(drafts.running.owner, cache, plane)),
    )
    await notes.set(notes=OWNED, letters=OWNED)
    path = f"/v1/{notes.database}/{kind}/{await notes.create('operator', kind, BODIES[kind])}"
    transport = httpx.ASGITransport(app=api)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.request(method, path)
    assert answer.status_code == 403, answer.text
    assert answer.json()["scope"] == "admin"
