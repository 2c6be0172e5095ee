"""Queries over HTTP and the real stores: the same answer wherever the data lives."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from benchmarks.harness.profiles import (
    CLASSES,
    QUERIED,
    QUERIES,
    ProfileQuery,
    Profiles,
    generate,
    placed,
)
from mediator.base.errors import OutcomeUnknown
from mediator.model.operations import Delete
from mediator.query.budget import Limits
from mediator.stores.port import Queryable, SearchPage, SearchRequest, StoreUnavailable
from tests.process.caching.newspaper import assert_problem
from tests.process.queries.querying import PLACEMENTS, Asking, asking, fill
from tests.process.service import Service, field_on, unique

Json = dict[str, Any]

COUNT, WALLS = 1_000, 60
LARGE, LARGE_ON_THE_STAND_IN = 100_000, 10_000
"""The stand-in for MongoDB needs minutes for what others do in seconds."""

every_placement = pytest.mark.parametrize("profiles", PLACEMENTS, ids="+".join, indirect=True)
on_one = pytest.mark.parametrize("profiles", PLACEMENTS[:3], ids="+".join, indirect=True)


@pytest.fixture(scope="module")
def data() -> Profiles:
    return generate(COUNT, walls=WALLS)


@pytest.fixture(scope="module")
async def loaded(
    mediator: Service, data: Profiles
) -> AsyncIterator[Callable[[tuple[str, ...]], Any]]:
    """Loads the profiles on a placement, once for each that is asked for."""
    known: dict[tuple[str, ...], Asking] = {}
    async with AsyncExitStack() as stack:

        async def load(systems: tuple[str, ...]) -> Asking:
            if systems not in known:
                queried = {name: CLASSES[name] for name in QUERIED}
                database = await mediator.put_schema(placed(queried, systems, field_on))
                known[systems] = await stack.enter_async_context(asking(mediator, database))
                for name in QUERIED:
                    used = min(len(systems), len(CLASSES[name]))
                    assert len(mediator.systems_of(database, name)) == used
                    await fill(mediator.mediator.data, database, name, data.objects[name])
            return known[systems]

        yield load


@pytest.fixture
async def profiles(loaded: Callable[[tuple[str, ...]], Any], request: Any) -> Asking:
    found: Asking = await loaded(request.param)
    return found


@pytest.fixture
async def split(loaded: Callable[[tuple[str, ...]], Any]) -> Asking:
    found: Asking = await loaded(PLACEMENTS[-1])
    return found


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
async def test_the_eleven_queries(profiles: Asking, data: Profiles, query: ProfileQuery) -> None:
    asked = {**query.body, "limit": 1_000, "allow_scan": True}
    assert await profiles.all(query.class_name, asked) == query.answers(data)


@pytest.mark.large
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("systems", [*PLACEMENTS[:4], PLACEMENTS[-1]], ids="+".join)
async def test_the_eleven_queries_on_large_data(
    mediator: Service, systems: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = LARGE_ON_THE_STAND_IN if "mongo" in systems else LARGE
    many = generate(count, walls=count // 50)
    monkeypatch.setattr(mediator.mediator.data, "_limits", Limits(rows=10_000_000, seconds=600))
    queried = {name: CLASSES[name] for name in QUERIED}
    database = await mediator.put_schema(placed(queried, systems, field_on))
    for name in QUERIED:
        await fill(mediator.mediator.data, database, name, many.objects[name])
    async with asking(mediator, database) as client:
        for query in QUERIES:
            asked = {**query.body, "limit": 1_000, "allow_scan": True}
            found = await client.all(query.class_name, asked)
            assert found == query.answers(many), f"query {query.number}"
    await mediator.mediator.control.delete_schema(database)


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
    profiles: Asking, data: Profiles, order: tuple[str, ...]
) -> None:
    levels = [[n.lstrip("-"), "desc" if n.startswith("-") else "asc"] for n in order[:-1]]
    asked = {"order": levels, "limit": 71, "allow_scan": True}
    assert await profiles.all("entries", asked) == sorted(data.items("entries"), key=by(*order))
    few = {**asked, "limit": 3, "filter": {"contains": ["entry", "goal"]}}
    found = [item for item in data.items("entries") if "goal" in item["entry"]]
    page = await profiles.ask("entries", few)
    assert page["items"] == sorted(found, key=by(*order))[:3]


@every_placement
async def test_listings_by_id_need_no_permission(profiles: Asking, data: Profiles) -> None:
    assert await profiles.all("logins", {"limit": 400}) == data.items("logins")
    fields = {"limit": 1_000, "fields": ["mail"]}
    mails = [{"id": o["id"], "mail": o["mail"]} for o in data.items("logins")]
    assert await profiles.all("logins", fields) == mails
    down = {"limit": 300, "order": [["id", "desc"]]}
    assert await profiles.all("logins", down) == data.items("logins")[::-1]


@every_placement
async def test_aggregates(profiles: Asking, data: Profiles) -> None:
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
    asked = {
        "filter": {"ge": ["yearOfBirth", 1970]},
        "aggregate": aggregate,
        "order": [["n", "desc"]],
        "allow_scan": True,
    }
    expected.sort(key=by("-n", "country"))
    assert await profiles.ask("profiles", asked) == {"items": expected}
    assert await profiles.ask("profiles", {**asked, "limit": 2}) == {"items": expected[:2]}
    empty = {"filter": {"lt": ["yearOfBirth", 0]}, "aggregate": {"compute": {"n": {"count": "*"}}}}
    answer = await profiles.ask("profiles", {**empty, "allow_scan": True})
    assert answer == {"items": [{"n": 0}]}


@every_placement
async def test_joins_are_chained_and_each_object_is_asked_for_once(
    profiles: Asking, data: Profiles
) -> None:
    joins = [
        {"as": "wall", "reference": "on", "fields": ["entry", "author"]},
        {"as": "owner", "reference": "wall.author", "fields": ["country", "firstname"]},
        {"as": "account", "reference": "owner.login"},
    ]
    asked = {
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
            told = {"entry": wall["entry"], "author": wall["author"]}
            item = {"id": comment["id"], "comment": comment["comment"]}
            item |= {"wall": {"id": comment["on"], **told}, "account": account}
            expected.append({**item, "owner": {"id": wall["author"], **shown}})
    assert len(expected) > 20
    expected.sort(key=lambda o: [by("-firstname")(o["owner"]), *by("comment", "id")(o)])
    assert await profiles.all("comments", asked) == expected
    explained = (await profiles.ask("comments", {**asked, "explain": True}))["explain"]
    # A page of comments on each system, and then each class once: far from one for each comment.
    assert max(explained["round_trips"].values()) < 30
    aggregate = {"group": ["owner.country"], "compute": {"n": {"count": "*"}}}
    grouped = {"join": joins[:2], "aggregate": aggregate, "allow_scan": True, "limit": 1000}
    counts: dict[str, int] = defaultdict(int)
    for comment in data.items("comments"):
        owner = data.objects["profiles"][data.objects["entries"][comment["on"]]["author"]]
        counts[owner["country"]] += 1
    answer = await profiles.ask("comments", grouped)
    assert answer["items"] == [{"owner.country": c, "n": counts[c]} for c in sorted(counts)]


@every_placement
async def test_parameters_ask_the_same(profiles: Asking, data: Profiles) -> None:
    condition = {"and": [{"in": ["country", ["DE", "AT"]]}, {"ge": ["yearOfBirth", 1970]}]}
    order = [["yearOfBirth", "desc"], ["lastname", "asc"]]
    posted = {"filter": condition, "order": order, "limit": 9, "fields": ["country", "lastname"]}
    answer = await profiles.ask("profiles", {**posted, "allow_scan": True})
    assert len(answer["items"]) == 9
    rest = "order=-yearOfBirth,lastname&limit=9&fields=country,lastname&allow_scan=true"
    readable = f"profiles?country.in=DE,AT&yearOfBirth.ge=1970&{rest}"
    encoded = f"profiles?filter={quote(orjson.dumps(condition).decode())}&{rest}"
    for address in (readable, encoded):
        got = await profiles.get(address)
        assert got.json()["items"] == answer["items"], got.text
        more = await profiles.get(f"{address}&after={got.json()['next']}")
        following = await profiles.ask(
            "profiles", {**posted, "allow_scan": True, "after": answer["next"]}
        )
        assert more.json()["items"] == following["items"]


async def test_cursors_belong_to_their_query(split: Asking) -> None:
    asked = {"filter": {"ge": ["likeCounter", 10]}, "limit": 2, "allow_scan": True}
    cursor = (await split.ask("entries", asked))["next"]
    assert len((await split.ask("entries", {**asked, "after": cursor, "limit": 5}))["items"]) == 5
    others: list[Json] = [
        {**asked, "filter": {"ge": ["likeCounter", 11]}},
        {**asked, "order": ["likeCounter"]},
        {"limit": 2},
    ]
    for other in others:
        answer = await split.send("entries", {**other, "after": cursor})
        assert_problem(answer, 400, "invalid", "after")
    forged = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
    assert_problem(await split.send("entries", {**asked, "after": forged}), 400, "invalid", "after")


@every_placement
async def test_a_store_that_finds_nothing_by_an_index_is_not_read_through(
    profiles: Asking, request: Any
) -> None:
    asked = {"filter": {"contains": ["firstname", "iro"]}, "limit": 5}
    refused = await profiles.send("profiles", asked)
    on_redis = request.node.callspec.params["profiles"] == ("redis",)
    if on_redis:
        problem = assert_problem(refused, 422, "needs-scan")
        assert "firstname" in problem["detail"]
        assert "allow_scan" in problem["detail"]
    allowed = await profiles.ask("profiles", {**asked, "allow_scan": True})
    assert len(allowed["items"]) == 5
    if not on_redis and refused.status_code == 200:
        assert refused.json()["items"] == allowed["items"]


@on_one
async def test_explain_tells_what_was_pushed(profiles: Asking, request: Any) -> None:
    [system] = request.node.callspec.params["profiles"]
    equal: Json = {"eq": ["lastname", "Klose"]}
    inside: Json = {"like": ["firstname", "M%"]}
    asked = {"filter": {"and": [equal, inside]}, "explain": True}
    explained = (await profiles.ask("profiles", asked))["explain"]
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
    profiles: Asking, number: int
) -> None:
    query = QUERIES[number]
    asked = {**query.body, "limit": 1_000, "allow_scan": True, "explain": True}
    explained = (await profiles.ask(query.class_name, asked))["explain"]
    [alias] = explained["pushed"]["joined"]
    assert alias == query.joins[0][0]
    assert explained["pushed"]["limit"]
    assert explained["round_trips"] == {"postgres": 1}
    assert explained["rows"]["moved"] == explained["rows"]["returned"] > 0


async def test_the_top_ten_is_read_in_one_round_trip(split: Asking, data: Profiles) -> None:
    asked = {"order": [["likeCounter", "desc"]], "limit": 10, "fields": ["likeCounter"]}
    answer = await split.ask("entries", {**asked, "explain": True})
    best = sorted(data.items("entries"), key=by("-likeCounter", "-id"))[:10]
    assert answer["items"] == [{n: o[n] for n in ("id", "likeCounter")} for o in best]
    assert sum(answer["explain"]["round_trips"].values()) == 1
    whole = await split.ask("entries", {**asked, "fields": ["entry", "likeCounter"]})
    assert [item["entry"] for item in whole["items"]] == [o["entry"] for o in best]


async def test_what_is_found_twice_is_answered_once(
    mediator: Service, split: Asking, data: Profiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it happens if an object changes its place between two pages of a store."""
    store = mediator.mediator.systems.get("postgres").store
    assert isinstance(store, Queryable)
    find = store.find

    async def again(asked: SearchRequest) -> SearchPage:
        page = await find(replace(asked, resume=None))
        return SearchPage(page.records, None if asked.resume else "once more")

    with monkeypatch.context() as patched:
        patched.setattr(store, "find", again)
        asked = {"filter": {"ge": ["likeCounter", 0]}, "order": ["author"], "limit": 1_000}
        found = await split.ask("entries", {**asked, "fields": ["entry"], "allow_scan": True})
        counted = await split.ask(
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


@pytest.mark.parametrize("limits", [Limits(rows=500), Limits(seconds=0.0)], ids=["rows", "seconds"])
async def test_a_query_that_costs_too_much_is_broken_off(
    mediator: Service, split: Asking, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    monkeypatch.setattr(mediator.mediator.data, "_limits", limits)
    either = [{"eq": ["firstname", "nobody"]}, {"eq": ["lastname", "nobody"]}]
    asked = {"filter": {"or": either}, "allow_scan": True}
    problem = assert_problem(await split.send("profiles", asked), 422, "too-costly")
    assert set(problem) & {"rows", "seconds"}


async def test_too_many_groups(
    mediator: Service, split: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mediator.mediator.data, "_limits", Limits(groups=99))
    aggregate = {"group": ["profileID"], "compute": {"n": {"count": "*"}}}
    answer = await split.send("profiles", {"aggregate": aggregate, "allow_scan": True})
    assert_problem(answer, 400, "invalid", "/aggregate")


async def test_a_system_that_is_down_fails_only_queries_that_need_it(
    mediator: Service, split: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: object) -> Any:
        raise StoreUnavailable("connection refused")

    redis = mediator.mediator.systems.get("redis")
    with monkeypatch.context() as patched:
        patched.setattr(redis.store, "find", away)
        patched.setattr(redis.store, "read", away)
        needs = await split.send("entries", {"order": [["author", "desc"]], "allow_scan": True})
        problem = assert_problem(needs, 503, "unavailable")
        assert problem["system"] == "redis"
        free = await split.ask("entries", {"fields": ["entry"], "limit": 3})
        assert len(free["items"]) == 3
    redis.breaker.succeeded()


async def article(mediator: Service, *systems: str) -> str:
    """A class of an integer and a text, on a system each."""
    text, number = field_on(systems[0]), field_on(systems[1], "integer", index=True, group="n")
    reference = field_on(systems[0], "reference", to="things")
    fields = {"text": text, "number": number, "next": reference}
    return await mediator.put_schema({"things": {"fields": fields}})


async def test_a_query_that_was_read_is_read_anew_once_the_schema_changes(
    mediator: Service,
) -> None:
    fields = {"text": field_on("postgres"), "number": field_on("postgres", "integer")}
    database = await mediator.put_schema({"things": {"fields": fields}})
    await mediator.create(database, "things", "a", text="x", number=2)
    query = {"filter": {"gt": ["number", 1]}, "allow_scan": True}
    async with asking(mediator, database) as client:
        for _ in range(2):
            found = await client.ask("things", query)
            assert [item["id"] for item in found["items"]] == ["a"]
        texts = {"text": fields["text"], "number": field_on("postgres")}
        await mediator.mediator.control.delete_schema(database)
        classes = {"classes": {"things": {"fields": texts}}}
        await mediator.mediator.control.set_schema(database, classes)
        assert_problem(await client.send("things", query), 400, "invalid", "/filter/gt/1")


SPLITS = [("postgres", "redis"), ("redis", "mongo"), ("mongo", "postgres")]


@pytest.mark.parametrize("systems", SPLITS, ids="+".join)
async def test_null_missing_and_dangling(mediator: Service, systems: tuple[str, str]) -> None:
    database = await article(mediator, *systems)
    rows: Mapping[str, Json] = {
        "a": {"text": "x", "number": 2, "next": "b"},
        "b": {"text": None, "number": None},
        "c": {"next": "nowhere"},
        "d": {"text": "x", "number": 2**62 + 1, "next": None},
        "e": {"number": -1, "next": "c"},
    }
    async with asking(mediator, database) as client:
        await client.load("things", rows)

        async def ids(query: Json) -> list[str]:
            found = await client.all("things", {"limit": 2, "allow_scan": True, **query})
            return [item["id"] for item in found]

        assert await ids({"order": ["number"]}) == ["c", "b", "e", "a", "d"]
        assert await ids({"order": [["number", "desc"]]}) == ["d", "a", "e", "b", "c"]
        assert await ids({"order": ["text", ["number", "desc"]]}) == ["e", "c", "b", "d", "a"]
        assert await ids({"filter": {"ne": ["number", 2]}}) == ["b", "c", "d", "e"]
        assert await ids({"filter": {"not": {"exists": "number"}}}) == ["c"]
        both = {"or": [{"eq": ["text", "x"]}, {"lt": ["number", 0]}]}
        assert await ids({"filter": both}) == ["a", "d", "e"]
        joined = {"limit": 10, "join": {"as": "that", "reference": "next", "fields": ["number"]}}
        items = await client.all("things", joined)
        assert [item["that"] for item in items] == [
            {"id": "b", "number": None},
            None,
            None,
            None,
            {"id": "c"},
        ]
        aggregate = {"group": ["text"], "compute": {"n": {"count": "number"}}}
        answer = await client.ask("things", {"aggregate": aggregate, "allow_scan": True})
        assert answer["items"] == [{"n": 1}, {"text": None, "n": 0}, {"text": "x", "n": 2}]


@pytest.mark.parametrize("systems", SPLITS[:2], ids="+".join)
async def test_objects_from_before_a_group_was_placed_elsewhere(
    mediator: Service, systems: tuple[str, str]
) -> None:
    first, second = systems
    database = await mediator.put_schema({"things": {"fields": {"text": field_on(first)}}})
    for id_ in ("old", "older"):
        await mediator.create(database, "things", id_, text=id_)
    number = field_on(second, "integer", index=True, group="n")
    fields = {"text": field_on(first), "number": number}
    await mediator.mediator.control.set_schema(
        database, {"classes": {"things": {"fields": fields}}}
    )
    assert set(mediator.systems_of(database, "things")) == set(systems)
    for value in (1, 2):
        await mediator.create(database, "things", f"new{value}", text="t", number=value)
    await mediator.create(database, "things", "none", text="t")
    async with asking(mediator, database) as client:

        async def ids(**query: Any) -> list[str]:
            found = await client.all("things", {"limit": 2, "allow_scan": True, **query})
            return [item["id"] for item in found]

        assert await ids(order=[["number", "desc"]]) == ["new2", "new1", "older", "old", "none"]
        assert await ids(order=["number"]) == ["none", "old", "older", "new1", "new2"]
        assert await ids(fields=["number"]) == ["new1", "new2", "none", "old", "older"]
        assert await ids(filter={"not": {"gt": ["number", 1]}}) == ["new1", "none", "old", "older"]
        assert await ids(filter={"gt": ["number", 1]}, fields=["text"]) == ["new2"]
        counted = await client.ask(
            "things",
            {
                "aggregate": {"group": ["number"], "compute": {"n": {"count": "*"}}},
                "allow_scan": True,
            },
        )
        assert counted["items"] == [{"n": 3}, {"number": 1, "n": 1}, {"number": 2, "n": 1}]


async def test_what_is_half_deleted_is_not_there(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await article(mediator, "postgres", "redis")
    data = mediator.mediator.data
    for id_ in ("gone", "here"):
        await mediator.create(database, "things", id_, text="t", number=1)

    async def away(*_: object) -> Any:
        raise StoreUnavailable("connection refused")

    stores = {name: mediator.mediator.systems.get(name).store for name in ("postgres", "redis")}
    monkeypatch.setattr(stores["redis"], "write", away)
    with pytest.raises(OutcomeUnknown):
        await data.write(Delete(database, "things", "gone", unique()))
    fragments = data.model.databases[database].classes["things"].fragments
    left = {f.system: await stores[f.system].count(f) for f in fragments}
    assert left == {"postgres": 1, "redis": 2}
    async with asking(mediator, database) as client:
        asked = {"filter": {"eq": ["number", 1]}}
        assert [o["id"] for o in (await client.ask("things", asked))["items"]] == ["here"]


async def test_queries_that_cannot_be(split: Asking) -> None:
    for query, pointer in (
        ({"filter": {"eq": ["nothing", 1]}}, "/filter/eq/0"),
        ({"filter": {"$where": "1"}}, "/filter/$where"),
        ({"filter": {"eq": ["likeCounter", {"$gt": ""}]}}, "/filter/eq/1"),
        ({"order": ["entry; drop table"]}, "/order/0"),
        ({"limit": 1_001}, "/limit"),
        ({"join": {"as": "x", "reference": "entry"}}, "/join/reference"),
        ({"further": 1}, "/further"),
    ):
        assert_problem(await split.send("entries", query), 400, "invalid", pointer)
    assert_problem(await split.send("entries", []), 400, "invalid", "")
    malformed = await split.client.post("entries/query", content=b"{")
    assert malformed.status_code in (400, 415)
    assert (await split.client.get("entries/query")).status_code == 405


async def test_queries_while_objects_change(mediator: Service) -> None:
    """Every answer satisfies its filter as it is returned, whatever is written meanwhile."""
    database = await article(mediator, "postgres", "redis")
    async with asking(mediator, database) as client:
        rows = {f"o{n}": {"text": "even", "number": 0} for n in range(20)}
        await client.load("things", rows)
        done = asyncio.Event()

        async def change() -> None:
            for turn in range(12):
                text = "odd" if turn % 2 else "even"
                rows_now = {id_: {"text": text, "number": turn % 2} for id_ in rows}
                await client.load("things", rows_now)
            done.set()

        changing = asyncio.create_task(change())
        asked = {"filter": {"and": [{"eq": ["text", "even"]}, {"eq": ["number", 0]}]}}
        while not done.is_set():
            for item in (await client.ask("things", asked))["items"]:
                assert (item["text"], item["number"]) == ("even", 0)
        await changing
