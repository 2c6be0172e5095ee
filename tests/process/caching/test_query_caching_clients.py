"""Results of queries in the cache of the Python client."""

from __future__ import annotations

import httpx

from sketch.client import CoherentClient, Source
from tests.faults.conditions import eventually
from tests.process.caching.cached_paper import Paper, note
from tests.process.service import unique


def client(paper: Paper, delta_s: float) -> CoherentClient:
    transport = httpx.ASGITransport(paper.api)
    return CoherentClient("http://test", paper.database, delta_s=delta_s, transport=transport)


async def test_a_client_reads_results_again_without_a_request(paper: Paper, word: str) -> None:
    ids_ = [unique("a") for _ in range(2)]
    async with client(paper, 30.0) as reader:
        for id_ in ids_:
            await reader.put("articles", id_, {"title": word, "hits": 1})
        await reader.refresh_filter()
        body = {"title": word, "hits.in": [1, 2], "order": "-id"}
        results = [await reader.query("articles", body) for _ in range(2)]
        assert [result.source for result in results] == [Source.ORIGIN, Source.OWN]
        assert [item["id"] for item in results[1].items] == sorted(ids_, reverse=True)
        single = [await reader.query("articles", body, one_by_one=True) for _ in range(2)]
        assert single[1].source is Source.OWN
        assert single[1].items == results[1].items
        await reader.delete("articles", ids_[0])
        remaining = await reader.query("articles", body)
        assert [item["id"] for item in remaining.items] == ids_[1:]


async def test_a_client_sees_what_another_replica_acknowledged_within_its_bound(
    paper: Paper, other: Paper, word: str
) -> None:
    id_ = await note(paper, word)
    async with client(paper, 0.3) as reader:

        async def count_from_its_own_cache() -> bool:
            result = await reader.query("notes", {"text": word})
            return result.source is Source.OWN and len(result.items) == 1

        await eventually(count_from_its_own_cache)
        await other.http.delete(f"notes/{id_}")
        await reader.refresh_filter()
        assert (await reader.query("notes", {"text": word})).items == []
