"""Keys: created, listed, bounded, revoked, and never shown again."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from app.commands.key import key
from mediator.access.cache import AccessCache
from mediator.access.keys import NewKey
from mediator.access.model import Principal
from mediator.base.clock import SystemClock
from mediator.base.errors import NotFound
from mediator.catalogue.tenants import CatalogueTenants
from mediator.control.tenancy import Tenancy
from tests.process.access.answers import operator_headers
from tests.process.access.bounded import Bounded
from tests.process.caching.guarded import Guarded, bearer
from tests.process.operation.asgi_driver import send_raw
from tests.process.service import NOWHERE, unique


@pytest.mark.parametrize("subject", ["a\0b", "a\nb", "\x9b", "a" * 256, ""])
async def test_a_key_is_for_a_subject_that_can_be_stored(running: Guarded, subject: str) -> None:
    path = f"/admin/v1/tenants/{running.owner}/keys"
    body = {"subject": subject, "grants": ["read"]}
    refused = await running.admin.post(path, json=body, headers=await operator_headers(running))
    assert refused.status_code == 400
    assert [location["pointer"] for location in refused.json()["errors"]] == ["/subject"]


async def test_a_revoked_key_is_refused(running: Guarded) -> None:
    operator = await operator_headers(running)
    keys = f"/admin/v1/tenants/{running.owner}/keys"
    body = {"subject": "ada", "grants": ["read"], "label": "phone"}
    created = await running.admin.post(keys, json=body, headers=operator)
    assert created.status_code == 201
    assert created.headers["cache-control"] == "no-store"
    key = created.json()
    headers = bearer(key["key"])
    path = f"/v1/{running.database}/notes/there"
    assert (await running.data.get(path, headers=headers)).status_code == 200
    listed = await running.admin.get(keys, headers=operator)
    assert key["id"] in listed.text
    assert key["key"][-43:] not in listed.text
    deletion = await running.admin.delete(f"{keys}/{key['id']}", headers=operator)
    assert deletion.status_code == 204
    refused = await running.data.get(path, headers=headers)
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    # Even a public class is not served to an invalid key.
    public = f"/v1/{running.database}/articles/there"
    assert (await running.data.get(public, headers=headers)).status_code == 401


class Removing(CatalogueTenants):
    """Another replica removes the tenant as soon as it has a key."""

    async def add_key(
        self, new: NewKey, principal: Principal, label: str, expires: float | None
    ) -> None:
        await super().add_key(new, principal, label, expires)
        await self.remove(principal.tenant)


async def test_a_key_that_is_gone_when_it_is_described_is_not_found(running: Guarded) -> None:
    store = Removing(running.container.mediator.catalogue)
    tenancy, tenant = Tenancy(store, SystemClock()), unique("t")
    await tenancy.put_tenant(tenant, {})
    with pytest.raises(NotFound, match="revoked"):
        await tenancy.create_key(tenant, "ada", ["read"])


async def test_another_replica_observes_a_revocation(running: Guarded) -> None:
    """It does at its next refresh, which takes place every second."""
    tenancy = running.container.mediator.tenancy
    other = AccessCache(CatalogueTenants(running.container.mediator.catalogue), SystemClock())
    created = await tenancy.create_key(running.owner, "ada", ["read"])
    await other.refresh()
    assert created["id"] in other.current.keys
    await tenancy.revoke(running.owner, created["id"])
    await other.refresh()
    assert created["id"] not in other.current.keys


async def test_a_stream_breaks_off_when_its_key_is_revoked(running: Guarded) -> None:
    tenancy = running.container.mediator.tenancy
    created = await tenancy.create_key(running.owner, "ada", ["read"])
    operator = await operator_headers(running)
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/v1/{running.database}/changes",
        "raw_path": f"/v1/{running.database}/changes".encode(),
        "query_string": b"",
        "headers": [
            (b"accept", b"text/event-stream"),
            (b"authorization", f"Bearer {created['key']}".encode()),
        ],
    }

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 2:
            await tenancy.revoke(running.owner, created["id"])
            path = f"/v1/{running.database}/notes/streamed"
            await running.data.put(path, json={"title": "secret"}, headers=operator)

    await running.container.data(scope, receive, send)
    assert sent[0]["status"] == 200
    assert b"secret" not in b"".join(message.get("body", b"") for message in sent)
    assert sent[-1][
        "more_body"
    ]  # without the last message the client sees that the stream broke off


async def test_an_export_breaks_off_when_the_right_to_the_class_is_gone(bounded: Bounded) -> None:
    """The key is still valid, so only the lost right can end the export."""
    lines = b"".join(b'{"id":"%d"}\n' % number for number in range(900))
    headers = {"content-type": "application/x-ndjson"}
    await bounded.request("POST", "notes/import", content=lines, headers=headers)
    container, path = bounded.running.container, f"/v1/{bounded.database}/notes/export".encode()
    key = [(b"authorization", bounded.key["authorization"].encode())]
    full = await send_raw(container.data, "GET", path, headers=key)
    assert (full.complete, len(full.body.splitlines())) == (True, 900)

    async def disown() -> None:
        await container.mediator.tenancy.disown(bounded.tenant, bounded.database)

    cut = await send_raw(container.data, "GET", path, headers=key, meanwhile=disown)
    assert (cut.status, cut.complete) == (200, False)
    assert 0 < len(cut.body.splitlines()) < 900
    assert (await bounded.request("GET", "notes")).status_code == 404


async def test_a_tenants_administrator_creates_keys_only_for_its_tenant(running: Guarded) -> None:
    admin = bearer(await running.key("admin"))
    body = {"subject": "ada", "grants": ["admin"]}
    ours = f"/admin/v1/tenants/{running.owner}/keys"
    created = await running.admin.post(ours, json=body, headers=admin)
    assert created.status_code == 201
    reader = bearer(created.json()["key"])
    for tenant in ("operator", running.other_tenant, "nobody"):
        path = f"/admin/v1/tenants/{tenant}/keys"
        assert (await running.admin.post(path, json=body, headers=reader)).status_code == 404
    assert (await running.admin.get("/admin/v1/systems", headers=reader)).status_code == 403
    listed = (await running.admin.get("/admin/v1/schemas", headers=reader)).json()["items"]
    assert [item["name"] for item in listed] == [running.database]
    stranger = await running.headers("stranger", "admin")
    assert (await running.admin.get("/admin/v1/schemas", headers=stranger)).json()["items"] == []


@pytest.mark.parametrize("bound", ["MAX_KEYS_OF_TENANT", "MAX_KEYS"])
async def test_keys_are_bounded_for_each_tenant_and_for_all(
    running: Guarded, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    tenancy, body = running.container.mediator.tenancy, {"subject": "ada", "grants": ["read"]}
    tenant = unique("tenant")
    await tenancy.put_tenant(tenant, {})
    operator = await operator_headers(running)
    headers = await running.headers("stranger", "admin")
    theirs = f"/admin/v1/tenants/{running.other_tenant}/keys"
    assert (await running.admin.post(theirs, json=body, headers=headers)).status_code == 201
    count = len(await tenancy.keys(running.other_tenant))
    if bound == "MAX_KEYS":
        count = sum(
            key.principal.tenant != "operator" for key in tenancy.cache.current.keys.values()
        )
    monkeypatch.setattr(f"mediator.catalogue.tenants.{bound}", count)
    refused = await running.admin.post(theirs, json=body, headers=headers)
    assert refused.status_code == 409
    others = f"/admin/v1/tenants/{tenant}/keys"
    created = await running.admin.post(others, json=body, headers=operator)
    assert created.status_code == (201 if bound == "MAX_KEYS_OF_TENANT" else 409)
    if bound == "MAX_KEYS":
        ours = "/admin/v1/tenants/operator/keys"
        assert (await running.admin.post(ours, json=body, headers=operator)).status_code == 201
    monkeypatch.undo()
    await tenancy.remove_tenant(tenant)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"subject": "a", "grants": ["root"]}, "/grants/0"),
        ({"subject": "a", "grants": []}, "/grants"),
        ({"subject": "", "grants": ["read"]}, "/subject"),
        ({"subject": "a", "grants": ["read"], "expires": "2020-01-01T00:00:00Z"}, "/expires"),
        ({"subject": "a", "grants": ["read"], "expires": "9999-12-31T23:59:59-01:00"}, "/expires"),
        ({"subject": "a", "grants": ["read"], "expires": "0001-01-01T00:00:00+01:00"}, "/expires"),
        ({"subject": "a", "grants": ["read"], "more": 1}, "/more"),
    ],
)
async def test_invalid_keys_are_not_created(running: Guarded, body: Any, pointer: str) -> None:
    keys = f"/admin/v1/tenants/{running.owner}/keys"
    refused = await running.admin.post(keys, json=body, headers=await operator_headers(running))
    assert refused.status_code == 400
    assert [location["pointer"] for location in refused.json()["errors"]] == [pointer]


async def test_no_key_is_seen_again_in_answers_metrics_or_logs(
    running: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    operator = await operator_headers(running)
    created = await running.container.mediator.tenancy.create_key(running.owner, "ada", ["read"])
    key, secret = created["key"], created["key"][-43:]
    credentials = (f"Bearer {key}", f"Bearer x{key}", f"Bearer {key}x", f"Digest {key}", key)
    base = f"/v1/{running.database}"
    answers = []
    with caplog.at_level("DEBUG"):
        for credential in credentials:
            for path in (f"{base}/notes/there", f"{base}/nowhere", "/v1/none/x", "/openapi.json"):
                headers = {"authorization": credential}
                answers.append(await running.data.get(path, headers=headers))
                answers.append(await running.admin.get(f"/admin{path}", headers=headers))
        paths = ("/metrics", "/admin/v1/systems", "/admin/v1/tenants", "/ready")
        answers += [await running.admin.get(path, headers=operator) for path in paths]
        system = {"name": "away", "kind": "redis", "url": NOWHERE}
        answers.append(await running.admin.post("/admin/v1/systems", json=system, headers=operator))
    assert answers[-1].status_code == 503
    output = caplog.text + "".join(f"{answer.headers} {answer.text}" for answer in answers)
    assert secret not in output
    assert "hush-hush" not in output
    assert operator["authorization"][-43:] not in output


async def test_keys_are_created_listed_and_revoked_from_the_command_line(
    running: Guarded, own_catalogue: str
) -> None:
    async def run(*arguments: str, code: int = 0) -> str:
        environment = {"PORTOLAN_CATALOGUE_URL": own_catalogue}
        result = await asyncio.to_thread(CliRunner().invoke, key, arguments, env=environment)
        assert result.exit_code == code, result.output
        return result.output

    tenant = ("--tenant", running.owner)
    created = orjson.loads(await run("create", "--subject", "ada", "--grant", "read", *tenant))
    assert created["id"] in await run("list", *tenant)
    assert created["key"][-43:] not in await run("list", *tenant)
    await running.container.mediator.tenancy.cache.refresh()
    path = f"/v1/{running.database}/notes/there"
    answer = await running.data.get(path, headers=bearer(created["key"]))
    assert answer.status_code == 200
    await run("revoke", created["id"], *tenant)
    assert "no such key" in await run("revoke", created["id"], *tenant, code=1)
    assert "/grants/0" in await run("create", "--subject", "a", "--grant", "root", code=1)
    await running.container.mediator.tenancy.cache.refresh()
    refused = await running.data.get(path, headers=bearer(created["key"]))
    assert refused.status_code == 401
