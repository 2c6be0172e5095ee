"""Indexes that are proposed for refused queries, added by the patches that come with them."""

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


async def proposals(of: Guarded, database: str, headers: dict[str, str]) -> list[dict[str, Any]]:
    answer = await of.admin.get("/admin/v1/costly-queries", headers=headers)
    items = [each for each in answer.json()["items"] if each["database"] == database]
    return [index for each in items for index in each["indexes"]]


async def test_a_refused_query_is_answered_once_its_patch_is_applied(running: Guarded) -> None:
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
    listed = await proposals(running, database, operator)
    assert sorted(each["fields"] for each in listed) == sorted(proposed)
    for each in listed:
        answer = await running.admin.patch(address, json=each["patch"], headers=admin)
        assert answer.status_code == 200, answer.text
    assert await proposals(running, database, operator) == []
    found = []
    for query in QUERIES:
        answer = await running.data.post(f"{path}/query", json=query, headers=reader)
        found.append([item["id"] for item in answer.json()["items"]])
    assert found == [["o3", "o2", "o1"], ["o1", "o3"]]
