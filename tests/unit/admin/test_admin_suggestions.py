"""Problems of the admin port suggest the intended name, whoever parses the body."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from tests.unit.http.test_http_reference import client_of


@pytest.mark.parametrize(
    ("method", "path", "body", "location", "suggestion"),
    [
        ("PUT", "tenants/acme", {"limts": {}}, "/limts", "limits"),
        ("PUT", "tenants/acme", {"limits": {"objcts": 3}}, "/limits/objcts", "objects"),
        ("POST", "tenants/acme/keys", {"subject": "a", "grant": ["read"]}, "/grant", "grants"),
        ("PATCH", "systems/redis", {"metrcs": {}}, "/metrcs", "metrics"),
        ("PUT", "tenants/acme", {"limits": {"objects": 3, "rats": 1}}, "/limits/rats", "rate"),
        ("POST", "probes/staleness", {"database": "a", "clas": "b"}, "/clas", "class"),
    ],
)
async def test_members(
    method: str, path: str, body: dict[str, Any], location: str, suggestion: str
) -> None:
    context = AdminContext(tenancy=AsyncMock(), probes=AsyncMock())
    app = create_admin_app(Mock(), CollectorRegistry(), context)
    async with client_of(app) as client:
        answer = await client.request(method, f"/admin/v1/{path}", json=body)
    assert answer.status_code == 400, answer.text
    details = {error["pointer"]: error["detail"] for error in answer.json()["errors"]}
    assert details[location].endswith(f'; did you mean "{suggestion}"?')
