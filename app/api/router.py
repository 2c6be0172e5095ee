"""The data API as an ASGI application, written out by hand because every microsecond shows.

A request is scanned once, finds its route by splitting its raw path, and is answered in one write,
or by the messages of ASGI. Errors become problems in one place.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Final, TypeAlias

from app.api.addresses import Route
from app.api.calls import Call
from app.api.exchange import Exchange
from app.api.jobs.runs import JobBackend
from app.api.options import DataOptions
from app.api.resources import Directory
from app.api.routes import make_table
from app.coherence.caches import Caches
from app.http.caching import confined
from app.http.cors import CrossOrigin
from app.http.message import (
    ClientGone,
    Header,
    Headers,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    forbid_body,
)
from app.http.negotiation import check_accept
from app.http.problems import (
    INTERNAL,
    METHOD_NOT_ALLOWED,
    PROBLEM_JSON,
    HttpError,
    problem_of,
)
from app.security.data_port import Gate
from mediator.access.metered import Transact
from mediator.base.errors import MediatorError
from mediator.base.observation import Observer, RequestFinished, RequestRefused
from mediator.changes.subscriptions import Subscriptions
from mediator.data_plane.port import DataPlane

__all__ = ["DataApi"]

_log = logging.getLogger("portolan.api")
_VARYING: Final = b"Accept, Prefer"
_NO_GUESSING: Final = (b"x-content-type-options", b"nosniff")
_BODILESS: Final = frozenset({204, 304})
_CLIENT_GONE: Final = 499
Validity: TypeAlias = Callable[[], Awaitable[bool]]


class DataApi:
    """The data API.

    Args:
        plane: Does the operations.
        options: Bounds and keys.
        observe: Is told of every request that was answered.
        subscriptions: Lets clients follow the change feed; None: there is no feed.
        caches: What keeps caches coherent; None: nothing may be cached.
        transact: Carries out transactions; None: there are none.
        job_backend: What jobs need; None: there are none.
        gate: Lets requests in; None: nobody is authenticated, and everything is allowed.
    """

    def __init__(
        self,
        plane: DataPlane,
        options: DataOptions,
        observe: Observer,
        subscriptions: Subscriptions | None = None,
        caches: Caches | None = None,
        transact: Transact | None = None,
        job_backend: JobBackend | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._plane = plane
        self._directory = Directory(plane)
        self._table = make_table(
            self._directory, options, subscriptions, caches, transact, job_backend
        )
        self._gate = gate
        self._cors = CrossOrigin(options.origins)
        self._observe = observe
        self._active: dict[tuple[str, str], int] = {}

    @property
    def active(self) -> Mapping[tuple[str, str], int]:
        """Requests under way, by method and scheme."""
        return self._active

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] != "http":
            raise ValueError(f"the data API does not speak {scope['type']}")
        exchange = Exchange(Request(scope, receive), scope.get("scheme", "http"))
        kind = exchange.kind
        self._active[kind] = self._active.get(kind, 0) + 1
        try:
            await self._serve(exchange, send)
        finally:
            self._active[kind] -= 1
            if self._gate is not None and exchange.access is not None:
                self._gate.leave(exchange.access)

    async def _serve(self, exchange: Exchange, send: Send) -> None:
        request = exchange.request
        try:
            response = await self._answer(exchange)
        except ClientGone:
            self._tell(exchange, _CLIENT_GONE)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets a problem
            response = _refuse(request, error)
            self._note_limit(exchange, error)
        if self._cors.shares and exchange.database:
            self._share(exchange, response)
        _complete(request, response)
        if not _sent_whole(request, response):
            await _send(request, response, send, self._validity(exchange))
        self._tell(exchange, response.status)

    def _validity(self, exchange: Exchange) -> Validity | None:
        """Return what tells whether the credentials of a request are good yet."""
        if self._gate is None or exchange.access is None:
            return None
        field = exchange.request.headers.get(b"authorization")
        return partial(self._gate.holds, exchange.access, field, exchange.request.phases.started)

    async def _answer(self, exchange: Exchange) -> Response:
        request = exchange.request
        address = self._table.find(request.path)
        exchange.enter(address)
        route = address.route
        handler = route.handlers.get(request.method)
        if handler is None:
            return self._options(exchange, route)
        accept = request.headers.get(b"accept")
        if accept is not None and accept != "*/*":
            check_accept(accept, route.offers, *route.streams)
        call = Call(request, self._plane, address.database, address.class_name, address.id)
        if self._gate is not None:
            await self._admit(self._gate, exchange, call, route)
        if route.of_class:
            place = (address.database, address.class_name)
            call.resource = self._directory.known(*place) or await self._directory.find(*place)
        request.phases.end("route")
        response = await handler(call)
        if exchange.access is not None and route.of_class:
            visibility = call.resource.schema.cache.visibility
            response.headers = confined(response.headers, visibility)
        return response

    @staticmethod
    async def _admit(gate: Gate, exchange: Exchange, call: Call, route: Route) -> None:
        """Find out who asks, and whether they may, before any store is asked."""
        request = exchange.request
        access = await gate.enter(request.headers.get(b"authorization"))
        call.access = exchange.access = access
        call.plane = access.narrow(call.plane)
        request.most_bytes = access.meter.limits.body_bytes
        request.phases.end("auth")
        if route.scopes is not None:
            scope = route.scopes[request.method]
            access.require(scope, call.database, call.class_name or None)
        if route.of_class:
            request.phases.described = access.names_systems(call.database, call.class_name)

    def _options(self, exchange: Exchange, route: Route) -> Response:
        request = exchange.request
        if request.method != "OPTIONS":
            detail = f"{request.method} is not among: {route.allow}."
            headers = [("Allow", route.allow)]
            raise HttpError(METHOD_NOT_ALLOWED, detail, headers=headers)
        forbid_body(request)
        headers_: Headers = [(b"allow", route.allow.encode())]
        if route.patch_types:
            headers_.append((b"accept-patch", ", ".join(route.patch_types).encode()))
        if b"access-control-request-method" in request.headers:
            headers_ += self._cors.preflight(route.allow)
        return Response(204, headers_)

    def _share(self, exchange: Exchange, response: Response) -> None:
        origin = exchange.request.headers.get(b"origin")
        response.headers += self._cors.headers(exchange.database, origin)

    def _note_limit(self, exchange: Exchange, error: Exception) -> None:
        """Tell of a request that went beyond a limit of its tenant."""
        limit = None if exchange.access is None else exchange.access.meter.limit_of(error)
        if exchange.access is not None and limit is not None:
            self._observe(RequestRefused(exchange.access.meter.tenant, limit))

    def _tell(self, exchange: Exchange, status: int) -> None:
        seconds = perf_counter() - exchange.request.phases.started
        method, scheme = exchange.kind
        self._observe(RequestFinished(method, exchange.template, status, seconds, scheme))


def _refuse(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem.type is INTERNAL:
        _log.error("request %s failed", request.id, exc_info=error)
    headers: Headers = [
        (b"content-type", PROBLEM_JSON.encode()),
        (b"cache-control", b"no-store"),
    ]
    headers += [(name.lower().encode(), value.encode()) for name, value in problem.headers]
    return Response(problem.type.status, headers, problem.body(request.id))


def _complete(request: Request, response: Response) -> None:
    """Add the fields that all answers have."""
    headers = response.headers
    request.phases.end("respond")
    headers += (
        _varying(headers),
        _NO_GUESSING,
        (b"server-timing", request.phases.text),
        (b"x-request-id", request.id.encode()),
    )
    if response.chunks is None and response.status not in _BODILESS:
        headers.append((b"content-length", b"%d" % len(response.body)))
    if request.method == "HEAD":
        response.body = b""


def _sent_whole(request: Request, response: Response) -> bool:
    if response.chunks is not None or request.whole is None:
        return False
    return request.whole(response.status, response.headers, response.body)


async def _send(request: Request, response: Response, send: Send, valid: Validity | None) -> None:
    """Send an answer by messages."""
    start = {"type": "http.response.start", "status": response.status, "headers": response.headers}
    await send(start)
    if response.chunks is None or request.method == "HEAD":
        await send({"type": "http.response.body", "body": response.body})
    elif await _stream(request, response.chunks, send, valid):
        await send({"type": "http.response.body", "body": b""})


def _varying(headers: Headers) -> Header:
    """Take out what an answer says it depends on, and say all of it in one line.

    Of several lines nginx, before 1.23, heeds the last one only: who asked from another origin
    would get what was kept for the first.
    """
    varying = [_VARYING]
    for field in headers[:]:
        if field[0] == b"vary":
            headers.remove(field)
            varying.append(field[1])
    return b"vary", b", ".join(varying)


async def _stream(
    request: Request, chunks: AsyncIterator[bytes], send: Send, valid: Validity | None
) -> bool:
    """Send all chunks; False if they broke off: without its end the client sees that it did.

    They do when the key is revoked, or the token ends, that the answer was asked for with.
    """
    try:
        async for chunk in chunks:
            if valid is not None and not await valid():
                return False
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except MediatorError as error:
        _log.warning("request %s broke off: %s", request.id, error.detail)
        return False
    return True
