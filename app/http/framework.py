"""Errors of the routes that FastAPI serves, as problems."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.http.jsonbody import parse_json
from app.http.message import request_id, too_large
from app.http.problems import (
    INTERNAL,
    INVALID,
    METHOD_NOT_ALLOWED,
    PROBLEM_JSON,
    ROUTE_NOT_FOUND,
    HttpError,
    problem_of,
)
from mediator.base.errors import Location, MediatorError
from mediator.schema.corrections import correction

__all__ = ["SmallBodies", "answer_problems", "json_body", "read_limited"]

_log = logging.getLogger("portolan.admin")

BODY_LIMIT: Final = 8 * 2**20
SMALL_BODY_LIMIT: Final = 64 * 2**10
_ERRORS: Final = (
    *(MediatorError, HttpError, RequestValidationError),
    *(HTTPException, ClientDisconnect, Exception),
)
_BY_STATUS: Final = {
    404: (ROUTE_NOT_FOUND, "There is no such route."),
    405: (METHOD_NOT_ALLOWED, "The route has other methods."),
}
_UNREADABLE: Final = (INVALID, "The body cannot be read.")


def answer_problems(app: FastAPI) -> None:
    for kind in _ERRORS:
        app.add_exception_handler(kind, _answer)


async def json_body(request: Request) -> Any:
    """Read a JSON body of at most `BODY_LIMIT` bytes."""
    return parse_json(await read_limited(request, BODY_LIMIT))


class SmallBodies(APIRoute):
    """A route whose body FastAPI parses, limited to `SMALL_BODY_LIMIT` bytes."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_limited(request: Request) -> Response:
            body = await read_limited(request, SMALL_BODY_LIMIT)

            async def replay() -> dict[str, Any]:
                return {"type": "http.request", "body": body, "more_body": False}

            return await handle(Request(request.scope, replay))

        return handle_limited


async def read_limited(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large(limit)
    return bytes(body)


async def _answer(request: Request, error: Exception) -> Response:
    id_ = request_id(request.scope)
    problem = problem_of(_translated(request, error))
    if problem.type is INTERNAL:
        _log.error("request %s failed", id_, exc_info=error)
    headers = {**dict(problem.headers), "Cache-Control": "no-store", "X-Request-Id": id_}
    return Response(problem.body(id_), problem.type.status, headers, PROBLEM_JSON)


def _translated(request: Request, error: Exception) -> Exception:
    match error:
        case RequestValidationError():
            locations = [_location(request, error.body, item) for item in error.errors()[:100]]
            return HttpError(INVALID, "The request does not fit the route.", locations=locations)
        case HTTPException():
            type_, detail = _BY_STATUS.get(error.status_code, _UNREADABLE)
            return HttpError(type_, detail, headers=list((error.headers or {}).items()))
        case ClientDisconnect():
            return HttpError(INVALID, "The connection closed before the end of the body.")
    return error


def _location(request: Request, body: Any, error: ErrorDetails) -> Location:
    field = request.scope["route"].body_field
    adapter = _adapter_of(None if field is None else field.field_info.annotation)
    hint = correction(adapter, body, error["loc"][1:], error)
    return Location(_pointer(error["loc"]), f"{error['msg']}{hint}")


_adapter_of: Final = lru_cache(maxsize=64)(TypeAdapter)
"""Type adapters of the few models of bodies."""


def _pointer(location: tuple[str | int, ...]) -> str:
    """Return the name of a parameter, or the JSON pointer to a member of the body."""
    source, *path = location
    return "/".join(["", *map(str, path)]) if source == "body" else ".".join(map(str, path))
