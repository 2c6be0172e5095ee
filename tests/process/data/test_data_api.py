"""The data API, one object: representations, patches, preferences."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.http.negotiation import JSON
from mediator.base.errors import OutcomeUnknown, Unavailable
from mediator.base.observation import RequestFinished
from tests.process.caching.newspaper import (
    JSON_PATCH,
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


async def test_an_object_from_creation_to_deletion(paper: Newspaper) -> None:
    body = {"title": "One", "tags": ["b", "a"], "price": "1.5", "body": {"x": [1, None]}}
    created = await paper.client.put("articles/a1", json=body)
    assert created.status_code == 201
    assert created.json() == {**body, "id": "a1", "tags": ["a", "b"], "hits": 0}
    read = await paper.client.get("articles/a1")
    assert (read.status_code, read.json()) == (200, created.json())
    assert read.headers["etag"] == created.headers["etag"]
    assert read.headers["cache-control"] == "no-cache"
    replaced = await paper.client.put("articles/a1", json={"id": "a1", "title": "Two"})
    assert (replaced.status_code, replaced.json()) == (200, {"id": "a1", "title": "Two", "hits": 0})
    assert replaced.headers["etag"] != created.headers["etag"]
    deleted = await paper.client.delete("articles/a1")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert deleted.headers["portolan-position"]
    assert_problem(await paper.client.get("articles/a1"), 404, "not-found")
    assert_problem(await paper.client.delete("articles/a1"), 404, "not-found")


async def test_head_is_get_without_the_body(paper: Newspaper) -> None:
    await paper.put("a1")
    head = await paper.client.head("articles/a1")
    get = await paper.client.get("articles/a1")
    assert head.content == b""
    for name in ("etag", "content-length", "content-type", "cache-control", "vary"):
        assert head.headers[name] == get.headers[name]
    missing = await paper.client.head("articles/none")
    assert (missing.status_code, missing.content) == (404, b"")


async def test_a_projection_is_a_resource_with_its_own_tag(paper: Newspaper) -> None:
    await paper.put("a1", hits=3)
    hits = await paper.client.get("articles/a1?fields=hits")
    assert hits.json() == {"id": "a1", "hits": 3}
    assert hits.headers["cache-control"] == "no-cache"
    tag = hits.headers["etag"]
    await paper.patch("articles/a1", MERGE, {"title": "new"})
    assert (await paper.client.get("articles/a1?fields=hits")).headers["etag"] == tag
    other = await paper.client.get("articles/a1?fields=title,hits,title")
    assert other.json() == {"id": "a1", "hits": 3, "title": "new"}
    assert other.headers["cache-control"] == "no-store"
    unknown = await paper.client.get("articles/a1?fields=hits,nope")
    assert_problem(unknown, 400, "invalid", "fields")


async def test_writes_to_some_fields_leave_the_others(paper: Newspaper) -> None:
    await paper.put("a1", hits=3, price="2")
    put = await paper.client.put("articles/a1?fields=hits,price", json={"hits": 9})
    assert put.json() == {"id": "a1", "hits": 9}
    assert (await paper.client.get("articles/a1")).json() == {"id": "a1", "title": "a1", "hits": 9}
    deleted = await paper.client.delete("articles/a1?fields=hits")
    assert deleted.status_code == 200
    assert (await paper.client.get("articles/a1")).json() == {"id": "a1", "title": "a1"}
    required = await paper.client.delete("articles/a1?fields=title")
    assert_problem(required, 400, "invalid", "/title")
    outside = await paper.patch("articles/a1?fields=hits", UPDATE, {"title": {"set": "x"}})
    assert_problem(outside, 400, "invalid", "/title")
    patch: list[dict[str, Any]] = [{"op": "add", "path": "/title", "value": "x"}]
    revised = await paper.patch("articles/a1?fields=hits", JSON_PATCH, patch)
    assert_problem(revised, 400, "invalid", "/title")
    patch = [{"op": "add", "path": "/hits", "value": "5"}]
    revised = await paper.patch("articles/a1?fields=hits", JSON_PATCH, patch)
    assert_problem(revised, 400, "invalid", "/hits")
    patch = [{"op": "add", "path": "/hits", "value": 5}]
    revised = await paper.patch("articles/a1?fields=hits", JSON_PATCH, patch)
    assert revised.json() == {"id": "a1", "hits": 5}
    assert (await paper.client.get("articles/a1")).json()["title"] == "a1"


@pytest.mark.parametrize(
    ("type_", "body", "expected"),
    [
        (UPDATE, {"hits": {"inc": 2}, "tags": {"add_to_set": "z"}}, {"hits": 5, "tags": ["z"]}),
        (UPDATE, {"price": {"set": "1.0"}, "body": {"unset": True}}, {"price": "1"}),
        (MERGE, {"hits": 7, "body": None}, {"hits": 7}),
        (MERGE, {"body": {"y": 2, "x": None}}, {"body": {"y": 2}}),
        (JSON_PATCH, [{"op": "replace", "path": "/body/x", "value": 9}], {"body": {"x": 9}}),
        (JSON_PATCH, [{"op": "test", "path": "/hits", "value": 3}], {"hits": 3}),
        (JSON_PATCH, [], {}),
    ],
)
async def test_patches_answer_the_fields_they_touch(
    paper: Newspaper, type_: str, body: Any, expected: dict[str, Any]
) -> None:
    await paper.put("a1", hits=3, body={"x": 1})
    answer = await paper.patch("articles/a1", type_, body)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"id": "a1", **expected}
    read = await paper.client.get("articles/a1")
    assert read.headers["etag"] == answer.headers["etag"]
    assert expected.items() <= read.json().items()


@pytest.mark.parametrize(
    ("type_", "body", "status", "slug", "pointer"),
    [
        (UPDATE, {"nope": {"inc": 1}}, 400, "invalid", "/nope"),
        (UPDATE, {"hits": {"explode": 1}}, 400, "invalid", "/hits/explode"),
        (UPDATE, {"hits": {"inc": "1"}}, 400, "invalid", "/hits/inc"),
        (UPDATE, {"hits": {"inc": 2**63 - 1}}, 409, "operator-refused", "/hits"),
        (UPDATE, [], 400, "invalid", ""),
        (MERGE, {"title": None}, 400, "invalid", "/title"),
        (MERGE, [1], 400, "invalid", ""),
        (JSON_PATCH, {"op": "add"}, 400, "invalid", ""),
        (JSON_PATCH, [{"op": "test", "path": "/hits", "value": 4}], 409, "conflict", "/0/path"),
        (JSON_PATCH, [{"op": "remove", "path": "/nope"}], 400, "invalid", "/0/path"),
    ],
)
async def test_invalid_patches_are_refused(
    paper: Newspaper, type_: str, body: Any, status: int, slug: str, pointer: str
) -> None:
    await paper.put("a1", hits=3)
    answer = await paper.patch("articles/a1", type_, body)
    assert_problem(answer, status, slug, pointer)
    assert (await paper.client.get("articles/a1")).json()["hits"] == 3


async def test_a_patch_of_a_missing_object_is_not_found(paper: Newspaper) -> None:
    assert_problem(await paper.patch("articles/no", UPDATE, {}), 404, "not-found")


async def test_media_types(paper: Newspaper) -> None:
    await paper.put("a1")
    answer = await paper.patch("articles/a1", "text/json", {})
    assert_problem(answer, 415, "unsupported-media-type")
    assert set(answer.headers["accept-patch"].split(", ")) == {UPDATE, MERGE, JSON_PATCH, JSON}
    answer = await paper.client.put(
        "articles/a1", content=b"{}", headers={"content-type": "text/x"}
    )
    assert_problem(answer, 415, "unsupported-media-type")
    assert answer.headers["accept"] == JSON
    answer = await paper.client.get("articles/a1", headers={"accept": "text/html"})
    assert_problem(answer, 406, "not-acceptable")


@pytest.mark.parametrize(
    "body", [{"hits": 5}, [{"op": "replace", "path": "/hits", "value": 5}]], ids=["object", "array"]
)
async def test_the_form_of_plain_json_decides_on_the_kind_of_patch(
    paper: Newspaper, body: Any
) -> None:
    await paper.put("a1", hits=3)
    assert (await paper.patch("articles/a1", JSON, body)).status_code == 200
    assert (await paper.client.get("articles/a1")).json()["hits"] == 5


async def test_preferences_on_writes(paper: Newspaper) -> None:
    minimal = {"prefer": "return=minimal, foo"}
    created = await paper.client.put("articles/a1", json={"title": "x"}, headers=minimal)
    assert (created.status_code, created.content) == (201, b"")
    assert created.headers["preference-applied"] == "return=minimal"
    patched = await paper.patch("articles/a1", UPDATE, {"hits": {"inc": 1}}, **minimal)
    assert (patched.status_code, patched.content) == (204, b"")
    read = await paper.client.get("articles/a1")
    assert patched.headers["etag"] == read.headers["etag"]
    strict = {"prefer": "handling=strict, return=some"}
    refused = await paper.client.put("articles/a2", json={"title": "x"}, headers=strict)
    assert_problem(refused, 400, "invalid", "Prefer")
    assert (await paper.client.get("articles/a2")).status_code == 404


@pytest.mark.parametrize(
    ("media_type", "change"),
    [
        (UPDATE, {"hits": {"inc": 1}}),
        (UPDATE, {}),
        (MERGE, {"title": "new", "price": None}),
        (MERGE, {"body": {"x": None}}),
        (JSON_PATCH, [{"op": "replace", "path": "/title", "value": "new"}]),
        (JSON_PATCH, []),
    ],
    ids=["operator", "no operator", "merge", "merge within", "json", "no json"],
)
async def test_a_change_shows_the_whole_object_if_that_is_preferred(
    paper: Newspaper, media_type: str, change: Any
) -> None:
    await paper.put("a1", hits=3, price="2", tags=["x"], body={"x": 1, "y": 2})
    whole = {"prefer": "return=representation"}
    patched = await paper.patch("articles/a1", media_type, change, **whole)
    read = await paper.client.get("articles/a1")
    assert patched.headers["preference-applied"] == "return=representation"
    assert (patched.content, patched.headers["etag"]) == (read.content, read.headers["etag"])


async def test_updates_of_the_same_form_are_parsed_alike_and_invalid_ones_are_refused(
    paper: Newspaper,
) -> None:
    await paper.put("a1", hits=1, tags=["x"])
    for _ in range(2):
        for change in ({"hits": {"inc": 2}}, {"tags": {"add_to_set": "y"}}):
            assert (await paper.patch("articles/a1", UPDATE, change)).status_code == 200
        for wrong in ({"hits": {"inc": True}}, {"hits": {"inc": 2.5}}, {"hits": {"inc": "2"}}):
            refused = await paper.patch("articles/a1", UPDATE, wrong)
            assert_problem(refused, 400, "invalid", "/hits/inc")
    await paper.patch("articles/a1", UPDATE, {"body": {"set": {"x": [1]}}})
    await paper.patch("articles/a1", UPDATE, {"body": {"set": {"x": [1]}}})
    read = (await paper.client.get("articles/a1")).json()
    assert (read["hits"], read["tags"], read["body"]) == (5, ["x", "y"], {"x": [1]})


async def test_a_partial_response_does_not_confirm_the_preference(paper: Newspaper) -> None:
    await paper.put("a1", hits=3)
    whole = {"prefer": "return=representation, handling=lenient"}
    partial = await paper.patch("articles/a1?fields=hits", UPDATE, {"hits": {"inc": 1}}, **whole)
    assert partial.json() == {"id": "a1", "hits": 4}
    keyed = {"idempotency-key": "k"}
    await paper.patch("articles/a1", UPDATE, {"hits": {"inc": 1}}, **keyed)
    repeated = await paper.patch("articles/a1", UPDATE, {"hits": {"inc": 1}}, **keyed, **whole)
    assert repeated.headers["idempotency-replayed"] == "true"
    for answer in (partial, repeated):
        assert answer.headers["preference-applied"] == "handling=lenient"


async def test_preferences_on_reads(paper: Newspaper) -> None:
    position = (await paper.put("a1")).headers["portolan-position"]
    preferences = f"consistency=strong, max-staleness=0.5, at-least={position}"
    read = await paper.client.get("articles/a1", headers={"prefer": preferences})
    assert read.headers["preference-applied"] == preferences


async def test_a_store_that_does_not_answer(paper: Newspaper) -> None:
    await paper.put("a1")
    paper.plane.failure = Unavailable("redis does not answer", system="redis", retry_after_s=3)
    answer = await paper.client.get("articles/a1")
    document = assert_problem(answer, 503, "unavailable")
    assert document["system"] == "redis"
    assert answer.headers["retry-after"] == "3"
    paper.plane.failure = OutcomeUnknown("redis was too slow", system="redis")
    assert_problem(await paper.client.delete("articles/a1"), 503, "outcome-unknown")


async def test_an_unexpected_error_is_shown_only_in_the_log(
    paper: Newspaper, caplog: pytest.LogCaptureFixture
) -> None:
    paper.plane.failure = RuntimeError("password=hunter2")
    answer = await paper.client.get("articles/a1", headers={"x-request-id": "abc.1"})
    document = assert_problem(answer, 500, "internal")
    assert document["instance"] == "abc.1"
    assert "hunter2" not in answer.text
    assert "abc.1" in caplog.text
    assert "hunter2" in caplog.text


async def test_every_answer_is_timed_named_and_observed(paper: Newspaper) -> None:
    answer = await paper.put("a1")
    phases = [phase.partition(";")[0] for phase in answer.headers["server-timing"].split(", ")]
    assert phases == ["route", "parse", "store", "respond"]
    assert answer.headers["x-request-id"]
    bad = await paper.client.get("articles/a1", headers={"x-request-id": "a b"})
    assert bad.headers["x-request-id"] != "a b"
    await paper.client.get("http://test/v2/x")
    finished = [o for o in paper.observed if isinstance(o, RequestFinished)]
    served = [(o.method, o.route, o.status) for o in finished]
    template = "/v1/{database}/{class}/{id}"
    assert served == [("PUT", template, 201), ("GET", template, 200), ("GET", "unmatched", 404)]


async def test_cors(paper: Newspaper) -> None:
    origin = {"origin": "https://paper.example"}
    headers = origin | {"access-control-request-method": "PATCH"}
    preflight = await paper.client.options("articles/a1", headers=headers)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == origin["origin"]
    assert "PATCH" in preflight.headers["access-control-allow-methods"]
    assert "If-Match" in preflight.headers["access-control-allow-headers"]
    problem = await paper.client.get("articles/none", headers=origin)
    assert problem.headers["access-control-allow-origin"] == origin["origin"]
    exposed = problem.headers["access-control-expose-headers"]
    assert {"ETag", "Server-Timing", "Portolan-Position"} <= set(exposed.split(", "))
    assert problem.headers.get_list("vary") == [
        "Accept, Prefer, Portolan-Schema, Accept-Encoding, Origin"
    ], "nginx reads only one line"
    foreign = await paper.client.get("articles/none", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in foreign.headers
    for refused in (foreign, await paper.client.get("articles/none")):
        assert refused.headers.get_list("vary") == [
            "Accept, Prefer, Portolan-Schema, Accept-Encoding, Origin"
        ]


async def test_options_and_methods(paper: Newspaper) -> None:
    options = await paper.client.options("articles/a1")
    assert options.headers["allow"] == "GET, HEAD, PUT, PATCH, DELETE, OPTIONS"
    assert UPDATE in options.headers["accept-patch"]
    answer = await paper.client.post("articles/a1", json={})
    assert_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == options.headers["allow"]
    assert_problem(await paper.client.get("batch"), 405, "method-not-allowed")
    assert_problem(await paper.client.delete("articles/import"), 405, "method-not-allowed")
    assert_problem(await paper.client.request("BREW", "articles"), 405, "method-not-allowed")
