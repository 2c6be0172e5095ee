"""Queries that are refused, broken off or fail: the problem says where, and why."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from mediator.query.budget import Limits
from mediator.stores.port import StoreUnavailable
from tests.process.caching.newspaper import assert_problem
from tests.process.queries.querying import QueryClient
from tests.process.service import Service


async def test_mistakes_in_joins_and_aggregates_of_a_get_are_named(split: QueryClient) -> None:
    for query, pointer in (
        ("join={", "join"),
        ('join={"as":"a","reference":"nope"}', "join/reference"),
        ('aggregate={"compute":{"n":{"sum":"nope"}}}', "aggregate/compute/n/sum"),
        ('aggregate={"compute":{"n":{"count":"*"}}}&fields=country', "fields"),
    ):
        answer = await split.get(f"profiles?{quote(query, safe='=&')}")
        assert_problem(answer, 400, "invalid", pointer)


async def test_cursors_belong_to_their_query(split: QueryClient) -> None:
    body = {"filter": {"ge": ["likeCounter", 10]}, "limit": 2, "allow_scan": True}
    cursor = (await split.query("entries", body))["next"]
    assert len((await split.query("entries", {**body, "after": cursor, "limit": 5}))["items"]) == 5
    others: list[dict[str, Any]] = [
        {**body, "filter": {"ge": ["likeCounter", 11]}},
        {**body, "order": ["likeCounter"]},
        {"limit": 2},
    ]
    for other in others:
        answer = await split.send("entries", {**other, "after": cursor})
        assert_problem(answer, 400, "invalid", "after")
    forged = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
    assert_problem(await split.send("entries", {**body, "after": forged}), 400, "invalid", "after")


@pytest.mark.parametrize("limits", [Limits(rows=500), Limits(seconds=0.0)], ids=["rows", "seconds"])
async def test_a_query_that_costs_too_much_is_broken_off(
    mediator: Service, split: QueryClient, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    monkeypatch.setattr(mediator.mediator.data, "limits", limits)
    either = [{"eq": ["firstname", "nobody"]}, {"eq": ["lastname", "nobody"]}]
    body = {"filter": {"or": either}, "allow_scan": True}
    problem = assert_problem(await split.send("profiles", body), 422, "too-costly")
    assert set(problem) & {"rows", "seconds"}


async def test_too_many_groups(
    mediator: Service, split: QueryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mediator.mediator.data, "limits", Limits(groups=99))
    aggregate = {"group": ["profileID"], "compute": {"n": {"count": "*"}}}
    answer = await split.send("profiles", {"aggregate": aggregate, "allow_scan": True})
    assert_problem(answer, 400, "invalid", "/aggregate")


async def test_a_system_that_is_down_fails_only_queries_that_need_it(
    mediator: Service, split: QueryClient, monkeypatch: pytest.MonkeyPatch
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
        free = await split.query("entries", {"fields": ["entry"], "limit": 3})
        assert len(free["items"]) == 3
    redis.breaker.succeeded()


async def test_invalid_queries_are_refused(split: QueryClient) -> None:
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
