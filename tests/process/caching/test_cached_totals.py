"""Cached results that have a total, or are groups: any object that is counted may outdate them."""

from __future__ import annotations

import httpx

from sketch.client import CoherentClient
from sketch.protocol.keys import canonical_query, key_of_query
from tests.process.caching.cached_paper import Paper
from tests.process.service import unique


async def counted(paper: Paper, word: str, **parameters: str) -> httpx.Response:
    answer = await paper.http.get(f"articles?{_query(word, **parameters)}")
    assert answer.status_code == 200, answer.text
    return answer


def _query(word: str, **parameters: str) -> str:
    """Return a query for one id of those that are counted."""
    shown = {"title": word, "fields": "id", "limit": "1", "count": "exact", **parameters}
    return canonical_query(shown.items())


async def outdated(paper: Paper, word: str) -> bool:
    return (await paper.filter()).contains(key_of_query("articles", _query(word)))


async def test_objects_beyond_the_page_outdate_a_total(paper: Paper) -> None:
    word, ids = unique("w"), [f"{unique('a')}{number}" for number in range(3)]
    for id_ in ids:
        await paper.put(id_, title=word)
    first = await counted(paper, word)
    assert "portolan-expires" in first.headers
    assert first.json()["total"] == 3
    await paper.put(unique("z"), title=word)
    assert await outdated(paper, word)
    assert (await counted(paper, word)).json()["total"] == 4


async def test_a_total_is_outdated_by_what_leaves_and_not_by_what_stays(paper: Paper) -> None:
    word, id_ = unique("w"), unique("a")
    await paper.put(id_, title=word)
    await paper.put(unique("b"), title=word)
    assert "portolan-expires" in (await counted(paper, word)).headers
    await paper.inc(id_)
    assert not await outdated(paper, word)
    await paper.put(id_, title=unique("w"))
    assert await outdated(paper, word)
    assert (await counted(paper, word)).json()["total"] == 1


async def test_an_estimate_is_revalidated(paper: Paper) -> None:
    """No write says when statistics of a system have changed."""
    word = unique("w")
    for _ in range(2):
        await paper.put(unique("a"), title=word)
    answer = await counted(paper, word, count="estimated")
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
        rest = await client.query("articles", {**parameters, "limit": 5, "after": result.next})
        assert (len(rest.items), rest.total) == (2, None)


COUNT = '{"compute":{"n":{"count":"*"}}}'
SUM = '{"compute":{"n":{"count":"*"},"hits":{"sum":"hits"}}}'


async def test_an_aggregate_is_outdated_by_what_it_is_computed_of(paper: Paper) -> None:
    word, id_ = unique("w"), unique("a")
    await paper.put(id_, title=word)
    await paper.put(unique("b"), title=word)
    count, total = (canonical_query({"title": word, "aggregate": a}.items()) for a in (COUNT, SUM))

    async def read(query: str) -> object:
        answer = await paper.http.get(f"articles?{query}")
        assert "portolan-expires" in answer.headers, answer.text
        return answer.json()["items"]

    async def outdated_ones() -> list[bool]:
        snapshot = await paper.filter()
        return [snapshot.contains(key_of_query("articles", query)) for query in (count, total)]

    assert [await read(count), await read(total)] == [[{"n": 2}], [{"n": 2, "hits": 0}]]
    await paper.inc(id_)
    assert await outdated_ones() == [False, True]
    assert await read(total) == [{"n": 2, "hits": 1}]
    await paper.put(id_, title=unique("w"))
    assert await outdated_ones() == [True, True]
    assert [await read(count), await read(total)] == [[{"n": 1}], [{"n": 1, "hits": 0}]]
