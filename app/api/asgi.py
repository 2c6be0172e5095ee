"""The data API as an ASGI application, written out by hand because every microsecond shows.

A request is scanned once, finds its route by splitting its raw path, and is answered by one
``http.response.start`` and one body. Errors become problems in one place.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Final

from app.api.batch import Batches
from app.api.calls import Call
from app.api.changes import Changes
from app.api.creation import Creation
from app.api.exports import Exports
from app.api.imports import Imports
from app.api.jobs import JobDesk, Jobs
from app.api.objects import PATCH_TYPES, Objects
from app.api.options import DataOptions
from app.api.queries import Queries
from app.api.resources import Directory
from app.api.routes import Address, Route, Table
from app.api.run_results import FILES, RunResults
from app.api.sketch import Sketches
from app.api.transactions import Transact, TransactionRoute
from app.coherence.caches import Caches
from app.http.cors import CrossOrigin
from app.http.idempotency import OperationIds
from app.http.message import (
    ClientGone,
    Headers,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    forbid_body,
)
from app.http.negotiation import EVENT_STREAM, JSON, NDJSON, SKETCH, check_accept
from app.http.problems import (
    INTERNAL,
    METHOD_NOT_ALLOWED,
    PROBLEM_JSON,
    HttpError,
    problem_of,
)
from mediator.changes.subscriptions import Subscriptions
from mediator.errors import MediatorError
from mediator.observation import Observer, RequestFinished
from mediator.planes import DataPlane

__all__ = ["DataApi"]

_log = logging.getLogger("portolan.api")
_VARY: Final = (b"vary", b"Accept, Prefer")
_BODILESS: Final = frozenset({204, 304})
_CLIENT_GONE: Final = 499
_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS"})


def _table(
    plane: DataPlane,
    directory: Directory,
    options: DataOptions,
    subscriptions: Subscriptions | None,
    caches: Caches | None,
    transact: Transact | None,
    desk: JobDesk | None,
) -> Table:
    ids = OperationIds()
    jobs = Jobs(directory, desk, options, ids)
    reads = caches.reads if caches else None
    objects = Objects(plane, options, ids, reads)
    sketches = Sketches(directory, caches.sketch if caches else None, options.sketch_valid_s)
    queries = Queries(plane, options, reads)
    exports = Exports(plane, options)
    return Table(
        object=Route(
            "/v1/{database}/{class}/{id}",
            {
                "GET": objects.get,
                "HEAD": objects.get,
                "PUT": objects.put,
                "PATCH": objects.patch,
                "DELETE": objects.delete,
            },
            patch_types=tuple(PATCH_TYPES),
        ),
        collection=Route(
            "/v1/{database}/{class}",
            {
                "GET": queries.get,
                "HEAD": queries.get,
                "POST": Creation(plane, options, ids).post,
            },
        ),
        batch=Route(
            "/v1/{database}/batch",
            {"POST": Batches(plane, directory, options, ids).post},
            of_class=False,
        ),
        transactions=Route(
            "/v1/{database}/transactions",
            {"POST": TransactionRoute(transact, directory, options, ids).post},
            of_class=False,
        ),
        queries=Route("/v1/{database}/{class}/query", {"POST": queries.post}),
        imports=Route("/v1/{database}/{class}/import", {"POST": Imports(plane, options, ids).post}),
        exports=Route(
            "/v1/{database}/{class}/export",
            {"GET": exports.get, "HEAD": exports.get},
            offers=NDJSON,
        ),
        changes=Route(
            "/v1/{database}/changes",
            {"GET": Changes(directory, subscriptions).get},
            of_class=False,
            streams=(EVENT_STREAM,),
        ),
        sketch=Route(
            "/v1/{database}/sketch",
            {"GET": sketches.get, "HEAD": sketches.get},
            of_class=False,
            offers=SKETCH,
            streams=(JSON,),
        ),
        jobs=Route("/v1/{database}/jobs", {"POST": jobs.post, "GET": jobs.list}, of_class=False),
        run=Route(
            "/v1/{database}/jobs/{run}",
            {"GET": jobs.get, "DELETE": jobs.delete},
            of_class=False,
            streams=(EVENT_STREAM,),
        ),
        resume=Route("/v1/{database}/jobs/{run}/resume", {"POST": jobs.resume}, of_class=False),
        results=Route(
            "/v1/{database}/jobs/{run}/results",
            {"GET": RunResults(desk, options).get},
            of_class=False,
            streams=tuple(FILES),
        ),
    )


class DataApi:
    """The data API.

    Args:
        plane: Does the operations.
        options: Bounds and keys.
        observe: Is told of every request that was answered.
        subscriptions: Lets clients follow the change feed; None: there is no feed.
        caches: What keeps caches coherent; None: nothing may be cached.
        transact: Carries out transactions; None: there are none.
        desk: What jobs need; None: there are none.

    Attributes:
        in_flight: Requests whose answer has not begun.
    """

    def __init__(
        self,
        plane: DataPlane,
        options: DataOptions,
        observe: Observer,
        subscriptions: Subscriptions | None = None,
        caches: Caches | None = None,
        transact: Transact | None = None,
        desk: JobDesk | None = None,
    ) -> None:
        self._directory = Directory(plane)
        self._table = _table(plane, self._directory, options, subscriptions, caches, transact, desk)
        self._cors = CrossOrigin(options.origins)
        self._observe = observe
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] != "http":
            raise ValueError(f"the data API does not speak {scope['type']}")
        request = Request(scope, receive)
        exchange = _Exchange(request)
        self.in_flight += 1
        try:
            response = await self._answer(exchange)
        except ClientGone:
            self._tell(exchange, _CLIENT_GONE)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets a problem
            response = _refuse(request, error)
        finally:
            self.in_flight -= 1
        if exchange.database:
            self._share(exchange, response)
        await _send(request, response, send)
        self._tell(exchange, response.status)

    async def _answer(self, exchange: _Exchange) -> Response:
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
        call = Call(request, address.database, address.class_name, address.id)
        if route.of_class:
            call.resource = await self._directory.find(address.database, address.class_name)
        request.phases.end("route")
        return await handler(call)

    def _options(self, exchange: _Exchange, route: Route) -> Response:
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

    def _share(self, exchange: _Exchange, response: Response) -> None:
        origin = exchange.request.headers.get(b"origin")
        response.headers += self._cors.headers(exchange.database, origin)

    def _tell(self, exchange: _Exchange, status: int) -> None:
        method = exchange.request.method
        seconds = perf_counter() - exchange.request.phases.started
        known = method if method in _METHODS else "_OTHER"
        self._observe(RequestFinished(known, exchange.template, status, seconds))


class _Exchange:
    """A request, and what is known of its address so far; problems need it too."""

    __slots__ = ("database", "request", "template")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.template = "unmatched"
        self.database = ""

    def enter(self, address: Address) -> None:
        self.template = address.route.template
        self.database = address.database


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


async def _send(request: Request, response: Response, send: Send) -> None:
    headers = response.headers
    request.phases.end("respond")
    headers += (
        _VARY,
        (b"server-timing", request.phases.text),
        (b"x-request-id", request.id.encode()),
    )
    body = response.body
    if response.chunks is None and response.status not in _BODILESS:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if request.method == "HEAD":
        body = b""
    elif response.chunks is not None and not await _stream(request, response.chunks, send):
        return
    await send({"type": "http.response.body", "body": body})


async def _stream(request: Request, chunks: AsyncIterator[bytes], send: Send) -> bool:
    """Send all chunks; False if they broke off: without its end the client sees that it did."""
    try:
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except MediatorError as error:
        _log.warning("request %s broke off: %s", request.id, error.detail)
        return False
    return True
