"""The data API as an ASGI application, written without a framework for latency.

A request is scanned once, routed by splitting its raw path, and answered in one write, or by ASGI
messages. Errors become problems in one place.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Final, TypeAlias

from app.api.options import DataOptions, DataServices
from app.api.resources import ClassResource, Directory
from app.api.routed_request import Route, RoutedRequest
from app.api.routes import RouteTable
from app.http.caching import merge_vary, restrict_caching
from app.http.compression import COMPRESSED_FROM, compress, name_coding
from app.http.cors import CrossOrigin
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
from app.http.negotiation import check_accept
from app.http.paths import parse_integer
from app.http.problems import INTERNAL, INVALID, METHOD_NOT_ALLOWED, HttpError, problem_of
from app.security.data_port import RequestAuthoriser
from mediator.access.authorisation import EVERYTHING
from mediator.access.model import Scope as Permission
from mediator.admission.refusals import Refusals
from mediator.base.errors import Location, MediatorError
from mediator.base.observation import Observer, RequestFinished, RequestRefused
from mediator.control.former_schemas import HEADER, FormerSchemas
from mediator.data_plane.port import DataPlane

__all__ = ["DataApi"]

_log = logging.getLogger("portolan.api")
_VARY: Final = b"Accept, Prefer, Portolan-Schema"
_MAX_VERSION: Final = 2**31
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
_NOT_MODIFIED: Final = 304
_BODILESS: Final = frozenset({204, _NOT_MODIFIED})
_CLIENT_GONE: Final = 499
_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS"})
Validity: TypeAlias = Callable[[], Awaitable[bool]]


class DataApi:
    """The data API.

    Without an authoriser, requests are not authenticated and may do everything.
    """

    def __init__(
        self,
        plane: DataPlane,
        options: DataOptions,
        observe: Observer,
        services: DataServices = DataServices(),  # noqa: B008 - immutable
        authoriser: RequestAuthoriser | None = None,
        former_schemas: FormerSchemas | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._plane = plane
        self._directory = Directory(plane)
        self._table = RouteTable(self._directory, options, services)
        self._authoriser = authoriser
        self._former_schemas = former_schemas
        self._refusals = refusals
        self._cors = CrossOrigin(options.origins)
        self.compresses = options.compresses
        self._vary = _VARY + (b", Accept-Encoding" if self.compresses else b"")
        self._observe = observe
        self._active: dict[tuple[str, str], int] = {}

    @property
    def routes(self) -> Iterable[Route]:
        return self._table.routes

    @property
    def active(self) -> Mapping[tuple[str, str], int]:
        """Requests in progress, by method and scheme."""
        return self._active

    def end_streams(self) -> None:
        """End endless answers, so that the server can shut down."""
        self._table.followers.is_stopping = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the data API does not speak {scope['type']}")
        request = Request(scope, receive)
        routed = RoutedRequest(request, self._plane)
        # An unknown method must not create a time series.
        method = request.method if request.method in _METHODS else "_OTHER"
        kind = method, scope.get("scheme", "http")
        self._active[kind] = self._active.get(kind, 0) + 1
        try:
            status = await self._serve(routed, send)
            seconds = perf_counter() - request.phases.started
            self._observe(RequestFinished(method, routed.route.template, status, seconds, kind[1]))
        finally:
            self._active[kind] -= 1
            if self._authoriser is not None and routed.access is not EVERYTHING:
                self._authoriser.release(routed.access)

    async def _serve(self, routed: RoutedRequest, send: Send) -> int:
        """Return the status that was sent."""
        request = routed.request
        try:
            response = await self._answer(routed)
        except ClientGone:
            return _CLIENT_GONE
        except Exception as error:  # noqa: BLE001 - the client gets a problem for any error
            response = _refuse(request, error)
            self._observe_limit(routed, error)
        if self._cors.shares and routed.database:
            origin = request.headers.get(b"origin")
            response.headers += self._cors.headers(routed.database, origin)
        if len(response.body) >= COMPRESSED_FROM and self.compresses:
            accepted = request.headers.get(b"accept-encoding", "")
            response.body = await compress(accepted, response.headers, response.body)
        elif response.status == _NOT_MODIFIED:
            name_coding(request.headers, response.headers)
        _complete(request, response, self._vary)
        if not _sent_directly(request, response):
            await _send(request, response, send, self._validity(routed))
        return response.status

    def _validity(self, routed: RoutedRequest) -> Validity | None:
        if self._authoriser is None or routed.access is EVERYTHING:
            return None
        field = routed.request.headers.get(b"authorization")
        return partial(
            self._authoriser.is_valid, routed.access, field, routed.request.phases.started
        )

    async def _answer(self, routed: RoutedRequest) -> Response:
        request = routed.request
        routed.go_to(self._table.find(request.path))
        route = routed.route
        handler = route.handlers.get(request.method)
        if handler is None:
            return self._options(request, route)
        accept = request.headers.get(b"accept")
        if accept is not None and accept != "*/*":
            check_accept(accept, route.offers, *route.streams)
        routed.read_preferences()
        if self._authoriser is not None:
            await self._admit(self._authoriser, routed)
        scope = None if route.scopes is None else route.scopes[request.method]
        if route.of_class:
            assert scope is not None
            routed.resource = await self._class(routed, scope)
        elif scope is not None:
            routed.access.require(scope, routed.database)
        if (version := request.headers.get(b"portolan-schema")) is not None:
            await self._pin(routed, version)
        request.phases.end("route")
        response = await handler(routed)
        if routed.pinned is not None:
            response.headers.append((b"portolan-schema", b"%d" % routed.pinned.version))
        if route.of_class and routed.access is not EVERYTHING:
            visibility = routed.resource.schema.cache.visibility
            response.headers = restrict_caching(response.headers, visibility)
        return response

    async def _class(self, routed: RoutedRequest, scope: Permission) -> ClassResource:
        database, name = routed.database, routed.class_name
        resource = self._directory.lookup(database, name)
        if resource is None:
            # A sender without the permission must not make us look for a newer routing model.
            routed.access.require(scope, database, name)
            resource = await self._directory.find(database, name, routed.access)
        class_access = routed.access.enter_class(scope, database, name, resource.route)
        routed.owner, routed.request.phases.described = class_access
        if self._refusals is not None and self._refusals.active:
            self._refusals.check_class(database, name)
        return resource

    async def _pin(self, routed: RoutedRequest, field: str) -> None:
        """Pin the request to a version of the schema, if the sender may enter the database.

        If the sender may not, the handler, which authorises each class, refuses the request.
        """
        version = parse_integer(field, HEADER, minimum=1, maximum=_MAX_VERSION)
        if self._former_schemas is None or not routed.route.is_pinnable:
            locations = [Location(HEADER, "is not supported by this route")]
            raise HttpError(
                INVALID,
                "Requests of this route cannot be pinned to a version.",
                locations=locations,
            )
        if routed.route.scopes is None and not routed.access.may_enter(routed.database):
            return
        find = self._former_schemas.find
        await routed.pin(partial(find, routed.database, version, routed.access.sender))
        if routed.route.of_class:
            routed.resource = await self._directory.find(
                routed.database, routed.class_name, routed.access, routed.pinned
            )

    @staticmethod
    async def _admit(authoriser: RequestAuthoriser, routed: RoutedRequest) -> None:
        """Authenticate the sender, before any store is queried."""
        request = routed.request
        field = request.headers.get(b"authorization")
        access = await authoriser.authorise(field)
        routed.access, routed.revalidate = access, partial(authoriser.revalidate, access, field)
        routed.plane = access.narrow(routed.plane)
        request.body_limit = access.meter.limits.body_bytes
        request.phases.end("auth")

    def _options(self, request: Request, route: Route) -> Response:
        if request.method != "OPTIONS":
            detail = f"The route has the methods {route.allow}, and not {request.method}."
            headers = [("Allow", route.allow)]
            raise HttpError(METHOD_NOT_ALLOWED, detail, headers=headers)
        forbid_body(request)
        headers_: Headers = [(b"allow", route.allow.encode())]
        if route.patch_types:
            headers_.append((b"accept-patch", ", ".join(route.patch_types).encode()))
        if b"access-control-request-method" in request.headers:
            headers_ += self._cors.preflight(route.allow)
        return Response(204, headers_)

    def _observe_limit(self, routed: RoutedRequest, error: Exception) -> None:
        if routed.access is not EVERYTHING:
            meter = routed.access.meter
            limit = meter.limit_of(error)
            if limit is not None:
                self._observe(RequestRefused(meter.tenant, limit))


def _refuse(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem.type is INTERNAL:
        _log.error("request %s failed", request.id, exc_info=error)
    return Response(problem.type.status, problem.fields, problem.body(request.id))


def _complete(request: Request, response: Response, vary: bytes) -> None:
    headers = response.headers
    request.phases.end("respond")
    headers += (
        merge_vary(headers, vary),
        _NO_SNIFFING,
        (b"server-timing", request.phases.text),
        (b"x-request-id", request.id.encode()),
    )
    if response.chunks is None and response.status not in _BODILESS:
        headers.append((b"content-length", b"%d" % len(response.body)))
    if request.method == "HEAD":
        response.body = b""


def _sent_directly(request: Request, response: Response) -> bool:
    if response.chunks is not None or request.send_response is None:
        return False
    return request.send_response(response.status, response.headers, response.body)


async def _send(request: Request, response: Response, send: Send, valid: Validity | None) -> None:
    start = {"type": "http.response.start", "status": response.status, "headers": response.headers}
    await send(start)
    if response.chunks is None or request.method == "HEAD":
        await send({"type": "http.response.body", "body": response.body})
    elif await _stream(request, response.chunks, send, valid):
        await send({"type": "http.response.body", "body": b""})


async def _stream(
    request: Request, chunks: AsyncIterator[bytes], send: Send, valid: Validity | None
) -> bool:
    """Send all chunks; False if the stream broke off, which the client detects by the missing end.

    It breaks off if the client has gone, and if the request's key or token is revoked or expires.
    """
    try:
        with request.watched():
            async for chunk in chunks:
                if request.is_disconnected or (valid is not None and not await valid()):
                    return False
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except MediatorError as error:
        _log.warning("request %s broke off: %s", request.id, error.detail)
        return False
    return True
