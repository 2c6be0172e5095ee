"""Refused, aborted and failed queries: the problem states location and reason."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from mediator.query.budget import Limits
from mediator.stores.port import StoreUnavailable
from tests.process.caching.newspaper import assert_problem
from tests.process.queries.querying import QueryClient
from tests.process.service import Service


async def test_errors_in_joins_and_aggregates_of_a_get_are_located(split: QueryClient) -> None:
    for query, pointer in (
        ("join={", "join"),
        ('join={"as":"a","reference":"nope"}', "join/reference"),
        ('aggregate={"compute":{"n":{"sum":"nope"}}}', "aggregate/compute/n/sum"),
        ('aggregate={"compute":{"n":{"count":"*"}}}&fields=country', "fields"),
    ):
        response = await split.get(f"profiles?{quote(query, safe='=&')}")
        assert_problem(response, 400, "invalid", pointer)


async def test_cursors_belong_to_their_query(split: QueryClient) -> None:
    body = {"filter": {"ge": ["likeCounter", 10]}, "limit": 2, "allow_scan": True}
    cursor = (await split.query("entries", body))["next"]
    assert len((await split.query("entries", {**body, "after": cursor, "limit": 5}))["items"]) == 5
    other_queries: list[dict[str, Any]] = [
        {**body, "filter": {"ge": ["likeCounter", 11]}},
        {**body, "order": ["likeCounter"]},
        {"limit": 2},
    ]
    for query in other_queries:
        response = await split.send("entries", {**query, "after": cursor})
        assert_problem(response, 400, "invalid", "after")
    forged = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
    assert_problem(await split.send("entries", {**body, "after": forged}), 400, "invalid", "after")


@pytest.mark.parametrize("limits", [Limits(rows=500), Limits(seconds=0.0)], ids=["rows", "seconds"])
async def test_a_query_that_costs_too_much_is_aborted(
    mediator: Service, split: QueryClient, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    monkeypatch.setattr(mediator.mediator.data, "limits", limits)
    conditions = [{"eq": ["firstname", "nobody"]}, {"eq": ["lastname", "nobody"]}]
    body = {"filter": {"or": conditions}, "allow_scan": True}
    problem = assert_problem(await split.send("profiles", body), 422, "too-costly")
    assert set(problem) & {"rows", "seconds"}


async def test_too_many_groups(
    mediator: Service, split: QueryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mediator.mediator.data, "limits", Limits(groups=99))
    aggregate = {"group": ["profileID"], "compute": {"n": {"count": "*"}}}
    response = await split.send("profiles", {"aggregate": aggregate, "allow_scan": True})
    assert_problem(response, 400, "invalid", "/aggregate")


async def test_a_system_that_is_down_fails_only_queries_that_need_it(
    mediator: Service, split: QueryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> Any:
        raise StoreUnavailable("connection refused")

    redis = mediator.mediator.systems.get("redis")
    with monkeypatch.context() as patched:
        patched.setattr(redis.store, "find", fail)
        patched.setattr(redis.store, "read", fail)
        dependent = await split.send("entries", {"order": [["author", "desc"]], "allow_scan": True})
        problem = assert_problem(dependent, 503, "unavailable")
        assert problem["system"] == "redis"
        independent = await split.query("entries", {"fields": ["entry"], "limit": 3})
        assert len(independent["items"]) == 3
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
