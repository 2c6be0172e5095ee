"""The reference page shows the whole OpenAPI document and loads nothing from other hosts."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncIterator
from hashlib import sha256
from html import unescape

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from app.api.application import create_app
from app.http.reference import serve_reference
from mediator.options import MediatorOptions
from mediator.service import Mediator
from mediator.stores.kinds import make_store

HOSTILE = "<script>alert('x')</script>"


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


def admin_app() -> FastAPI:
    """The admin application of a mediator that is never started."""
    mediator = Mediator(MediatorOptions("postgresql://nobody@localhost/none"), make_store, ())
    return create_admin_app(mediator.control, CollectorRegistry())


@pytest.fixture(params=["data", "admin"])
async def http(request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(create_app() if request.param == "data" else admin_app()) as client:
        yield client


async def test_the_reference_shows_every_operation_and_schema(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    page = unescape((await http.get("/docs")).text)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                assert f"<h2><code>{method.upper()} {path}</code></h2>" in page
                assert operation["summary"] in page
    for name in document["components"]["schemas"]:
        assert f'id="schema-{name}"' in page
    targets = set(re.findall(r'href="#([^"]*)"', page))
    assert targets <= set(re.findall(r'id="([^"]*)"', page)), "every link has a target"


async def test_the_page_loads_nothing_from_other_hosts(http: httpx.AsyncClient) -> None:
    answer = await http.get("/docs")
    assert answer.status_code == 200
    assert not re.search(r"<script|<link|<img|<iframe|\bsrc=|url\(|@import", answer.text)
    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    (policy,) = answer.headers.get_list("content-security-policy")
    directives = dict(directive.strip().split(" ", 1) for directive in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["style-src"] == f"'sha256-{digest}'"
    assert not {"script-src", "connect-src", "img-src"} & directives.keys()


async def test_texts_are_escaped() -> None:
    app = FastAPI(title=HOSTILE, summary=HOSTILE, docs_url=None)
    serve_reference(app)
    app.get("/x", summary=HOSTILE, description=HOSTILE)(test_texts_are_escaped)
    async with client_of(app) as client:
        page = (await client.get("/docs")).text
    assert "<script" not in page
    assert HOSTILE in unescape(page)
