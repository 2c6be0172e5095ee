"""Access to the admin port: its pages, its routes, and the doctor's checks of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.commands.doctor.service import examine_service
from app.commands.running import key_in
from mediator.base.errors import Conflict, NotFound
from tests.process.access.answers import operator_headers
from tests.process.caching.guarded import Guarded, bearer
from tests.process.service import unique


@pytest.mark.parametrize(
    ("path", "text"), [("/data?database={}&class=secrets", "there"), ("/jobs?database={}", "{}")]
)
async def test_pages_use_the_credentials_of_the_browser(
    running: Guarded, path: str, text: str
) -> None:
    key = (await operator_headers(running))["authorization"].removeprefix("Bearer ")
    answer = await running.admin.get(path.format(running.database), auth=("anybody", key))
    assert answer.status_code == 200
    assert f">{text.format(running.database)}<" in answer.text
    assert "Authorization" not in answer.text


async def test_a_typed_job_stays_on_the_page_if_runs_cannot_be_listed(running: Guarded) -> None:
    reader = bearer(await running.key("read", tenant="operator"))
    form = {"kind": "example.count", "job": '{"kind": "A long text"}', "do": "start"}
    answer = await running.admin.post(f"/jobs/{running.database}", data=form, headers=reader)
    assert "A long text" in answer.text
    assert "Forbidden" in answer.text.partition('role="alert"')[2]


async def test_only_one_of_the_writers_that_have_seen_the_same_limits_sets_them(
    running: Guarded,
) -> None:
    tenancy, tenant = running.container.mediator.tenancy, unique("tenant")
    await tenancy.put_tenant(tenant, {"rate": 1.0})
    changes = [tenancy.put_tenant(tenant, {"objects": n}, {"rate": 1.0}) for n in range(4)]
    results = await asyncio.gather(*changes, return_exceptions=True)
    present = (await tenancy.tenant(tenant))["limits"]
    conflicts = [result for result in results if isinstance(result, Conflict)]
    assert [result.extra for result in conflicts] == [{"limits": present}] * 3
    await tenancy.remove_tenant(tenant)
    with pytest.raises(NotFound):
        await tenancy.put_tenant(tenant, {}, present)


async def test_the_list_of_schemas_names_the_classes_that_a_key_concerns(
    running: Guarded,
) -> None:
    for grants, classes in (
        ([f"read:{running.database}/notes"], ["notes"]),
        ([f"jobs:{running.database}"], ["articles", "notes", "secrets"]),
    ):
        headers = bearer(await running.key(*grants))
        listed = (await running.admin.get("/admin/v1/schemas", headers=headers)).json()["items"]
        assert [(item["name"], item["classes"]) for item in listed] == [(running.database, classes)]


async def test_readiness_reveals_neither_classes_nor_errors_of_systems(
    running: Guarded,
) -> None:
    ready = await running.admin.get("/ready")
    assert ready.status_code == 200
    assert running.database not in ready.text
    report = ready.json()
    assert report["catalogue"] == report["coordination"] == {"ok": True}
    assert report["systems"]
    assert all(system == {"ok": True} for system in report["systems"].values())


async def test_a_tenant_beyond_its_rate_receives_a_retry_after(
    running: Guarded,
) -> None:
    operator = await operator_headers(running)
    tenancy = running.container.mediator.tenancy
    tenant, database = unique("busy"), unique("db")
    await tenancy.put_tenant(tenant, {"rate": 0.001, "burst": 2})
    await tenancy.own(tenant, database)
    reader = bearer(await running.key("read", tenant=tenant))
    path = f"/v1/{database}/notes/there"
    statuses = [(await running.data.get(path, headers=reader)).status_code for _ in range(3)]
    assert statuses == [404, 404, 429]
    refused = await running.data.get(path, headers=reader)
    assert int(refused.headers["retry-after"]) > 900
    assert refused.json()["type"] == "/problems/too-many-requests"
    other = f"/v1/{running.database}/notes/there"
    assert (await running.data.get(other, headers=operator)).status_code == 200


async def test_the_admin_port_refuses_writes_of_other_sites(running: Guarded) -> None:
    operator = await operator_headers(running)
    path = f"/admin/v1/tenants/{running.owner}"
    evil = operator | {"origin": "https://evil.example"}
    refused = await running.admin.put(path, json={}, headers=evil)
    assert (refused.status_code, refused.json()["type"]) == (403, "/problems/cross-site")
    assert (await running.admin.get(path, headers=evil)).status_code == 200
    for answer in (refused, await running.admin.get("/live")):
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


async def test_a_browser_sends_its_key_as_the_password_of_basic(running: Guarded) -> None:
    page = {"accept": "text/html"}
    challenged = await running.admin.get("/docs", headers=page)
    assert challenged.status_code == 401
    challenges = challenged.headers.get_list("www-authenticate")
    assert any(challenge.startswith("Basic") for challenge in challenges)
    key = await running.key("read")
    documentation = await running.admin.get("/docs", headers=page, auth=("me", key))
    assert documentation.status_code == 200
    data = await running.data.get(f"/v1/{running.database}/notes/there", auth=("me", key))
    assert data.status_code == 401


async def test_a_query_that_names_two_databases_requires_an_operator(running: Guarded) -> None:
    """Otherwise authorisation could check one of them, and the route use the other."""
    schema = await running.headers("own", "schema")
    path = f"/admin/v1/sketch?database={running.database}"
    assert (await running.admin.get(path, headers=schema)).status_code == 200
    both = f"{path}&database={running.database}"
    assert (await running.admin.get(both, headers=schema)).status_code == 403


async def test_requests_of_a_tenant_to_the_admin_port_are_limited(running: Guarded) -> None:
    tenant, operator = unique("busy"), await operator_headers(running)
    limits = {"limits": {"rate": 0.001, "burst": 2}}
    path = f"/admin/v1/tenants/{tenant}"
    assert (await running.admin.put(path, json=limits, headers=operator)).is_success
    busy = bearer(await running.key("admin", tenant=tenant))
    answers = [await running.admin.get(path, headers=busy) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) > 1
    assert (await running.admin.get("/live", headers=busy)).status_code == 200
    for _ in range(3):
        assert (await running.admin.get(path, headers=operator)).status_code == 200


async def test_the_doctor_distinguishes_the_data_port_from_the_admin_port(
    running: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client(httpx.AsyncClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options, transport=httpx.ASGITransport(running.container.data))

    monkeypatch.setattr("app.commands.doctor.service.httpx.AsyncClient", Client)
    [finding] = await examine_service("http://portolan", 10)
    assert "not as an admin API" in finding.detail


async def test_the_doctor_shows_its_key_to_the_installation(
    running: Guarded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Client(httpx.AsyncClient):
        def __init__(self, **options: Any) -> None:
            transport = httpx.ASGITransport(running.container.admin)
            super().__init__(**options, transport=transport)

    monkeypatch.setattr("app.commands.doctor.service.httpx.AsyncClient", Client)
    [refused] = await examine_service("http://portolan", 10)
    assert (refused.fatal, "PORTOLAN_KEY" in refused.remedy) == (True, True)
    file = tmp_path / "key"
    file.write_text(f"{await running.key('admin', tenant='operator')}\n")
    findings = {f.what: f for f in await examine_service("http://portolan", 10, key_in(file))}
    assert findings[f"objects of {running.database}"].found
    monkeypatch.setenv("PORTOLAN_KEY", file.read_text().strip())
    assert key_in(None) == key_in(file)
