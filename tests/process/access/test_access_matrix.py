"""Each kind of caller requests every route of both applications, with the matrix's outcomes.

A route without an entry fails a test, and so does an entry without a route.
"""

from __future__ import annotations

from typing import Any
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
from tests.process.access.matrix import ADMIN, DATA, DOCUMENTS, HIDDEN, OF_A_DATABASE, RUN
from tests.process.caching.guarded import CALLERS, Guarded
from tests.process.data.memory_plane import MemoryPlane, routing_model
from tests.process.service import unique


def data_routes() -> set[str]:
    api = DataApi(MemoryPlane(routing_model(1)), DataOptions(b"k"), lambda _: None)
    return {f"{method} {route.template}" for route in api.routes for method in route.handlers}


def framework_routes(app: Any) -> set[str]:
    routes = set()
    for context in iter_route_contexts(app.routes):
        methods = set(context.methods or ()) - {"HEAD"}
        assert methods, f"{context.path} is mounted without permissions"
        routes |= {f"{method} {context.path}" for method in methods}
    return routes


def admin_app() -> Any:
    return create_admin_app(Mock(), CollectorRegistry())


def test_every_route_is_in_the_matrix_and_no_other() -> None:
    assert data_routes() == set(DATA)
    assert framework_routes(create_app()) == set(DOCUMENTS)
    assert framework_routes(admin_app()) == set(ADMIN)


def test_every_admin_route_has_its_permissions() -> None:
    """A route without permissions requires an operator: that is safe, but hardly intended."""
    permitted = {f"{method} {path}" for path, methods in PERMISSIONS.items() for method in methods}
    assert permitted == framework_routes(admin_app())


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/admin/v1/new"), ("PUT", "/live"), ("GET", "/admin/v1/schemas/a/b"), ("GET", "/x")],
)
def test_an_unlisted_route_requires_an_operator(method: str, path: str) -> None:
    permission, _ = permission_of(method, path)
    assert (permission.extent, permission.scope) == (Extent.INSTALLATION, Scope.ADMIN)


def test_every_method_of_the_data_api_has_a_scope_or_authorises_itself() -> None:
    api = DataApi(MemoryPlane(routing_model(1)), DataOptions(b"k"), lambda _: None)
    names = ("batch", "transactions", "changes", "sketch", "openapi.json")
    streams = ("event-streams/{stream}", "event-streams/{stream}/tuples")
    exempt = {f"/v1/{{database}}/{name}" for name in (*names, *streams)}
    for route in api.routes:
        assert (route.scopes is None) is (route.template in exempt)
        assert route.scopes is None or set(route.handlers) <= set(route.scopes)


def outcome(answer: httpx.Response) -> str:
    """Return the outcome of a request: "in", or the status of its refusal."""
    assert answer.status_code < 500, answer.text
    if "html" in answer.headers.get("content-type", ""):
        return "404" if "There is no such database." in answer.text else "in"
    is_json = answer.headers.get("content-type", "").endswith(("/json", "+json"))
    problem = answer.json() if is_json and answer.content else None
    if isinstance(problem, list) and problem:
        problem = problem[0].get("problem")
    if not isinstance(problem, dict) and answer.status_code in (401, 403, 404):
        return str(answer.status_code)  # an answer to HEAD
    document = problem if isinstance(problem, dict) else {}
    statuses = {"/problems/unauthenticated": "401", "/problems/forbidden": "403"}
    if document.get("detail") in ("There is no such database.", "There is no such tenant."):
        return "404"
    return statuses.get(document.get("type", ""), "in")


async def send(
    running: Guarded, client: httpx.AsyncClient, route: str, caller: str, scope: str, request: Any
) -> httpx.Response:
    method, template = route.split(" ")
    values = {
        "{database}": running.database,
        "{class}": "notes",
        "{class_name}": "notes",
        "{field}": "title",
        "{id}": "there",
        "{run}": RUN,
        "{flow}": RUN,
        "{view}": RUN,
        "{query}": RUN,
        "{stream}": "prices",
        "{ticket}": RUN,
        "{name}": "nowhere",
        "{tenant}": running.owner,
        "{key}": "0" * 16,
        "{version}": "1",
    }
    for variable, value in values.items():
        template = template.replace(variable, value)
    headers = {**request.get("headers", {}), **await running.headers(caller, scope)}
    return await client.request(method, template, **{**request, "headers": headers})


async def restore(running: Guarded) -> None:
    """Undo what the operator was permitted to do."""
    tenancy = running.container.mediator.tenancy
    await tenancy.put_tenant(running.owner, {})
    await tenancy.own(running.owner, running.database)
    path = f"/v1/{running.database}/notes/there"
    operator = await running.headers("operator", "write")
    await running.data.put(path, json={"title": "notes"}, headers=operator)


@pytest.mark.parametrize("route", DATA)
async def test_data_routes(running: Guarded, route: str) -> None:
    scope, outcomes, request = DATA[route]
    await restore(running)
    for caller, expected in zip(CALLERS, outcomes.split(), strict=True):
        answer = await send(running, running.data, route, caller, scope, request)
        assert outcome(answer) == expected, (caller, answer.text)
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("route", "scope"), [("transactions", "write"), ("batch", "read")])
async def test_requests_without_effect_are_authorised(
    running: Guarded, route: str, scope: str
) -> None:
    database = unique("db")  # no class of it is public
    await running.container.mediator.tenancy.own(running.owner, database)
    headers = await running.headers("operator", "admin")
    path = f"/admin/v1/schemas/{database}"
    schema = {"classes": {"notes": {"fields": {"title": {"type": "string"}}}}}
    schema_reply = await running.admin.put(path, headers=headers, json=schema)
    assert schema_reply.status_code == 200, schema_reply.text
    for caller, expected in zip(CALLERS, HIDDEN.split(), strict=True):
        answer = await running.data.post(
            f"/v1/{database}/{route}",
            json={"operations": []},
            headers=await running.headers(caller, scope),
        )
        assert outcome(answer) == expected, (caller, answer.text)
    absent = f"/v1/{unique('db')}/{route}"
    answer = await running.data.post(absent, json={"operations": []}, headers=headers)
    assert outcome(answer) == "404"


@pytest.mark.parametrize("route", DOCUMENTS)
async def test_documents_of_the_data_api(running: Guarded, route: str) -> None:
    scope, outcomes, request = DOCUMENTS[route]
    for caller, expected in zip(CALLERS, outcomes.split(), strict=True):
        answer = await send(running, running.data, route, caller, scope, request)
        assert outcome(answer) == expected, (caller, answer.text)


@pytest.mark.parametrize("route", ADMIN)
async def test_admin_routes(running: Guarded, route: str) -> None:
    scope, outcomes, request = ADMIN[route]
    await restore(running)
    for caller, expected in zip(CALLERS, outcomes.split(), strict=True):
        answer = await send(running, running.admin, route, caller, scope, request)
        assert outcome(answer) == expected, (caller, answer.text)


@pytest.mark.parametrize("route", OF_A_DATABASE)
async def test_admin_routes_that_name_a_database_in_the_query(running: Guarded, route: str) -> None:
    request = {"params": {"database": running.database}}
    for caller, expected in zip(CALLERS, HIDDEN.split(), strict=True):
        answer = await send(running, running.admin, route, caller, "schema", request)
        assert outcome(answer) == expected, (caller, answer.text)


@pytest.mark.parametrize(
    "route", [route for route, (scope, _, _) in DATA.items() if scope == "read"]
)
async def test_an_anonymous_caller_may_only_read_a_public_class(
    running: Guarded, route: str
) -> None:
    method, template = route.split(" ")
    template = template.replace("{class}", "articles").replace("{id}", "there")
    path = template.replace("{database}", running.database).replace("{view}", RUN)
    path = path.replace("{query}", RUN)
    path = path.replace("{stream}", "articles")  # which does not make the stream public
    body: dict[str, Any] = {
        "json": {"operations": [{"op": "get", "class": "articles", "id": "there"}]}
    }
    request: dict[str, Any] = {"json": {}} if method == "POST" else {}
    if path.endswith("batch"):
        request = body
    if path.endswith("changes"):
        request = {"params": {"class": "articles"}}
    # These also show what was in the past.
    closed = ("changes", "incremental-views", "event-streams", "standing-queries")
    expected = "401" if any(name in path for name in closed) else "in"
    assert outcome(await running.data.request(method, path, **request)) == expected
