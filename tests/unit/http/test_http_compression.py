"""Which responses the admin port's middleware compresses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.http.compression import Compression
from tests.unit.http.test_http_reference import client_of

TEXT = "All the news that is fit to compress. " * 60
GZIP = {"accept-encoding": "gzip"}


def application() -> FastAPI:
    app = FastAPI()
    app.add_middleware(Compression)

    @app.api_route("/", methods=["GET", "POST"])
    async def answer(
        type_: str = "application/json", vary: str | None = None, coding: str | None = None
    ) -> Response:
        fields = {"vary": vary, "content-encoding": coding}
        headers = {name: value for name, value in fields.items() if value is not None}
        return Response(TEXT, media_type=type_, headers=headers)

    @app.get("/stream")
    async def stream() -> Response:
        async def chunks() -> AsyncIterator[str]:
            yield TEXT
            yield TEXT

        return StreamingResponse(chunks(), media_type="text/plain")

    @app.get("/short")
    async def short() -> str:
        return "short"

    return app


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(application()) as client:
        yield client


async def is_encoded(client: httpx.AsyncClient, path: str, **options: Any) -> bool:
    """Return whether a response is compressed; check that it is complete in any case."""
    method, headers = options.pop("method", "GET"), GZIP | options.pop("headers", {})
    async with client.stream(method, path, headers=headers, **options) as answer:
        body = b"".join([chunk async for chunk in answer.aiter_raw()])
    assert answer.headers.get("content-length", str(len(body))) == str(len(body))
    is_compressed: bool = answer.headers.get("content-encoding") == "gzip"
    if is_compressed:
        assert len(body) < len(TEXT) / 5
    return is_compressed


@pytest.mark.parametrize(
    ("type_", "is_compressed"),
    [
        ("application/json", True),
        ("application/problem+json", True),
        ("application/json; charset=utf-8", True),
        ("text/html; charset=utf-8", True),
        ("text/plain; version=0.0.4", True),
        ("application/openmetrics-text; version=1.0.0", True),
        ("text/javascript", True),
        ("image/svg+xml", True),
        ("application/x-ndjson", True),
        ("application/vnd.portolan.sketch", True),
        ("image/png", False),
        ("application/octet-stream", False),
        ("application/jsonish", False),
        ("application/vnd.apache.parquet", False),
    ],
)
async def test_media_types(http: httpx.AsyncClient, type_: str, is_compressed: bool) -> None:
    assert await is_encoded(http, "/", params={"type_": type_}) is is_compressed


async def test_event_streams_are_not_compressed(http: httpx.AsyncClient) -> None:
    assert not await is_encoded(http, "/", params={"type_": "text/event-stream"})
    assert not await is_encoded(http, "/stream")


async def test_encoded_or_short_responses_are_not_compressed(http: httpx.AsyncClient) -> None:
    headers = {"accept-encoding": "gzip"}
    async with http.stream("GET", "/", params={"coding": "br"}, headers=headers) as answer:
        assert answer.headers["content-encoding"] == "br"
    assert not await is_encoded(http, "/short")
    assert not await is_encoded(http, "/", headers={"accept-encoding": "identity"})


@pytest.mark.parametrize(
    ("vary", "expected"),
    [(None, "Accept-Encoding"), ("Cookie", "Accept-Encoding, Cookie")],
)
async def test_vary_is_one_line(http: httpx.AsyncClient, vary: str | None, expected: str) -> None:
    answer = await http.get("/", params={} if vary is None else {"vary": vary})
    assert answer.headers.get_list("vary") == [expected]
    plain = await http.get("/short", headers={"accept-encoding": "identity"})
    assert plain.headers.get_list("vary") == ["Accept-Encoding"]


@pytest.mark.parametrize(
    ("method", "site", "is_compressed"),
    [
        ("GET", None, True),
        ("GET", "same-origin", True),
        ("GET", "none", True),
        ("GET", "same-site", False),
        ("GET", "cross-site", False),
        ("GET", "made-up", False),
        ("POST", "same-origin", False),
    ],
)
async def test_only_reads_of_the_same_origin_are_compressed(
    http: httpx.AsyncClient, method: str, site: str | None, is_compressed: bool
) -> None:
    headers = {} if site is None else {"sec-fetch-site": site}
    assert await is_encoded(http, "/", method=method, headers=headers) is is_compressed


@pytest.mark.parametrize("compresses", [True, False])
async def test_compression_of_the_admin_port_can_be_switched_off(compresses: bool) -> None:
    app = create_admin_app(Mock(), CollectorRegistry(), AdminContext(compresses=compresses))
    async with client_of(app) as client:
        for path in ("/openapi.json", "/docs", app.state.site.assets.address("portolan.css")):
            answer = await client.get(path, headers=GZIP)
            assert answer.status_code == 200
            assert answer.headers.get("content-encoding") == ("gzip" if compresses else None)
