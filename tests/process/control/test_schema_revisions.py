"""The last revisions of schemas in the catalogue and the admin API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Final

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.schema_revisions import MAX_REVISIONS
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.stores.port import SystemConfig
from tests.process.caching.guarded import Guarded
from tests.process.caching.newspaper import assert_problem
from tests.process.service import Service, scratch_catalogue, unique

EMPTY: Final[dict[str, Any]] = {"classes": {}}


def documents(*fields: str) -> dict[str, Any]:
    """Return a schema of notes with some fields."""
    return {"classes": {"notes": {"fields": {name: {"type": "string"} for name in fields}}}}


@pytest.fixture
async def admin(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    app = create_admin_app(mediator.mediator.control, CollectorRegistry())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    base = "http://test/admin/v1/schemas/"
    async with httpx.AsyncClient(transport=transport, base_url=base) as client:
        yield client


async def put(admin: httpx.AsyncClient, database: str, document: dict[str, Any]) -> None:
    response = await admin.put(database, json=document)
    assert response.status_code == 200, response.text


async def test_each_version_is_kept_unchanged(admin: httpx.AsyncClient) -> None:
    database = unique("db")
    schemas = []
    for fields in (("title",), ("title", "body", "more"), ("title", "body", "more"), ("body",)):
        await put(admin, database, documents(*fields))
        schemas.append((await admin.get(database)).json()["schema"])
    assert (await admin.patch(database, json={"mode": "entity"})).status_code == 200
    assert (await admin.put(f"{database}?dry_run=true", json=EMPTY)).status_code == 200
    listed = (await admin.get(f"{database}/revisions")).json()
    assert listed["next"] is None
    assert [revision["version"] for revision in listed["items"]] == [5, 4, 3, 2, 1]
    assert [revision["by"] for revision in listed["items"]] == [None] * 5, "no key is required here"
    times = [datetime.fromisoformat(revision["at"]) for revision in listed["items"]]
    assert times == sorted(times, reverse=True)
    assert [revision["changes"] for revision in listed["items"]] == [
        {"added": 0, "removed": 0, "changed": 1},
        {"added": 0, "removed": 2, "changed": 0},
        {"added": 0, "removed": 0, "changed": 0},
        {"added": 2, "removed": 0, "changed": 0},
        {"added": 3, "removed": 0, "changed": 0},
    ]
    for version, schema in enumerate(schemas, 1):
        revision = (await admin.get(f"{database}/revisions/{version}")).json()
        assert revision == {
            "schema": schema,
            "database": database,
            **listed["items"][-version],
        }


async def test_revisions_are_read_page_by_page(admin: httpx.AsyncClient) -> None:
    database = unique("db")
    for count in range(1, 6):
        await put(admin, database, documents(*"abcde"[:count]))
    versions: list[int] = []
    before: int | None = None
    for _ in range(3):
        parameters = {"limit": 2} if before is None else {"limit": 2, "before": before}
        page = (await admin.get(f"{database}/revisions", params=parameters)).json()
        versions += [item["version"] for item in page["items"]]
        before = page["next"]
    assert (versions, before) == ([5, 4, 3, 2, 1], None)


@pytest.mark.parametrize(
    ("path", "status", "slug"),
    [
        ("{}/revisions/2", 404, "not-found"),
        (f"{{}}/revisions/{2**63 - 1}", 404, "not-found"),
        ("{}/revisions/0", 400, "invalid"),
        (f"{{}}/revisions/{2**63}", 400, "invalid"),
        ("{}/revisions/one", 400, "invalid"),
        ("{}/revisions?limit=0", 400, "invalid"),
        (f"{{}}/revisions?limit={MAX_REVISIONS + 1}", 400, "invalid"),
        ("{}/revisions?before=x", 400, "invalid"),
        ("nowhere/revisions", 404, "not-found"),
        ("nowhere/revisions/1", 404, "not-found"),
    ],
)
async def test_unknown_and_malformed_revisions_are_refused(
    admin: httpx.AsyncClient, path: str, status: int, slug: str
) -> None:
    database = unique("db")
    await put(admin, database, EMPTY)
    assert_problem(await admin.get(path.format(database)), status, slug)


async def test_revisions_are_dropped_with_their_database(admin: httpx.AsyncClient) -> None:
    database = unique("db")
    await put(admin, database, documents("former"))
    assert (await admin.delete(database)).status_code == 200
    assert_problem(await admin.get(f"{database}/revisions"), 404, "not-found")
    await put(admin, database, documents("new"))
    [only] = (await admin.get(f"{database}/revisions")).json()["items"]
    assert only["version"] == 1
    schema = (await admin.get(f"{database}/revisions/1")).json()["schema"]
    assert list(schema["classes"]["notes"]["fields"]) == ["new"]


@pytest.fixture
async def catalogue(postgresql_config: SystemConfig) -> AsyncIterator[Catalogue]:
    async with scratch_catalogue(postgresql_config) as url:
        catalogue = Catalogue(url)
        await catalogue.open()
        yield catalogue
        await catalogue.close()


async def test_only_the_last_revisions_are_kept(catalogue: Catalogue) -> None:
    schemas = CatalogueSchemas(catalogue)
    for name in ("one", "other"):
        for version in range(1, MAX_REVISIONS + 3):
            await schemas.put(
                StoredDatabase(name, name, version, {**EMPTY, "mode": str(version)}, {})
            )
    for name in ("one", "other"):
        revisions = await schemas.revisions(name, None, 2 * MAX_REVISIONS)
        newest = MAX_REVISIONS + 2
        assert [revision.version for revision in revisions] == [*range(newest, 2, -1)]
        assert await schemas.revision(name, 2) is None
        oldest = await schemas.revision(name, 3)
        assert oldest is not None
        assert oldest[1] == {**EMPTY, "mode": "3"}


async def test_tenants_see_their_own_authors_only(running: Guarded) -> None:
    """The operator set the schema, then its owner; then the database gets another owner."""
    path = f"/admin/v1/schemas/{running.database}"
    operator = await running.headers("operator", "schema")
    own = await running.headers("own", "schema")
    response = await running.admin.patch(path, json={"annotations": []}, headers=own)
    assert response.status_code == 200, response.text

    async def authors(headers: dict[str, str]) -> list[Any]:
        listed = await running.admin.get(f"{path}/revisions", headers=headers)
        assert listed.status_code == 200, listed.text
        subjects = [item["by"] for item in listed.json()["items"]]
        for number, by in enumerate(reversed(subjects), 1):
            revision = await running.admin.get(f"{path}/revisions/{number}", headers=headers)
            assert revision.json()["by"] == by
        return subjects

    theirs = {"tenant": "operator", "subject": "somebody"}
    mine = {"tenant": running.owner, "subject": "somebody"}
    assert await authors(operator) == [mine, theirs]
    assert await authors(own) == [mine, None]
    tenancy = running.container.mediator.tenancy
    await tenancy.disown(running.owner, running.database)
    await tenancy.own(running.other_tenant, running.database)
    assert await authors(await running.headers("stranger", "schema")) == [None, None]
