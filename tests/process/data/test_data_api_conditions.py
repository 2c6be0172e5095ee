"""The data API, one object: conditional requests, and idempotency."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mediator.model.operations import Outcome, WriteOperation
from tests.process.caching.newspaper import (
    MERGE,
    UPDATE,
    Newspaper,
    assert_problem,
    newspaper,
)


@pytest.fixture
async def paper() -> AsyncIterator[Newspaper]:
    async with newspaper() as opened:
        yield opened


async def test_reads_on_condition(paper: Newspaper) -> None:
    tag = (await paper.put("a1")).headers["etag"]
    same = await paper.client.get("articles/a1", headers={"if-none-match": f'"x", W/{tag}'})
    assert (same.status_code, same.content) == (304, b"")
    assert same.headers["etag"] == tag
    assert same.headers["cache-control"] == "no-cache"
    assert same.headers["vary"] == "Accept, Prefer, Portolan-Schema, Accept-Encoding, Origin"
    assert "content-type" not in same.headers
    changed = await paper.client.get("articles/a1", headers={"if-none-match": '"x"'})
    assert changed.status_code == 200
    failed = await paper.client.get("articles/a1", headers={"if-match": '"x"'})
    assert_problem(failed, 412, "precondition-failed")
    missing = await paper.client.get("articles/none", headers={"if-match": "*"})
    assert_problem(missing, 404, "not-found")
    broken = await paper.client.get("articles/a1", headers={"if-match": "x"})
    assert_problem(broken, 400, "invalid", "If-Match")


WRITES = ["put", "patch", "delete"]


async def _write(paper: Newspaper, method: str, id_: str, headers: dict[str, str]) -> int:
    if method == "patch":
        answer = await paper.patch(f"articles/{id_}", UPDATE, {"hits": {"inc": 1}}, **headers)
    elif method == "put":
        answer = await paper.client.put(f"articles/{id_}", json={"title": "t"}, headers=headers)
    else:
        answer = await paper.client.delete(f"articles/{id_}", headers=headers)
    if not answer.is_success:
        assert_problem(answer, answer.status_code, answer.json()["type"].rpartition("/")[2])
    return answer.status_code


DONE = {"put": 200, "patch": 200, "delete": 204}
ABSENT = {"put": 201, "patch": 404, "delete": 404}


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize(
    ("name", "value", "existing", "absent"),
    [
        ("if-match", "{tag}", DONE, 412),
        ("if-match", '"j1.hits:1.main:1", {tag}', DONE, 412),
        ("if-match", "*", DONE, 412),
        ("if-match", '"j1.hits:1.main:1"', 412, 412),
        ("if-match", '"j2.hits:1.main:1"', 412, 412),
        ("if-match", "W/{tag}", 412, 412),
        ("if-match", "{part}", 412, 412),
        ("if-match", "{", 400, 400),
        ("if-none-match", "*", 412, ABSENT),
        ("if-none-match", "{tag}", 412, ABSENT),
        ("if-none-match", "W/{tag}", 412, ABSENT),
        ("if-none-match", '"other"', DONE, ABSENT),
    ],
)
async def test_writes_on_condition(
    paper: Newspaper, method: str, name: str, value: str, existing: Any, absent: Any
) -> None:
    tag = (await paper.put("a1")).headers["etag"]
    group_tag = (await paper.client.get("articles/a1?fields=hits")).headers["etag"]
    header = {name: value.replace("{tag}", tag).replace("{part}", group_tag)}
    expected = existing if isinstance(existing, int) else existing[method]
    assert await _write(paper, method, "a1", header) == expected
    expected = absent if isinstance(absent, int) else absent[method]
    assert await _write(paper, method, "none", header) == expected


async def test_if_match_binds_the_groups_of_the_fields(paper: Newspaper) -> None:
    await paper.put("a1")
    tag = (await paper.client.get("articles/a1?fields=title")).headers["etag"]
    await paper.patch("articles/a1", UPDATE, {"hits": {"inc": 1}})
    address = "articles/a1?fields=title"
    first = await paper.patch(address, MERGE, {"title": "x"}, if_match=tag)
    assert first.status_code == 200
    assert first.headers["etag"] != tag
    second = await paper.patch(address, MERGE, {"title": "y"}, if_match=tag)
    assert_problem(second, 412, "precondition-failed")


async def test_classes_that_require_if_match(paper: Newspaper) -> None:
    created = await paper.client.put("locked/a", json={"title": "x"})
    assert created.status_code == 201
    tag = created.headers["etag"]
    for answer in (
        await paper.client.put("locked/a", json={}),
        await paper.client.delete("locked/a"),
        await paper.patch("locked/a", MERGE, {"title": "y"}),
    ):
        assert_problem(answer, 428, "precondition-required")
    changed = await paper.patch("locked/a", MERGE, {"title": "y"}, if_match=tag)
    assert changed.status_code == 200


async def test_a_retry_gets_the_first_answer(paper: Newspaper) -> None:
    await paper.put("a1")
    headers = {"idempotency_key": '"key-1"'}
    first = await paper.patch("articles/a1", UPDATE, {"hits": {"inc": 1}}, **headers)
    await paper.patch("articles/a1", UPDATE, {"hits": {"inc": 1}})
    retry = await paper.patch("articles/a1", UPDATE, {"hits": {"inc": 1}}, **headers)
    assert (retry.status_code, retry.json()) == (200, first.json())
    assert retry.headers["etag"] == first.headers["etag"]
    assert retry.headers["portolan-position"] == first.headers["portolan-position"]
    assert retry.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert (await paper.client.get("articles/a1")).json()["hits"] == 2
    assert len(paper.plane.writes) == 3
    other = await paper.patch("articles/a1", UPDATE, {"hits": {"inc": 5}}, **headers)
    assert_problem(other, 422, "idempotency-key-reused")
    headers["if_match"] = "*"
    other = await paper.patch("articles/a1", UPDATE, {"hits": {"inc": 1}}, **headers)
    assert_problem(other, 422, "idempotency-key-reused")
    broken = await paper.patch("articles/a1", UPDATE, {}, idempotency_key="a b")
    assert_problem(broken, 400, "invalid", "Idempotency-Key")


async def test_a_retry_is_known_though_its_condition_no_longer_holds(paper: Newspaper) -> None:
    tag = (await paper.put("a1")).headers["etag"]
    headers = {"if-match": tag, "idempotency-key": "k"}
    first = await paper.client.put("articles/a1", json={"title": "x"}, headers=headers)
    retry = await paper.client.put("articles/a1", json={"title": "x"}, headers=headers)
    assert (first.status_code, retry.status_code) == (200, 200)
    deletions = [
        await paper.client.delete("articles/a1", headers={"idempotency-key": "d"}) for _ in "12"
    ]
    assert [answer.status_code for answer in deletions] == [204, 204]


async def test_a_key_whose_request_still_runs(
    paper: Newspaper, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, release = asyncio.Event(), asyncio.Event()
    write = paper.plane.write

    async def slow(operation: WriteOperation) -> Outcome:
        started.set()
        await release.wait()
        return await write(operation)

    monkeypatch.setattr(paper.plane, "write", slow)
    headers = {"idempotency-key": "k"}
    request = paper.client.put("articles/a1", json={"title": "x"}, headers=headers)
    first = asyncio.create_task(request)
    await started.wait()
    second = await paper.client.put("articles/a1", json={"title": "x"}, headers=headers)
    assert_problem(second, 409, "idempotency-key-in-use")
    assert second.headers["retry-after"] == "1"
    release.set()
    assert (await first).status_code == 201
