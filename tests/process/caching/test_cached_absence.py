"""Answers with status 404 are cached like any other: creation is a write to the absent object.

docs/coherence.md, "Absent objects", lists the schedules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest

from app.settings.main import CacheSettings
from mediator.model.guard import WriteToken
from mediator.stores.port import SystemConfig
from sketch.client import CoherentClient, NotFound, Source
from sketch.protocol.port import CacheGrant, Partition
from tests.faults.conditions import eventually
from tests.process.caching.cached_paper import Paper, paper_on
from tests.process.service import unique

GROUPS = {"": ("main", "hits"), "?fields=title": ("main",), "?fields=hits": ("hits",)}

Step = Callable[[], Awaitable[object]]
Location = tuple[Callable[[Paper], Any], str, str]

READER: dict[str, Location] = {
    "create, report, read": (lambda paper: paper.caches.leases, "release", "before"),
    "report, create, read": (lambda paper: paper.running.mediator.data, "read", "before"),
    "report, read, create": (lambda paper: paper.running.mediator.data, "read", "after"),
}
"""Where a complete creation runs between the steps of a reader."""

WRITER: dict[str, Location] = {
    "read, begin": (lambda paper: paper.caches.guard, "begin", "before"),
    "begin, read, write": (lambda paper: paper.caches.guard, "begin", "after"),
    "write, read, end": (lambda paper: paper.caches.guard, "end", "before"),
    "end, read, acknowledge": (lambda paper: paper.caches.guard, "end", "after"),
}
"""Where a complete read runs between the steps of a creation."""


@pytest.fixture
def id_() -> str:
    return unique("a")


def interrupt(patch: pytest.MonkeyPatch, paper: Paper, location: Location, step: Step) -> None:
    """Run a step before or after the first call of a method."""
    find, name, when = location
    target, steps = find(paper), [step]
    call = getattr(target, name)

    async def call_with_step(*args: Any, **kwargs: Any) -> Any:
        first_step = steps.pop() if steps else None
        if first_step is not None and when == "before":
            await first_step()
        try:
            return await call(*args, **kwargs)
        finally:
            if first_step is not None and when == "after":
                await first_step()

    patch.setattr(target, name, call_with_step)


async def is_covered(paper: Paper, id_: str, query: str, answer: httpx.Response) -> bool:
    """Return whether a cached 404 is revalidated or expired after the object was created."""
    if answer.status_code == 200 or "portolan-expires" not in answer.headers:
        return True
    snapshot = await paper.filter()
    return any(snapshot.contains(f"articles/{id_}#{group}") for group in GROUPS[query])


async def test_a_404_is_cacheable_like_any_other_response(paper: Paper, id_: str) -> None:
    answer = await paper.get(id_)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    await paper.put(id_)
    existing = await paper.get(id_, if_none_match='"j1.main:1"')
    for name in ("cache-control", "cdn-cache-control", "xkey", "cache-tag", "cache-groups"):
        assert answer.headers[name] == existing.headers[name]
    end_us = int(answer.headers["portolan-expires"])
    assert answer.headers["x-accel-expires"] == f"@{end_us // 1_000_000}"
    assert answer.headers["cache-status"] == "Portolan; fwd=miss; ttl=60"
    assert "etag" not in answer.headers


async def test_private_absence_is_for_the_client_alone(paper: Paper, id_: str) -> None:
    answer = await paper.http.get(f"notes/{id_}")
    assert answer.status_code == 404
    assert answer.headers["cache-control"] == "private, max-age=0, must-revalidate"
    assert "xkey" not in answer.headers


@pytest.mark.parametrize("address", ["secrets/a", "mortals/a", "none/a", "articles/a?fields=none"])
async def test_other_errors_are_not_cacheable(paper: Paper, address: str) -> None:
    answer = await paper.http.get(address)
    assert answer.is_client_error
    assert answer.headers["cache-control"] == "no-store"
    assert "portolan-expires" not in answer.headers


async def test_a_deleted_object_matches_no_condition(paper: Paper, id_: str) -> None:
    """The sketch has the version of the deletion, which no copy can have."""
    await paper.put(id_)
    await paper.get(id_)
    deleted = await paper.http.delete(f"articles/{id_}")
    assert deleted.status_code == 204
    for _ in range(2):
        assert (await paper.get(id_, if_none_match="*")).status_code == 404


@pytest.mark.parametrize("query", GROUPS)
@pytest.mark.parametrize("schedule", READER)
async def test_a_creation_between_the_steps_of_a_reader_is_not_missed(
    paper: Paper, id_: str, query: str, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, paper, READER[schedule], lambda: paper.put(id_))
    answer = await paper.get(id_, query)
    assert answer.status_code == (404 if schedule.endswith("create") else 200)
    assert "portolan-expires" in answer.headers
    assert await is_covered(paper, id_, query, answer)


@pytest.mark.parametrize("query", GROUPS)
@pytest.mark.parametrize("schedule", WRITER)
async def test_a_reader_between_the_steps_of_a_creation_caches_nothing_old(
    paper: Paper, id_: str, query: str, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[httpx.Response] = []

    async def read() -> None:
        answers.append(await paper.get(id_, query))

    interrupt(monkeypatch, paper, WRITER[schedule], read)
    await paper.put(id_)
    [answer] = answers
    assert await is_covered(paper, id_, query, answer)
    if schedule == "read, begin":
        assert answer.status_code == 404
        assert "portolan-expires" in answer.headers


async def _begin_nothing(*_: Any) -> WriteToken:
    return WriteToken("none", ("articles",))


async def test_without_the_begin_of_a_creation_a_stale_404_is_missed(
    paper: Paper, id_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await paper.get(id_)
    monkeypatch.setattr(paper.caches.guard, "begin", _begin_nothing)
    await paper.put(id_)
    assert not await is_covered(paper, id_, "", answer)


async def test_without_the_report_of_an_absence_a_stale_404_is_missed(
    paper: Paper, id_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def grant_without_report(_: Partition, keys: Sequence[str], ttl_s: float) -> CacheGrant:
        now_us = (await paper.filter()).snapshot.time_us
        return CacheGrant(now_us, round(ttl_s * 1_000_000), (None,) * len(keys))

    monkeypatch.setattr(paper.caches.sketch, "report_read", grant_without_report)
    answer = await paper.get(id_)
    await paper.put(id_)
    assert not await is_covered(paper, id_, "", answer)


async def test_a_creation_invalidates_cached_404s(paper: Paper, id_: str) -> None:
    keys = [f"articles/{id_}#{group}" for group in ("main", "hits")]
    await paper.get(id_)
    token = unique("token")
    pending = await paper.caches.sketch.begin(paper.partition, keys, token)
    assert set(pending.held) == set(keys)
    await paper.caches.sketch.end(paper.partition, token, {})


async def test_a_client_sees_a_creation_within_its_bound_and_its_own_at_once(
    paper: Paper, id_: str
) -> None:
    transport = httpx.ASGITransport(paper.api)
    async with CoherentClient("http://test", paper.database, transport=transport) as client:

        async def from_its_own_cache() -> bool:
            read = await client.get("articles", id_, missing_ok=True)
            assert read.value is None
            return read.source is Source.OWN

        await eventually(from_its_own_cache)
        await paper.put(id_)
        await client.refresh_filter()
        assert (await client.get("articles", id_)).value is not None
        own_id = unique("a")
        with pytest.raises(NotFound):
            await client.get("articles", own_id)
        await client.put("articles", own_id, {"title": "Mine"})
        assert (await client.get("articles", own_id)).value is not None


async def test_ids_that_do_not_exist_take_no_more_room_than_the_bound(
    own_systems: Sequence[SystemConfig], own_catalogue: str, redis_config: SystemConfig
) -> None:
    url, settings = redis_config.url, CacheSettings()
    async with paper_on(own_systems, own_catalogue, url, settings, keys=20) as paper:
        answers = [await paper.get(unique("x")) for _ in range(15)]
        assert ["portolan-expires" in answer.headers for answer in answers] == [True] * 10 + [
            False
        ] * 5
        assert {answer.headers["cache-control"] for answer in answers[10:]} == {"no-store"}
        [state] = await paper.caches.sketch.states([paper.partition])
        assert state.handed_out == 20
