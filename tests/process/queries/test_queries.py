"""Queries over HTTP and the real stores: the same answer wherever the data is placed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import orjson
import pytest

from benchmarks.harness.profiles import QUERIES, ProfileQuery, Profiles
from mediator.stores.port import Queryable, SearchPage, SearchRequest
from tests.process.caching.newspaper import assert_problem
from tests.process.queries.querying import PLACEMENTS, QueryClient
from tests.process.service import Service

Json = dict[str, Any]

every_placement = pytest.mark.parametrize("profiles", PLACEMENTS, ids="+".join, indirect=True)
on_one = pytest.mark.parametrize("profiles", PLACEMENTS[:3], ids="+".join, indirect=True)


def by(*levels: str) -> Callable[[Json], Any]:
    """The order of items in which nothing is null or missing; a - before a level reverses it."""

    def key(item: Json) -> list[Any]:
        return [_turned(item[level.lstrip("-")], level) for level in levels]

    return key


def _turned(value: Any, level: str) -> Any:
    if isinstance(value, str):
        points = [*value.encode(), -1]
        return [-point for point in points] if level.startswith("-") else points
    return -value if level.startswith("-") else value


@every_placement
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"query {query.number}")
async def test_eleven_queries(profiles: QueryClient, data: Profiles, query: ProfileQuery) -> None:
    body = {**query.body, "limit": 1_000, "allow_scan": True}
    assert await profiles.all(query.class_name, body) == query.answers(data)


@every_placement
@pytest.mark.parametrize(
    "order",
    [
        ("-likeCounter", "-id"),
        ("likeCounter", "id"),
        ("author", "-likeCounter", "-id"),
        ("-entry", "author", "id"),
    ],
    ids=",".join,
)
async def test_orders_are_paged_through(
    profiles: QueryClient, data: Profiles, order: tuple[str, ...]
) -> None:
    levels = [[n.lstrip("-"), "desc" if n.startswith("-") else "asc"] for n in order[:-1]]
    body = {"order": levels, "limit": 71, "allow_scan": True}
    assert await profiles.all("entries", body) == sorted(data.items("entries"), key=by(*order))
    few = {**body, "limit": 3, "filter": {"contains": ["entry", "goal"]}}
    found = [item for item in data.items("entries") if "goal" in item["entry"]]
    page = await profiles.query("entries", few)
    assert page["items"] == sorted(found, key=by(*order))[:3]


@every_placement
async def test_listings_by_id_need_no_permission(profiles: QueryClient, data: Profiles) -> None:
    assert await profiles.all("logins", {"limit": 400}) == data.items("logins")
    fields = {"limit": 1_000, "fields": ["mail"]}
    mails = [{"id": o["id"], "mail": o["mail"]} for o in data.items("logins")]
    assert await profiles.all("logins", fields) == mails
    down = {"limit": 300, "order": [["id", "desc"]]}
    assert await profiles.all("logins", down) == data.items("logins")[::-1]


@every_placement
async def test_aggregates(profiles: QueryClient, data: Profiles) -> None:
    groups: dict[str, list[Json]] = defaultdict(list)
    for item in data.items("profiles"):
        if item["yearOfBirth"] >= 1970:
            groups[item["country"]].append(item)
    expected = [
        {
            "country": country,
            "n": len(some),
            "first": min(o["yearOfBirth"] for o in some),
            "last": max((o["lastname"] for o in some), key=str.encode),
            "ids": sum(o["profileID"] for o in some),
            "mean": pytest.approx(sum(o["yearOfBirth"] for o in some) / len(some), rel=1e-9),
        }
        for country, some in groups.items()
        if len(some) > 45
    ]
    assert 2 < len(expected) < len(groups)
    compute = {
        "n": {"count": "*"},
        "first": {"min": "yearOfBirth"},
        "last": {"max": "lastname"},
        "ids": {"sum": "profileID"},
        "mean": {"avg": "yearOfBirth"},
    }
    aggregate = {"group": ["country"], "compute": compute, "filter": {"gt": ["n", 45]}}
    body = {
        "filter": {"ge": ["yearOfBirth", 1970]},
        "aggregate": aggregate,
        "order": [["n", "desc"]],
        "allow_scan": True,
    }
    expected.sort(key=by("-n", "country"))
    assert await profiles.query("profiles", body) == {"items": expected}
    assert await profiles.query("profiles", {**body, "limit": 2}) == {"items": expected[:2]}
    empty = {"filter": {"lt": ["yearOfBirth", 0]}, "aggregate": {"compute": {"n": {"count": "*"}}}}
    answer = await profiles.query("profiles", {**empty, "allow_scan": True})
    assert answer == {"items": [{"n": 0}]}


@every_placement
async def test_joins_are_chained_and_each_object_is_read_once(
    profiles: QueryClient, data: Profiles
) -> None:
    joins = [
        {"as": "wall", "reference": "on", "fields": ["entry", "author"]},
        {"as": "owner", "reference": "wall.author", "fields": ["country", "firstname"]},
        {"as": "account", "reference": "owner.login"},
    ]
    body = {
        "filter": {"and": [{"eq": ["owner.country", "DE"]}, {"ge": ["account.count", 300]}]},
        "join": joins,
        "order": [["owner.firstname", "desc"], "comment"],
        "fields": ["comment"],
        "limit": 20,
        "allow_scan": True,
    }
    expected = []
    for comment in data.items("comments"):
        wall = data.objects["entries"][comment["on"]]
        owner = data.objects["profiles"][wall["author"]]
        account = data.item("logins", owner["login"])
        assert account is not None
        if owner["country"] == "DE" and account["count"] >= 300:
            shown = {"country": owner["country"], "firstname": owner["firstname"]}
            written = {"entry": wall["entry"], "author": wall["author"]}
            item = {"id": comment["id"], "comment": comment["comment"]}
            item |= {"wall": {"id": comment["on"], **written}, "account": account}
            expected.append({**item, "owner": {"id": wall["author"], **shown}})
    assert len(expected) > 20
    expected.sort(key=lambda o: [by("-firstname")(o["owner"]), *by("comment", "id")(o)])
    assert await profiles.all("comments", body) == expected
    explained = (await profiles.query("comments", {**body, "explain": True}))["explain"]
    # A page of comments on each system, and then each class once: far from one for each comment.
    assert max(explained["round_trips"].values()) < 30
    aggregate = {"group": ["owner.country"], "compute": {"n": {"count": "*"}}}
    grouped = {"join": joins[:2], "aggregate": aggregate, "allow_scan": True, "limit": 1000}
    counts: dict[str, int] = defaultdict(int)
    for comment in data.items("comments"):
        owner = data.objects["profiles"][data.objects["entries"][comment["on"]]["author"]]
        counts[owner["country"]] += 1
    answer = await profiles.query("comments", grouped)
    assert answer["items"] == [{"owner.country": c, "n": counts[c]} for c in sorted(counts)]


@every_placement
async def test_query_parameters_equal_a_body(profiles: QueryClient, data: Profiles) -> None:
    condition = {"and": [{"in": ["country", ["DE", "AT"]]}, {"ge": ["yearOfBirth", 1970]}]}
    order = [["yearOfBirth", "desc"], ["lastname", "asc"]]
    posted = {"filter": condition, "order": order, "limit": 9, "fields": ["country", "lastname"]}
    answer = await profiles.query("profiles", {**posted, "allow_scan": True})
    assert len(answer["items"]) == 9
    rest = "order=-yearOfBirth,lastname&limit=9&fields=country,lastname&allow_scan=true"
    readable = f"profiles?country.in=DE,AT&yearOfBirth.ge=1970&{rest}"
    encoded = f"profiles?filter={quote(orjson.dumps(condition).decode())}&{rest}"
    for address in (readable, encoded):
        got = await profiles.get(address)
        assert got.json()["items"] == answer["items"], got.text
        more = await profiles.get(f"{address}&after={got.json()['next']}")
        following = await profiles.query(
            "profiles", {**posted, "allow_scan": True, "after": answer["next"]}
        )
        assert more.json()["items"] == following["items"]


@every_placement
async def test_joins_and_aggregates_of_a_get_equal_those_of_a_body(profiles: QueryClient) -> None:
    join = {"as": "entry", "reference": "on", "fields": ["author"]}
    joined = {"join": join, "filter": {"exists": "entry.author"}, "limit": 7, "allow_scan": True}
    aggregate = {"group": ["country"], "compute": {"n": {"count": "*"}}}
    grouped = {"aggregate": aggregate, "limit": 5, "allow_scan": True}
    for name, body in (("comments", joined), ("profiles", grouped)):
        parameters = {
            member: value if isinstance(value, str) else orjson.dumps(value).decode()
            for member, value in body.items()
        }
        answer = await profiles.get(f"{name}?{urlencode(parameters)}")
        assert answer.json()["items"] == (await profiles.query(name, body))["items"], answer.text
        assert answer.json()["items"]


@every_placement
async def test_a_store_that_finds_nothing_by_an_index_is_not_read_through(
    profiles: QueryClient, request: Any
) -> None:
    body = {"filter": {"contains": ["firstname", "iro"]}, "limit": 5}
    refused = await profiles.send("profiles", body)
    on_redis = request.node.callspec.params["profiles"] == ("redis",)
    if on_redis:
        problem = assert_problem(refused, 422, "needs-scan")
        assert "firstname" in problem["detail"]
        assert "allow_scan" in problem["detail"]
    allowed = await profiles.query("profiles", {**body, "allow_scan": True})
    assert len(allowed["items"]) == 5
    if not on_redis and refused.status_code == 200:
        assert refused.json()["items"] == allowed["items"]


@on_one
async def test_explain_shows_what_is_pushed_down(profiles: QueryClient, request: Any) -> None:
    [system] = request.node.callspec.params["profiles"]
    equal: Json = {"eq": ["lastname", "Klose"]}
    inside: Json = {"like": ["firstname", "M%"]}
    body = {"filter": {"and": [equal, inside]}, "explain": True}
    explained = (await profiles.query("profiles", body))["explain"]
    assert explained["system"] == system
    assert explained["others"] == []
    assert explained["access"] == "index"
    assert set(explained["round_trips"]) == {system}
    if system == "redis":
        assert explained["pushed"]["filter"] == equal
        assert explained["residual"] == inside
        assert explained["rows"]["moved"] == 25
    else:
        assert explained["pushed"]["filter"] == {"and": [equal, inside]}
        assert explained["residual"] is None
        assert explained["rows"]["moved"] == explained["rows"]["returned"]


@pytest.mark.parametrize("profiles", [("postgres",)], ids="+".join, indirect=True)
@pytest.mark.parametrize("number", [9, 10])
async def test_conditions_on_joined_objects_are_applied_by_the_system_that_holds_them(
    profiles: QueryClient, number: int
) -> None:
    query = QUERIES[number]
    body = {**query.body, "limit": 1_000, "allow_scan": True, "explain": True}
    explained = (await profiles.query(query.class_name, body))["explain"]
    [alias] = explained["pushed"]["joined"]
    assert alias == query.body["join"]["as"]
    assert explained["pushed"]["limit"]
    assert explained["round_trips"] == {"postgres": 1}
    assert explained["rows"]["moved"] == explained["rows"]["returned"] > 0


async def test_the_top_ten_is_read_in_one_round_trip(split: QueryClient, data: Profiles) -> None:
    body = {"order": [["likeCounter", "desc"]], "limit": 10, "fields": ["likeCounter"]}
    answer = await split.query("entries", {**body, "explain": True})
    best = sorted(data.items("entries"), key=by("-likeCounter", "-id"))[:10]
    assert answer["items"] == [{n: o[n] for n in ("id", "likeCounter")} for o in best]
    assert sum(answer["explain"]["round_trips"].values()) == 1
    whole = await split.query("entries", {**body, "fields": ["entry", "likeCounter"]})
    assert [item["entry"] for item in whole["items"]] == [o["entry"] for o in best]


async def test_an_object_found_twice_is_returned_once(
    mediator: Service, split: QueryClient, data: Profiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it happens if an object moves between two pages of a store."""
    store = mediator.mediator.systems.get("postgres").store
    assert isinstance(store, Queryable)
    find = store.find

    async def again(search: SearchRequest) -> SearchPage:
        page = await find(replace(search, resume=None, limit=1_001))
        return SearchPage(page.records, None if search.resume else "once more")

    with monkeypatch.context() as patched:
        patched.setattr(store, "find", again)
        body = {"filter": {"ge": ["likeCounter", 0]}, "order": ["author"], "limit": 1_000}
        found = await split.query("entries", {**body, "fields": ["entry"], "allow_scan": True})
        counted = await split.query(
            "entries",
            {
                "aggregate": {
                    "compute": {"n": {"min": "entry"}, "all": {"count": "*"}},
                    "group": ["author"],
                },
                "allow_scan": True,
                "limit": 1_000,
            },
        )
    assert len(found["items"]) == len(data.objects["entries"])
    assert {item["all"] for item in counted["items"]} == {5}
