"""Pinned versions: their validity, their retirement, their users, and caching."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from mediator.base.errors import SchemaRetired
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import schema_revisions
from mediator.control.former_schemas import MAX_SENDERS, MAX_USES, PinnedUses
from mediator.stores.port import SystemConfig
from tests.process.caching.guarded import Guarded
from tests.process.caching.newspaper import assert_problem
from tests.process.data.pinned.shop import Shop, goods
from tests.process.service import Service, service, unique


@pytest.fixture
async def shop(mediator: Service) -> Shop:
    shop = Shop.of(mediator)
    await shop.change(goods("price"))
    await shop.send("PUT", "goods/a", json={"price": 5})
    await shop.change(goods("cost"), "goods.price:cost")
    return shop


@pytest.mark.parametrize("version", ["", "0", "-1", "+1", "1.0", "x", "1, 1", "9" * 400, "٣"])
async def test_an_invalid_version_is_refused(shop: Shop, version: str) -> None:
    headers = {"portolan-schema": version.encode()}
    refused = await shop.send("GET", "goods/a", headers=headers)
    assert_problem(refused, 400, "invalid")
    assert refused.json()["errors"][0]["pointer"] == "Portolan-Schema"


async def test_a_future_version_is_refused(shop: Shop) -> None:
    assert_problem(await shop.send("GET", "goods/a", 3), 400, "invalid")
    assert await shop.change(goods("cost", "more")) == 3
    assert await shop.shown("goods/a", 3) == {"id": "a", "cost": 5}


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "openapi.json"), ("GET", "jobs"), ("POST", "jobs")]
)
async def test_routes_without_versions_refuse_them(shop: Shop, method: str, path: str) -> None:
    assert_problem(await shop.send(method, path, 1), 400, "invalid")


async def test_a_retired_version_is_refused_until_it_is_taken_back(shop: Shop) -> None:
    control = shop.service.mediator.control
    await shop.shown("goods/a", 1)
    [use] = await control.retire_versions(shop.database, 2, dry_run=True)
    assert (use.version, use.requests) == (1, 1)
    await shop.shown("goods/a", 1)
    await control.retire_versions(shop.database, 2)
    gone = await shop.send("GET", "goods/a", 1)
    assert_problem(gone, 410, "schema-retired")
    assert (gone.json()["present"], gone.json()["retired_before"]) == (2, 2)
    assert await shop.shown("goods/a", 2) == {"id": "a", "cost": 5}
    assert await shop.change(goods("cost", "more")) == 3
    assert_problem(await shop.send("GET", "goods/a", 1), 410, "schema-retired")
    await control.retire_versions(shop.database, 0)
    assert await shop.shown("goods/a", 1) == {"id": "a", "price": 5}


async def test_a_version_whose_changes_are_not_all_known_is_not_served(shop: Shop) -> None:
    """In a rolling upgrade older code, which records no names, has set a schema."""
    await shop.change(goods("cost", "more"))
    id_ = shop.service.mediator.data.model.databases[shop.database].id
    columns = schema_revisions.c
    unknown = update(schema_revisions).where(columns.database_id == id_, columns.version == 2)
    catalogue = Catalogue(shop.service.catalogue_url)
    await catalogue.open()
    try:
        await catalogue.execute(unknown.values(names=None))
    finally:
        await catalogue.close()
    assert_problem(await shop.send("GET", "goods/a", 1), 410, "schema-retired")
    assert await shop.shown("goods/a", 2) == {"id": "a", "cost": 5}


async def test_a_version_is_read_once_for_many_requests(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = shop.service.mediator.stored_schemas
    read, reads = stored.former, []

    async def record(*args: Any) -> Any:
        reads.append(args)
        return await read(*args)

    monkeypatch.setattr(stored, "former", record)
    await asyncio.gather(*(shop.shown("goods/a", 1) for _ in range(8)))
    await shop.shown("goods/a", 1)
    assert len(reads) == 1
    for _ in range(3):
        await shop.shown("goods/a")
    assert len(reads) == 1, "requests that are not pinned read nothing"


async def test_other_replicas_know_of_retirements_and_of_versions(
    mediator: Service, system_configs: Sequence[SystemConfig], shop: Shop
) -> None:
    async with service(system_configs, mediator.catalogue_url) as replica:
        other = Shop.of(replica)
        other.database = shop.database
        assert await other.shown("goods/a", 1) == {"id": "a", "price": 5}
        await mediator.mediator.control.retire_versions(shop.database, 2)
        await replica.mediator.schemas.refresh()
        assert_problem(await other.send("GET", "goods/a", 1), 410, "schema-retired")
        await shop.change(goods("cost", "more"))
        assert await other.shown("goods/a", 3) == {"id": "a", "cost": 5}


def test_uses_are_kept_in_bounded_memory() -> None:
    class Clock:
        def now(self) -> float:
            return 1.0

        def monotonic(self) -> float:
            return 1.0

    uses = PinnedUses(Clock())
    for number in range(MAX_SENDERS + 5):
        uses.note("db", 1, ("acme", str(number)))
    [use] = uses.of("db")
    assert use.requests == MAX_SENDERS + 5
    assert len(use.senders) == MAX_SENDERS
    assert ("acme", "0") not in use.senders
    for version in range(2, MAX_USES + 2):
        uses.note("db", version, ())
    assert len(uses.of("db")) == MAX_USES
    assert uses.of("db")[0].version == 2


class CachedDatabase:
    """A database of an installation with keys, with a class that caches may store."""

    def __init__(self, running: Guarded, database: str, headers: dict[str, str]) -> None:
        self.running, self.database, self.headers = running, database, headers

    async def change(self, name: str, visibility: str = "public", **params: str) -> None:
        class_ = {
            "cache": {"visibility": visibility, "max_ttl_s": 60},
            "fields": {name: {"type": "integer", "index": True}},
        }
        answer = await self.running.admin.put(
            f"/admin/v1/schemas/{self.database}",
            json={"classes": {"goods": class_}},
            params=params,
            headers=self.headers,
        )
        assert answer.status_code == 200, answer.text

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.running.data.get(
            f"/v1/{self.database}/{path}", headers={**self.headers, **headers}
        )


@pytest.fixture
async def cached(running: Guarded) -> CachedDatabase:
    cached = CachedDatabase(running, unique("db"), await running.headers("operator", "write"))
    await cached.change("price")
    path = f"/v1/{cached.database}/goods/a"
    await running.data.put(path, json={"price": 5}, headers=cached.headers)
    await cached.change("cost", rename="goods.price:cost")
    return cached


@pytest.mark.parametrize(
    ("present", "pinned"),
    [
        ("goods/a", "goods/a"),
        ("goods/a?fields=cost", "goods/a?fields=price"),
        ("goods/a?max_age=60", "goods/a?max_age=60"),
        ("goods?cost.ge=1", "goods?price.ge=1"),
        ("goods?fields=id", "goods?fields=id"),
        ("goods?ids=a", "goods?ids=a"),
    ],
)
async def test_no_cache_gives_a_client_the_names_of_another_version(
    cached: CachedDatabase, present: str, pinned: str
) -> None:
    shared = await cached.get(present)
    assert shared.status_code == 200, shared.text
    assert "Portolan-Schema" in shared.headers["vary"].split(", "), (
        "otherwise caches return it to any client"
    )
    pinned_answer = await cached.get(pinned, **{"portolan-schema": "1"})
    assert pinned_answer.status_code == 200, pinned_answer.text
    assert pinned_answer.headers["cache-control"] == "no-store"
    assert "portolan-expires" not in pinned_answer.headers
    assert "Portolan-Schema" in pinned_answer.headers["vary"].split(", ")
    if present != "goods?fields=id":
        assert (
            pinned_answer.headers.get("etag") != shared.headers.get("etag")
            or "etag" not in pinned_answer.headers
        )
        condition = {"if-none-match": shared.headers.get("etag", '"none"')}
        second = await cached.get(pinned, **{"portolan-schema": "1"}, **condition)
        assert second.status_code == 200, "a copy under other names must not be confirmed"


@pytest.mark.parametrize(
    "path", ["goods/a", "goods/a?fields=price", "goods?price.ge=1", "goods?fields=id"]
)
async def test_answers_to_a_pinned_client_are_not_cacheable(running: Guarded, path: str) -> None:
    """Only a field is added, so that answers of the class are cacheable at once."""
    headers = await running.headers("operator", "write")
    cached = CachedDatabase(running, unique("db"), headers)
    await cached.change("price")
    await running.data.put(
        f"/v1/{cached.database}/goods/a", json={"price": 5}, headers=cached.headers
    )
    await running.admin.patch(
        f"/admin/v1/schemas/{cached.database}",
        json={"classes": {"goods": {"fields": {"more": {"type": "string"}}}}},
        headers=cached.headers,
    )
    shared = await cached.get(path)
    assert shared.headers["cache-control"].startswith("public"), shared.headers
    pinned_answer = await cached.get(path, **{"portolan-schema": "1"})
    assert pinned_answer.json() == shared.json(), "there is no such value yet"
    assert pinned_answer.headers["cache-control"] == "no-store"
    assert "portolan-expires" not in pinned_answer.headers
    second = await cached.get(path)
    assert second.headers["cache-control"].startswith("public"), (
        "its layout is that of the present schema"
    )


async def test_a_copy_of_the_same_version_is_confirmed(cached: CachedDatabase) -> None:
    pinned = {"portolan-schema": "1"}
    first = await cached.get("goods/a", **pinned)
    assert first.headers["etag"].startswith('"j2~1.')
    second = await cached.get("goods/a", **pinned, **{"if-none-match": first.headers["etag"]})
    assert second.status_code == 304
    foreign = {"if-match": (await cached.get("goods/a")).headers["etag"]}
    path = f"/v1/{cached.database}/goods/a"
    refused = await cached.running.data.patch(
        path, json={"price": 6}, headers={**cached.headers, **pinned, **foreign}
    )
    assert_problem(refused, 412, "precondition-failed")


async def test_who_may_not_read_learns_nothing_of_versions(cached: CachedDatabase) -> None:
    await cached.change("cost", "private")
    stranger = await cached.running.headers("stranger", "read")
    body = {"operations": [{"op": "delete", "class": "goods", "id": "x"}]}
    for path in ("goods/x", "goods", "batch", "changes", "transactions"):
        method, json = ("POST", body) if path in ("batch", "transactions") else ("GET", None)
        answers = [
            await cached.running.data.request(
                method, f"/v1/{cached.database}/{path}", headers={**stranger, **pinned}, json=json
            )
            for pinned in ({}, {"portolan-schema": "1"}, {"portolan-schema": "77"})
        ]
        first, *others = [(answer.status_code, _without_instance(answer)) for answer in answers]
        assert others == [first, first], path


def _without_instance(answer: httpx.Response) -> Any:
    document = answer.json()
    if isinstance(document, dict):
        del document["instance"]
    return document


async def test_operators_see_who_uses_which_version(cached: CachedDatabase) -> None:
    reader = {"authorization": f"Bearer {await cached.running.key('read', tenant='operator')}"}
    for _ in range(2):
        await cached.running.data.get(
            f"/v1/{cached.database}/goods/a", headers={**reader, "portolan-schema": "1"}
        )
    path = f"/admin/v1/schemas/{cached.database}/pinned-versions"
    answer = await cached.running.admin.get(path, headers=cached.headers)
    [use] = answer.json()["items"]
    assert (use["version"], use["requests"]) == (1, 2)
    assert [(sender["tenant"], sender["subject"]) for sender in use["by"]] == [
        ("operator", "somebody")
    ]
    retired = {"retired_before": 2}
    dry_run = await cached.running.admin.put(
        path, json=retired, params={"dry_run": "true"}, headers=cached.headers
    )
    assert dry_run.json() == {**retired, "items": answer.json()["items"]}
    assert (await cached.get("goods/a", **{"portolan-schema": "1"})).status_code == 200
    retirement = await cached.running.admin.put(path, json=retired, headers=cached.headers)
    assert retirement.status_code == 200, retirement.text
    gone = await cached.get("goods/a", **{"portolan-schema": "1"})
    assert_problem(gone, 410, "schema-retired")
    for wrong in ({"retired_before": 99}, {"retired_before": -1}, {"retired_before": "2"}, {}):
        refused = await cached.running.admin.put(path, json=wrong, headers=cached.headers)
        assert_problem(refused, 400, "invalid")
    assert_problem(
        await cached.running.admin.get(
            "/admin/v1/schemas/nowhere/pinned-versions", headers=cached.headers
        ),
        404,
        "not-found",
    )


async def test_the_feed_has_the_names_of_the_version(cached: CachedDatabase) -> None:
    path = f"/v1/{cached.database}/goods/a"
    await cached.running.data.patch(path, json={"cost": 6}, headers=cached.headers)
    pinned = {"portolan-schema": "1"}
    changes: list[Any] = []
    while len(changes) < 2:
        page = await cached.get("changes?after=beginning&wait=5", **pinned)
        assert page.status_code == 200, page.text
        changes = page.json()["changes"]
    assert [change["after"] for change in changes] == [{"price": 5}, {"price": 6}]
    control = cached.running.container.mediator.control
    await control.retire_versions(cached.database, 2)
    gone = await cached.get("changes?after=beginning", **pinned)
    assert_problem(gone, 410, "schema-retired")
    with pytest.raises(SchemaRetired):
        await cached.running.container.mediator.former_schemas.find(cached.database, 1)
