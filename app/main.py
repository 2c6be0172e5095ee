"""The data application: the hand-written data API, and FastAPI for everything around it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from app.api.asgi import DataApi
from app.api.openapi import data_components, data_paths
from app.http.framework import answer_problems
from app.http.message import Receive, Scope, Send

__all__ = ["DataApp", "create_app"]

_PREFIX = "/v1/"


def create_app() -> FastAPI:
    """Make the FastAPI part: the OpenAPI document of the data API, its page, and 404s."""
    app = FastAPI(
        title="Portolan",
        summary="Declare what your data needs; the right database serves it.",
        version="1",
        openapi_url="/openapi.json",
        docs_url="/docs",
        redoc_url=None,
    )
    answer_problems(app)
    document = app.openapi

    def with_data_routes() -> dict[str, Any]:
        described = document()
        described["paths"] = {**described.get("paths", {}), **data_paths()}
        described["components"] = {**described.get("components", {}), **data_components()}
        return described

    app.openapi = with_data_routes  # type: ignore[method-assign]  # FastAPI's documented extension
    return app


class DataApp:
    """Sends data requests past the framework, straight to the data API."""

    def __init__(self, data: DataApi) -> None:
        self._data = data
        self._rest = create_app()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"].startswith(_PREFIX):
            await self._data(scope, receive, send)
        else:
            await self._rest(scope, receive, send)
