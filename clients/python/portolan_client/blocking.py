"""Clients for programs that block until each reply."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar

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

__all__ = ["AdminClient", "Client", "ClientTransaction"]

P = ParamSpec("P")
T = TypeVar("T")


class _Connection:
    def __init__(
        self,
        url: str,
        credential: Credential | None,
        timeout_s: float,
        headers: Mapping[str, str] | None,
        transport: httpx.BaseTransport | None,
        retries: Retries,
    ) -> None:
        self._retries = retries
        options = http_options(url, credential, timeout_s, headers)
        self._http = httpx.Client(**options, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send a request, with retries where they are safe, and return its result.

        Raises:
            Problem: The service refused.
            Unreachable: No reply came.
        """
        attempts = Attempts(call, self._retries)
        while True:
            try:
                reply = reply_of(self._http.send(request_of(self._http, call)))
                pause = attempts.pause_after(reply)
                if pause is None:
                    return call.result(reply)
            except NO_ANSWER as failure:
                pause = attempts.pause_after_failure(failure)
            time.sleep(pause)


def _sending(build: Callable[P, Call[T]]) -> Callable[Concatenate[_Connection, P], T]:
    """Return a method that sends the call that a function builds, and has its signature."""

    @wraps(build)
    def method(self: _Connection, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.send(build(*args, **kwargs))

    return method


def _paging(
    build: Callable[P, Call[Page]],
) -> Callable[Concatenate[_Connection, P], Iterator[JsonObject]]:
    @wraps(build)
    def method(self: _Connection, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[JsonObject]:
        call: Call[Page] | None = build(*args, **kwargs)
        while call is not None:
            page = self.send(call)
            yield from page.items
            call = page.following

    return method


def _summing(
    build: Callable[P, Call[WriteSummary]],
) -> Callable[Concatenate[_Connection, P], WriteSummary]:
    @wraps(build)
    def method(self: _Connection, /, *args: P.args, **kwargs: P.kwargs) -> WriteSummary:
        summary = self.send(build(*args, **kwargs))
        while summary.following is not None:
            summary += self.send(summary.following)
        return summary

    return method


class Client(_Connection):
    """Reads and writes one database. Used as ``with``, or closed by `close`.

    A request is retried after a lost connection, and when the service asks for it by Retry-After.
    Each write has an Idempotency-Key, so that it takes effect once.

    Args:
        base_url: Of the data API, without ``/v1``.
        database: Its name.
        credential: A key or a token, or a function that returns one.
        timeout_s: For each step of a request (seconds).
        headers: Sent with each request.
        transport: Sends the requests instead of the network: a cache, for example.
        retries: How often a request is retried.
        schema_version: The version of the schema whose names all requests use, however fields are
            renamed later; None: the version in force.
    """

    def __init__(
        self,
        base_url: str,
        database: str,
        *,
        credential: Credential | None = None,
        timeout_s: float = 30.0,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
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

    def transact(self, work: Callable[[ClientTransaction], T], *, attempts: int = 10) -> T:
        """Call `work` and commit its operations; retry if the commit is aborted.

        Raises:
            TransactionAborted: The last attempt was aborted.
            Problem: One of the writes was refused, so none was executed.
        """
        pauses = pauses_s(attempts - 1, FIRST_PAUSE_S, MAX_PAUSE_S)
        transaction = ClientTransaction(self)
        while True:
            result = work(transaction)
            try:
                self.send(transaction.commit())
            except TransactionAborted:
                pause = next(pauses, None)
                if pause is None:
                    raise
            else:
                return result
            time.sleep(pause)
            transaction = ClientTransaction(self, is_repeated=True)

    def changes(
        self, *, class_name: str | None = None, after: str | None = None, reconnects: int = 10
    ) -> Iterator[Change]:
        """Yield changes as they happen, without an end.

        After a lost connection it resumes where it was; a change may then be repeated, with the
        same `id`.

        Args:
            class_name: Changes of one class only.
            after: A position (`Change.position`), or ``beginning``; None: from now on.
            reconnects: Attempts in a row that may fail, for about a minute by default.

        Raises:
            Gone: The changes after the position are no longer kept: read the objects again.
            Unreachable: The service does not answer.
        """
        feed = Feed(class_name, after, reconnects)
        while True:
            cause: Exception | None = None
            try:
                yield from self._stream(feed)
            except ENDS as error:
                cause = error
            time.sleep(feed.pause_s(cause))

    def _stream(self, feed: Feed) -> Iterator[Change]:
        call = feed.request()
        request = request_of(self._http, call)
        request.extensions["timeout"]["read"] = SILENCE_S
        response = self._http.send(request, stream=True)
        try:
            if not response.is_success:
                response.read()
                call.result(reply_of(response))
            for chunk in response.iter_bytes():
                yield from feed.receive(chunk)
        finally:
            response.close()


class ClientTransaction(Transaction):
    """One attempt of `Client.transact`."""

    def __init__(self, client: Client, *, is_repeated: bool = False) -> None:
        super().__init__(is_repeated=is_repeated)
        self._client = client

    def get(self, class_name: str, id_: str, *, fields: Iterable[str] | None = None) -> Read:
        """Read an object; the commit is aborted if it changes, or appears, until then.

        Raises:
            NotFound: It is absent.
        """
        recorded = self.recall(class_name, id_, fields)
        if recorded is not None:
            return recorded
        try:
            read = self._client.send(self.read(class_name, id_, fields))
        except NotFound as absent:
            self.record(class_name, id_, fields, absent)
            raise
        self.record(class_name, id_, fields, read)
        return read


class AdminClient(_Connection):
    """Declares schemas, by the admin API. Used as ``with``, or closed by `close`.

    Args:
        base_url: Of the admin API, without ``/admin/v1``.
        credential: A key or a token, or a function that returns one.
        timeout_s: For each step of a request (seconds).
        headers: Sent with each request.
        transport: Sends the requests instead of the network.
        retries: How often a request is retried.
    """

    def __init__(
        self,
        base_url: str,
        *,
        credential: Credential | None = None,
        timeout_s: float = 120.0,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        retries: Retries = Retries(),  # noqa: B008 - immutable
    ) -> None:
        super().__init__(admin_url(base_url), credential, timeout_s, headers, transport, retries)

    schema = _sending(schemas.schema)
    put_schema = _sending(schemas.put_schema)
    drop_database = _sending(schemas.drop_database)
