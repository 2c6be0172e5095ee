"""Clusters over HTTP: declared, rebalanced and dropped, with real participants."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import httpx
import orjson
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from mediator.control.plane import ControlPlane
from mediator.coordination.cluster_store import RedisClusters
from mediator.coordination.connecting import connect
from mediator.relocation.administration import ClusterAdministration
from mediator.relocation.participant import Participant, addresses
from mediator.relocation.port import ClusterGone, Clusters
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually

PAGE = Path(__file__).parents[3] / "docs" / "rebalancing.md"
BLOCK = re.compile(r"^```json\n(.*?)^```$", re.DOTALL | re.MULTILINE)
QUERIES = orjson.loads(BLOCK.findall(PAGE.read_text())[0])
CHAIN = {
    "streams": {name: {"attributes": ["a", "b"], "rate": 1} for name in "RST"},
    "queries": {
        "q": {
            "relations": ["R", "S", "T"],
            "predicates": [["R.a", "S.a"], ["S.b", "T.b"]],
            "window_s": 1,
        }
    },
}
NONE = "/admin/v1/clusters/none"


@pytest.fixture
async def clusters(redis_config: SystemConfig, late_replies: None) -> AsyncIterator[Clusters]:
    redis = connect(redis_config.url)
    yield RedisClusters(redis)
    await redis.aclose()


@pytest.fixture
async def client(clusters: Clusters) -> AsyncIterator[httpx.AsyncClient]:
    context = AdminContext(clusters=ClusterAdministration(clusters))
    # No route here uses the control plane.
    app = create_admin_app(cast("ControlPlane", None), CollectorRegistry(), context)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as new_client:
        yield new_client


@asynccontextmanager
async def run_participants(
    clusters: Clusters, name: str
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run all participants."""
    store, cluster = await ClusterAdministration(clusters).find(name)
    never = asyncio.Event()
    tasks = [
        asyncio.create_task(Participant(store, cluster, address).run(never))
        for address in addresses(cluster)
    ]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_cluster_is_declared_rebalanced_and_dropped(
    client: httpx.AsyncClient, clusters: Clusters
) -> None:
    name = f"c{uuid4().hex[:8]}"
    path = f"/admin/v1/clusters/{name}"
    dry_run = await client.put(path, json={"queries": QUERIES}, params={"dry_run": True})
    assert dry_run.status_code == 200
    assert set(dry_run.json()["attributes"].values()) == {"customer"}
    assert (await client.get(path)).status_code == 404
    assert (await client.put(path, json={"queries": QUERIES})).status_code == 201
    assert (
        (await client.put(path, json={"queries": QUERIES}))
        .json()["type"]
        .endswith("/already-exists")
    )
    assert name in (await client.get("/admin/v1/clusters")).json()["items"]
    store, _ = await ClusterAdministration(clusters).find(name)
    rows: list[Any] = [(second / 1, {"customer": second % 50}) for second in range(100)]
    async with run_participants(clusters, name) as tasks:
        for stream in QUERIES["streams"]:
            await store.append(stream, rows)

        async def show() -> dict[str, Any]:
            document: dict[str, Any] = (await client.get(path)).json()
            return document

        async def has_rows() -> bool:
            return bool((await show())["workers"]["worker:0"]["rows"])

        await eventually(has_rows)
        relocation = {
            "strategy": "mslb",
            "sender": "worker:0",
            "receiver": "worker:1",
            "amount": 10,
        }
        answer = await client.post(f"{path}/relocations", json=relocation)
        assert (answer.status_code, answer.json()) == (202, relocation)

        async def is_done() -> bool:
            relocations = (await show())["relocations"]
            return bool(relocations) and relocations[0]["phase"] == "done"

        await eventually(is_done)
        assert (await client.delete(f"{path}/relocations/1")).status_code == 202
        assert (await client.delete(path)).status_code == 204
        assert (await client.get(path)).status_code == 404
        # A cluster of the same name is another one, without the leftovers of the former.
        assert (await client.put(path, json={"queries": QUERIES})).status_code == 201
        with pytest.raises(ClusterGone):
            await store.append("orders", [(200.0, None)])
        later, _ = await ClusterAdministration(clusters).find(name)
        for stream in QUERIES["streams"]:
            await later.append(stream, [*rows, *rows])  # more than they have read
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        assert any(task.done() and isinstance(task.exception(), ClusterGone) for task in tasks)
        assert not (await show())["workers"]["worker:0"]["rows"]
    assert (await client.delete(path)).status_code == 204


async def test_requests_to_a_manager_that_does_not_run_are_limited(
    client: httpx.AsyncClient,
) -> None:
    path = f"/admin/v1/clusters/c{uuid4().hex[:8]}"
    await client.put(path, json={"queries": QUERIES})
    answers = [await client.post(f"{path}/relocations", json={}) for _ in range(101)]
    assert [answer.status_code for answer in answers] == [202] * 100 + [429]
    await client.delete(path)


@pytest.mark.parametrize(
    ("method", "path", "body", "problem", "pointer"),
    [
        ("PUT", NONE, {"queries": CHAIN}, "not-co-partitioned", None),
        ("PUT", NONE, {"queries": {"streams": {}, "queries": {}}}, "invalid", "/queries/queries"),
        ("PUT", NONE, {"queries": QUERIES, "workers": 65}, "invalid", "/workers"),
        ("PUT", NONE, {"queries": QUERIES, "lateness_s": -1}, "invalid", "/lateness_s"),
        ("PUT", "/admin/v1/clusters/no%20name", {"queries": QUERIES}, "invalid", None),
        ("GET", NONE, None, "not-found", None),
        ("DELETE", NONE, None, "not-found", None),
        ("POST", f"{NONE}/relocations", {}, "not-found", None),
        ("POST", f"{NONE}/relocations", {"strategy": "fast"}, "invalid", "/strategy"),
        ("DELETE", f"{NONE}/relocations/1", None, "not-found", None),
        ("DELETE", f"{NONE}/relocations/first", None, "invalid", None),
    ],
)
async def test_an_invalid_request_is_a_problem(
    client: httpx.AsyncClient,
    method: str,
    path: str,
    body: Any,
    problem: str,
    pointer: str | None,
) -> None:
    answer = await client.request(method, path, json=body)
    assert answer.json()["type"].endswith(f"/{problem}"), answer.text
    if pointer is not None:
        assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


async def test_an_unknown_worker_is_refused_with_its_location(client: httpx.AsyncClient) -> None:
    path = f"/admin/v1/clusters/c{uuid4().hex[:8]}"
    await client.put(path, json={"queries": QUERIES})
    answer = await client.post(f"{path}/relocations", json={"receiver": "worker:2"})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "/receiver"
    await client.delete(path)
