"""Access to a running installation: what is hidden, per class, kept by caches, and taken back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from typer.testing import CliRunner

from app.commands.doctor.service import examine_service
from app.commands.key import key
from app.commands.running import key_in
from mediator.access.cache import AccessCache
from mediator.base.clock import SystemClock
from tests.process.caching.guarded import Guarded, bearer
from tests.process.service import NOWHERE, unique

VOLATILE = {"x-request-id", "server-timing", "date", "content-length"}
"""What no two answers share; the body's length is that of the request's id, which grows."""


def told(answer: httpx.Response) -> tuple[int, Any, dict[str, str]]:
    """Everything that an answer tells, but for what no two answers share."""
    body = {name: value for name, value in answer.json().items() if name != "instance"}
    headers = {name: value for name, value in answer.headers.items() if name not in VOLATILE}
    return answer.status_code, body, headers


async def operate(running: Guarded) -> dict[str, str]:
    return await running.headers("operator", "admin")


@pytest.mark.parametrize(
    ("class_name", "grant", "named"),
    [
        ("articles", None, False),
        ("articles", "read", False),
        ("articles", "admin", False),
        ("notes", "read", False),
        ("notes", "write", False),
        ("notes", "schema", True),
        ("notes", "admin", True),
    ],
)
async def test_systems_are_named_to_who_may_see_placements(
    running: Guarded, class_name: str, grant: str | None, *, named: bool
) -> None:
    headers = bearer(await running.key("read", grant)) if grant else {}
    path = f"/v1/{running.database}/{class_name}/there"
    answer = await running.data.get(path, headers=headers)
    assert answer.status_code == 200
    timing = answer.headers["server-timing"]
    assert "store;" in timing
    assert ("desc=" in timing) is named


@pytest.mark.parametrize(
    ("path", "shown"), [("/data?database={}&class=secrets", "there"), ("/jobs?database={}", "{}")]
)
async def test_pages_ask_for_data_with_the_key_that_a_browser_has(
    running: Guarded, path: str, shown: str
) -> None:
    key = (await operate(running))["authorization"].removeprefix("Bearer ")
    answer = await running.admin.get(path.format(running.database), auth=("anybody", key))
    assert answer.status_code == 200
    assert f">{shown.format(running.database)}<" in answer.text
    assert "Authorization" not in answer.text


@pytest.mark.parametrize("subject", ["a\0b", "a\nb", "\x9b", "a" * 256, ""])
async def test_a_key_is_for_a_subject_that_can_be_kept(running: Guarded, subject: str) -> None:
    path = f"/admin/v1/tenants/{running.owner}/keys"
    body = {"subject": subject, "grants": ["read"]}
    refused = await running.admin.post(path, json=body, headers=await operate(running))
    assert refused.status_code == 400
    assert [place["pointer"] for place in refused.json()["errors"]] == ["/subject"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "notes/there", None),
        ("GET", "nowhere/there", None),
        ("PUT", "notes/there", {}),
        ("GET", "notes?title=x", None),
        ("GET", "sketch?class=notes", None),
        ("GET", "changes", None),
        ("GET", "jobs", None),
        ("GET", f"jobs/{'0' * 32}", None),
        ("POST", "transactions", {"reads": [{"class": "notes", "id": "there", "etag": None}]}),
        ("POST", "transactions", {}),
    ],
)
@pytest.mark.parametrize("caller", ["anonymous", "stranger"])
async def test_a_hidden_database_is_answered_like_one_that_does_not_exist(
    running: Guarded, method: str, path: str, body: Any, caller: str
) -> None:
    headers = await running.headers(caller, "read")
    headers["origin"] = "https://paper.example"
    hidden, absent = [
        await running.data.request(method, f"/v1/{name}/{path}", json=body, headers=headers)
        for name in (running.database, unique("db"))
    ]
    assert hidden.status_code == (401 if caller == "anonymous" else 404)
    assert told(hidden) == told(absent)


async def test_a_key_for_a_class_reaches_that_class_alone(running: Guarded) -> None:
    reader = bearer(await running.key(f"read:{running.database}/notes"))
    base = f"/v1/{running.database}"
    assert (await running.data.get(f"{base}/notes/there", headers=reader)).status_code == 200
    for path in ("secrets/there", "secrets", "secrets/export", "nowhere", "changes"):
        answer = await running.data.get(f"{base}/{path}", headers=reader)
        assert answer.status_code == 403, path
        assert answer.json()["scope"] == "read"
    changes = await running.data.get(f"{base}/changes?class=notes", headers=reader)
    assert changes.status_code == 200


async def test_a_batch_is_judged_operation_by_operation(running: Guarded) -> None:
    reader = bearer(
        await running.key(f"write:{running.database}/notes", f"read:{running.database}/secrets")
    )
    operations = [
        {"op": "get", "class": "articles", "id": "there"},
        {"op": "put", "class": "notes", "id": "b", "body": {}},
        {"op": "get", "class": "secrets", "id": "there"},
        {"op": "put", "class": "secrets", "id": "b", "body": {}},
        {"op": "delete", "class": "articles", "id": "there"},
        {"op": "get", "class": "nowhere", "id": "b"},
    ]
    path = f"/v1/{running.database}/batch"
    answer = await running.data.post(path, json={"operations": operations}, headers=reader)
    assert [result["status"] for result in answer.json()] == [200, 201, 200, 403, 403, 403]
    answer = await running.data.post(path, json={"operations": operations})
    assert [result["status"] for result in answer.json()] == [200, 401, 401, 401, 401, 401]
    stranger = await running.headers("stranger", "read")
    answer = await running.data.post(path, json={"operations": operations}, headers=stranger)
    assert [result["status"] for result in answer.json()] == [200, 404, 404, 404, 404, 404]


async def test_a_transaction_is_refused_as_a_whole(running: Guarded) -> None:
    reader = bearer(await running.key(f"write:{running.database}/notes"))
    path = f"/v1/{running.database}/transactions"
    puts: list[dict[str, Any]] = [
        {"op": "put", "class": name, "id": "t", "body": {}} for name in ("notes", "secrets")
    ]
    refused = await running.data.post(path, json={"operations": puts}, headers=reader)
    assert refused.status_code == 403
    seen = {"class": "secrets", "id": "there", "etag": None}
    refused = await running.data.post(path, json={"reads": [seen]}, headers=reader)
    assert refused.status_code == 403
    missing = await running.data.get(f"/v1/{running.database}/notes/t", headers=reader)
    assert missing.status_code == 404


async def test_a_query_may_not_bring_along_what_may_not_be_read(running: Guarded) -> None:
    path = f"/v1/{running.database}"
    body = {"join": {"as": "relation", "reference": "kin", "fields": ["title"]}}
    operator = await operate(running)
    joined = await running.data.post(f"{path}/articles/query", json=body, headers=operator)
    assert joined.status_code == 200, joined.text
    assert joined.headers["cache-control"] == "no-store"
    reader = bearer(await running.key(f"read:{running.database}/notes"))
    for class_name, headers, status in (("articles", {}, 401), ("notes", reader, 403)):
        query = f"{path}/{class_name}/query"
        answer = await running.data.post(query, json=body, headers=headers)
        assert answer.status_code == status


async def test_the_sketch_is_of_those_classes_that_may_be_read(running: Guarded) -> None:
    path = f"/v1/{running.database}/sketch"
    json = {"accept": "application/json"}
    reader = bearer(await running.key(f"read:{running.database}/notes"))
    anybody = (await running.data.get(path, headers=json)).json()
    assert "notes" not in str(anybody)
    assert "articles" in str(anybody)
    some = str((await running.data.get(path, headers=json | reader)).json())
    assert "notes" in some
    assert "secrets" not in some


async def test_jobs_need_the_rights_to_what_they_read_and_write(running: Guarded) -> None:
    spec = {"records": {"class": "secrets"}, "field": "title"}
    job = {"kind": "example.count", "spec": spec}
    path = f"/v1/{running.database}/jobs"
    may_not = bearer(await running.key("jobs", f"read:{running.database}/notes"))
    answer = await running.data.post(path, json=job, headers=may_not)
    assert (answer.status_code, answer.json()["scope"]) == (403, "read")
    may = bearer(await running.key("jobs", "read"))
    submitted = await running.data.post(path, json=job, headers=may)
    assert submitted.status_code == 202
    into = {**job, "into": {"class": "notes"}}
    assert (await running.data.post(path, json=into, headers=may)).json()["scope"] == "write"
    results = f"{path}/{submitted.json()['id']}/results"
    assert (await running.data.get(results, headers=may_not)).status_code == 403
    assert (await running.data.get(results, headers=may)).status_code == 409
    await running.data.delete(f"{path}/{submitted.json()['id']}", headers=may)


@pytest.mark.parametrize("of", ["{}/there", "{}?title=there", "{}?ids=there", "{}", "{}/export"])
async def test_no_shared_cache_may_keep_what_a_key_was_needed_for(
    running: Guarded, of: str
) -> None:
    operator = await operate(running)
    for name, allowed in (("notes", "private"), ("secrets", "no-store")):
        path = f"/v1/{running.database}/{of.format(name)}"
        for _ in range(2):  # the second one is answered from what the sketch has learnt
            answer = await running.data.get(path, headers=operator)
            assert answer.status_code == 200
            control = answer.headers["cache-control"]
            assert "public" not in control
            assert "s-maxage" not in control
            assert allowed in control or of.endswith("export")
            assert not {"cdn-cache-control", "x-accel-expires", "surrogate-key"} & set(
                answer.headers
            )
            if control != "no-store":
                assert "Authorization" in answer.headers["vary"]
        tag = answer.headers.get("etag", '"none"')
        again = await running.data.get(path, headers=operator | {"if-none-match": tag})
        assert "public" not in again.headers["cache-control"]


async def test_what_is_public_is_for_shared_caches_whoever_asks(running: Guarded) -> None:
    path = f"/v1/{running.database}/articles/there"
    for headers in ({}, await operate(running)):
        answer = await running.data.get(path, headers=headers)
        assert "public" in answer.headers["cache-control"]
        assert "Authorization" not in answer.headers["vary"]


async def test_a_revoked_key_is_no_good_any_more(running: Guarded) -> None:
    operator = await operate(running)
    keys = f"/admin/v1/tenants/{running.owner}/keys"
    wanted = {"subject": "ada", "grants": ["read"], "label": "phone"}
    made = await running.admin.post(keys, json=wanted, headers=operator)
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    key = made.json()
    headers = bearer(key["key"])
    path = f"/v1/{running.database}/notes/there"
    assert (await running.data.get(path, headers=headers)).status_code == 200
    listed = await running.admin.get(keys, headers=operator)
    assert key["id"] in listed.text
    assert key["key"][-43:] not in listed.text
    gone = await running.admin.delete(f"{keys}/{key['id']}", headers=operator)
    assert gone.status_code == 204
    refused = await running.data.get(path, headers=headers)
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    # Not even what everybody may read is answered to a key that is no good.
    public = f"/v1/{running.database}/articles/there"
    assert (await running.data.get(public, headers=headers)).status_code == 401


async def test_another_replica_hears_of_a_revocation(running: Guarded) -> None:
    """It does when it looks anew, as it does every second."""
    tenancy = running.container.mediator.tenancy
    other = AccessCache(tenancy._store, SystemClock())
    made = await tenancy.create_key(running.owner, "ada", ["read"])
    await other.refresh()
    assert made["id"] in other.current.keys
    await tenancy.revoke(running.owner, made["id"])
    await other.refresh()
    assert made["id"] not in other.current.keys


async def test_a_stream_breaks_off_when_its_key_is_revoked(running: Guarded) -> None:
    tenancy = running.container.mediator.tenancy
    made = await tenancy.create_key(running.owner, "ada", ["read"])
    operator = await operate(running)
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/v1/{running.database}/changes",
        "raw_path": f"/v1/{running.database}/changes".encode(),
        "query_string": b"",
        "headers": [
            (b"accept", b"text/event-stream"),
            (b"authorization", f"Bearer {made['key']}".encode()),
        ],
    }

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 2:
            await tenancy.revoke(running.owner, made["id"])
            path = f"/v1/{running.database}/notes/streamed"
            await running.data.put(path, json={"title": "secret"}, headers=operator)

    await running.container.data(scope, receive, send)
    assert sent[0]["status"] == 200
    assert b"secret" not in b"".join(message.get("body", b"") for message in sent)
    assert sent[-1]["more_body"]  # the end never came: the client sees that it broke off


async def test_a_tenants_administrator_makes_keys_for_its_tenant_alone(running: Guarded) -> None:
    admin = bearer(await running.key("admin"))
    wanted = {"subject": "ada", "grants": ["admin"]}
    ours = f"/admin/v1/tenants/{running.owner}/keys"
    made = await running.admin.post(ours, json=wanted, headers=admin)
    assert made.status_code == 201
    reader = bearer(made.json()["key"])
    for tenant in ("operator", running.stranger, "nobody"):
        path = f"/admin/v1/tenants/{tenant}/keys"
        assert (await running.admin.post(path, json=wanted, headers=reader)).status_code == 404
    assert (await running.admin.get("/admin/v1/systems", headers=reader)).status_code == 403
    listed = (await running.admin.get("/admin/v1/schemas", headers=reader)).json()["items"]
    assert [item["name"] for item in listed] == [running.database]
    stranger = await running.headers("stranger", "admin")
    assert (await running.admin.get("/admin/v1/schemas", headers=stranger)).json()["items"] == []


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


async def test_readiness_tells_nobody_of_classes_and_of_what_systems_said(
    running: Guarded,
) -> None:
    ready = await running.admin.get("/ready")
    assert ready.status_code == 200
    assert running.database not in ready.text
    told = ready.json()
    assert told["catalogue"] == {"ok": True}
    assert told["systems"]
    assert all(system == {"ok": True} for system in told["systems"].values())


@pytest.mark.parametrize("bound", ["MAX_KEYS_OF_TENANT", "MAX_KEYS"])
async def test_keys_are_bounded_for_each_tenant_and_for_all(
    running: Guarded, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    tenancy, wanted = running.container.mediator.tenancy, {"subject": "ada", "grants": ["read"]}
    tenant = unique("tenant")
    await tenancy.put_tenant(tenant, {})
    operator = await operate(running)
    headers = await running.headers("stranger", "admin")
    theirs = f"/admin/v1/tenants/{running.stranger}/keys"
    assert (await running.admin.post(theirs, json=wanted, headers=headers)).status_code == 201
    count = len(await tenancy.keys(running.stranger))
    if bound == "MAX_KEYS":
        count = sum(
            key.principal.tenant != "operator" for key in tenancy.cache.current.keys.values()
        )
    monkeypatch.setattr(f"mediator.catalogue.tenants.{bound}", count)
    refused = await running.admin.post(theirs, json=wanted, headers=headers)
    assert refused.status_code == 409
    others = f"/admin/v1/tenants/{tenant}/keys"
    made = await running.admin.post(others, json=wanted, headers=operator)
    assert made.status_code == (201 if bound == "MAX_KEYS_OF_TENANT" else 409)
    if bound == "MAX_KEYS":
        ours = "/admin/v1/tenants/operator/keys"
        assert (await running.admin.post(ours, json=wanted, headers=operator)).status_code == 201
    monkeypatch.undo()
    await tenancy.remove_tenant(tenant)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"subject": "a", "grants": ["root"]}, "/grants/0"),
        ({"subject": "a", "grants": []}, "/grants"),
        ({"subject": "", "grants": ["read"]}, "/subject"),
        ({"subject": "a", "grants": ["read"], "expires": "2020-01-01T00:00:00Z"}, "/expires"),
        ({"subject": "a", "grants": ["read"], "more": 1}, "/more"),
    ],
)
async def test_keys_that_make_no_sense_are_not_made(
    running: Guarded, body: Any, pointer: str
) -> None:
    keys = f"/admin/v1/tenants/{running.owner}/keys"
    refused = await running.admin.post(keys, json=body, headers=await operate(running))
    assert refused.status_code == 400
    assert [place["pointer"] for place in refused.json()["errors"]] == [pointer]


async def test_tenants_are_kept_apart(running: Guarded) -> None:
    operator = await operate(running)
    base = "/admin/v1/tenants"
    taken = f"{base}/{running.stranger}/databases/{running.database}"
    assert (await running.admin.put(taken, headers=operator)).status_code == 409
    assert (await running.admin.delete(taken, headers=operator)).status_code == 404
    in_use = await running.admin.delete(f"{base}/{running.owner}", headers=operator)
    assert in_use.status_code == 409
    tenant = unique("tenant")
    limits = {"limits": {"rate": 2.5}}
    put = await running.admin.put(f"{base}/{tenant}", json=limits, headers=operator)
    assert put.json() == {"name": tenant, "databases": [], "limits": {"rate": 2.5}}
    assert (await running.admin.delete(f"{base}/{tenant}", headers=operator)).status_code == 204
    gone = await running.admin.get(f"{base}/{tenant}", headers=operator)
    assert gone.status_code == 404


async def test_a_tenant_that_asks_too_often_is_told_when_to_come_again(running: Guarded) -> None:
    operator = await operate(running)
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


async def test_the_admin_port_is_kept_from_other_sites(running: Guarded) -> None:
    operator = await operate(running)
    path = f"/admin/v1/tenants/{running.owner}"
    evil = operator | {"origin": "https://evil.example"}
    refused = await running.admin.put(path, json={}, headers=evil)
    assert (refused.status_code, refused.json()["type"]) == (403, "/problems/cross-site")
    assert (await running.admin.get(path, headers=evil)).status_code == 200
    for answer in (refused, await running.admin.get("/live")):
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


async def test_a_browser_is_asked_for_a_key_and_sends_it_as_a_password(running: Guarded) -> None:
    page = {"accept": "text/html"}
    asked = await running.admin.get("/docs", headers=page)
    assert asked.status_code == 401
    challenges = asked.headers.get_list("www-authenticate")
    assert any(challenge.startswith("Basic") for challenge in challenges)
    key = await running.key("read")
    shown = await running.admin.get("/docs", headers=page, auth=("me", key))
    assert shown.status_code == 200
    data = await running.data.get(f"/v1/{running.database}/notes/there", auth=("me", key))
    assert data.status_code == 401


async def test_no_key_is_seen_again_in_answers_metrics_or_logs(
    running: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    operator = await operate(running)
    made = await running.container.mediator.tenancy.create_key(running.owner, "ada", ["read"])
    key, secret = made["key"], made["key"][-43:]
    credentials = (f"Bearer {key}", f"Bearer x{key}", f"Bearer {key}x", f"Digest {key}", key)
    base = f"/v1/{running.database}"
    seen = []
    with caplog.at_level("DEBUG"):
        for credential in credentials:
            for path in (f"{base}/notes/there", f"{base}/nowhere", "/v1/none/x", "/openapi.json"):
                headers = {"authorization": credential}
                seen.append(await running.data.get(path, headers=headers))
                seen.append(await running.admin.get(f"/admin{path}", headers=headers))
        paths = ("/metrics", "/admin/v1/systems", "/admin/v1/tenants", "/ready")
        seen += [await running.admin.get(path, headers=operator) for path in paths]
        system = {"name": "away", "kind": "redis", "url": NOWHERE}
        seen.append(await running.admin.post("/admin/v1/systems", json=system, headers=operator))
    assert seen[-1].status_code == 503
    told = caplog.text + "".join(f"{answer.headers} {answer.text}" for answer in seen)
    assert secret not in told
    assert "hush-hush" not in told
    assert operator["authorization"][-43:] not in told


async def test_a_query_that_names_two_databases_is_the_operators(running: Guarded) -> None:
    """Else the gate might look at one of them, and the route at the other."""
    schema = await running.headers("own", "schema")
    path = f"/admin/v1/sketch?database={running.database}"
    assert (await running.admin.get(path, headers=schema)).status_code == 200
    both = f"{path}&database={running.database}"
    assert (await running.admin.get(both, headers=schema)).status_code == 403


async def test_keys_are_made_listed_and_revoked_from_the_command_line(
    running: Guarded, catalogue_url: str
) -> None:
    async def run(*arguments: str, code: int = 0) -> str:
        environment = {"PORTOLAN_CATALOGUE_URL": catalogue_url}
        done = await asyncio.to_thread(CliRunner().invoke, key, arguments, env=environment)
        assert done.exit_code == code, done.output
        return done.output

    of = ("--tenant", running.owner)
    made = orjson.loads(await run("create", "--subject", "ada", "--grant", "read", *of))
    assert made["id"] in await run("list", *of)
    assert made["key"][-43:] not in await run("list", *of)
    await running.container.mediator.tenancy.cache.refresh()
    path = f"/v1/{running.database}/notes/there"
    found = await running.data.get(path, headers=bearer(made["key"]))
    assert found.status_code == 200
    await run("revoke", made["id"], *of)
    assert "no such key" in await run("revoke", made["id"], *of, code=1)
    assert "/grants/0" in await run("create", "--subject", "a", "--grant", "root", code=1)
    await running.container.mediator.tenancy.cache.refresh()
    refused = await running.data.get(path, headers=bearer(made["key"]))
    assert refused.status_code == 401


async def test_what_a_tenant_asks_of_the_admin_port_is_bounded_too(running: Guarded) -> None:
    tenant, operator = unique("busy"), await operate(running)
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


async def test_the_doctor_knows_the_data_port_from_the_admin_port(
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
