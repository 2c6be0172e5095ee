"""The page that drops a database: what it shows, and the confirmation it requires."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from mediator.base.errors import NotFound
from tests.process.caching.newspaper import assert_problem
from tests.process.control.classes import class_on
from tests.process.service import Service


@pytest.fixture
async def admin(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    app = create_admin_app(mediator.mediator.control, CollectorRegistry())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def test_the_page_lists_the_classes_and_drops_nothing(
    mediator: Service, admin: httpx.AsyncClient
) -> None:
    database = await mediator.put_schema(
        {"notes": class_on("redis"), "texts": class_on("postgres")}
    )
    await mediator.create(database, "notes", "x", title="t")
    editor = await admin.get(f"/schema?database={database}")
    assert f"/schema/drop?database={database}" in editor.text
    page = await admin.get(f"/schema/drop?database={database}")
    assert page.status_code == 200, page.text
    for text in ("notes", "texts", "version 1", "redis", "postgres"):
        assert text in page.text
    assert await mediator.values(database, "notes", "x") == {"title": "t"}


@pytest.mark.parametrize("typed", ["", "x", " {}", "{} ", "{}x"])
async def test_another_name_drops_nothing(
    mediator: Service, admin: httpx.AsyncClient, typed: str
) -> None:
    database = await mediator.put_schema({"notes": class_on("redis")})
    form = {"database": database, "version": "1", "name": typed.format(database)}
    refused = await admin.post("/schema/drop", data=form)
    assert refused.status_code == 200, "like every form that is shown with an error"
    assert "The name does not match; nothing was dropped." in refused.text
    assert await mediator.mediator.control.stored_schema(database)


async def test_its_name_drops_it(mediator: Service, admin: httpx.AsyncClient) -> None:
    database = await mediator.put_schema({"notes": class_on("redis")})
    await mediator.create(database, "notes", "x", title="t")
    form = {"database": database, "version": "1", "name": database}
    response = await admin.post("/schema/drop", data=form)
    assert (response.status_code, response.headers["location"]) == (303, "/schema")
    with pytest.raises(NotFound):
        await mediator.mediator.control.stored_schema(database)
    assert (await admin.post("/schema/drop", data=form)).status_code == 404
    assert (await admin.get(f"/schema/drop?database={database}")).status_code == 404


async def test_a_database_that_changed_since_the_page_was_shown_is_not_dropped(
    mediator: Service, admin: httpx.AsyncClient
) -> None:
    database = await mediator.put_schema({"notes": class_on("redis")})
    classes = {"notes": class_on("redis"), "texts": class_on("redis")}
    await mediator.mediator.control.set_schema(database, {"classes": classes})
    form = {"database": database, "version": "1", "name": database}
    assert (await admin.post("/schema/drop", data=form)).status_code == 412
    path = f"/admin/v1/schemas/{database}"
    stale = await admin.delete(path, headers={"if-match": '"1"'})
    assert_problem(stale, 412, "precondition-failed")
    response = await admin.delete(path, headers={"if-match": '"2"'})
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("database", ["", "../x", "<b>", "X"])
async def test_an_invalid_name_is_refused(admin: httpx.AsyncClient, database: str) -> None:
    assert (await admin.get("/schema/drop", params={"database": database})).status_code == 400
    refused = await admin.post("/schema/drop", data={"database": database, "name": database})
    assert refused.status_code == 400
    assert "<b>" not in refused.text
