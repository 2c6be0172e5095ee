"""Reused grants: no TTL ends after the expiry that the sketch recorded."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.coherence.grants import GrantCache, GrantKey
from mediator.routing.model import ClassRoute
from sketch.protocol.port import CacheGrant

ROUTE, OTHER = (cast(ClassRoute, object()) for _ in range(2))
KEY: GrantKey = ("news", "articles", "a1", ("main",))
SECOND = 1_000_000


def grant_cache(ttl_us: int = 60 * SECOND, **options: Any) -> GrantCache:
    grants = GrantCache(**options)
    grants.put(KEY, ROUTE, CacheGrant(1_000 * SECOND, ttl_us, (7,), "fill"), 100.0)
    return grants


def test_a_reused_grant_ends_with_the_original() -> None:
    reused = grant_cache().reuse(KEY, ROUTE, 60 * SECOND, 110.0)
    assert reused == CacheGrant(1_010 * SECOND, 50 * SECOND)


@given(
    ttl_us=st.integers(0, 10**9),
    requested_us=st.integers(0, 10**9),
    elapsed_s=st.floats(0, 2_000, allow_nan=False),
)
def test_no_ttl_is_longer_than_was_granted_or_much_shorter_than_requested(
    ttl_us: int, requested_us: int, elapsed_s: float
) -> None:
    now_s = 100.0 + elapsed_s
    reused = grant_cache(ttl_us).reuse(KEY, ROUTE, requested_us, now_s)
    if reused is not None:
        assert 0 < reused.ttl_us <= requested_us
        assert reused.ttl_us >= 0.75 * requested_us
        assert reused.now_us >= 1_000 * SECOND + (now_s - 100.0) * SECOND
        assert reused.now_us + reused.ttl_us <= 1_000 * SECOND + ttl_us


def test_a_grant_is_reused_only_if_most_of_the_requested_ttl_is_left() -> None:
    grants = grant_cache()
    assert grants.reuse(KEY, ROUTE, 60 * SECOND, 114.9) is not None
    assert grants.reuse(KEY, ROUTE, 60 * SECOND, 115.1) is None
    assert grants.reuse(KEY, ROUTE, 10 * SECOND, 115.1) == CacheGrant(1_015_100_000, 10 * SECOND)
    assert grants.reuse(KEY, ROUTE, 10 * SECOND, 160.0) is None


@pytest.mark.parametrize(
    "key", [("news", "articles", "a2", ("main",)), ("news", "articles", "a1", ("hits", "main"))]
)
def test_a_grant_is_for_its_object_and_groups_only(key: GrantKey) -> None:
    assert grant_cache().reuse(key, ROUTE, 60 * SECOND, 100.0) is None


def test_no_grant_is_reused_under_another_layout() -> None:
    assert grant_cache().reuse(KEY, OTHER, 60 * SECOND, 100.0) is None


def test_a_refusal_is_not_remembered_and_removes_the_former_grant() -> None:
    grants = grant_cache()
    grants.put(KEY, ROUTE, CacheGrant(1_000 * SECOND), 101.0)
    assert grants.reuse(KEY, ROUTE, 60 * SECOND, 101.0) is None


def test_the_oldest_grants_are_forgotten() -> None:
    grants = grant_cache(max_grants=2)
    for id_ in ("a2", "a3"):
        grants.put(("news", "articles", id_, ()), ROUTE, CacheGrant(0, 60 * SECOND), 100.0)
    remaining = [
        id_
        for id_, groups in (("a1", ("main",)), ("a2", ()), ("a3", ()))
        if grants.reuse(("news", "articles", id_, groups), ROUTE, 60 * SECOND, 100.0)
    ]
    assert remaining == ["a2", "a3"]
