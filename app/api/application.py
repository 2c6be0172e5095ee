"""The data application: the data API, which bypasses FastAPI, and FastAPI for other paths."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI

from app.api.openapi.components import COMPONENTS, SECURITY
from app.api.openapi.document import data_paths
from app.api.router import DataApi
from app.http.browser import send_problem
from app.http.compression import Compression
from app.http.framework import answer_problems
from app.http.message import Receive, Scope, Send, field_of, request_id
from app.http.problems import HttpError
from app.http.reference import serve_reference
from app.security.data_port import RequestAuthoriser
from mediator.access.authorisation import refusal
from mediator.access.decision import AccessDecision
from mediator.access.model import Scope as Permission
from mediator.base.errors import MediatorError

__all__ = ["DataApp", "create_app"]

_PREFIX = "/v1/"


def create_app() -> FastAPI:
    """Create the FastAPI part: the OpenAPI document of the data API, its page, and 404s."""
    app = FastAPI(
        title="Portolan",
        summary="Declare what your data needs; the right database serves it.",
        version="1",
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    answer_problems(app)
    serve_reference(app)
    document = app.openapi

    def openapi() -> dict[str, Any]:
        merged = document()
        merged["paths"] = {**merged.get("paths", {}), **data_paths()}
        merged["components"] = {**merged.get("components", {}), **COMPONENTS}
        merged["security"] = SECURITY
        return merged

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented extension
    return app


@dataclass(eq=False)
class DataApp:
    """Passes data requests directly to the data API, without the framework.

    The documents of the API name no database, but with an authoriser they also need a key.
    """

    _data: DataApi
    _authoriser: RequestAuthoriser | None = None
    _framework_app: FastAPI = field(default_factory=create_app, init=False)

    def __post_init__(self) -> None:
        if self._data.compresses:
            self._framework_app.add_middleware(Compression)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["path"].startswith(_PREFIX):
            return self._data(scope, receive, send)
        return self._answer_other(scope, receive, send)

    async def _answer_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await self._admit(scope, send):
            await self._framework_app(scope, receive, send)

    async def _admit(self, scope: Scope, send: Send) -> bool:
        if self._authoriser is None:
            return True
        try:
            access = await self._authoriser.authorise(field_of(scope, b"authorization"))
            self._authoriser.release(access)
            if access.principal is None:
                raise refusal(AccessDecision.UNAUTHENTICATED, Permission.READ)
        except (MediatorError, HttpError) as error:
            await send_problem(error, request_id(scope), send)
            return False
        return True
