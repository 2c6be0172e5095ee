"""Indexes that are proposed for refused queries, and the patches that add them."""

from __future__ import annotations

from typing import Any

from tests.process.caching.guarded import Guarded
from tests.process.service import unique

ORDERS: dict[str, Any] = {
    "system": "redis",
    "fields": {
        "status": {"type": "string"},
        "created": {"type": "timestamp"},
        "tags": {"type": "list", "items": "string"},
    },
}
QUERIES: tuple[dict[str, Any], ...] = (
    {"filter": {"eq": ["status", "open"]}, "order": [["created", "desc"]]},
    {"filter": {"contains": ["tags", "x"]}},
)
AT = "2026-01-0{}T00:00:00Z"


async def proposals(
    guarded: Guarded, database: str, headers: dict[str, str]
) -> list[dict[str, Any]]:
    response = await guarded.admin.get("/admin/v1/costly-queries", headers=headers)
    items = [query for query in response.json()["items"] if query["database"] == database]
    return [index for query in items for index in query["indexes"]]


async def test_a_refused_query_is_answered_after_its_patch(running: Guarded) -> None:
    reader = await running.headers("operator", "write")
    admin = await running.headers("operator", "schema")
    operator = await running.headers("operator", "admin")
    database = unique("db")
    address, path = f"/admin/v1/schemas/{database}", f"/v1/{database}/orders"
    await running.admin.put(address, json={"classes": {"orders": ORDERS}}, headers=admin)
    for i in (1, 2, 3):
        values = {"status": "open", "created": AT.format(i), "tags": ["x"] * (i % 2)}
        await running.data.put(f"{path}/o{i}", json=values, headers=reader)
    proposed = []
    for query in QUERIES:
        refused = await running.data.post(f"{path}/query", json=query, headers=reader)
        assert refused.status_code == 422, refused.text
        proposed += refused.json()["indexes"]
    assert proposed == [["status", "created"], ["tags"]]
    indexes = await proposals(running, database, operator)
    assert sorted(index["fields"] for index in indexes) == sorted(proposed)
    for index in indexes:
        answer = await running.admin.patch(address, json=index["patch"], headers=admin)
        assert answer.status_code == 200, answer.text
    assert await proposals(running, database, operator) == []
    ids = []
    for query in QUERIES:
        answer = await running.data.post(f"{path}/query", json=query, headers=reader)
        ids.append([item["id"] for item in answer.json()["items"]])
    assert ids == [["o3", "o2", "o1"], ["o1", "o3"]]
