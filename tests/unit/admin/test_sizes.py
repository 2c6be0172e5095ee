"""Sizes of classes on the pages: cached estimates, and never an error of the page."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from app.admin.pages.sizes import MAX_CLASSES, Sizes

PROBLEM = {"type": "/problems/advisory-only", "detail": "It holds no data."}


class DataApi:
    """Answers estimates: for the class `gone` with a problem, for `away` never."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.active = self.max_active = 0

    async def __call__(self, scope: Any, _: Any, send: Any) -> None:
        self.paths.append(scope["path"])
        self.active += 1
        self.max_active = max(self.max_active, self.active)
        await asyncio.sleep(0)
        if scope["path"].endswith("away"):
            await asyncio.Event().wait()
        self.active -= 1
        is_gone = scope["path"].endswith("gone")
        body = orjson.dumps(PROBLEM if is_gone else {"items": [], "total": len(self.paths)})
        headers = [(b"content-length", str(len(body)).encode())]
        status = 409 if is_gone else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture(autouse=True)
def _long_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stalls for a second must not look like a failed system."""
    monkeypatch.setattr("app.admin.pages.sizes._TIMEOUT_S", 60.0)


def request(data: DataApi) -> Any:
    state = SimpleNamespace(data=data)
    return SimpleNamespace(app=SimpleNamespace(state=state), headers={}, scope={})


async def test_a_class_is_counted_once_for_a_while() -> None:
    data, sizes = DataApi(), Sizes()
    assert await sizes.of(request(data), ["news.articles"]) == {"news.articles": 1}
    estimates = await sizes.of(request(data), ["news.articles", "news.gone"])
    assert estimates == {"news.articles": 1, "news.gone": None}
    await sizes.of(request(data), ["news.gone"])
    assert data.paths == ["/v1/news/articles", "/v1/news/gone"]


async def test_a_page_does_not_wait_for_an_unavailable_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.admin.pages.sizes._TIMEOUT_S", 0.05)
    assert await Sizes().of(request(DataApi()), ["news.away"]) == {"news.away": None}


async def test_queries_are_bounded_in_number_and_at_once() -> None:
    data, sizes = DataApi(), Sizes()
    estimates = await sizes.of(request(data), [f"news.c{n}" for n in range(MAX_CLASSES + 50)])
    assert len(estimates) == len(data.paths) == MAX_CLASSES
    assert data.max_active <= 4


async def test_the_number_of_cached_sizes_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.admin.pages.sizes._MAX_ESTIMATES", 2)
    data, sizes = DataApi(), Sizes()
    for names in (["news.a", "news.b"], ["news.c"], ["news.b", "news.c"], ["news.a"]):
        await sizes.of(request(data), names)
    assert data.paths == ["/v1/news/a", "/v1/news/b", "/v1/news/c", "/v1/news/a"]


async def test_without_a_data_api_nothing_is_known() -> None:
    no_api: Any = None
    assert await Sizes().of(request(no_api), ["news.articles"]) == {"news.articles": None}
