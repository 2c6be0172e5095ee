"""The admin API over a real mediator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest

from app.admin.application import create_admin_app
from app.telemetry.metrics import Metrics
from mediator.base.observation import CircuitChanged, RedoRecovered, StoreCallFinished
from mediator.stores.port import StoreUnavailable
from tests.process.service import NOWHERE, Service, field_on, unique

READ = {"metric": "read_latency", "goal": 0.020, "weight": 1}
SYSTEMS = {
    "A": {
        "capabilities": ["atomic_updates", "range_queries"],
        "metrics": {"write_latency": 0.001, "write_throughput": 25000, "read_latency": 0.004},
    },
    "B": {
        "capabilities": ["atomic_updates"],
        "metrics": {"write_latency": 0.004, "write_throughput": 12000, "read_latency": 0.002},
    },
    "C": {"capabilities": []},
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def admin(mediator: Service, metrics: Metrics) -> AsyncIterator[httpx.AsyncClient]:
    app = create_admin_app(mediator.mediator.control, metrics.registry)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
        yield client


def problem(answer: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["type"] == f"/problems/{slug}"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    return document


def newspaper(
    *, require: list[Any] | None = None, title: list[Any] | None = None, user: bool = False
) -> dict[str, Any]:
    hits = [
        {"metric": "write_latency", "goal": 0.005, "weight": 1},
        {"metric": "write_throughput", "goal": 10_000, "weight": 3},
    ]
    classes: dict[str, Any] = {
        "articles": {
            "annotations": require or [],
            "fields": {
                "title": {"type": "string", "annotations": [READ, *(title or [])]},
                "body": {"type": "string", "annotations": [READ]},
                "hits": {"type": "integer", "annotations": hits},
            },
        }
    }
    if user:
        classes["users"] = {"fields": {"name": {"type": "string", "annotations": [READ]}}}
    return {"mode": "mixed", "classes": classes}


async def advice(admin: httpx.AsyncClient, schema: dict[str, Any]) -> dict[str, Any]:
    answer = await admin.post("/admin/v1/advice", json={"schema": schema, "systems": SYSTEMS})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def scores_of(document: dict[str, Any], node: str) -> dict[str, float]:
    scores: dict[str, float] = document["scores"][node]
    return scores


def systems_by_node(document: dict[str, Any]) -> dict[str, str]:
    return {node: placement["system"] for node, placement in document["placements"].items()}


async def test_r1_over_http(admin: httpx.AsyncClient) -> None:
    atomic = [{"require": "atomic_updates"}]
    a = await advice(admin, newspaper())
    assert scores_of(a, "articles.hits") == pytest.approx({"A": 3.125, "B": 1.2125})
    assert scores_of(a, "articles.title") == pytest.approx({"A": 5, "B": 10})
    assert (systems_by_node(a)["articles.hits"], systems_by_node(a)["articles.title"]) == ("A", "B")
    b = await advice(admin, newspaper(require=atomic))
    assert scores_of(b, "articles") == pytest.approx({"A": 4.375, "B": 7.0708}, abs=1e-4)
    assert set(systems_by_node(b).values()) == {"B"}
    c = await advice(admin, newspaper(require=atomic, title=[{"require": "range_queries"}]))
    assert scores_of(c, "articles") == pytest.approx({"A": 4.375})
    assert set(systems_by_node(c).values()) == {"A"}
    d = await advice(admin, newspaper(require=atomic, user=True))
    assert scores_of(d, "*") == pytest.approx({"A": 4.6875, "B": 8.5354}, abs=1e-4)


async def test_r2_over_http(admin: httpx.AsyncClient, mediator: Service) -> None:
    impossible = newspaper(title=[{"require": "full_text_search"}])
    answer = await admin.post("/admin/v1/advice", json={"schema": impossible, "systems": SYSTEMS})
    document = problem(answer, 422, "unplaceable")
    assert document["nodes"][0]["node"] == "articles.title"
    before = mediator.mediator.data.model
    name = unique("db")
    answer = await admin.put(f"/admin/v1/schemas/{name}", json=impossible)
    problem(answer, 422, "unplaceable")
    assert mediator.mediator.data.model is before
    problem(await admin.get(f"/admin/v1/schemas/{name}"), 404, "not-found")


async def test_a_schema_over_http(admin: httpx.AsyncClient, mediator: Service) -> None:
    address = f"/admin/v1/schemas/{unique('db')}"
    body = {"classes": {"notes": {"fields": {"title": field_on("redis")}}}}
    preview = await admin.put(address, params={"dry_run": "true"}, json=body)
    assert preview.json()["placements"]["notes.title"]["system"] == "redis"
    problem(await admin.get(address), 404, "not-found")
    stored = await admin.put(address, json=body)
    assert (stored.status_code, stored.headers["etag"]) == (200, '"1"')
    stale = await admin.put(address, json=body, headers={"If-Match": '"7"'})
    problem(stale, 412, "precondition-failed")
    odd = await admin.put(address, json=body, headers={"If-Match": "W/x"})
    problem(odd, 400, "invalid")
    more = {"classes": {"more": {"fields": {"size": {"type": "integer"}}}}}
    patched = await admin.patch(address, json=more, headers={"If-Match": '"1"'})
    assert sorted(patched.json()["schema"]["classes"]) == ["more", "notes"]
    assert patched.headers["etag"] == '"2"'
    stale = await admin.patch(address, json=more, headers={"If-Match": '"1"'})
    problem(stale, 412, "precondition-failed")
    database = address.rsplit("/", 1)[1]
    await mediator.create(database, "notes", "x", title="t")
    moved = {"classes": {"notes": {"fields": {"title": field_on("mongo")}}}}
    refused = problem(await admin.patch(address, json=moved), 409, "data-would-move")
    assert refused["plan"][0]["from"] == "redis"
    schemas = (await admin.get("/admin/v1/schemas")).json()["items"]
    assert [item["version"] for item in schemas if item["name"] == database] == [2]
    for node in ("", "/notes", "/notes/title"):
        explanation = await admin.get(f"/admin/v1/placements/{database}{node}")
        assert explanation.status_code == 200
        assert explanation.json()["why"]
    problem(await admin.get(f"/admin/v1/placements/{database}/nothing"), 404, "not-found")
    assert (await admin.delete(address)).json()["objects"] == {"more": 0, "notes": 1}
    problem(await admin.delete(address), 404, "not-found")


async def test_a_schema_changes_although_its_system_lost_a_required_capability(
    admin: httpx.AsyncClient, mediator: Service
) -> None:
    declared = ["joins"]
    await admin.patch("/admin/v1/systems/postgres", json={"declared": declared})
    joined = {"annotations": [{"require": "joins"}], "fields": {"title": field_on("postgres")}}
    name = await mediator.put_schema({"notes": joined, "more": {}})
    address = f"/admin/v1/schemas/{name}"
    await mediator.create(name, "notes", "x", title="t")
    for system, declarations in (("postgres", []), ("mongo", declared)):
        await admin.patch(f"/admin/v1/systems/{system}", json={"declared": declarations})
    # A move that is due anyway does not block a change; a new one does.
    longer = {"classes": {"more": {"ttl_s": 60}}}
    assert (await admin.patch(address, json=longer)).status_code == 200
    moved = {"classes": {"notes": {"annotations": [{"require": "joins"}], "system": "redis"}}}
    problem(await admin.patch(address, json=moved), 422, "unplaceable")
    await admin.patch("/admin/v1/systems/mongo", json={"declared": []})
    problem(await admin.get(address), 422, "unplaceable")
    freed = await admin.patch(address, json={"classes": {"notes": {"annotations": None}}})
    assert freed.status_code == 200, freed.text
    assert mediator.systems_of(name, "notes") == ("postgres",)


async def test_every_mistake_of_a_schema_is_named(admin: httpx.AsyncClient) -> None:
    body = {"mode": "odd", "classes": {"n": {"fields": {"a": {"type": "x", "extra": 1}}}}}
    answer = await admin.put(f"/admin/v1/schemas/{unique('db')}", json=body)
    pointers = {error["pointer"] for error in problem(answer, 400, "schema-invalid")["errors"]}
    assert {"/mode", "/classes/n/fields/a/type", "/classes/n/fields/a/extra"} <= pointers


HOSTILE = {
    "not json": b"{",
    "empty": b"",
    "not utf-8": b'{"a": "\xff"}',
    "nested arrays": b"[" * 100_000 + b"]" * 100_000,
    "nested objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "nested below the limit": b'{"a":' * 1000 + b"1" + b"}" * 1000,
    "nested classes": b'{"classes":' * 900 + b"1" + b"}" * 900,
    "10 MB": b'{"classes": "' + b"x" * 10_000_000 + b'"}',
    "10 MB of members": b"{" + b",".join(b'"k%d":1' % n for n in range(900_000)) + b"}",
    "array": b"[]",
    "number": b"1e999",
    "null": b"null",
    "string": b'"x"',
    "wrong types": b'{"classes": 1, "mode": [], "name": {}, "metrics": "x", "schema": 7}',
    "surrogate": b'{"mode": "\\ud800"}',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/admin/v1/schemas/hostile"),
        ("PATCH", "/admin/v1/schemas/hostile"),
        ("POST", "/admin/v1/advice"),
        ("POST", "/admin/v1/systems"),
        ("PATCH", "/admin/v1/systems/redis"),
    ],
)
async def test_hostile_bodies_get_a_problem_and_change_nothing(
    admin: httpx.AsyncClient, mediator: Service, method: str, path: str, body: bytes
) -> None:
    before = (await admin.get("/admin/v1/systems/redis")).json()["stated_metrics"]
    answer = await admin.request(
        method, path, content=body, headers={"content-type": "application/json"}
    )
    assert 400 <= answer.status_code < 500, answer.text[:500]
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.content) < 1_000_000
    assert "hostile" not in mediator.mediator.data.model.databases
    after = (await admin.get("/admin/v1/systems/redis")).json()["stated_metrics"]
    assert after == before


async def test_hostile_patches_leave_a_schema_unchanged(
    admin: httpx.AsyncClient, mediator: Service
) -> None:
    name = await mediator.put_schema({"notes": {"fields": {"title": {"type": "string"}}}})
    before = (await admin.get(f"/admin/v1/schemas/{name}")).json()
    for body in HOSTILE.values():
        answer = await admin.patch(f"/admin/v1/schemas/{name}", content=body)
        assert 400 <= answer.status_code < 500, answer.text[:500]
    assert (await admin.get(f"/admin/v1/schemas/{name}")).json() == before


@pytest.mark.parametrize(
    "path",
    [
        "/admin/v1/schemas/UPPER",
        "/admin/v1/schemas/..%2f",
        "/admin/v1/schemas/a%00b",
        "/admin/v1/systems/'; DROP TABLE x",
        "/admin/v1/placements/a/B",
        "/admin/v1/violations?database=$ne",
        "/admin/v1/nothing",
    ],
)
async def test_hostile_names_get_a_problem(admin: httpx.AsyncClient, path: str) -> None:
    answer = await admin.get(path)
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_wrong_method_names_the_right_ones(admin: httpx.AsyncClient) -> None:
    answer = await admin.post("/admin/v1/schemas/x", json={})
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"]


async def test_scaling_is_advised_with_reasons(admin: httpx.AsyncClient) -> None:
    report = (await admin.get("/admin/v1/advice/scaling")).json()
    systems = (await admin.get("/admin/v1/systems")).json()["items"]
    assert set(report["systems"]) == {system["name"] for system in systems}
    for advice in (report["service"], *report["systems"].values()):
        assert advice["recommendation"] in {"add", "remove", "keep", "unknown"}
        assert advice["why"].endswith(".")
    assert report["systems"]["redis"]["capacities"].keys() == {"read", "write"}
    assert report["service"]["replicas"] >= 1


async def test_systems_over_http(admin: httpx.AsyncClient) -> None:
    body = {"name": unique("far"), "kind": "redis", "url": NOWHERE, "deadline_s": 1}
    refused = await admin.post("/admin/v1/systems", json=body)
    document = problem(refused, 503, "unavailable")
    assert refused.headers["retry-after"]
    assert "hush-hush" not in str(document)
    conflict = await admin.post("/admin/v1/systems", json={**body, "name": "redis"})
    problem(conflict, 409, "conflict")
    unknown = await admin.post("/admin/v1/systems", json={**body, "kind": "oracle"})
    assert "hush-hush" not in str(problem(unknown, 400, "invalid"))
    odd = await admin.post("/admin/v1/systems", json={**body, "url": "hush-hush"})
    assert odd.status_code in (400, 503)
    assert "hush-hush" not in odd.text
    problem(await admin.get("/admin/v1/systems/nobody"), 404, "not-found")
    systems = await admin.get("/admin/v1/systems")
    assert [item["name"] for item in systems.json()["items"]][:3] == ["redis", "postgres", "mongo"]
    assert "://" not in systems.text


@pytest.mark.parametrize(
    "amendment",
    [
        {"metrics": {"speed": 1}},
        {"metrics": {"write_latency": -1}},
        {"metrics": {"write_latency": "fast"}},
        {"declared": ["magic"]},
        {"more": 1},
    ],
)
async def test_statements_without_meaning_are_refused(
    admin: httpx.AsyncClient, amendment: dict[str, Any]
) -> None:
    answer = await admin.patch("/admin/v1/systems/redis", json=amendment)
    assert problem(answer, 400, "invalid")["errors"]


async def test_health_and_metrics(
    admin: httpx.AsyncClient, mediator: Service, metrics: Metrics
) -> None:
    assert (await admin.get("/live")).json() == {"live": True}
    ready = await admin.get("/ready")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert set(ready.json()["systems"]) >= {"redis", "postgres", "mongo"}
    assert all(system["ok"] for system in ready.json()["systems"].values())
    for observation in (
        StoreCallFinished("redis", "d", "c", "read", 2, 0.001, "ok"),
        CircuitChanged("redis", open=True, reason="x"),
        RedoRecovered("d", "m", "applied"),
    ):
        metrics.observe(observation)
    text = (await admin.get("/metrics")).text
    assert 'portolan_store_operations_total{operation="read",system="redis"} 2.0' in text
    assert 'portolan_circuit_open{system="redis"} 1.0' in text
    assert 'portolan_redo_total{outcome="applied"} 1.0' in text


async def test_ready_names_unavailable_systems(
    admin: httpx.AsyncClient, mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems = mediator.mediator.systems
    stores = [systems.get(name).store for name in ("redis", "postgres", "mongo")]

    async def refuse() -> None:
        raise StoreUnavailable("connection refused")

    with monkeypatch.context() as patched:
        patched.setattr(stores[0], "ping", refuse)
        response = await admin.get("/ready")
        assert (response.status_code, response.headers["portolan-degraded"]) == (200, "redis")
        for store in stores[1:]:
            patched.setattr(store, "ping", refuse)
        assert (await admin.get("/ready")).status_code == 503
    assert (await admin.get("/ready")).json()["degraded"] == []


async def test_the_openapi_document_lists_every_route(admin: httpx.AsyncClient) -> None:
    document = orjson.loads((await admin.get("/openapi.json")).content)
    assert {"/live", "/ready", "/metrics", "/admin/v1/advice"} <= document["paths"].keys()
