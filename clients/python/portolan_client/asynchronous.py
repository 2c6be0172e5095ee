"""Clients for programs on asyncio; `portolan_client.blocking` describes the same interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from portolan_client import filtered_writes, objects, operations, queries, schemas
from portolan_client.calls import Call, JsonObject
from portolan_client.changes import ENDS, SILENCE_S, Change, Feed
from portolan_client.connecting import (
    Credential,
    admin_url,
    data_url,
    http_options,
    pinned_headers,
    reply_of,
    request_of,
)
from portolan_client.filtered_writes import WriteSummary
from portolan_client.objects import Read
from portolan_client.problems import NotFound, TransactionAborted
from portolan_client.queries import Page
from portolan_client.retries import NO_ANSWER, Attempts, Retries, pauses_s
from portolan_client.transactions import FIRST_PAUSE_S, MAX_PAUSE_S, Transaction

__all__ = ["AsyncAdminClient", "AsyncClient", "AsyncTransaction"]

P = ParamSpec("P")
T = TypeVar("T")


class _AsyncConnection:
    def __init__(
        self,
        url: str,
        credential: Credential | None,
        timeout_s: float,
        headers: Mapping[str, str] | None,
        transport: httpx.AsyncBaseTransport | None,
        retries: Retries,
    ) -> None:
        self._retries = retries
        options = http_options(url, credential, timeout_s, headers)
        self._http = httpx.AsyncClient(**options, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send a request, with retries where they are safe, and return its result.

        Raises:
            Problem: The service refused.
            Unreachable: No reply came.
        """
        attempts = Attempts(call, self._retries)
        while True:
            try:
                reply = reply_of(await self._http.send(request_of(self._http, call)))
                pause = attempts.pause_after(reply)
                if pause is None:
                    return call.result(reply)
            except NO_ANSWER as failure:
                pause = attempts.pause_after_failure(failure)
            await asyncio.sleep(pause)


def _sending(
    build: Callable[P, Call[T]],
) -> Callable[Concatenate[_AsyncConnection, P], Coroutine[Any, Any, T]]:
    @wraps(build)
    async def method(self: _AsyncConnection, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.send(build(*args, **kwargs))

    return method


def _paging(
    build: Callable[P, Call[Page]],
) -> Callable[Concatenate[_AsyncConnection, P], AsyncIterator[JsonObject]]:
    @wraps(build)
    async def method(
        self: _AsyncConnection, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[JsonObject]:
        call: Call[Page] | None = build(*args, **kwargs)
        while call is not None:
            page = await self.send(call)
            for item in page.items:
                yield item
            call = page.following

    return method


def _summing(
    build: Callable[P, Call[WriteSummary]],
) -> Callable[Concatenate[_AsyncConnection, P], Coroutine[Any, Any, WriteSummary]]:
    @wraps(build)
    async def method(self: _AsyncConnection, /, *args: P.args, **kwargs: P.kwargs) -> WriteSummary:
        summary = await self.send(build(*args, **kwargs))
        while summary.following is not None:
            summary += await self.send(summary.following)
        return summary

    return method


class AsyncClient(_AsyncConnection):
    """Reads and writes one database. Used as ``async with``, or closed by `close`.

    Its arguments and methods are those of `Client`.
    """

    def __init__(
        self,
        base_url: str,
        database: str,
        *,
        credential: Credential | None = None,
        timeout_s: float = 30.0,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        retries: Retries = Retries(),  # noqa: B008 - immutable
        schema_version: int | None = None,
    ) -> None:
        url, pinned = data_url(base_url, database), pinned_headers(headers, schema_version)
        super().__init__(url, credential, timeout_s, pinned, transport, retries)

    get = _sending(objects.get)
    get_many = _sending(objects.get_many)
    put = _sending(objects.put)
    create = _sending(objects.create)
    patch = _sending(objects.patch)
    update = _sending(objects.update)
    patch_by = _sending(objects.patch_by)
    update_by = _sending(objects.update_by)
    delete = _sending(objects.delete)
    query = _sending(queries.query)
    iterate = _paging(queries.query)
    patch_where = _summing(filtered_writes.patch_where)
    update_where = _summing(filtered_writes.update_where)
    delete_where = _summing(filtered_writes.delete_where)
    batch = _sending(operations.batch)
    commit = _sending(operations.commit)

    async def transact(
        self, work: Callable[[AsyncTransaction], Awaitable[T]], *, attempts: int = 10
    ) -> T:
        """Await `work` and commit its operations; retry if the commit is aborted.

        Raises:
            TransactionAborted: The last attempt was aborted.
            Problem: One of the writes was refused, so none was executed.
        """
        pauses = pauses_s(attempts - 1, FIRST_PAUSE_S, MAX_PAUSE_S)
        transaction = AsyncTransaction(self)
        while True:
            result = await work(transaction)
            try:
                await self.send(transaction.commit())
            except TransactionAborted:
                pause = next(pauses, None)
                if pause is None:
                    raise
            else:
                return result
            await asyncio.sleep(pause)
            transaction = AsyncTransaction(self, is_repeated=True)

    async def changes(
        self, *, class_name: str | None = None, after: str | None = None, reconnects: int = 10
    ) -> AsyncIterator[Change]:
        """Yield changes as they happen, without an end; see `Client.changes`."""
        feed = Feed(class_name, after, reconnects)
        while True:
            cause: Exception | None = None
            try:
                async for change in self._stream(feed):
                    yield change
            except ENDS as error:
                cause = error
            await asyncio.sleep(feed.pause_s(cause))

    async def _stream(self, feed: Feed) -> AsyncIterator[Change]:
        call = feed.request()
        request = request_of(self._http, call)
        request.extensions["timeout"]["read"] = SILENCE_S
        response = await self._http.send(request, stream=True)
        try:
            if not response.is_success:
                await response.aread()
                call.result(reply_of(response))
            async for chunk in response.aiter_bytes():
                for change in feed.receive(chunk):
                    yield change
        finally:
            await response.aclose()


class AsyncTransaction(Transaction):
    """One attempt of `AsyncClient.transact`."""

    def __init__(self, client: AsyncClient, *, is_repeated: bool = False) -> None:
        super().__init__(is_repeated=is_repeated)
        self._client = client

    async def get(self, class_name: str, id_: str, *, fields: Iterable[str] | None = None) -> Read:
        """Read an object; the commit is aborted if it changes, or appears, until then.

        Raises:
            NotFound: It is absent.
        """
        recorded = self.recall(class_name, id_, fields)
        if recorded is not None:
            return recorded
        try:
            read = await self._client.send(self.read(class_name, id_, fields))
        except NotFound as absent:
            self.record(class_name, id_, fields, absent)
            raise
        self.record(class_name, id_, fields, read)
        return read


class AsyncAdminClient(_AsyncConnection):
    """Declares schemas, by the admin API. Used as ``async with``, or closed by `close`.

    Its arguments and methods are those of `AdminClient`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        credential: Credential | None = None,
        timeout_s: float = 120.0,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        retries: Retries = Retries(),  # noqa: B008 - immutable
    ) -> None:
        super().__init__(admin_url(base_url), credential, timeout_s, headers, transport, retries)

    schema = _sending(schemas.schema)
    put_schema = _sending(schemas.put_schema)
    drop_database = _sending(schemas.drop_database)
