"""The authorisation matrix: every route of both applications, requested by each kind of caller.

A route without an entry here fails the test, and so does an entry without a route.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from app.api.application import create_app
from app.api.options import DataOptions
from app.api.router import DataApi
from app.security.permissions import PERMISSIONS, permission_of
from mediator.access.decision import Extent
from mediator.access.model import Scope
from mediator.stores.port import SystemConfig
from tests.process.caching.guarded import CALLERS, Guarded, guarded
from tests.process.data.memory_plane import MemoryPlane, routing_model
from tests.process.service import unique

RUN: Final = "0" * 32
OBJECT = {"json": {"title": "x"}}
MERGE = {"json": {"title": "y"}, "headers": {"content-type": "application/merge-patch+json"}}
COUNTED = {"params": {"all": "true", "dry_run": "true"}}
NDJSON = {"content": b'{"title":"z"}\n', "headers": {"content-type": "application/x-ndjson"}}
BATCH = {"json": {"operations": [{"op": "get", "class": "notes", "id": "there"}]}}
TRANSACTION = {"json": {"operations": [{"op": "put", "class": "notes", "id": "t", "body": {}}]}}
JOB = {
    "json": {
        "kind": "example.count",
        "spec": {"records": {"class": "notes"}, "field": "title"},
    }
}
FLOW = {
    "json": {
        "latency_s": 1,
        "plan": [
            {"op": "receive", "attributes": {}},
            {"op": "assign", "to": "greeting", "value": "hello"},
        ],
    }
}
VIEW: dict[str, Any] = {"json": {"class": "articles"}}
STREAM: dict[str, Any] = {"json": {"name": "prices", "attributes": ["price"]}}
TUPLES: dict[str, Any] = {"json": {"tuples": [{"time_s": 0, "values": {}}]}}
MESSAGES: dict[str, Any] = {"json": {"messages": [{}]}}
KEY = {"json": {"subject": "new", "grants": ["read"]}}
NOTHING: dict[str, Any] = {}

HIDDEN = "401 404 403 in in"
"""What belongs to a tenant: 401 without a key, 404 to another tenant, 403 without the scope."""

OPEN = "in in in in in"
ANY_KEY = "401 in in in in"
OPERATORS = "401 403 403 403 in"

# Method and template: the scope that is needed, what becomes of each of CALLERS, and the request.
DATA: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "GET /v1/{database}/{class}/{id}": ("read", HIDDEN, NOTHING),
    "HEAD /v1/{database}/{class}/{id}": ("read", HIDDEN, NOTHING),
    "PUT /v1/{database}/{class}/{id}": ("write", HIDDEN, OBJECT),
    "PATCH /v1/{database}/{class}/{id}": ("write", HIDDEN, MERGE),
    "DELETE /v1/{database}/{class}/{id}": ("write", HIDDEN, NOTHING),
    "GET /v1/{database}/{class}": ("read", HIDDEN, NOTHING),
    "HEAD /v1/{database}/{class}": ("read", HIDDEN, NOTHING),
    "POST /v1/{database}/{class}": ("write", HIDDEN, OBJECT),
    "PATCH /v1/{database}/{class}": ("write", HIDDEN, MERGE | COUNTED),
    "DELETE /v1/{database}/{class}": ("write", HIDDEN, COUNTED),
    "POST /v1/{database}/{class}/query": ("read", HIDDEN, {"json": {}}),
    "POST /v1/{database}/{class}/import": ("write", HIDDEN, NDJSON),
    "GET /v1/{database}/{class}/export": ("read", HIDDEN, NOTHING),
    "HEAD /v1/{database}/{class}/export": ("read", HIDDEN, NOTHING),
    "POST /v1/{database}/batch": ("read", HIDDEN, BATCH),
    "POST /v1/{database}/transactions": ("write", HIDDEN, TRANSACTION),
    "GET /v1/{database}/changes": ("read", HIDDEN, NOTHING),
    # Without a class they are of those classes that may be read: here of the public one.
    "GET /v1/{database}/sketch": ("read", OPEN, NOTHING),
    "HEAD /v1/{database}/sketch": ("read", OPEN, NOTHING),
    "GET /v1/{database}/openapi.json": ("read", OPEN, NOTHING),
    "HEAD /v1/{database}/openapi.json": ("read", OPEN, NOTHING),
    "GET /v1/{database}/message-flows": ("write", HIDDEN, NOTHING),
    "POST /v1/{database}/message-flows": ("write", HIDDEN, FLOW),
    "GET /v1/{database}/message-flows/{flow}": ("write", HIDDEN, NOTHING),
    "DELETE /v1/{database}/message-flows/{flow}": ("write", HIDDEN, NOTHING),
    "POST /v1/{database}/message-flows/{flow}/messages": ("write", HIDDEN, MESSAGES),
    "GET /v1/{database}/message-flows/{flow}/messages/{ticket}": ("write", HIDDEN, NOTHING),
    "GET /v1/{database}/message-flows/{flow}/results": ("write", HIDDEN, NOTHING),
    "GET /v1/{database}/message-flows/{flow}/dead-letters": ("write", HIDDEN, NOTHING),
    "POST /v1/{database}/message-flows/{flow}/replay": ("write", HIDDEN, NOTHING),
    "GET /v1/{database}/incremental-views": ("read", HIDDEN, NOTHING),
    "POST /v1/{database}/incremental-views": ("write", HIDDEN, VIEW),
    "GET /v1/{database}/incremental-views/{view}": ("read", HIDDEN, NOTHING),
    "DELETE /v1/{database}/incremental-views/{view}": ("write", HIDDEN, NOTHING),
    "GET /v1/{database}/incremental-views/{view}/result": ("read", HIDDEN, NOTHING),
    "GET /v1/{database}/incremental-views/{view}/deltas": ("read", HIDDEN, NOTHING),
    "GET /v1/{database}/event-streams": ("read", HIDDEN, NOTHING),
    "POST /v1/{database}/event-streams": ("write", HIDDEN, STREAM),
    "GET /v1/{database}/event-streams/{stream}": ("read", HIDDEN, NOTHING),
    "DELETE /v1/{database}/event-streams/{stream}": ("write", HIDDEN, NOTHING),
    "POST /v1/{database}/event-streams/{stream}/tuples": ("write", HIDDEN, TUPLES),
    "GET /v1/{database}/event-streams/{stream}/tuples": ("read", HIDDEN, NOTHING),
    "GET /v1/{database}/jobs": ("jobs", HIDDEN, NOTHING),
    "POST /v1/{database}/jobs": ("jobs", HIDDEN, JOB),
    "GET /v1/{database}/jobs/{run}": ("jobs", HIDDEN, NOTHING),
    "DELETE /v1/{database}/jobs/{run}": ("jobs", HIDDEN, NOTHING),
    "POST /v1/{database}/jobs/{run}/resume": ("jobs", HIDDEN, NOTHING),
    "GET /v1/{database}/jobs/{run}/results": ("jobs", HIDDEN, NOTHING),
}
DOCUMENTS: Final = {
    "GET /openapi.json": ("read", ANY_KEY, NOTHING),
    "GET /docs": ("read", ANY_KEY, NOTHING),
}
PAGES: Final = {
    "GET /static/{digest}/{name:path}": ("read", ANY_KEY, NOTHING),
    "GET /": ("read", OPERATORS, NOTHING),
    "GET /systems": ("read", OPERATORS, NOTHING),
    "POST /systems": ("admin", OPERATORS, NOTHING),
    "POST /systems/{name}/calibrate": ("admin", OPERATORS, NOTHING),
    "POST /systems/{name}/metrics": ("admin", OPERATORS, NOTHING),
    "POST /systems/{name}/declared": ("admin", OPERATORS, NOTHING),
    "POST /systems/{name}/use": ("admin", OPERATORS, NOTHING),
    "POST /systems/{name}/remove": ("admin", OPERATORS, NOTHING),
    "GET /map": ("read", OPERATORS, NOTHING),
    "POST /map/override": ("admin", OPERATORS, NOTHING),
    "GET /schema": ("read", OPERATORS, NOTHING),
    "POST /schema": ("admin", OPERATORS, NOTHING),
    "GET /schema/drop": ("read", OPERATORS, {"params": {"database": "nowhere"}}),
    "POST /schema/drop": ("admin", OPERATORS, NOTHING),
    "GET /what-if": ("read", OPERATORS, NOTHING),
    "GET /coherence": ("read", OPERATORS, NOTHING),
    "POST /coherence/probe": ("admin", OPERATORS, NOTHING),
    "POST /coherence/probe/stop": ("admin", OPERATORS, NOTHING),
    "GET /data": ("read", OPERATORS, NOTHING),
    "GET /data/object": ("read", OPERATORS, NOTHING),
    "POST /data/object": ("read", OPERATORS, NOTHING),
    "GET /data/new": ("read", OPERATORS, NOTHING),
    "POST /data/new": ("read", OPERATORS, NOTHING),
    "GET /queries": ("read", OPERATORS, NOTHING),
    "GET /feed": ("read", OPERATORS, NOTHING),
    "GET /admission": ("read", OPERATORS, NOTHING),
    "POST /admission": ("admin", OPERATORS, NOTHING),
    "GET /keys": ("admin", OPERATORS, NOTHING),
    "POST /keys": ("admin", OPERATORS, NOTHING),
    "POST /keys/{tenant}/limits": ("admin", OPERATORS, NOTHING),
    "POST /keys/{tenant}/databases": ("admin", OPERATORS, NOTHING),
    "POST /keys/{tenant}/keys": ("admin", OPERATORS, NOTHING),
    "POST /keys/{tenant}/revoke": ("admin", OPERATORS, NOTHING),
    "POST /keys/{tenant}/remove": ("admin", OPERATORS, NOTHING),
    "GET /jobs": ("read", OPERATORS, NOTHING),
    "POST /jobs/{database}": ("read", OPERATORS, NOTHING),
    "GET /jobs/{database}/{run}": ("read", OPERATORS, NOTHING),
    "POST /jobs/{database}/{run}/cancel": ("read", OPERATORS, NOTHING),
    "POST /jobs/{database}/{run}/resume": ("read", OPERATORS, NOTHING),
}
ADMIN: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    **DOCUMENTS,
    **PAGES,
    "GET /startup": ("admin", OPEN, NOTHING),
    "GET /live": ("admin", OPEN, NOTHING),
    "GET /ready": ("admin", OPEN, NOTHING),
    "GET /metrics": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/systems": ("admin", OPERATORS, NOTHING),
    "POST /admin/v1/systems": ("admin", OPERATORS, {"json": {}}),
    "GET /admin/v1/systems/{name}": ("admin", OPERATORS, NOTHING),
    "PATCH /admin/v1/systems/{name}": ("admin", OPERATORS, {"json": {}}),
    "DELETE /admin/v1/systems/{name}": ("admin", OPERATORS, NOTHING),
    "POST /admin/v1/systems/{name}/calibration": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/systems/{name}/moves": ("read", OPERATORS, NOTHING),
    "GET /admin/v1/schemas": ("schema", ANY_KEY, NOTHING),
    "GET /admin/v1/schemas/{database}": ("schema", HIDDEN, NOTHING),
    "PUT /admin/v1/schemas/{database}": ("schema", HIDDEN, {"json": []}),
    "PATCH /admin/v1/schemas/{database}": ("schema", HIDDEN, {"json": []}),
    "DELETE /admin/v1/schemas/{database}": ("schema", HIDDEN, {"params": {"dry_run": "true"}}),
    "GET /admin/v1/schemas/{database}/index-builds": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/schemas/{database}/revisions": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/schemas/{database}/revisions/{version}": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/schemas/{database}/pinned-versions": ("schema", HIDDEN, NOTHING),
    "PUT /admin/v1/schemas/{database}/pinned-versions": (
        "schema",
        HIDDEN,
        {"json": {"retired_before": 0}},
    ),
    "POST /admin/v1/advice": ("admin", OPERATORS, {"json": {}}),
    "GET /admin/v1/advice/scaling": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/placements/{database}": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/placements/{database}/{class_name}": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/placements/{database}/{class_name}/{field}": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/overrides/{database}": ("schema", HIDDEN, NOTHING),
    "PUT /admin/v1/overrides/{database}/{class_name}": ("admin", OPERATORS, {"json": {}}),
    "DELETE /admin/v1/overrides/{database}/{class_name}": ("admin", OPERATORS, NOTHING),
    "PUT /admin/v1/overrides/{database}/{class_name}/{field}": ("admin", OPERATORS, {"json": {}}),
    "DELETE /admin/v1/overrides/{database}/{class_name}/{field}": ("admin", OPERATORS, NOTHING),
    "POST /admin/v1/what-if/{database}": ("schema", HIDDEN, {"json": {}}),
    "GET /admin/v1/violations": ("schema", OPERATORS, NOTHING),
    "GET /admin/v1/proposals": ("schema", OPERATORS, NOTHING),
    "GET /admin/v1/views": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/views/{database}": ("schema", HIDDEN, NOTHING),
    "POST /admin/v1/views/{database}/verify": ("admin", HIDDEN, NOTHING),
    "POST /admin/v1/views/{database}/rebuild": ("admin", HIDDEN, NOTHING),
    "POST /admin/v1/integrity/{database}": ("admin", HIDDEN, {"json": {}}),
    "POST /admin/v1/integrity/{database}/{class_name}/{field}": ("admin", HIDDEN, NOTHING),
    "POST /admin/v1/copies/{database}": ("admin", HIDDEN, {"params": {"copy": "a.b:c"}}),
    "GET /admin/v1/probes/staleness": ("admin", OPERATORS, NOTHING),
    "POST /admin/v1/probes/staleness": ("admin", OPERATORS, {"json": {}}),
    "DELETE /admin/v1/probes/staleness": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/sketch": ("schema", OPERATORS, NOTHING),
    "GET /admin/v1/admission/rules": ("admin", OPERATORS, NOTHING),
    "PUT /admin/v1/admission/rules": ("admin", OPERATORS, NOTHING),
    "POST /admin/v1/admission/dry-run": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/admission/log": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/costly-queries": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/tenants": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/tenants/{tenant}": ("admin", HIDDEN, NOTHING),
    "PUT /admin/v1/tenants/{tenant}": ("admin", OPERATORS, {"json": {}}),
    "DELETE /admin/v1/tenants/{tenant}": ("admin", OPERATORS, NOTHING),
    "PUT /admin/v1/tenants/{tenant}/databases/{database}": ("admin", OPERATORS, NOTHING),
    "DELETE /admin/v1/tenants/{tenant}/databases/{database}": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/tenants/{tenant}/keys": ("admin", HIDDEN, NOTHING),
    "POST /admin/v1/tenants/{tenant}/keys": ("admin", HIDDEN, KEY),
    "DELETE /admin/v1/tenants/{tenant}/keys/{key}": ("admin", HIDDEN, NOTHING),
}
OF_A_DATABASE: Final = [f"GET /admin/v1/{name}" for name in ("violations", "proposals", "sketch")]
"""They require an operator, unless the query names a database of the caller."""


def data_routes() -> set[str]:
    api = DataApi(MemoryPlane(routing_model(1)), DataOptions(b"k"), lambda _: None)
    return {f"{method} {route.template}" for route in api.routes for method in route.handlers}


def framework_routes(app: Any) -> set[str]:
    found = set()
    for context in iter_route_contexts(app.routes):
        methods = set(context.methods or ()) - {"HEAD"}
        assert methods, f"{context.path} is mounted without permissions"
        found |= {f"{method} {context.path}" for method in methods}
    return found


def admin_app() -> Any:
    return create_admin_app(Mock(), CollectorRegistry())


def test_every_route_is_in_the_matrix_and_no_other() -> None:
    assert data_routes() == set(DATA)
    assert framework_routes(create_app()) == set(DOCUMENTS)
    assert framework_routes(admin_app()) == set(ADMIN)


def test_every_admin_route_has_its_permissions() -> None:
    """A route without permissions requires an operator: that is safe, but hardly intended."""
    permitted = {f"{method} {path}" for path, needs in PERMISSIONS.items() for method in needs}
    assert permitted == framework_routes(admin_app())


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/admin/v1/new"), ("PUT", "/live"), ("GET", "/admin/v1/schemas/a/b"), ("GET", "/x")],
)
def test_an_unlisted_route_requires_an_operator(method: str, path: str) -> None:
    need, _ = permission_of(method, path)
    assert (need.extent, need.scope) == (Extent.INSTALLATION, Scope.ADMIN)


def test_every_method_of_the_data_api_has_a_scope_or_authorises_itself() -> None:
    api = DataApi(MemoryPlane(routing_model(1)), DataOptions(b"k"), lambda _: None)
    names = ("batch", "transactions", "changes", "sketch", "openapi.json")
    streams = ("event-streams/{stream}", "event-streams/{stream}/tuples")
    exempt = {f"/v1/{{database}}/{name}" for name in (*names, *streams)}
    for route in api.routes:
        assert (route.scopes is None) is (route.template in exempt)
        assert route.scopes is None or set(route.handlers) <= set(route.scopes)


@pytest.fixture(scope="module")
async def installation(
    redis_config: SystemConfig,
    system_configs: Sequence[SystemConfig],
    catalogue_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Guarded]:
    jobs: Path = tmp_path_factory.mktemp("jobs")
    configs = system_configs[:2]
    async with guarded(configs, catalogue_url, redis_config.url, jobs) as running:
        yield running


def outcome(answer: httpx.Response) -> str:
    """What became of a request: "in", or the status that it was refused with."""
    assert answer.status_code < 500, answer.text
    if "html" in answer.headers.get("content-type", ""):
        return "404" if "There is no such database." in answer.text else "in"
    typed = answer.headers.get("content-type", "").endswith(("/json", "+json"))
    problem = answer.json() if typed and answer.content else None
    if isinstance(problem, list) and problem:
        problem = problem[0].get("problem")
    if not isinstance(problem, dict) and answer.status_code in (401, 403, 404):
        return str(answer.status_code)  # an answer to HEAD
    document = problem if isinstance(problem, dict) else {}
    refused = {"/problems/unauthenticated": "401", "/problems/forbidden": "403"}
    if document.get("detail") in ("There is no such database.", "There is no such tenant."):
        return "404"
    return refused.get(document.get("type", ""), "in")


async def send(
    running: Guarded, client: httpx.AsyncClient, route: str, caller: str, scope: str, request: Any
) -> httpx.Response:
    method, template = route.split(" ")
    named = {
        "{database}": running.database,
        "{class}": "notes",
        "{class_name}": "notes",
        "{field}": "title",
        "{id}": "there",
        "{run}": RUN,
        "{flow}": RUN,
        "{view}": RUN,
        "{stream}": "prices",
        "{ticket}": RUN,
        "{name}": "nowhere",
        "{tenant}": running.owner,
        "{key}": "0" * 16,
        "{version}": "1",
    }
    for variable, value in named.items():
        template = template.replace(variable, value)
    headers = {**request.get("headers", {}), **await running.headers(caller, scope)}
    return await client.request(method, template, **{**request, "headers": headers})


async def put_back(running: Guarded) -> None:
    """Make good what the operator was let do."""
    tenancy = running.container.mediator.tenancy
    await tenancy.put_tenant(running.owner, {})
    await tenancy.own(running.owner, running.database)
    path = f"/v1/{running.database}/notes/there"
    operator = await running.headers("operator", "write")
    await running.data.put(path, json={"title": "notes"}, headers=operator)


@pytest.mark.parametrize("route", DATA)
async def test_data_routes(installation: Guarded, route: str) -> None:
    scope, outcomes, request = DATA[route]
    await put_back(installation)
    for caller, expected in zip(CALLERS, outcomes.split(), strict=True):
        answer = await send(installation, installation.data, route, caller, scope, request)
        assert outcome(answer) == expected, (caller, answer.text)
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("route", "scope"), [("transactions", "write"), ("batch", "read")])
async def test_requests_without_effect_are_authorised_too(
    installation: Guarded, route: str, scope: str
) -> None:
    database = unique("db")  # no class of it is public
    await installation.container.mediator.tenancy.own(installation.owner, database)
    headers = await installation.headers("operator", "admin")
    path = f"/admin/v1/schemas/{database}"
    schema = {"classes": {"notes": {"fields": {"title": {"type": "string"}}}}}
    set_ = await installation.admin.put(path, headers=headers, json=schema)
    assert set_.status_code == 200, set_.text
    for caller, expected in zip(CALLERS, HIDDEN.split(), strict=True):
        answer = await installation.data.post(
            f"/v1/{database}/{route}",
            json={"operations": []},
            headers=await installation.headers(caller, scope),
        )
        assert outcome(answer) == expected, (caller, answer.text)
    absent = f"/v1/{unique('db')}/{route}"
    answer = await installation.data.post(absent, json={"operations": []}, headers=headers)
    assert outcome(answer) == "404"


@pytest.mark.parametrize("route", DOCUMENTS)
async def test_documents_of_the_data_api(installation: Guarded, route: str) -> None:
    scope, outcomes, request = DOCUMENTS[route]
    for caller, expected in zip(CALLERS, outcomes.split(), strict=True):
        answer = await send(installation, installation.data, route, caller, scope, request)
        assert outcome(answer) == expected, (caller, answer.text)


@pytest.mark.parametrize("route", ADMIN)
async def test_admin_routes(installation: Guarded, route: str) -> None:
    scope, outcomes, request = ADMIN[route]
    await put_back(installation)
    for caller, expected in zip(CALLERS, outcomes.split(), strict=True):
        answer = await send(installation, installation.admin, route, caller, scope, request)
        assert outcome(answer) == expected, (caller, answer.text)


@pytest.mark.parametrize("route", OF_A_DATABASE)
async def test_admin_routes_that_name_a_database_in_the_query(
    installation: Guarded, route: str
) -> None:
    request = {"params": {"database": installation.database}}
    for caller, expected in zip(CALLERS, HIDDEN.split(), strict=True):
        answer = await send(installation, installation.admin, route, caller, "schema", request)
        assert outcome(answer) == expected, (caller, answer.text)


@pytest.mark.parametrize(
    "route", [route for route, (scope, _, _) in DATA.items() if scope == "read"]
)
async def test_an_anonymous_caller_may_only_read_a_public_class(
    installation: Guarded, route: str
) -> None:
    method, template = route.split(" ")
    template = template.replace("{class}", "articles").replace("{id}", "there")
    path = template.replace("{database}", installation.database).replace("{view}", RUN)
    path = path.replace("{stream}", "articles")  # which does not make the stream public
    body: dict[str, Any] = {
        "json": {"operations": [{"op": "get", "class": "articles", "id": "there"}]}
    }
    request: dict[str, Any] = {"json": {}} if method == "POST" else {}
    if path.endswith("batch"):
        request = body
    if path.endswith("changes"):
        request = {"params": {"class": "articles"}}
    # What these show is also what was.
    closed = ("changes", "incremental-views", "event-streams")
    expected = "401" if any(name in path for name in closed) else "in"
    assert outcome(await installation.data.request(method, path, **request)) == expected
