"""Objects with owners: other subjects get 404 for them on every route.

Ada and Bob may both read and write the class `drafts`, whose objects belong to their `author`."""

from __future__ import annotations

import orjson
import pytest

from app.api.options import DataOptions
from app.api.router import DataApi
from tests.process.data.memory_plane import MemoryPlane, routing_model
from tests.process.data.owned.drafts import ROUTES, SECRET, SUM, VOLATILE, WRITES, Drafts
from tests.process.service import unique


def test_every_route_is_in_the_table() -> None:
    api = DataApi(MemoryPlane(routing_model(1)), DataOptions(b"k"), lambda _: None)
    assert {f"{m} {route.template}" for route in api.routes for m in route.handlers} == set(ROUTES)


@pytest.mark.parametrize("route", ROUTES)
async def test_no_route_reveals_an_object_of_another_owner(drafts: Drafts, route: str) -> None:
    tag = await drafts.put_bobs()
    for status, path, request in ROUTES[route]:
        answer = await drafts.request("ada", route.partition(" ")[0], path, **request)
        assert answer.status_code == status, (path, answer.text)
        assert SECRET not in answer.text.replace(path, "")
        assert tag not in answer.text
        assert answer.headers.get("etag") != tag
    draft = await drafts.request("bob", "GET", "drafts/bobs")
    assert draft.json() == {"id": "bobs", "author": "bob", "title": SECRET, "hits": 7}
    assert draft.headers["etag"] == tag


async def test_lists_and_sums_are_of_ones_own_objects(drafts: Drafts) -> None:
    await drafts.put_bobs()
    await drafts.request("ada", "PUT", "drafts/adas", json={"title": "mine", "hits": 1})
    mine = {"id": "adas", "author": "ada", "title": "mine", "hits": 1}
    listed = await drafts.request("ada", "GET", "drafts")
    assert listed.json() == {"items": [mine], "next": None}
    by_ids = await drafts.request("ada", "GET", "drafts?ids=bobs,adas,nobodys&fields=title")
    assert by_ids.json()["items"] == [{"id": "adas", "title": "mine"}]
    assert by_ids.json()["missing"] == ["bobs", "nobodys"]
    exported = await drafts.request("ada", "GET", "drafts/export")
    assert [orjson.loads(line) for line in exported.text.splitlines()] == [mine]
    summed = await drafts.request("ada", "POST", "drafts/query", json=SUM)
    assert summed.json()["items"] == [{"n": 1, "sum": 1}]
    scan = {**SUM, "allow_scan": True}
    everything = await drafts.request("operator", "POST", "drafts/query", json=scan)
    assert everything.json()["items"] == [{"n": 2, "sum": 8}]
    await drafts.request("ada", "DELETE", "drafts/adas")


async def test_totals_are_of_ones_own_objects(drafts: Drafts) -> None:
    """An estimate would use statistics that include the objects of others."""
    await drafts.put_bobs()
    for number in range(3):
        await drafts.request("ada", "PUT", f"drafts/adas{number}", json={"title": "mine"})
    for count in ("exact", "estimated"):
        page = await drafts.request("ada", "GET", f"drafts?limit=1&count={count}")
        assert (page.json()["total"], page.json()["count"]) == (3, "exact")
        body = {"filter": {"exists": "title"}, "limit": 1, "count": count}
        queried = await drafts.request("ada", "POST", "drafts/query", json=body)
        assert (queried.json()["total"], queried.json()["count"]) == (3, "exact")
    everyones = await drafts.request("operator", "GET", "drafts?limit=1&count=exact")
    assert everyones.json()["total"] == 4
    for number in range(3):
        await drafts.request("ada", "DELETE", f"drafts/adas{number}")


@pytest.mark.parametrize("condition", ["none", "any", "theirs", "other", "both", "not", "key"])
@pytest.mark.parametrize("class_name", ["drafts", "strict"])
async def test_an_object_of_another_owner_is_answered_like_a_missing_one(
    drafts: Drafts, condition: str, class_name: str
) -> None:
    theirs = await drafts.put_bobs()
    conditional = {
        "none": {},
        "any": {"if-match": "*"},
        "theirs": {"if-match": theirs},
        "other": {"if-match": theirs.replace(theirs[-3], "0" if theirs[-3] != "0" else "1")},
        "both": {"if-match": f'{theirs}, "other"'},
        "not": {"if-none-match": theirs},
        "key": {"idempotency-key": unique("key")},
    }[condition]
    for method, query, request in WRITES:
        if class_name == "strict" and "hits" in f"{query}{request}":
            continue
        headers = {**request.get("headers", {}), **conditional}
        answers = []
        for id_ in ("bobs", "nobodys"):
            path = f"{class_name}/{id_}{query}"
            answer = await drafts.request("ada", method, path, **{**request, "headers": headers})
            body = {name: member for name, member in answer.json().items() if name != "instance"}
            fields = {k: v for k, v in answer.headers.items() if k not in VOLATILE}
            text = orjson.dumps([answer.status_code, body, fields]).decode()
            answers.append(text.replace(id_, "ID"))
        assert answers[0] == answers[1], (method, query)


async def test_the_sketch_does_not_reveal_changes_of_owned_objects(drafts: Drafts) -> None:
    accept = {"accept": "application/json"}
    answer = await drafts.request("ada", "GET", "sketch", headers=accept)
    assert set(answer.json()["map"]) == {"notes"}
    everything = await drafts.request("operator", "GET", "sketch", headers=accept)
    assert set(everything.json()["map"]) == {"notes", "drafts", "strict"}
