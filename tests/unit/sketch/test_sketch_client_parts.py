"""The pure functions of the coherent client."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketch.client import (
    CoherentClient,
    Invalid,
    NotFound,
    PreconditionRequired,
    Problem,
    Statistics,
)
from sketch.client.answers import Source, age_s, expires_us, source_of, uncertainty_s
from sketch.client.clock import ElapsedTime, StrictlyIncreasing
from sketch.client.copies import Copies, Copy, is_newer
from sketch.client.own_writes import OwnWrites
from sketch.client.problems import problem_of
from sketch.client.renewing import Demand
from sketch.client.resources import ObjectResource, QueryResource, segment

GROUPS = {"articles": {"main": ("title", "text"), "hits": ("hits",)}}


# --- clocks -----------------------------------------------------------------------------------


def test_sleep_counts_as_time_passed_though_the_monotonic_clock_stands_still() -> None:
    monotonic, wall = 10.0, 1000.0
    clock = ElapsedTime(lambda: monotonic, lambda: wall)
    before = clock()
    wall += 3600
    assert clock() - before == 3600


def test_a_wall_clock_that_is_set_back_does_not_reduce_elapsed_time() -> None:
    monotonic, wall = 10.0, 1000.0
    clock = ElapsedTime(lambda: monotonic, lambda: wall)
    before = clock()
    wall -= 500
    monotonic += 2
    assert clock() - before == 2


@given(st.lists(st.floats(0, 1e9), min_size=2))
def test_the_clock_is_strictly_increasing(times: list[float]) -> None:
    pending = iter(times)
    clock = StrictlyIncreasing(lambda: next(pending))
    read = [clock() for _ in times]
    assert all(a < b for a, b in pairwise(read))
    assert all(a >= b for a, b in zip(read, times, strict=True))


# --- addresses --------------------------------------------------------------------------------


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="Authorization") as error:
        CoherentClient("https://ada:s3cret@cache.example", "shop")
    assert "s3cret" not in str(error.value)


# --- headers of answers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "age"),
    [
        ({}, 0),
        ({"age": "0"}, 1),
        ({"age": "8"}, 9),
        ({"via": "1.1 x"}, 1),
        ({"age": "0", "via": "1.1 x", "cache-control": "private, No-Store"}, 0),
        ({"age": "8", "cache-control": "no-store"}, 9),
        ({"age": "soon"}, math.inf),
        ({"age": "9" * 5_000}, math.inf),
        ({"age": "-1", "cache-control": "no-store"}, math.inf),
    ],
)
def test_age(headers: dict[str, str], age: float) -> None:
    assert age_s(headers) == age


@pytest.mark.parametrize(
    ("headers", "source"),
    [
        ({}, "origin"),
        ({"age": "0", "cache-status": "Portolan; hit; ttl=3"}, "origin"),
        ({"cache-status": "Portolan; fwd=miss; ttl=3, Varnish; fwd=miss"}, "origin"),
        ({"cache-status": "Portolan; fwd=miss, Varnish; hit"}, "shared"),
        ({"cache-status": "Portolan; hit, Varnish; ttl=3;hit"}, "shared"),
        ({"cache-status": "Varnish; detail=hit; fwd=stale"}, "origin"),
        ({"age": "3"}, "shared"),
        ({"age": "?"}, "shared"),
    ],
)
def test_the_source_of_an_answer(headers: dict[str, str], source: str) -> None:
    assert source_of(headers) == source
    assert (uncertainty_s(headers) == 0) is (source == Source.ORIGIN)


def test_a_no_store_response_has_no_ttl() -> None:
    assert expires_us({"portolan-expires": "12"}) == 12
    assert expires_us({"portolan-expires": "12", "cache-control": "no-store"}) == 0
    assert expires_us({"portolan-expires": "1e9"}) == 0
    assert expires_us({"portolan-expires": "9" * 5_000}) == 0
    assert expires_us({}) == 0


@pytest.mark.parametrize(
    ("status", "type_"), [(400, Invalid), (404, NotFound), (428, PreconditionRequired)]
)
def test_problems_are_exceptions(status: int, type_: type[Problem]) -> None:
    body = b'{"type": "/problems/some-kind", "detail": "so", "errors": [{"pointer": "/x"}]}'
    problem = problem_of(status, body, httpx.Headers({"retry-after": "7"}))
    assert type(problem) is type_
    assert (problem.kind, problem.detail, problem.retry_after_s) == ("some-kind", "so", 7.0)
    assert problem.errors == [{"pointer": "/x"}]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"\xff"])
def test_an_error_of_an_intermediary_is_a_problem(body: bytes) -> None:
    problem = problem_of(502, body, httpx.Headers({"retry-after": "soon"}))
    assert (problem.status, problem.kind, problem.retry_after_s) == (502, "", None)


# --- resources --------------------------------------------------------------------------------


def test_fields_have_a_canonical_form() -> None:
    assert ObjectResource.of("articles", "a1", ["title", "hits", "title"]).path == (
        "articles/a1?fields=hits,title"
    )
    assert ObjectResource.of("articles", "a1", "title") == ObjectResource.of(
        "articles", "a1", ["title"]
    )
    with pytest.raises(ValueError):
        ObjectResource.of("articles", "a1", [])


@pytest.mark.parametrize("text", ["", ".", "..", "a\ud800"])
def test_invalid_segments_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        segment(text)


def test_a_resource_is_tested_by_all_groups_that_it_shows() -> None:
    assert ObjectResource.of("articles", "a").groups(GROUPS) == ("main", "hits")
    assert ObjectResource.of("articles", "a", ["text"]).groups(GROUPS) == ("main",)
    assert ObjectResource.of("articles", "a", ["hits", "text"]).groups(GROUPS) == ("main", "hits")
    assert ObjectResource.of("articles", "a", ["text", "other"]).groups(GROUPS) == ()
    assert ObjectResource.of("others", "a").groups(GROUPS) == ()


# --- own writes -------------------------------------------------------------------------------


def own_writes(limit: int = 100) -> OwnWrites:
    ticks = iter(range(1, 1000))
    return OwnWrites(lambda: float(next(ticks)), limit)


def floor(writes: OwnWrites, id_: str, *fields: str) -> float:
    return writes.floor(ObjectResource.of("articles", id_, fields or None))


def test_own_writes_are_kept_by_object() -> None:
    writes = own_writes()
    with writes.writing("articles", ["a"]):
        assert floor(writes, "a") == -math.inf, "a read may come before it"
    assert floor(writes, "b") == -math.inf
    assert floor(writes, "a") == floor(writes, "a", "hits") == 1
    writes.doubt("articles", "a")
    assert floor(writes, "a", "title") == 2


def test_a_write_that_failed_counts_as_well() -> None:
    writes = own_writes()
    with suppress(OSError), writes.writing("articles", ["a"]):
        raise OSError
    assert floor(writes, "a") == 1


def test_writes_are_forgotten_once_no_earlier_read_is_young() -> None:
    writes = own_writes()
    with writes.writing("articles", ["a"]):
        pass
    writes.forget_before(1)
    assert floor(writes, "a") == 1
    writes.forget_before(2)
    assert floor(writes, "a") == -math.inf


def test_too_many_writes_to_remember_count_for_every_object() -> None:
    writes = own_writes(limit=3)
    for number in range(4):
        with writes.writing("articles", [f"a{number}"]):
            pass
    assert floor(writes, "other") == 4
    writes.forget_before(4.5)
    assert floor(writes, "a0") == -math.inf


# --- copies -----------------------------------------------------------------------------------


def make_copy(
    since: float,
    epoch: int = 0,
    size: int = 100,
    received: float | None = None,
    version: int | None = None,
) -> Copy:
    etag = '"t"' if version is None else f'"j1.main:{version}"'
    received = since if received is None else received
    return Copy(200, etag, b"x" * size, since, since, received, 1, epoch)


def test_a_request_after_a_copy_was_received_gets_a_newer_one() -> None:
    copies = Copies(10_000, Statistics())
    copies.put("a", make_copy(1, received=2, version=9))
    copies.put("a", make_copy(2, received=3, version=8))
    assert copies.get("a") == make_copy(2, received=3, version=8)


@pytest.mark.parametrize("first", [7, 8, 9])
def test_of_two_concurrent_responses_the_higher_version_stays(first: int) -> None:
    copies = Copies(10_000, Statistics())
    copies.put("a", make_copy(1, received=5, version=first))
    copies.put("a", make_copy(2, received=6, version=8))
    copy = copies.get("a")
    assert copy is not None
    assert copy.etag == f'"j1.main:{max(first, 8)}"'
    assert (copy.since, copy.knows, copy.received) == (2, 2, 6), (
        "it was still current when the other was read at 2"
    )


def test_of_two_concurrent_responses_neither_stays_if_their_order_is_unknown() -> None:
    copies = Copies(10_000, Statistics())
    copies.put("a", replace(make_copy(1, received=5), etag='"other"'))
    copies.put("a", make_copy(2, received=6))
    copy = copies.get("a")
    assert copy is not None
    assert (copy.etag, copy.body, copy.expires_us) == (None, None, 0)
    assert (copy.since, copy.received) == (2, 6)


def test_a_confirmation_of_the_cached_version_keeps_it() -> None:
    copies = Copies(10_000, Statistics())
    copies.put("a", make_copy(1, received=5, version=8))
    copies.put("a", replace(make_copy(2, received=6, version=8), body=None, expires_us=0))
    copy = copies.get("a")
    assert copy is not None
    assert copy.body is not None
    assert copy.since == 2


@pytest.mark.parametrize(
    ("one", "other", "newer"),
    [
        ('"j1.main:2"', '"j1.main:2"', True),
        ('"j1.main:3"', '"j1.main:2"', True),
        ('"j1.main:2"', '"j1.main:10"', False),
        ('W/"j1.main:3"', '"j1.main:2"', True),
        ('"j1.hits:1.main:3"', '"j1.hits:1.main:2"', True),
        ('"j1.hits:1.main:3"', '"j1.hits:2.main:3"', False),
        ('"j1.hits:1.main:3"', '"j1.hits:2.main:2"', None),
        ('"j2.main:3"', '"j1.main:2"', None),
        ('"j1.hits:3"', '"j1.main:2"', None),
        ('"j1.hits:-.main:3"', '"j1.hits:1.main:3"', None),
        ('"other"', '"j1.main:2"', None),
        ('"j1"', '"j1."', None),
        (None, '"j1.main:2"', None),
        ('"j1.main:2"', None, None),
    ],
)
def test_tags_show_which_state_is_newer(
    one: str | None, other: str | None, newer: bool | None
) -> None:
    assert is_newer(one, other) is newer


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3_000)), max_size=60))
def test_copies_stay_within_their_size(steps: list[tuple[int, int]]) -> None:
    copies = Copies(4_000, Statistics())
    for since, (name, size) in enumerate(steps):
        copies.put(str(name), make_copy(since, size=size))
        assert copies.bytes <= 4_000
        assert copies.get(str(name)) == make_copy(since, size=size)


def test_a_copy_that_is_larger_than_the_cache_is_not_cached() -> None:
    copies = Copies(1_000, Statistics())
    copies.put("a", make_copy(1))
    copies.put("a", make_copy(2, size=2_000))
    assert copies.get("a") is None
    assert copies.bytes == 0


def test_a_bound_must_be_positive() -> None:
    with pytest.raises(ValueError):
        CoherentClient("http://cache.example", "news", delta_s=0)


# --- demand -----------------------------------------------------------------------------------


def request(demand: Demand, number: int, **options: Any) -> str:
    resource = ObjectResource("articles", f"a{number}", **options)
    demand.note(resource.path, resource)
    return resource.path


def test_objects_that_are_read_again_stay_in_demand() -> None:
    demand = Demand()
    request(demand, 1)
    for _ in range(30):
        repeated = request(demand, 2)
        addresses = [resource.address for resource in demand.recent()]
    assert addresses == [repeated]


def test_the_objects_in_demand_are_bounded_to_those_read_last() -> None:
    demand = Demand()
    addresses = [request(demand, number) for number in range(1_200)]
    demand.recent()
    addresses.append(request(demand, 300))
    assert [resource.address for resource in demand.recent()] == [
        *addresses[200:300],
        *addresses[301:],
    ]


def test_projections_and_query_results_are_not_in_demand() -> None:
    demand = Demand()
    request(demand, 1, fields=("title",))
    result = QueryResource.of("articles", {"limit": 1})
    demand.note(result.path, result)
    assert demand.recent() == []


def test_an_object_is_stable_some_rounds_after_it_has_changed() -> None:
    demand = Demand()
    stable = []
    for number in range(80):
        request(demand, 1)
        [resource] = demand.recent()
        if number == 40:
            demand.changed(resource)
        stable.append(demand.is_stable(resource))
    assert stable[:20] == stable[41:61] == [False] * 20
    assert stable[39] is stable[79] is True
