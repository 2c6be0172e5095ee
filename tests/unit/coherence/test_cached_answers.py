"""The cache headers of an answer with a TTL, and when it is too late to cache it."""

from __future__ import annotations

from typing import Any

import pytest

from app.coherence.cached_reads import CachedReads, ReadGrant
from app.http.caching import NO_STORE
from sketch.protocol.port import CacheGrant, Partition
from tests.conformance.virtual_time import EPOCH_S, HandClock

ANSWER_S = 3.0
NOW_US = int(EPOCH_S) * 1_000_000


def headers_after(elapsed_s: float, ttl_us: int) -> dict[bytes, bytes]:
    """Return the fields of an answer sent `elapsed_s` after its grant was requested."""
    clock, unused = HandClock(), _unused()
    reads = CachedReads(unused, unused, unused, unused, ANSWER_S, clock, unused, lambda: None)
    keys = {"main": "articles/a#main"}
    grant = CacheGrant(NOW_US, ttl_us)
    read_grant = ReadGrant(Partition("news", "articles"), keys, "public", grant, clock.monotonic())
    clock.elapsed_s += elapsed_s
    return dict(reads.cache_headers(read_grant))


def _unused() -> Any:
    return None


@pytest.mark.parametrize(
    ("elapsed_s", "cacheable"), [(0.0, True), (ANSWER_S, True), (ANSWER_S + 0.001, False)]
)
def test_a_response_sent_after_its_share_of_the_margin_is_not_cacheable(
    elapsed_s: float, cacheable: bool
) -> None:
    """Copies could outlive their expiry in the sketch (docs/protocol.md, "Reading")."""
    fields = headers_after(elapsed_s, 60_000_000)
    assert (fields != dict([NO_STORE])) is cacheable


@pytest.mark.parametrize(("ttl_us", "seconds"), [(1_999_999, 1), (2_000_000, 2), (999_999, 0)])
def test_seconds_are_rounded_down(ttl_us: int, seconds: int) -> None:
    fields = headers_after(0.0, ttl_us)
    assert f"s-maxage={seconds}," in fields[b"cache-control"].decode()
    assert fields[b"cdn-cache-control"] == b"max-age=%d" % seconds
    assert fields[b"x-accel-expires"] == b"@%d" % (int(EPOCH_S) + seconds)
    assert fields[b"portolan-expires"] == b"%d" % (NOW_US + ttl_us)
