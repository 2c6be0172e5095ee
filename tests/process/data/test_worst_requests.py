"""The worst legal request of each route, and its work in one step of the event loop.

During a step the event loop serves nothing else, such as `/live`. Steps are measured in function
calls, whose number is the same on every machine. The work of C code in one call is bounded by the
size of its input, which docs/limits.md lists.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import orjson
import pytest

from app.admin.application import create_admin_app
from app.api.options import DataOptions, DataServices
from app.api.queries import MAX_QUERY_BYTES
from app.api.router import DataApi
from app.http.jsonbody import MAX_VALUES
from app.telemetry.metrics import Metrics
from mediator.operations import read_modify_write
from mediator.stores.port import Write
from mediator.stores.postgres.write.prepared import PreparedWrite
from tests.process.data.loop_steps import Steps, count_steps
from tests.process.service import Service, field_on

MAX_CALLS: Final = 200_000
"""Two for each value of the largest body: about twenty milliseconds."""

TOO_COSTLY: Final = 422

SYSTEMS: Final = ("postgres", "mongo", "redis")
JSON: Final = {"content-type": "application/json"}
JSON_PATCH: Final = {"content-type": "application/json-patch+json"}
NDJSON: Final = {"content-type": "application/x-ndjson"}
MANY: Final = MAX_VALUES - 1_000
PAIRS: Final = MANY // 3


def _fields(system: str) -> dict[str, Any]:
    return {
        "text": field_on(system),
        "n": field_on(system, "integer", index=True),
        "doc": field_on(system, "document"),
        "list": field_on(system, "list", items="integer"),
        "times": field_on(system, "map", items="timestamp"),
    }


@pytest.fixture(scope="module")
async def http(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A database with a class on each system."""
    classes = {f"on_{system}": {"fields": _fields(system)} for system in SYSTEMS}
    database = await mediator.put_schema(classes)
    running = mediator.mediator
    options = DataOptions(b"k" * 32)
    api = DataApi(
        running.data, options, lambda _: None, DataServices(transact=running.transactions.run)
    )
    base, transport = f"http://test/v1/{database}/", httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url=base, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
async def admin(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    app = create_admin_app(mediator.mediator.control, Metrics().registry)
    base, transport = "http://test/admin/v1/", httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=base, timeout=120) as client:
        yield client


async def check_steps(client: httpx.AsyncClient, method: str, path: str, **request: Any) -> Steps:
    """Send a legal request, and check that none of its steps holds the event loop.

    A query may also be refused because it takes too long.
    """
    with count_steps() as steps:
        answer = await client.request(method, path, **request)
    assert answer.is_success or answer.status_code == TOO_COSTLY, answer.text
    assert steps.max_calls <= MAX_CALLS, (method, path[:60])
    return steps


def body(value: Any) -> dict[str, Any]:
    return {"content": orjson.dumps(value), "headers": JSON}


@pytest.mark.parametrize("system", SYSTEMS)
async def test_one_large_object(http: httpx.AsyncClient, system: str) -> None:
    path = f"on_{system}/large_document"
    large = {"doc": {"k": [{"a": 0}] * PAIRS}}
    await check_steps(http, "PUT", path, **body(large))
    moves = [{"op": "move", "from": "/doc/k/0", "path": f"/doc/k/{PAIRS - 1}"}] * 1_000
    await check_steps(http, "PATCH", path, content=orjson.dumps(moves), headers=JSON_PATCH)
    await check_steps(http, "GET", path)
    assert (await http.get(path)).json()["doc"] == large["doc"]
    await check_steps(http, "DELETE", path)
    path = f"on_{system}/large_map"
    times = {str(n): "2026-01-31T00:00:00Z" for n in range(MANY)}
    await check_steps(http, "PUT", path, **body({"times": times}))
    await check_steps(http, "GET", path)
    await check_steps(http, "DELETE", path)
    path = f"on_{system}/large_list"
    await check_steps(http, "PUT", path, **body({"list": list(range(MANY))}))
    await check_steps(http, "GET", path)
    await check_steps(http, "DELETE", path)


async def test_a_json_patch_is_not_computed_on_the_event_loop(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its moves are few calls of functions, each of which moves the rest of a list."""
    threads: set[int] = set()

    def record(*args: Any) -> Any:
        threads.add(threading.get_ident())
        return compute(*args)

    compute = read_modify_write.update_of
    monkeypatch.setattr(read_modify_write, "update_of", record)
    await http.put("on_postgres/moved", **body({"doc": {"k": [1, 2]}}))
    moves = [{"op": "move", "from": "/doc/k/0", "path": "/doc/k/1"}]
    answer = await http.patch("on_postgres/moved", content=orjson.dumps(moves), headers=JSON_PATCH)
    assert answer.json()["doc"] == {"k": [2, 1]}
    assert threads
    assert threading.get_ident() not in threads


async def test_the_parameters_of_a_large_object_are_not_computed_on_the_event_loop(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map with as many times as possible takes a tenth of a second, with few calls for each."""
    threads: set[int] = set()
    compute = PreparedWrite.arguments

    def record(prepared: PreparedWrite, call: Write, token: str) -> Any:
        if "times" in call.values:  # the service itself writes as well
            threads.add(threading.get_ident())
        return compute(prepared, call, token)

    monkeypatch.setattr(PreparedWrite, "arguments", record)
    times = {str(n): "2026-01-31T00:00:00Z" for n in range(MANY)}
    answer = await http.put("on_postgres/times", **body({"times": times}))
    assert answer.is_success, answer.text
    assert threads
    assert threading.get_ident() not in threads
    await http.delete("on_postgres/times")


@pytest.mark.parametrize("system", SYSTEMS)
async def test_many_objects(http: httpx.AsyncClient, system: str) -> None:
    name = f"on_{system}"
    puts = [
        {"op": "put", "class": name, "id": f"m{n}", "body": {"text": f"{n}" * 900, "n": n}}
        for n in range(1_000)
    ]
    await check_steps(http, "POST", "batch", **body({"operations": puts}))
    gets = [{"op": "get", "class": name, "id": f"m{n}"} for n in range(1_000)]
    await check_steps(http, "POST", "batch", **body({"operations": gets}))
    created = [{"n": n, "doc": {"k": [0] * 80}} for n in range(1_000)]
    await check_steps(http, "POST", name, **body(created))
    await check_steps(http, "GET", f"{name}?ids=" + ",".join(f"m{n}" for n in range(1_000)))
    await check_steps(http, "GET", f"{name}?limit=1000")
    line = orjson.dumps({"id": "m0", "doc": {"k": [0] * MANY}}) + b"\n"
    await check_steps(http, "POST", f"{name}/import", content=line, headers=NDJSON)
    await check_steps(http, "GET", f"{name}/export")
    writes = [{**put, "id": f"t{n}"} for n, put in enumerate(puts[:100])]
    await check_steps(http, "POST", "transactions", **body({"operations": writes}))
    await http.delete(f"{name}/m0")


@pytest.mark.parametrize("system", SYSTEMS)
async def test_queries(http: httpx.AsyncClient, system: str) -> None:
    name = f"on_{system}"
    objects = [{"text": "ab" * 200, "n": n} for n in range(500)]
    await http.post(name, **body(objects))
    conditions = [{"ne": ["n", n]} if n % 2 else {"eq": ["text", f"{n}"]} for n in range(240)]
    like = {"like": ["text", "%a" + "_" * 28 + "c%"]}
    numbers = {"in": ["n", list(range(1_000))]}
    groups = {"group": ["n", "text"], "compute": {"m": {"count": "*"}}}
    having = {"or": [{"eq": ["m", -n]} for n in range(240)]}
    for query in (
        {"filter": {"or": conditions}},
        {"filter": {"and": [{"not": like}, *conditions[1::2]]}},
        {"filter": {"and": [numbers, *conditions[1::2]]}},
        {"filter": {"eq": ["doc", {"k": [0] * (MAX_QUERY_BYTES // 3)}]}},
        {"order": [["text", "desc"], "n", ["id", "desc"]], "limit": 1_000},
        {"aggregate": {**groups, "filter": having}},
    ):
        await check_steps(http, "POST", f"{name}/query", **body({**query, "allow_scan": True}))
    bounds = "&".join(f"n.ge=-{n}" for n in range(240))
    await check_steps(http, "GET", f"{name}?{bounds}&allow_scan=true")


async def test_schemas(admin: httpx.AsyncClient) -> None:
    goals = [{"metric": "read_latency", "goal": 0.01}, {"metric": "write_latency", "goal": 0.01}]
    fields = {f"f{n}": {"type": "string", "annotations": goals} for n in range(500)}
    schema = {"classes": {"wide": {"fields": fields}, "wider": {"fields": fields}}}
    await check_steps(admin, "PUT", "schemas/wide?dry_run=true", **body(schema))
    await check_steps(admin, "POST", "advice", **body({"schema": schema}))


async def test_bodies_with_too_many_values_are_refused(http: httpx.AsyncClient) -> None:
    many = {"list": [0] * (MAX_VALUES + 1)}
    for method, path in (("PUT", "on_redis/a"), ("POST", "on_redis"), ("POST", "batch")):
        answer = await http.request(method, path, **body(many))
        assert answer.status_code == 400
        assert answer.json()["detail"] == "The body has too many values."
    texts = {"text": '[{"\\,' * (MAX_VALUES + 1)}
    with count_steps() as steps:
        answer = await http.put("on_redis/texts", **body(texts))
    assert answer.status_code == 201, "characters of a string are not values"
    assert steps.max_calls <= MAX_CALLS
    query = {"filter": {"in": ["text", ["x" * 1_000] * (MAX_QUERY_BYTES // 1_000)]}}
    answer = await http.post("on_redis/query", **body(query))
    assert answer.status_code == 413
