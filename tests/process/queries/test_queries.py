"""Queries over HTTP and real stores: the same result on every placement."""

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
on_one_system = pytest.mark.parametrize("profiles", PLACEMENTS[:3], ids="+".join, indirect=True)


def sort_key(*levels: str) -> Callable[[Json], Any]:
    """Return a sort key for items without null or missing values; `-` reverses a level."""

    def key(item: Json) -> list[Any]:
        return [_directed(item[level.lstrip("-")], level) for level in levels]

    return key


def _directed(value: Any, level: str) -> Any:
    if isinstance(value, str):
        encoded = [*value.encode(), -1]
        return [-byte for byte in encoded] if level.startswith("-") else encoded
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
async def test_ordered_queries_are_paged(
    profiles: QueryClient, data: Profiles, order: tuple[str, ...]
) -> None:
    levels = [[n.lstrip("-"), "desc" if n.startswith("-") else "asc"] for n in order[:-1]]
    body = {"order": levels, "limit": 71, "allow_scan": True}
    assert await profiles.all("entries", body) == sorted(
        data.items("entries"), key=sort_key(*order)
    )
    body_of_three = {**body, "limit": 3, "filter": {"contains": ["entry", "goal"]}}
    matching = [item for item in data.items("entries") if "goal" in item["entry"]]
    page = await profiles.query("entries", body_of_three)
    assert page["items"] == sorted(matching, key=sort_key(*order))[:3]


@every_placement
async def test_listings_by_id_need_no_permission(profiles: QueryClient, data: Profiles) -> None:
    assert await profiles.all("logins", {"limit": 400}) == data.items("logins")
    fields = {"limit": 1_000, "fields": ["mail"]}
    mails = [{"id": o["id"], "mail": o["mail"]} for o in data.items("logins")]
    assert await profiles.all("logins", fields) == mails
    descending = {"limit": 300, "order": [["id", "desc"]]}
    assert await profiles.all("logins", descending) == data.items("logins")[::-1]


@every_placement
async def test_aggregates(profiles: QueryClient, data: Profiles) -> None:
    groups: dict[str, list[Json]] = defaultdict(list)
    for item in data.items("profiles"):
        if item["yearOfBirth"] >= 1970:
            groups[item["country"]].append(item)
    expected = [
        {
            "country": country,
            "n": len(members),
            "first": min(o["yearOfBirth"] for o in members),
            "last": max((o["lastname"] for o in members), key=str.encode),
            "ids": sum(o["profileID"] for o in members),
            "mean": pytest.approx(sum(o["yearOfBirth"] for o in members) / len(members), rel=1e-9),
        }
        for country, members in groups.items()
        if len(members) > 45
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
    expected.sort(key=sort_key("-n", "country"))
    assert await profiles.query("profiles", body) == {"items": expected}
    assert await profiles.query("profiles", {**body, "limit": 2}) == {"items": expected[:2]}
    empty = {"filter": {"lt": ["yearOfBirth", 0]}, "aggregate": {"compute": {"n": {"count": "*"}}}}
    result = await profiles.query("profiles", {**empty, "allow_scan": True})
    assert result == {"items": [{"n": 0}]}


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
            owner_fields = {"country": owner["country"], "firstname": owner["firstname"]}
            wall_fields = {"entry": wall["entry"], "author": wall["author"]}
            item = {"id": comment["id"], "comment": comment["comment"]}
            item |= {"wall": {"id": comment["on"], **wall_fields}, "account": account}
            expected.append({**item, "owner": {"id": wall["author"], **owner_fields}})
    assert len(expected) > 20
    expected.sort(key=lambda o: [sort_key("-firstname")(o["owner"]), *sort_key("comment", "id")(o)])
    assert await profiles.all("comments", body) == expected
    explained = (await profiles.query("comments", {**body, "explain": True}))["explain"]
    # A page of comments on each system, then each class once: far below one per comment.
    assert max(explained["round_trips"].values()) < 30
    aggregate = {"group": ["owner.country"], "compute": {"n": {"count": "*"}}}
    grouped_body = {"join": joins[:2], "aggregate": aggregate, "allow_scan": True, "limit": 1000}
    counts: dict[str, int] = defaultdict(int)
    for comment in data.items("comments"):
        owner = data.objects["profiles"][data.objects["entries"][comment["on"]]["author"]]
        counts[owner["country"]] += 1
    result = await profiles.query("comments", grouped_body)
    assert result["items"] == [{"owner.country": c, "n": counts[c]} for c in sorted(counts)]


@every_placement
async def test_query_parameters_equal_a_body(profiles: QueryClient, data: Profiles) -> None:
    condition = {"and": [{"in": ["country", ["DE", "AT"]]}, {"ge": ["yearOfBirth", 1970]}]}
    order = [["yearOfBirth", "desc"], ["lastname", "asc"]]
    body = {"filter": condition, "order": order, "limit": 9, "fields": ["country", "lastname"]}
    page = await profiles.query("profiles", {**body, "allow_scan": True})
    assert len(page["items"]) == 9
    suffix = "order=-yearOfBirth,lastname&limit=9&fields=country,lastname&allow_scan=true"
    readable = f"profiles?country.in=DE,AT&yearOfBirth.ge=1970&{suffix}"
    encoded = f"profiles?filter={quote(orjson.dumps(condition).decode())}&{suffix}"
    for address in (readable, encoded):
        response = await profiles.get(address)
        assert response.json()["items"] == page["items"], response.text
        next_response = await profiles.get(f"{address}&after={response.json()['next']}")
        next_page = await profiles.query(
            "profiles", {**body, "allow_scan": True, "after": page["next"]}
        )
        assert next_response.json()["items"] == next_page["items"]


@every_placement
async def test_joins_and_aggregates_of_a_get_equal_those_of_a_body(profiles: QueryClient) -> None:
    join = {"as": "entry", "reference": "on", "fields": ["author"]}
    join_body = {"join": join, "filter": {"exists": "entry.author"}, "limit": 7, "allow_scan": True}
    aggregate = {"group": ["country"], "compute": {"n": {"count": "*"}}}
    aggregate_body = {"aggregate": aggregate, "limit": 5, "allow_scan": True}
    for name, body in (("comments", join_body), ("profiles", aggregate_body)):
        parameters = {
            member: value if isinstance(value, str) else orjson.dumps(value).decode()
            for member, value in body.items()
        }
        response = await profiles.get(f"{name}?{urlencode(parameters)}")
        assert response.json()["items"] == (await profiles.query(name, body))["items"], (
            response.text
        )
        assert response.json()["items"]


@every_placement
async def test_a_store_without_a_matching_index_is_not_scanned(
    profiles: QueryClient, request: Any
) -> None:
    body = {"filter": {"contains": ["firstname", "iro"]}, "limit": 5}
    response = await profiles.send("profiles", body)
    on_redis = request.node.callspec.params["profiles"] == ("redis",)
    if on_redis:
        problem = assert_problem(response, 422, "needs-scan")
        assert "firstname" in problem["detail"]
        assert "allow_scan" in problem["detail"]
    scanned = await profiles.query("profiles", {**body, "allow_scan": True})
    assert len(scanned["items"]) == 5
    if not on_redis and response.status_code == 200:
        assert response.json()["items"] == scanned["items"]


@on_one_system
async def test_explain_shows_what_is_pushed_down(profiles: QueryClient, request: Any) -> None:
    [system] = request.node.callspec.params["profiles"]
    equal: Json = {"eq": ["lastname", "Klose"]}
    prefix: Json = {"like": ["firstname", "M%"]}
    body = {"filter": {"and": [equal, prefix]}, "explain": True}
    explained = (await profiles.query("profiles", body))["explain"]
    assert explained["system"] == system
    assert explained["others"] == []
    assert explained["access"] == "index"
    assert set(explained["round_trips"]) == {system}
    if system == "redis":
        assert explained["pushed"]["filter"] == equal
        assert explained["residual"] == prefix
        assert explained["rows"]["moved"] == 25
    else:
        assert explained["pushed"]["filter"] == {"and": [equal, prefix]}
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
    page = await split.query("entries", {**body, "explain": True})
    best = sorted(data.items("entries"), key=sort_key("-likeCounter", "-id"))[:10]
    assert page["items"] == [{n: o[n] for n in ("id", "likeCounter")} for o in best]
    assert sum(page["explain"]["round_trips"].values()) == 1
    wide_page = await split.query("entries", {**body, "fields": ["entry", "likeCounter"]})
    assert [item["entry"] for item in wide_page["items"]] == [o["entry"] for o in best]


async def test_an_object_found_twice_is_returned_once(
    mediator: Service, split: QueryClient, data: Profiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens if an object moves between two pages of a store."""
    store = mediator.mediator.systems.get("postgres").store
    assert isinstance(store, Queryable)
    find = store.find

    async def find_twice(search: SearchRequest) -> SearchPage:
        page = await find(replace(search, resume=None, limit=1_001))
        return SearchPage(page.records, None if search.resume else "once more")

    with monkeypatch.context() as patched:
        patched.setattr(store, "find", find_twice)
        body = {"filter": {"ge": ["likeCounter", 0]}, "order": ["author"], "limit": 1_000}
        page = await split.query("entries", {**body, "fields": ["entry"], "allow_scan": True})
        counts = await split.query(
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
    assert len(page["items"]) == len(data.objects["entries"])
    assert {item["all"] for item in counts["items"]} == {5}
