"""Problems for the routes that FastAPI serves: whatever goes wrong, the answer has one shape."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
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

__all__ = ["SmallBodies", "answer_problems", "json_body", "read_limited"]

_log = logging.getLogger("portolan.admin")

BODY_LIMIT: Final = 8 * 2**20
SMALL_BODY_LIMIT: Final = 64 * 2**10
_NOT_FOUND: Final = 404
_METHOD_NOT_ALLOWED: Final = 405


def answer_problems(app: FastAPI) -> None:
    """Make every error of an application a problem+json."""
    for kind, translate in _TRANSLATIONS.items():
        app.add_exception_handler(kind, _handler(translate))


async def json_body(request: Request) -> Any:
    """Read a JSON body.

    Raises:
        HttpError: It is larger than `BODY_LIMIT`, or not JSON.
    """
    return parse_json(await read_limited(request, BODY_LIMIT))


class SmallBodies(APIRoute):
    """A route whose body the framework parses: it sees none larger than `SMALL_BODY_LIMIT`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, behind the limit."""
        handle = super().get_route_handler()

        async def limited(request: Request) -> Response:
            body = await read_limited(request, SMALL_BODY_LIMIT)

            async def replay() -> dict[str, Any]:
                return {"type": "http.request", "body": body, "more_body": False}

            return await handle(Request(request.scope, replay))

        return limited


async def read_limited(request: Request, limit: int) -> bytes:
    """Read a body.

    Raises:
        HttpError: It has more than `limit` bytes.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large(limit)
    return bytes(body)


def _handler(translate: Callable[[Exception], Exception]) -> Callable[..., Any]:
    async def answer(request: Request, error: Exception) -> Response:
        id_ = request_id(request.scope)
        problem = problem_of(translate(error))
        if problem.type is INTERNAL:
            _log.error("request %s failed", id_, exc_info=error)
        headers = {**dict(problem.headers), "Cache-Control": "no-store", "X-Request-Id": id_}
        return Response(problem.body(id_), problem.type.status, headers, PROBLEM_JSON)

    return answer


def _same(error: Exception) -> Exception:
    return error


def _of_validation(error: Exception) -> Exception:
    assert isinstance(error, RequestValidationError)
    locations = [Location(_pointer(e["loc"]), str(e["msg"])) for e in error.errors()[:100]]
    return HttpError(INVALID, "The request does not fit the route.", locations=locations)


def _of_framework(error: Exception) -> Exception:
    assert isinstance(error, HTTPException)
    headers = list((error.headers or {}).items())
    if error.status_code == _METHOD_NOT_ALLOWED:
        return HttpError(METHOD_NOT_ALLOWED, "The route has other methods.", headers=headers)
    if error.status_code == _NOT_FOUND:
        return HttpError(ROUTE_NOT_FOUND, "There is no such route.", headers=headers)
    return HttpError(INVALID, "The body cannot be read.", headers=headers)


def _of_departure(_: Exception) -> Exception:
    return HttpError(INVALID, "The connection closed before the end of the body.")


def _pointer(location: tuple[str | int, ...]) -> str:
    """Name a parameter by its name, a part of the body by its JSON pointer."""
    where, *path = location
    return "/".join(["", *map(str, path)]) if where == "body" else ".".join(map(str, path))


_TRANSLATIONS: Final[dict[type[Exception], Callable[[Exception], Exception]]] = {
    MediatorError: _same,
    HttpError: _same,
    RequestValidationError: _of_validation,
    HTTPException: _of_framework,
    ClientDisconnect: _of_departure,
    Exception: _same,
}
