"""Cached query results: which are cacheable, which a write outdates (docs/query-caching.md)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest

from app.coherence.grants import MAX_UNCOVERED
from app.settings.main import CacheSettings
from mediator.base.errors import Unavailable
from mediator.model.guard import CacheKey
from mediator.stores.port import SystemConfig
from sketch.protocol.keys import canonical_query, key_of_query
from sketch.protocol.port import CacheGrant, Partition
from tests.faults.conditions import eventually
from tests.process.caching.cached_paper import UPDATE, Paper, note, paper_on
from tests.process.service import unique

Step = Callable[[], Awaitable[object]]


async def get_page(paper: Paper, name: str = "articles", **parameters: str) -> httpx.Response:
    answer = await paper.http.get(f"{name}?{canonical_query(parameters.items())}")
    assert answer.status_code == 200, answer.text
    return answer


async def get_cacheable(paper: Paper, name: str = "articles", **parameters: str) -> httpx.Response:
    """Send a query; its result must be cacheable, and is not outdated yet."""
    answer = await get_page(paper, name, **parameters)
    assert "portolan-expires" in answer.headers, answer.headers
    return answer


async def is_outdated(paper: Paper, name: str = "articles", **parameters: str) -> bool:
    """Return whether the key of a result is in the filter."""
    key = key_of_query(name, canonical_query(parameters.items()))
    return (await paper.filter()).contains(key)


def ids(answer: httpx.Response) -> list[str]:
    return [item["id"] for item in answer.json()["items"]]


async def test_a_cached_result_has_its_cache_headers(paper: Paper, word: str) -> None:
    id_ = unique("a")
    await paper.put(id_, title=word)
    answer = await get_cacheable(paper, title=word)
    assert ids(answer) == [id_]
    assert "s-maxage=60" in answer.headers["cache-control"]
    assert len(answer.headers["xkey"]) == 32
    confirmed = await paper.http.get(
        f"articles?title={word}", headers={"if-none-match": answer.headers["etag"]}
    )
    assert confirmed.status_code == 304
    assert "portolan-expires" in confirmed.headers
    await paper.put(unique("a"), title=word)
    changed = await get_page(paper, title=word)
    assert changed.headers["etag"] != answer.headers["etag"]


async def test_a_result_of_a_repeated_condition_is_invalidated(paper: Paper, word: str) -> None:
    same = {"eq": ["text", word]}
    branches = [{"and": [same, {"gt": ["id", "m"]}]}, {"and": [same, {"lt": ["id", "b"]}]}]
    filter_ = json.dumps({"or": branches})
    await get_cacheable(paper, "notes", filter=filter_)
    id_ = await note(paper, word, unique("z"))
    assert await is_outdated(paper, "notes", filter=filter_)
    assert ids(await get_page(paper, "notes", filter=filter_)) == [id_]


@pytest.mark.parametrize(
    "query",
    [
        "title=b&hits=1",
        "title=%62",
        "title=a+b",
        "title=a&explain=true",
        "title=a&fields=title,hits",
        "title=" + "a" * 1_000,
    ],
)
async def test_non_canonical_queries_are_not_cacheable(paper: Paper, query: str) -> None:
    answer = await paper.http.get(f"articles?{query}")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] in ("no-store", "no-cache")
    assert "portolan-expires" not in answer.headers


async def test_uncacheable_kinds_of_queries(paper: Paper) -> None:
    post = await paper.http.post("articles/query", json={})
    assert post.headers["cache-control"] == "no-store"
    assert "etag" not in post.headers
    for name in ("mortals", "secrets"):
        assert "portolan-expires" not in (await get_page(paper, name)).headers
    assert (await get_cacheable(paper, "notes")).headers["cache-control"].startswith("private")
    by_ids = await paper.http.get("articles?ids=a,b")
    assert "portolan-expires" not in by_ids.headers


async def test_only_a_few_results_of_uncovered_queries_are_cacheable(
    paper: Paper, word: str
) -> None:
    answers = [
        await get_page(paper, "notes", **{"text.like": f"%{word}{n}%"})
        for n in range(MAX_UNCOVERED + 1)
    ]
    assert "portolan-expires" in answers[0].headers
    assert "portolan-expires" not in answers[-1].headers
    assert {answer.status_code for answer in answers} == {200}
    await get_cacheable(paper, "notes", **{"text.like": f"%{word}0%"})
    for n in range(MAX_UNCOVERED + 1):
        await get_cacheable(paper, "notes", **{"text.like": f"{word}{n}%"})


async def test_an_object_list_is_invalidated_by_its_fields(paper: Paper, word: str) -> None:
    id_ = unique("a")
    await paper.put(id_, title=word)
    await get_cacheable(paper, title=word)
    await get_cacheable(paper, title=word, fields="title")
    await paper.inc(id_)
    assert await is_outdated(paper, title=word)
    assert not await is_outdated(paper, title=word, fields="title")


async def test_an_id_list_is_invalidated_by_changed_membership_or_order(
    paper: Paper, word: str
) -> None:
    id_ = unique("a")
    await paper.put(id_, title=word)
    page = await get_cacheable(paper, title=word, fields="id")
    assert page.json()["items"] == [{"id": id_}]
    await get_cacheable(paper, title=word, fields="id", order="-hits")
    await paper.inc(id_)
    assert not await is_outdated(paper, title=word, fields="id")
    assert await is_outdated(paper, title=word, fields="id", order="-hits")
    await paper.put(unique("a"), title=word)
    assert await is_outdated(paper, title=word, fields="id")


async def _put(paper: Paper, id_: str, text: str) -> None:
    await note(paper, text, id_)


async def _patch(paper: Paper, id_: str, text: str) -> None:
    body = {"text": text}
    answer = await paper.http.patch(
        f"notes/{id_}", json=body, headers={"content-type": "application/merge-patch+json"}
    )
    assert answer.is_success, answer.text


async def _update(paper: Paper, id_: str, text: str) -> None:
    body = {"text": {"set": text}}
    answer = await paper.http.patch(f"notes/{id_}", json=body, headers=UPDATE)
    assert answer.is_success, answer.text


@pytest.mark.parametrize("write", [_put, _patch, _update])
async def test_only_results_that_an_object_enters_or_leaves_are_invalidated(
    paper: Paper, word: str, write: Callable[[Paper, str, str], Awaitable[None]]
) -> None:
    id_ = await note(paper, f"{word}1")
    texts = [f"{word}{number}" for number in range(4)]
    for text in texts:
        await get_cacheable(paper, "notes", text=text)
    await note(paper, f"{word}9")  # lets the replica learn of the queries
    await write(paper, id_, f"{word}2")
    outdated_texts = [text for text in texts if await is_outdated(paper, "notes", text=text)]
    assert outdated_texts == texts[1:3]


async def test_creation_and_deletion_invalidate_results(paper: Paper, word: str) -> None:
    first = await note(paper, word)
    await get_cacheable(paper, "notes", text=word)
    await get_cacheable(paper, "notes", **{"text.like": f"{word}%"})
    await get_cacheable(paper, "notes", **{"text.like": f"{word}!%"})
    await note(paper, f"{word}x")
    assert not await is_outdated(paper, "notes", text=word)
    assert await is_outdated(paper, "notes", **{"text.like": f"{word}%"})
    await paper.http.delete(f"notes/{first}")
    assert await is_outdated(paper, "notes", text=word)
    assert not await is_outdated(paper, "notes", **{"text.like": f"{word}!%"})


async def test_imports_and_lists_invalidate_results(paper: Paper, word: str) -> None:
    await get_cacheable(paper, "notes", text=word)
    created = await paper.http.post("notes", json=[{"text": word}, {"text": "other"}])
    assert created.is_success, created.text
    assert await is_outdated(paper, "notes", text=word)
    await get_cacheable(paper, "notes", text=f"{word}b")
    operation = {"op": "put", "class": "notes", "id": unique("n"), "body": {"text": f"{word}b"}}
    response = await paper.http.post("batch", json={"operations": [operation]})
    assert response.is_success, response.text
    assert await is_outdated(paper, "notes", text=f"{word}b"), response.text
    await get_cacheable(paper, "notes", text=f"{word}i")
    lines = f'{{"id": "{unique("n")}", "text": "{word}i"}}\n'
    imported = await paper.http.post(
        "notes/import", content=lines, headers={"content-type": "application/x-ndjson"}
    )
    assert imported.is_success, imported.text
    assert await is_outdated(paper, "notes", text=f"{word}i")


async def test_a_write_at_another_replica_invalidates_results_of_this_one(
    paper: Paper, other: Paper, word: str
) -> None:
    id_ = unique("a")
    await paper.put(id_, title=word)
    await get_cacheable(paper, title=word)
    await other.inc(id_)
    assert await is_outdated(paper, title=word)
    assert (await get_page(paper, title=word)).json()["items"][0]["hits"] == 1


def once(step: Step) -> Step:
    """Return a step that runs only the first time."""
    steps = [step]

    async def run() -> None:
        while steps:
            await steps.pop()()

    return run


async def test_a_query_that_is_registered_during_a_write_is_not_missed(
    paper: Paper, other: Paper, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer has read the registrations; a reader registers and reads; the write is applied."""
    id_ = await note(paper, "before")
    register = once(lambda: get_cacheable(paper, "notes", text=word))
    registered = other.caches.sketch.registrations

    async def register_after(partition: Partition, since: int) -> Any:
        numbers = await registered(partition, since)
        await register()
        return numbers

    monkeypatch.setattr(other.caches.sketch, "registrations", register_after)
    await note(other, word, id_)
    assert await is_outdated(paper, "notes", text=word)


async def test_a_result_is_registered_before_it_is_read(
    paper: Paper, other: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A complete write comes just before the registration, so the answer must include it."""
    report = paper.caches.sketch.report_query

    async def is_cacheable() -> bool:
        """Use a new text each time: an answer that the write has delayed is not cacheable."""
        text = unique("w")
        write = once(lambda: note(other, text))

        async def report_after_a_write(
            partition: Partition, key: str, ttl_s: float, schema: str
        ) -> CacheGrant:
            await write()
            return await report(partition, key, ttl_s, schema)

        with monkeypatch.context() as patch:
            patch.setattr(paper.caches.sketch, "report_query", report_after_a_write)
            answer = await get_page(paper, "notes", text=text)
        assert ids(answer) or await is_outdated(paper, "notes", text=text)
        return "portolan-expires" in answer.headers

    await eventually(is_cacheable)


async def test_a_before_image_counts_only_without_concurrent_writes(
    paper: Paper, other: Paper, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer has read the object; another one moves it into a result, which is cached."""
    id_ = await note(paper, f"{word}1")
    await get_cacheable(paper, "notes", text=f"{word}9")
    await note(other, "any")  # it has registered a query now, and will check it

    async def move() -> None:
        await note(paper, f"{word}2", id_)
        assert ids(await get_cacheable(paper, "notes", text=f"{word}2")) == [id_]
        assert not await is_outdated(paper, "notes", text=f"{word}2")

    [system] = other.running.systems_of(paper.database, "notes")
    store = other.running.mediator.systems.get(system)
    write, first = store.write, once(move)

    async def write_after_a_move(calls: Any, token: str) -> Any:
        await first()
        return await write(calls, token)

    monkeypatch.setattr(store, "write", write_after_a_move)
    await note(other, f"{word}3", id_)
    assert ids(await get_page(paper, "notes", text=f"{word}2")) == []
    assert await is_outdated(paper, "notes", text=f"{word}2")


async def test_a_retry_of_an_unended_write_is_acknowledged_after_recovery(
    paper: Paper, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await note(paper, word)
    await get_cacheable(paper, "notes", text=word)
    headers = {"idempotency-key": unique("key"), "content-type": "application/json"}

    async def fail(*_: Any, **__: Any) -> None:
        raise Unavailable("killed", system="the test")

    with monkeypatch.context() as patch:
        patch.setattr(paper.caches.guard, "end", fail)
        first = await paper.http.put(f"notes/{id_}", json={"text": "x"}, headers=headers)
        assert first.status_code == 503
    assert not await is_outdated(paper, "notes", text=word)
    retry = await paper.http.put(f"notes/{id_}", json={"text": "x"}, headers=headers)
    assert retry.is_success
    assert retry.headers["idempotency-replayed"] == "true"
    assert await is_outdated(paper, "notes", text=word)


async def test_an_orphaned_write_invalidates_all_results(
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    word: str,
) -> None:
    settings = CacheSettings(write_lease_s=0.5, cache_queries=1)
    async with paper_on(own_systems, own_catalogue, redis_config.url, settings) as paper:
        await get_cacheable(paper, "notes", text=word)
        excess = await get_page(paper, "notes", text="another")
        assert "portolan-expires" not in excess.headers
        await paper.caches.guard.begin(paper.database, [CacheKey("notes", "a", "main")])

        async def recovered() -> bool:
            return await is_outdated(paper, "notes", text=word)

        await eventually(recovered)

        async def has_room() -> bool:
            answer = await get_page(paper, "notes", text="another")
            return "portolan-expires" in answer.headers

        await eventually(has_room)


async def test_a_class_that_purges_first_purges_results_of_queries(
    paper: Paper, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the write is acknowledged; a write that never ends invalidates all results."""
    purged: list[str] = []

    async def purge(partition: Partition, keys: Sequence[str]) -> None:
        assert await is_outdated(paper, "notes", text=word), "it is in the filter before"
        purged.extend(keys)

    key = key_of_query("notes", canonical_query([("text", word)]))
    monkeypatch.setattr(paper.caches.guard, "purge_first", purge)
    await get_cacheable(paper, "notes", text=word)
    id_ = await note(paper, word)
    assert purged == [f"notes/{id_}#main", key]
    purged.clear()
    await get_cacheable(paper, "notes", text=word)
    await paper.caches.guard.invalidate_results(paper.database, "notes")
    assert key in purged
