"""Reads that reuse a grant, on real servers: the filter covers the copies they hand out."""

from __future__ import annotations

import pytest

from sketch.protocol.port import CacheGrant, Partition
from tests.process.caching.cached_paper import Paper
from tests.process.service import unique


@pytest.fixture
def id_() -> str:
    return unique("a")


@pytest.fixture
def reports(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The keys of each report that the sketch receives."""
    events: list[tuple[str, ...]] = []
    report = paper.caches.sketch.report_read

    async def recorded(partition: Partition, keys: tuple[str, ...], ttl_s: float) -> CacheGrant:
        events.append(tuple(keys))
        return await report(partition, keys, ttl_s)

    monkeypatch.setattr(paper.caches.sketch, "report_read", recorded)
    return events


async def test_a_second_read_reuses_the_grant(
    paper: Paper, id_: str, reports: list[tuple[str, ...]]
) -> None:
    await paper.put(id_)
    first, second = await paper.get(id_), await paper.get(id_)
    assert len(reports) == 1
    assert second.headers["portolan-expires"] == first.headers["portolan-expires"]
    assert second.headers["cache-control"].startswith("public, max-age=0, s-maxage=5")
    assert second.headers["xkey"] == first.headers["xkey"]
    hits = await paper.get(id_, "?fields=hits")
    assert hits.headers["portolan-expires"] != first.headers["portolan-expires"]
    assert len(reports) == 2


async def test_a_reused_grant_is_in_the_filter_after_an_overwrite(
    paper: Paper, id_: str, reports: list[tuple[str, ...]]
) -> None:
    await paper.put(id_)
    await paper.get(id_)
    await paper.inc(id_)
    read = await paper.get(id_)
    assert read.json()["hits"] == 1
    assert len(reports) == 1
    await paper.inc(id_)
    document = await paper.filter()
    assert document.contains(f"articles/{id_}#hits")
    assert document.snapshot.time_us < int(read.headers["portolan-expires"])


async def test_a_conditional_read_is_answered_by_the_sketch(
    paper: Paper, id_: str, reports: list[tuple[str, ...]]
) -> None:
    await paper.put(id_)
    await paper.get(id_)
    etag = (await paper.get(id_)).headers["etag"]
    answer = await paper.get(id_, if_none_match=etag)
    assert (answer.status_code, len(reports)) == (304, 2)


async def test_an_uncacheable_read_does_not_reuse_a_grant(
    paper: Paper, id_: str, reports: list[tuple[str, ...]]
) -> None:
    await paper.put(id_)
    sketch = paper.caches.sketch
    token = "held"
    await sketch.begin(paper.partition, [f"articles/{id_}#main"], token)
    assert (await paper.get(id_)).headers["cache-control"] == "no-store"
    await sketch.end(paper.partition, token, {})
    assert (await paper.get(id_)).headers["cache-control"].startswith("public")
    assert len(reports) == 2
