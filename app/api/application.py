"""The data application: the hand-written data API, and FastAPI for everything around it."""

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
    """Make the FastAPI part: the OpenAPI document of the data API, its page, and 404s."""
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

    def with_data_routes() -> dict[str, Any]:
        described = document()
        described["paths"] = {**described.get("paths", {}), **data_paths()}
        described["components"] = {**described.get("components", {}), **COMPONENTS}
        described["security"] = SECURITY
        return described

    app.openapi = with_data_routes  # type: ignore[method-assign]  # FastAPI's documented extension
    return app


@dataclass(eq=False)
class DataApp:
    """Sends data requests past the framework, straight to the data API.

    The documents of the API name no database, but they need a key as everything does, where there
    is an authoriser.
    """

    _data: DataApi
    _authoriser: RequestAuthoriser | None = None
    _rest: FastAPI = field(default_factory=create_app, init=False)

    def __post_init__(self) -> None:
        if self._data.compresses:
            self._rest.add_middleware(Compression)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["path"].startswith(_PREFIX):
            return self._data(scope, receive, send)
        return self._answer_rest(scope, receive, send)

    async def _answer_rest(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await self._admit(scope, send):
            await self._rest(scope, receive, send)

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
