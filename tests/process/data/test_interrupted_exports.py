"""Interrupted exports: at a store that does not answer, and after a disconnect of the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mediator.base.errors import Unavailable
from tests.process.caching.newspaper import Newspaper, newspaper
from tests.process.operation.asgi_driver import send_raw


@pytest.fixture
async def paper() -> AsyncIterator[Newspaper]:
    async with newspaper() as opened:
        yield opened


async def test_an_interrupted_export_has_no_end(paper: Newspaper) -> None:
    for number in range(5):
        await paper.put(f"a{number}")
    query = paper.plane.query
    calls: list[int] = []

    async def fail_later(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise Unavailable("gone", system="redis")
        return await query(*args, **kwargs)

    paper.plane.query = fail_later  # type: ignore[method-assign] # the store goes away midway
    answer = await send_raw(paper.app, "GET", b"/v1/news/articles/export")
    assert (answer.status, answer.complete) == (200, False)
    assert len(answer.body.splitlines()) == 3


async def test_an_export_whose_client_has_gone_reads_no_further(paper: Newspaper) -> None:
    for number in range(20):
        await paper.put(f"a{number}")
    query = paper.plane.query
    pages: list[int] = []

    async def count_pages(*args: Any, **kwargs: Any) -> Any:
        pages.append(1)
        for _ in range(5):  # as a store yields to other tasks
            await asyncio.sleep(0)
        return await query(*args, **kwargs)

    paper.plane.query = count_pages  # type: ignore[method-assign] # pages are counted
    answer = await send_raw(paper.app, "GET", b"/v1/news/articles/export", stays=False)
    assert (answer.status, answer.complete) == (200, False)
    assert len(answer.body.splitlines()) == 3, "later pages are not sent"
    assert len(pages) <= 2, "one page may have been under way"
