"""A client of either kind behind one asynchronous interface; the blocking one has a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar, cast

import httpx

from portolan_client import AsyncClient, AsyncTransaction, Change, Client, ClientTransaction

__all__ = ["KINDS", "NEWS", "Kind", "follow", "next_change", "open_client"]

Kind: TypeAlias = Literal["blocking", "asynchronous"]
KINDS: tuple[Kind, ...] = ("blocking", "asynchronous")

T = TypeVar("T")
WITHIN_S = 120
NEWS = {
    "classes": {
        "articles": {
            "fields": {
                "title": {"type": "string"},
                "hits": {"type": "integer", "index": True, "group": "hits"},
            }
        }
    }
}
"""The newspaper's schema, as far as the examples of the documentation use it."""

P = ParamSpec("P")
_END: Any = object()

# A transaction holds a thread while its reads need more: asyncio's own pool could run out.
_THREADS = ThreadPoolExecutor(32)


def _in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
    loop = asyncio.get_running_loop()
    return loop.run_in_executor(_THREADS, partial(call, *args, **kwargs))


@asynccontextmanager
async def open_client(
    kind: Kind,
    base_url: str,
    database: str,
    transport: Callable[[], httpx.BaseTransport | httpx.AsyncBaseTransport] | None = None,
    **options: Any,
) -> AsyncIterator[AsyncClient]:
    """Open a client; `transport` makes a transport for its kind."""
    if transport is not None:
        options["transport"] = transport()
    if kind == "asynchronous":
        async with AsyncClient(base_url, database, **options) as client:
            yield client
    else:
        with Client(base_url, database, **options) as client:
            yield cast("AsyncClient", _InThread(client))


class _InThread:
    """A blocking client with awaitable methods."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        if name in {"iterate", "changes"}:
            return lambda *args, **kwargs: _iterate(method(*args, **kwargs))

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await _in_thread(method, *args, **kwargs)

        return call

    async def transact(self, work: Callable[[AsyncTransaction], Awaitable[T]], **options: Any) -> T:
        loop = asyncio.get_running_loop()

        def run_work(transaction: ClientTransaction) -> T:
            proxy = cast("AsyncTransaction", _TransactionInThread(transaction))
            future = asyncio.run_coroutine_threadsafe(_await(work(proxy)), loop)
            return future.result()

        return await _in_thread(lambda: self._client.transact(run_work, **options))


class _TransactionInThread:
    def __init__(self, transaction: ClientTransaction) -> None:
        self.add = transaction.add
        self._transaction = transaction

    async def get(self, *args: Any, **kwargs: Any) -> Any:
        return await _in_thread(self._transaction.get, *args, **kwargs)


async def _await(work: Awaitable[T]) -> T:
    return await work


async def _iterate(items: Iterator[T]) -> AsyncIterator[T]:
    try:
        while (item := await _in_thread(next, items, _END)) is not _END:
            yield item
    finally:
        await _in_thread(cast("Any", items).close)


def follow(shop: AsyncClient, **options: Any) -> aclosing[Any]:
    """Follow the changes, and stop at the end of the block."""
    return aclosing(cast("Any", shop.changes(**options)))


async def next_change(changes: AsyncIterator[Change]) -> Change:
    async with asyncio.timeout(WITHIN_S):
        return await anext(changes)
