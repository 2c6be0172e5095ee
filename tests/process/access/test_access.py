"""Access to a running installation: hidden databases, rights to classes, caching, and tenants."""

from __future__ import annotations

from typing import Any

import pytest

from tests.process.access.answers import comparable, operator_headers
from tests.process.caching.guarded import Guarded, bearer
from tests.process.service import unique


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
async def test_systems_are_named_only_to_callers_with_the_right(
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
    assert comparable(hidden) == comparable(absent)


async def test_a_key_for_a_class_reaches_only_that_class(running: Guarded) -> None:
    reader = bearer(await running.key(f"read:{running.database}/notes"))
    base = f"/v1/{running.database}"
    assert (await running.data.get(f"{base}/notes/there", headers=reader)).status_code == 200
    for path in ("secrets/there", "secrets", "secrets/export", "nowhere", "changes"):
        answer = await running.data.get(f"{base}/{path}", headers=reader)
        assert answer.status_code == 403, path
        assert answer.json()["scope"] == "read"
    changes = await running.data.get(f"{base}/changes?class=notes", headers=reader)
    assert changes.status_code == 200


async def test_each_operation_of_a_batch_is_authorised_individually(running: Guarded) -> None:
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
    other_tenant = await running.headers("stranger", "read")
    answer = await running.data.post(path, json={"operations": operations}, headers=other_tenant)
    assert [result["status"] for result in answer.json()] == [200, 404, 404, 404, 404, 404]


async def test_a_transaction_is_refused_as_a_whole(running: Guarded) -> None:
    reader = bearer(await running.key(f"write:{running.database}/notes"))
    path = f"/v1/{running.database}/transactions"
    puts: list[dict[str, Any]] = [
        {"op": "put", "class": name, "id": "t", "body": {}} for name in ("notes", "secrets")
    ]
    refused = await running.data.post(path, json={"operations": puts}, headers=reader)
    assert refused.status_code == 403
    read = {"class": "secrets", "id": "there", "etag": None}
    refused = await running.data.post(path, json={"reads": [read]}, headers=reader)
    assert refused.status_code == 403
    missing = await running.data.get(f"/v1/{running.database}/notes/t", headers=reader)
    assert missing.status_code == 404


async def test_a_join_to_an_unreadable_class_is_refused(running: Guarded) -> None:
    path = f"/v1/{running.database}"
    body = {"join": {"as": "relation", "reference": "kin", "fields": ["title"]}}
    operator = await operator_headers(running)
    joined = await running.data.post(f"{path}/articles/query", json=body, headers=operator)
    assert joined.status_code == 200, joined.text
    assert joined.headers["cache-control"] == "no-store"
    reader = bearer(await running.key(f"read:{running.database}/notes"))
    for class_name, headers, status in (("articles", {}, 401), ("notes", reader, 403)):
        query = f"{path}/{class_name}/query"
        answer = await running.data.post(query, json=body, headers=headers)
        assert answer.status_code == status


async def test_the_sketch_covers_the_readable_classes(running: Guarded) -> None:
    path = f"/v1/{running.database}/sketch"
    json = {"accept": "application/json"}
    reader = bearer(await running.key(f"read:{running.database}/notes"))
    anybody = (await running.data.get(path, headers=json)).json()
    assert "notes" not in str(anybody)
    assert "articles" in str(anybody)
    some = str((await running.data.get(path, headers=json | reader)).json())
    assert "notes" in some
    assert "secrets" not in some


async def test_a_document_covers_the_readable_classes(running: Guarded) -> None:
    path = f"/v1/{running.database}/openapi.json"
    reader = bearer(await running.key(f"read:{running.database}/notes"))
    anybody = await running.data.get(path)
    assert {"articles"} == {tag["name"] for tag in anybody.json()["tags"]}
    some = await running.data.get(path, headers=reader)
    assert {"articles", "notes"} == {tag["name"] for tag in some.json()["tags"]}
    assert "secrets" not in some.text  # to which references of notes lead
    assert some.headers["etag"] != anybody.headers["etag"]
    assert "Authorization" in some.headers["vary"]
    secrets = await running.data.get(path, params={"class": "secrets"}, headers=reader)
    assert secrets.status_code == 403


async def test_a_job_requires_access_to_the_classes_it_reads_and_writes(running: Guarded) -> None:
    spec = {"records": {"class": "secrets"}, "field": "title"}
    job = {"kind": "example.count", "spec": spec}
    path = f"/v1/{running.database}/jobs"
    unprivileged = bearer(await running.key("jobs", f"read:{running.database}/notes"))
    answer = await running.data.post(path, json=job, headers=unprivileged)
    assert (answer.status_code, answer.json()["scope"]) == (403, "read")
    privileged = bearer(await running.key("jobs", "read"))
    submitted = await running.data.post(path, json=job, headers=privileged)
    assert submitted.status_code == 202
    into = {**job, "into": {"class": "notes"}}
    assert (await running.data.post(path, json=into, headers=privileged)).json()["scope"] == "write"
    results = f"{path}/{submitted.json()['id']}/results"
    assert (await running.data.get(results, headers=unprivileged)).status_code == 403
    assert (await running.data.get(results, headers=privileged)).status_code == 409
    await running.data.delete(f"{path}/{submitted.json()['id']}", headers=privileged)


@pytest.mark.parametrize(
    "template", ["{}/there", "{}?title=there", "{}?ids=there", "{}", "{}/export"]
)
async def test_responses_that_require_a_key_are_not_shared_cacheable(
    running: Guarded, template: str
) -> None:
    operator = await operator_headers(running)
    for name, allowed in (("notes", "private"), ("secrets", "no-store")):
        path = f"/v1/{running.database}/{template.format(name)}"
        for _ in range(2):  # the second one is answered from what the sketch has learnt
            answer = await running.data.get(path, headers=operator)
            assert answer.status_code == 200
            control = answer.headers["cache-control"]
            assert "public" not in control
            assert "s-maxage" not in control
            assert allowed in control or template.endswith("export")
            assert not {"cdn-cache-control", "x-accel-expires", "surrogate-key"} & set(
                answer.headers
            )
            if control != "no-store":
                assert "Authorization" in answer.headers["vary"]
        tag = answer.headers.get("etag", '"none"')
        second = await running.data.get(path, headers=operator | {"if-none-match": tag})
        assert "public" not in second.headers["cache-control"]


async def test_responses_of_public_classes_are_shared_cacheable_for_any_caller(
    running: Guarded,
) -> None:
    path = f"/v1/{running.database}/articles/there"
    for headers in ({}, await operator_headers(running)):
        answer = await running.data.get(path, headers=headers)
        assert "public" in answer.headers["cache-control"]
        assert "Authorization" not in answer.headers["vary"]


async def test_tenants_are_isolated(running: Guarded) -> None:
    operator = await operator_headers(running)
    base = "/admin/v1/tenants"
    ownership = f"{base}/{running.other_tenant}/databases/{running.database}"
    assert (await running.admin.put(ownership, headers=operator)).status_code == 409
    assert (await running.admin.delete(ownership, headers=operator)).status_code == 404
    in_use = await running.admin.delete(f"{base}/{running.owner}", headers=operator)
    assert in_use.status_code == 409
    tenant = unique("tenant")
    limits = {"limits": {"rate": 2.5}}
    put = await running.admin.put(f"{base}/{tenant}", json=limits, headers=operator)
    assert put.json() == {"name": tenant, "databases": [], "limits": {"rate": 2.5}}
    assert (await running.admin.delete(f"{base}/{tenant}", headers=operator)).status_code == 204
    gone = await running.admin.get(f"{base}/{tenant}", headers=operator)
    assert gone.status_code == 404


@pytest.mark.parametrize(
    ("grants", "meant"),
    [
        (["read:{}"], '; did you mean "notes"?'),
        (["read:{}/note", "read:{}/notes"], '; did you mean "notes"?'),
        (["read:{}/note", "read:{}/secrets"], "."),
        (["write:{}/note"], "."),
    ],
)
async def test_a_class_is_suggested_only_to_its_readers(
    running: Guarded, grants: list[str], meant: str
) -> None:
    headers = bearer(await running.key(*[grant.format(running.database) for grant in grants]))
    answer = await running.data.get(f"/v1/{running.database}/note/there", headers=headers)
    assert answer.status_code == 404
    assert answer.json()["detail"] == f"The database {running.database} has no class note{meant}"


@pytest.mark.parametrize(
    "query",
    [
        {"join": {"as": "cousin", "reference": "kin", "fields": ["titel"]}},
        {"join": {"as": "cousin", "reference": "kin"}, "order": ["cousin.titel"]},
        {"join": {"as": "cousin", "reference": "kin"}, "filter": {"exists": "cousin.titel"}},
    ],
)
async def test_no_field_of_a_joined_class_is_suggested(
    running: Guarded, query: dict[str, Any]
) -> None:
    headers = bearer(await running.key(f"read:{running.database}/notes"))
    path = f"/v1/{running.database}/notes/query"
    answer = await running.data.post(path, json=query, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["detail"].endswith("is no field of secrets")
