"""The page on which a database is dropped: what it shows, and what it asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from mediator.base.errors import NotFound
from tests.process.caching.newspaper import assert_problem
from tests.process.control.classes import on
from tests.process.service import Service


@pytest.fixture
async def admin(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    app = create_admin_app(mediator.mediator.control, CollectorRegistry())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def test_what_would_go_is_shown_and_stays(
    mediator: Service, admin: httpx.AsyncClient
) -> None:
    database = await mediator.put_schema({"notes": on("redis"), "texts": on("postgres")})
    await mediator.create(database, "notes", "x", title="t")
    editor = await admin.get(f"/schema?database={database}")
    assert f"/schema/drop?database={database}" in editor.text
    page = await admin.get(f"/schema/drop?database={database}")
    assert page.status_code == 200, page.text
    for said in ("notes", "texts", "version 1", "redis", "postgres"):
        assert said in page.text
    assert await mediator.values(database, "notes", "x") == {"title": "t"}


@pytest.mark.parametrize("typed", ["", "x", " {}", "{} ", "{}x"])
async def test_another_name_drops_nothing(
    mediator: Service, admin: httpx.AsyncClient, typed: str
) -> None:
    database = await mediator.put_schema({"notes": on("redis")})
    form = {"database": database, "version": "1", "name": typed.format(database)}
    refused = await admin.post("/schema/drop", data=form)
    assert refused.status_code == 200, "as every form that is shown again"
    assert "The name does not match; nothing was dropped." in refused.text
    assert await mediator.mediator.control.stored_schema(database)


async def test_its_name_drops_it(mediator: Service, admin: httpx.AsyncClient) -> None:
    database = await mediator.put_schema({"notes": on("redis")})
    await mediator.create(database, "notes", "x", title="t")
    form = {"database": database, "version": "1", "name": database}
    done = await admin.post("/schema/drop", data=form)
    assert (done.status_code, done.headers["location"]) == (303, "/schema")
    with pytest.raises(NotFound):
        await mediator.mediator.control.stored_schema(database)
    assert (await admin.post("/schema/drop", data=form)).status_code == 404
    assert (await admin.get(f"/schema/drop?database={database}")).status_code == 404


async def test_what_has_changed_since_it_was_shown_is_not_dropped(
    mediator: Service, admin: httpx.AsyncClient
) -> None:
    database = await mediator.put_schema({"notes": on("redis")})
    classes = {"notes": on("redis"), "texts": on("redis")}
    await mediator.mediator.control.set_schema(database, {"classes": classes})
    form = {"database": database, "version": "1", "name": database}
    assert (await admin.post("/schema/drop", data=form)).status_code == 412
    path = f"/admin/v1/schemas/{database}"
    stale = await admin.delete(path, headers={"if-match": '"1"'})
    assert_problem(stale, 412, "precondition-failed")
    done = await admin.delete(path, headers={"if-match": '"2"'})
    assert done.status_code == 200, done.text


@pytest.mark.parametrize("database", ["", "../x", "<b>", "X"])
async def test_what_is_no_name_is_refused(admin: httpx.AsyncClient, database: str) -> None:
    assert (await admin.get("/schema/drop", params={"database": database})).status_code == 400
    refused = await admin.post("/schema/drop", data={"database": database, "name": database})
    assert refused.status_code == 400
    assert "<b>" not in refused.text
