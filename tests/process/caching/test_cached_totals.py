"""Cached results with a total or an aggregate: any counted object can outdate them."""

from __future__ import annotations

import httpx

from sketch.client import CoherentClient
from sketch.protocol.keys import canonical_query, key_of_query
from tests.process.caching.cached_paper import Paper
from tests.process.service import unique


async def get_count(paper: Paper, word: str, **parameters: str) -> httpx.Response:
    answer = await paper.http.get(f"articles?{_query(word, **parameters)}")
    assert answer.status_code == 200, answer.text
    return answer


def _query(word: str, **parameters: str) -> str:
    """Return a query for a total and the first id."""
    members = {"title": word, "fields": "id", "limit": "1", "count": "exact", **parameters}
    return canonical_query(members.items())


async def is_outdated(paper: Paper, word: str) -> bool:
    return (await paper.filter()).contains(key_of_query("articles", _query(word)))


async def test_objects_beyond_the_page_outdate_a_total(paper: Paper) -> None:
    word, ids = unique("w"), [f"{unique('a')}{number}" for number in range(3)]
    for id_ in ids:
        await paper.put(id_, title=word)
    first = await get_count(paper, word)
    assert "portolan-expires" in first.headers
    assert first.json()["total"] == 3
    await paper.put(unique("z"), title=word)
    assert await is_outdated(paper, word)
    assert (await get_count(paper, word)).json()["total"] == 4


async def test_a_total_is_outdated_by_a_leaving_object_and_not_by_an_update(paper: Paper) -> None:
    word, id_ = unique("w"), unique("a")
    await paper.put(id_, title=word)
    await paper.put(unique("b"), title=word)
    assert "portolan-expires" in (await get_count(paper, word)).headers
    await paper.inc(id_)
    assert not await is_outdated(paper, word)
    await paper.put(id_, title=unique("w"))
    assert await is_outdated(paper, word)
    assert (await get_count(paper, word)).json()["total"] == 1


async def test_an_estimate_is_revalidated(paper: Paper) -> None:
    """No write shows that the statistics of a system have changed."""
    word = unique("w")
    for _ in range(2):
        await paper.put(unique("a"), title=word)
    answer = await get_count(paper, word, count="estimated")
    assert answer.headers["cache-control"] == "no-cache"
    assert "portolan-expires" not in answer.headers
    assert "etag" in answer.headers


async def test_clients_show_the_total(paper: Paper) -> None:
    word = unique("w")
    for _ in range(3):
        await paper.put(unique("a"), title=word)
    transport = httpx.ASGITransport(paper.api)
    async with CoherentClient("http://test", paper.database, transport=transport) as client:
        parameters = {"title": word, "limit": 1}
        result = await client.query("articles", {**parameters, "count": "exact"})
        assert (len(result.items), result.total, result.count) == (1, 3, "exact")
        remaining = await client.query("articles", {**parameters, "limit": 5, "after": result.next})
        assert (len(remaining.items), remaining.total) == (2, None)


COUNT = '{"compute":{"n":{"count":"*"}}}'
SUM = '{"compute":{"n":{"count":"*"},"hits":{"sum":"hits"}}}'


async def test_an_aggregate_is_outdated_by_changes_of_its_inputs(paper: Paper) -> None:
    word, id_ = unique("w"), unique("a")
    await paper.put(id_, title=word)
    await paper.put(unique("b"), title=word)
    count, total = (canonical_query({"title": word, "aggregate": a}.items()) for a in (COUNT, SUM))

    async def read(query: str) -> object:
        answer = await paper.http.get(f"articles?{query}")
        assert "portolan-expires" in answer.headers, answer.text
        return answer.json()["items"]

    async def are_outdated() -> list[bool]:
        snapshot = await paper.filter()
        return [snapshot.contains(key_of_query("articles", query)) for query in (count, total)]

    assert [await read(count), await read(total)] == [[{"n": 2}], [{"n": 2, "hits": 0}]]
    await paper.inc(id_)
    assert await are_outdated() == [False, True]
    assert await read(total) == [{"n": 2, "hits": 1}]
    await paper.put(id_, title=unique("w"))
    assert await are_outdated() == [True, True]
    assert [await read(count), await read(total)] == [[{"n": 1}], [{"n": 1, "hits": 0}]]
