"""The data API, many objects: creation, listings, batches, import and export."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from mediator.base.errors import Unavailable
from mediator.model.operations import Create, Update
from mediator.routing.model import RoutingModel
from tests.process.caching.newspaper import NEWS, Newspaper, assert_problem, newspaper
from tests.process.data.memory_plane import routing_model
from tests.process.operation.asgi_driver import send_raw

NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
async def paper() -> AsyncIterator[Newspaper]:
    async with newspaper() as opened:
        yield opened


async def test_create(paper: Newspaper) -> None:
    created = await paper.client.post("articles", json={"title": "x"})
    assert created.status_code == 201
    id_ = created.json()["id"]
    assert created.headers["location"] == f"/v1/news/articles/{id_}"
    read = await paper.client.get(f"articles/{id_}")
    assert read.headers["etag"] == created.headers["etag"]
    with_id = await paper.client.post("articles", json={"id": "é,1", "title": "x"})
    assert with_id.headers["location"] == "/v1/news/articles/%C3%A9%2C1"
    repeated = await paper.client.post("articles", json={"id": "é,1", "title": "y"})
    assert_problem(repeated, 409, "already-exists")
    assert_problem(await paper.client.post("articles", json={"id": 5}), 400, "invalid", "/id")
    assert_problem(await paper.client.post("articles", json={}), 400, "invalid", "/title")
    assert_problem(await paper.client.post("articles", json="x"), 400, "invalid", "")


async def test_locations_of_ids_that_are_routes_lead_to_the_object(paper: Newspaper) -> None:
    for id_ in ("import", "export"):
        created = await paper.client.post("articles", json={"id": id_, "title": "x"})
        read = await send_raw(paper.app, "GET", created.headers["location"].encode())
        assert read.json()["id"] == id_


async def test_a_repeated_creation_with_a_key_creates_one_object(paper: Newspaper) -> None:
    headers = {"idempotency-key": "k"}
    answers = [
        await paper.client.post("articles", json={"title": "x"}, headers=headers) for _ in "12"
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    assert answers[0].headers["location"] == answers[1].headers["location"]
    other = await paper.client.post("articles", json={"title": "y"}, headers=headers)
    assert_problem(other, 422, "idempotency-key-reused")
    lists = [
        await paper.client.post(
            "articles", json=[{"title": "x"}] * 2, headers={"idempotency-key": "l"}
        )
        for _ in "12"
    ]
    ids = [[item["id"] for item in answer.json()] for answer in lists]
    assert ids[0] == ids[1]
    assert len({*ids[0]}) == 2
    assert len(paper.plane.objects["news", "articles"]) == 3


async def test_a_list_creates_many(paper: Newspaper) -> None:
    body = [{"id": "a", "title": "x"}, {"id": "a", "title": "y"}, {"title": 5}, 7]
    answer = await paper.client.post("articles", json=body)
    assert answer.status_code == 200
    results = answer.json()
    assert [result["status"] for result in results] == [201, 409, 400, 400]
    assert results[0]["body"] == {"id": "a", "title": "x", "hits": 0}
    assert results[1]["problem"]["type"] == "/problems/already-exists"
    assert results[2]["problem"]["errors"][0]["pointer"] == "/title"
    assert "instance" not in results[1]["problem"]
    long = await paper.client.post("articles", json=[{}] * 11)
    assert_problem(long, 400, "invalid", "")


async def test_listing_by_ids(paper: Newspaper) -> None:
    for id_ in ("a", "b,c", "50%", "d e"):
        await paper.client.post("articles", json={"id": id_, "title": "x"})
    answer = await paper.client.get("articles", params={"ids": "a,b%2Cc,no,50%25,d e,a"})
    assert [item["id"] for item in answer.json()["items"]] == ["a", "b,c", "50%", "d e"]
    assert answer.json()["missing"] == ["no"]
    projection = await paper.client.get("articles?ids=a&fields=hits")
    assert projection.json()["items"] == [{"id": "a", "hits": 0}]
    # A parameter with the same ending is another one; an escaped name is the same.
    assert_problem(await paper.client.get("articles?bids=a"), 400, "invalid", "bids")
    escaped = await paper.client.get("articles?%69ds=a&fields=hits")
    assert escaped.json()["items"] == projection.json()["items"]
    assert_problem(await paper.client.get("articles?ids="), 400, "invalid", "ids")
    assert_problem(await paper.client.get("articles?ids=a&limit=1"), 400, "invalid", "limit")
    many = ",".join(map(str, range(11)))
    assert_problem(await paper.client.get(f"articles?ids={many}"), 400, "invalid", "ids")


async def _pages(paper: Newspaper, **query: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    while True:
        answer = await paper.client.get("articles", params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        items += page["items"]
        if page["next"] is None:
            return items
        query["after"] = page["next"]


async def test_listings_page_by_page(paper: Newspaper) -> None:
    for number in range(7):
        await paper.put(f"a{number}", hits=number // 2)
    await paper.client.delete("articles/a3?fields=hits")
    await paper.put("a4", hits=None)
    by_id = await _pages(paper, limit="2")
    assert [item["id"] for item in by_id] == [f"a{number}" for number in range(7)]
    down = await _pages(paper, order="-hits", limit="2", fields="title")
    assert [item["id"] for item in down] == ["a6", "a5", "a2", "a1", "a0", "a4", "a3"]
    assert all(item.keys() == {"id", "title"} for item in down)
    up = await _pages(paper, order="hits", limit="3")
    assert up[::-1] == await _pages(paper, order="-hits")


async def test_cursors_belong_to_their_query(paper: Newspaper) -> None:
    for number in range(3):
        await paper.put(f"a{number}")
    cursor = (await paper.client.get("articles?limit=1")).json()["next"]
    for query in (f"order=hits&after={cursor}", f"after={cursor}x", "after=", "after=%C3%A9"):
        assert_problem(await paper.client.get(f"articles?{query}"), 400, "invalid", "after")
    assert_problem(await paper.client.get(f"locked?after={cursor}"), 400, "invalid", "after")


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "limit"),
        ("limit=6", "limit"),
        ("limit=x", "limit"),
        ("count=planned", "count"),
        ("order=nope", "order"),
        ("order=--hits", "order"),
        ("fields=", "fields"),
        ("filter=x", "filter"),
        ("limit=1&limit=2", "limit"),
        ("%ff=1", "query"),
    ],
)
async def test_invalid_listings_are_refused(paper: Newspaper, query: str, pointer: str) -> None:
    assert_problem(await paper.client.get(f"articles?{query}"), 400, "invalid", pointer)


async def test_batch(paper: Newspaper) -> None:
    tag = (await paper.put("a1")).headers["etag"]
    operations = [
        {"op": "update", "class": "articles", "id": "a1", "body": {"hits": {"inc": 2}}},
        {"op": "get", "class": "articles", "id": "a1"},
        {"op": "put", "class": "articles", "id": "a2", "body": {"title": "two"}},
        {"op": "patch", "class": "articles", "id": "a2", "body": {"title": "2"}},
        {
            "op": "patch",
            "class": "articles",
            "id": "a2",
            "body": [{"op": "remove", "path": "/hits"}],
        },
        {"op": "delete", "class": "articles", "id": "a2"},
        {"op": "get", "class": "articles", "id": "a2"},
        {"op": "put", "class": "articles", "id": "a1", "body": {"title": "x"}, "if_match": tag},
        {"op": "update", "class": "articles", "id": "a1", "body": {"hits": {"inc": "x"}}},
        {"op": "delete", "class": "locked", "id": "a"},
    ]
    answer = await paper.client.post("batch", json={"operations": operations})
    assert answer.status_code == 200, answer.text
    results = answer.json()
    statuses = [result["status"] for result in results]
    assert statuses == [200, 200, 201, 200, 200, 204, 404, 412, 400, 428]
    assert results[0]["body"] == {"id": "a1", "hits": 2}
    assert results[1]["etag"] == results[0]["etag"]
    assert results[1]["body"] == {"id": "a1", "title": "a1", "hits": 2}
    assert results[3]["body"] == {"id": "a2", "title": "2"}
    assert "body" not in results[5]
    assert results[8]["problem"]["errors"][0]["pointer"] == "/body/hits/inc"
    conditional = GET | {"id": "a1", "if_none_match": f'"other", W/{results[1]["etag"]}'}
    answer = await paper.client.post("batch", json={"operations": [conditional]})
    assert answer.json() == [{"status": 304, "id": "a1", "etag": results[1]["etag"]}]
    headers = {"prefer": "return=minimal"}
    minimal = await paper.client.post("batch", json={"operations": operations[:2]}, headers=headers)
    assert [result["status"] for result in minimal.json()] == [204, 200]
    assert ["body" in result for result in minimal.json()] == [False, True]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ([], ""),
        ({}, "/operations"),
        ({"operations": 5}, "/operations"),
        ({"operations": [], "more": 1}, "/more"),
        ({"operations": [{}] * 11}, "/operations"),
    ],
)
async def test_invalid_batches_are_refused(paper: Newspaper, body: Any, pointer: str) -> None:
    assert_problem(await paper.client.post("batch", json=body), 400, "invalid", pointer)


GET = {"op": "get", "class": "articles", "id": "a"}


@pytest.mark.parametrize(
    ("operation", "status", "pointer"),
    [
        (7, 400, ""),
        ({}, 400, "/op"),
        (GET | {"op": "explode"}, 400, "/op"),
        (GET | {"class": 5}, 400, "/class"),
        (GET | {"class": "Nope'--"}, 404, None),
        (GET | {"class": "nope"}, 404, None),
        (GET | {"id": "a/b"}, 400, "/id"),
        (GET | {"id": ""}, 400, "/id"),
        (GET | {"body": {}}, 400, "/body"),
        (GET | {"op": "put"}, 400, "/body"),
        (GET | {"if_match": "*"}, 400, "/if_match"),
        (GET | {"if_none_match": 1}, 400, "/if_none_match"),
        (GET | {"if_none_match": "x"}, 400, "/if_none_match"),
        (GET | {"op": "delete", "if_none_match": "*"}, 400, "/if_none_match"),
        (GET | {"op": "delete", "if_match": "x"}, 400, "/if_match"),
        (GET | {"$where": "1"}, 400, "/$where"),
        (GET | {"op": "put", "body": {"id": "b", "title": "x"}}, 400, "/body/id"),
        (GET | {"op": "put", "body": 5}, 400, "/body"),
        (GET | {"op": "patch", "body": [5]}, 400, "/body/0"),
        ({"class": "articles", "op": "create", "body": {"id": 5, "title": "x"}}, 400, "/body/id"),
        (GET | {"op": "create", "body": {"id": "b", "title": "x"}}, 400, "/body/id"),
        (GET | {"op": "create", "body": {"title": "x"}, "if_match": "*"}, 400, "/if_match"),
    ],
)
async def test_an_invalid_operation_fails_alone(
    paper: Newspaper, operation: Any, status: int, pointer: str | None
) -> None:
    good = GET | {"op": "put", "body": {"title": "x"}, "id": "good"}
    answer = await paper.client.post("batch", json={"operations": [operation, good]})
    bad, created = answer.json()
    assert (bad["status"], created["status"]) == (status, 201)
    if pointer is not None:
        assert bad["problem"]["errors"][0]["pointer"] == pointer


async def test_a_batch_creates_missing_objects(paper: Newspaper) -> None:
    create = {"op": "create", "class": "articles", "body": {"title": "x"}}
    with_id = create | {"body": {"id": "a1", "title": "x"}}
    batch = {"operations": [create, create | {"id": "a2"}, with_id, with_id]}
    headers = {"idempotency-key": "k"}
    first = (await paper.client.post("batch", json=batch, headers=headers)).json()
    assert [result["status"] for result in first] == [201, 201, 201, 409]
    assert [result["id"] for result in first[1:3]] == ["a2", "a1"]
    generated_id = first[0]["id"]
    assert (await paper.client.get(f"articles/{generated_id}")).json()["title"] == "x"
    repeated = (await paper.client.post("batch", json=batch, headers=headers)).json()
    assert [result["id"] for result in repeated[:3]] == [generated_id, "a2", "a1"]


async def test_a_repeated_batch_with_a_key(paper: Newspaper) -> None:
    await paper.put("a1")
    update = {"op": "update", "class": "articles", "id": "a1", "body": {"hits": {"inc": 1}}}
    headers = {"idempotency-key": "k"}
    body = {"operations": [update, update]}
    first = await paper.client.post("batch", json=body, headers=headers)
    repeated = await paper.client.post("batch", json=body, headers=headers)
    assert [result["body"]["hits"] for result in first.json()] == [1, 2]
    assert [result["body"]["hits"] for result in repeated.json()] == [1, 2]
    assert all(result["replayed"] for result in repeated.json())
    other = await paper.client.post("batch", json={"operations": [update]}, headers=headers)
    assert other.json()[0]["status"] == 422


def _lines(*objects: Any) -> bytes:
    return b"\n".join(o if isinstance(o, bytes) else orjson.dumps(o) for o in objects) + b"\n"


async def test_an_export_can_be_imported(paper: Newspaper) -> None:
    for number in range(7):
        await paper.put(f"a{number}", hits=number, tags=["é"], body={"x": None}, price="1.5")
    exported = await paper.client.get("articles/export")
    assert exported.headers["content-type"] == "application/x-ndjson"
    assert [orjson.loads(line)["id"] for line in exported.content.splitlines()] == [
        f"a{number}" for number in range(7)
    ]
    paper.plane.objects.clear()
    summary = await paper.client.post("articles/import", content=exported.content, headers=NDJSON)
    assert summary.json() == {"imported": 7, "failed": 0, "next": 7, "problems": []}
    assert (await paper.client.get("articles/export")).content == exported.content
    remaining = await paper.client.get("articles/export?after=a4&fields=hits")
    assert [orjson.loads(line) for line in remaining.content.splitlines()] == [
        {"id": "a5", "hits": 5},
        {"id": "a6", "hits": 6},
    ]


async def test_an_empty_export_and_its_head(paper: Newspaper) -> None:
    empty = await paper.client.get("articles/export", headers={"accept": "application/x-ndjson"})
    assert (empty.status_code, empty.content) == (200, b"")
    await paper.put("a1")
    head = await paper.client.head("articles/export")
    assert (head.status_code, head.content) == (200, b"")


async def test_an_import_reports_the_lines_that_failed(paper: Newspaper) -> None:
    body = _lines(
        {"id": "a", "title": "x"}, b"", b"{broken", {"id": "b"}, b" ", b"x" * 300, {"title": "y"}
    )
    summary = (await paper.client.post("articles/import", content=body, headers=NDJSON)).json()
    assert (summary["imported"], summary["failed"], summary["next"]) == (2, 3, 7)
    slugs = [(problem["line"], problem["type"]) for problem in summary["problems"]]
    assert slugs == [
        (3, "/problems/malformed-json"),
        (4, "/problems/invalid"),
        (6, "/problems/body-too-large"),
    ]


async def test_a_broken_import_resumes_where_it_stopped(paper: Newspaper) -> None:
    body = _lines(*[{"id": f"a{number}", "title": "x"} for number in range(8)])
    write = paper.plane.write
    accepted_writes = iter(range(4))

    async def failing(operation: Any) -> Any:
        if next(accepted_writes, None) is None:
            raise Unavailable("gone", system="redis")
        return await write(operation)

    paper.plane.write = failing  # type: ignore[method-assign] # the store goes away midway
    broken = await paper.client.post("articles/import", content=body, headers=NDJSON)
    document = assert_problem(broken, 503, "unavailable")
    assert (document["imported"], document["next"]) == (4, 4)
    paper.plane.write = write  # type: ignore[method-assign] # and comes back
    address = f"articles/import?skip={document['next']}"
    remaining = await paper.client.post(address, content=body, headers=NDJSON)
    assert remaining.json()["imported"] == 4
    assert len(paper.plane.objects["news", "articles"]) == 8


async def test_a_repeated_import_with_a_key_changes_nothing(paper: Newspaper) -> None:
    body = _lines({"title": "no id"}, {"id": "a", "title": "x"})
    headers = NDJSON | {"idempotency-key": "k"}
    for _ in "12":
        await paper.client.post("articles/import", content=body, headers=headers)
    stored = paper.plane.objects["news", "articles"]
    assert len(stored) == 2
    assert all(max(o.versions.values()) < 1_700_000_000_000_010 for o in stored.values())


async def test_a_new_routing_model_is_seen_at_once(paper: Newspaper) -> None:
    await paper.put("a1")
    paper.plane.model = routing_model(2, NEWS)
    assert (await paper.client.get("articles/a1")).status_code == 200
    paper.plane.model = RoutingModel(3)
    assert_problem(await paper.client.get("articles/a1"), 404, "not-found")


async def test_writes_carry_no_fingerprint_without_a_key(paper: Newspaper) -> None:
    await paper.client.post("articles", json={"id": "a", "title": "x"})
    update = {"op": "update", "class": "articles", "id": "a", "body": {"hits": {"inc": 1}}}
    await paper.client.post(
        "batch", json={"operations": [update]}, headers={"idempotency-key": "k"}
    )
    create, update_ = paper.plane.writes
    assert isinstance(create, Create)
    assert create.fingerprint is None
    assert isinstance(update_, Update)
    assert update_.fingerprint is not None
    assert create.operation != update_.operation
