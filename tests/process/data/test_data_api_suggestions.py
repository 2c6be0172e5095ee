"""Problems of the data API end with a suggestion of the name that may be meant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.process.caching.newspaper import MERGE, UPDATE, Newspaper, newspaper


@pytest.fixture
async def paper() -> AsyncIterator[Newspaper]:
    async with newspaper() as opened:
        await opened.put("a1")
        yield opened


def suggestions(document: dict[str, Any]) -> list[str]:
    details = [error["detail"] for error in document.get("errors", [document])]
    return [detail.partition("; did you mean ")[2] for detail in details]


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("articles?titel=x", "title"),
        ("articles?hitss.ge=3", "hits"),
        ("articles?hits.gte=3", "ge"),
        ("articles?hits.betwen=3,4", "between"),
        ("articles?ordr=-hits", "order"),
        ("articles?limt=3", "limit"),
        ("articles?order=-hist", "hits"),
        ("articles?fields=titel", "title"),
        ("articles?ids=a1&fields=titel", "title"),
        ("articles/a1?fields=titel", "title"),
        ("articles/a1?feilds=title", "fields"),
        ("articles/a1?max_agee=3", "max_age"),
        ('articles?filter={"eqq":["hits",1]}', "eq"),
        ('articles?filter={"eq":["hitz",1]}', "hits"),
        ("article/a1", "articles"),
        ("Articles/a1", "articles"),
        ("sketch?clas=articles", "class"),
        ("changes?class=artcles", ""),
    ],
)
async def test_reads(paper: Newspaper, address: str, meant: str) -> None:
    answer = await paper.client.get(address)
    assert answer.is_client_error or answer.status_code == 503, answer.text
    assert suggestions(answer.json()) == [f'"{meant}"?' if meant else ""]


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ({"filtr": {}}, "filter"),
        ({"filter": {"gee": ["hits", 1]}}, "ge"),
        ({"filter": {"not": {"exists": "titel"}}}, "title"),
        ({"order": [["hist", "desc"]]}, "hits"),
        ({"fields": ["titel"]}, "title"),
        ({"aggregate": {"compute": {"n": {"cuont": "*"}}}}, "count"),
        ({"aggregate": {"compute": {"n": {"sum": "hist"}}}}, "hits"),
        ({"aggregate": {"comptue": {}}}, "compute"),
        ({"aggregate": {"compute": {"sales": {"count": "*"}}}, "order": ["sale"]}, "sales"),
    ],
)
async def test_queries(paper: Newspaper, query: dict[str, Any], meant: str) -> None:
    answer = await paper.client.post("articles/query", json=query)
    assert answer.status_code == 400
    assert suggestions(answer.json()) == [f'"{meant}"?']
    assert answer.json()["detail"].endswith(f'; did you mean "{meant}"?')


async def test_bodies(paper: Newspaper) -> None:
    put = await paper.client.put("articles/a1", json={"title": "1", "pirce": "3"})
    merged = await paper.patch("articles/a1", MERGE, {"titel": "2"})
    updated = await paper.patch("articles/a1", UPDATE, {"hist": {"inc": 1}})
    operator = await paper.patch("articles/a1", UPDATE, {"hits": {"icn": 1}})
    meant = {"price": put, "title": merged, "hits": updated, "inc": operator}
    for name, answer in meant.items():
        assert answer.status_code == 400
        assert suggestions(answer.json()) == [f'"{name}"?']


async def test_batches(paper: Newspaper) -> None:
    operations = [
        {"op": "get", "class": "articls", "id": "a1"},
        {"op": "put", "class": "articles", "id": "a1", "body": {"titel": "1"}},
        {"op": "gett", "class": "articles", "id": "a1"},
    ]
    answer = await paper.client.post("batch", json={"operations": operations})
    ends = [suggestions(result["problem"]) for result in answer.json()]
    assert ['"articles"?'] in ends
    assert any('"title"?' in end for end in ends)
    assert ['"get"?'] in ends


async def test_names_that_are_long_or_many_are_refused_as_before(paper: Newspaper) -> None:
    long = await paper.client.put("articles/a1", json={"title": "1", "x" * 3_000: 1})
    assert long.status_code == 400
    assert suggestions(long.json()) == [""]
    many = await paper.client.get("articles/a1?fields=" + ",".join(["titel"] * 5_000))
    assert suggestions(many.json()) == ['"title"?'] * 100
