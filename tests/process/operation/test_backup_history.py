"""Former versions of schemas in backups: clients that pin one are served after a restoration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest

from mediator.archive.files import (
    ArchiveInvalid,
    history_file,
    read_manifest,
    write_manifest,
)
from mediator.base.errors import DataWouldMove
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.rows import CatalogueRows
from mediator.catalogue.schema_revisions import (
    ChangeRecord,
    SchemaHistory,
    StoredRevision,
)
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import Hold
from mediator.control.copy_report import CopyRules
from mediator.control.port import ChangeOptions
from mediator.schema.copies import parse_copy
from tests.process.caching.newspaper import assert_problem
from tests.process.data.pinned.shop import Shop, goods
from tests.process.operation.backups import Start, back_up, done, restore
from tests.process.operation.histories import documents, history, on, versions
from tests.process.service import Service

TEXT: Final = {"type": "string"}


async def shown(shop: Shop, path: str, newest: int) -> list[Any]:
    """Return what clients of all versions are shown."""
    return [await shop.shown(path, version) for version in range(1, newest + 1)]


async def evolved(service: Service) -> Shop:
    """Return a shop of seven versions: a field is renamed, converted, renamed back, and another
    one dropped, with values that are not erased yet, and added again."""
    shop = Shop.of(service)
    await shop.change(goods("price", "stock", "old"))
    await shop.send("PUT", "goods/a", json={"price": 5, "stock": 1, "old": 9})
    await shop.change(goods("cost", "stock", "old"), "goods.price:cost")
    await shop.change(goods("cost", "stock", "old", exact=TEXT))
    copy = parse_copy("goods.cost:exact")
    await service.mediator.copying.run(shop.database, copy, CopyRules(), for_s=60.0)
    document = {"classes": goods("stock", "old", exact=TEXT)}
    options = ChangeOptions(move=(copy,))
    await service.mediator.control.set_schema(shop.database, document, options=options)
    await shop.change(goods("stock", "old", cost=TEXT), "goods.exact:cost")
    await shop.change(goods("stock", cost=TEXT), drop=("goods.old",))
    assert await shop.change(goods("stock", "old", cost=TEXT)) == 7
    return shop


async def test_every_version_is_served_as_before(installation: Start, tmp_path: Path) -> None:
    source, target = await installation(), await installation()
    shop = await evolved(source)
    seen = await shown(shop, "goods/a", 7)
    assert seen[0] == {"id": "a", "stock": 1}
    assert seen[2] == {"id": "a", "stock": 1, "exact": "5"}
    assert seen[6] == {"id": "a", "stock": 1, "cost": "5"}
    await back_up(source, tmp_path / "b")
    report = await restore(target, tmp_path / "b")
    assert report.histories == [shop.database]
    there = on(target, shop.database)
    assert await history(there) == await history(shop)
    assert await documents(there) == await documents(shop)
    assert await shown(there, "goods/a", 7) == seen
    written = await there.send("PUT", "goods/a", 3, json={"exact": "7", "stock": 2})
    assert written.status_code == 200, written.text
    assert await there.shown("goods/a", 5) == {"id": "a", "stock": 2, "cost": "7"}


async def test_what_changes_after_a_restoration_is_followed_from_versions_before(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    shop = await evolved(source)
    await back_up(source, tmp_path / "b")
    await restore(target, tmp_path / "b")
    there = on(target, shop.database)
    assert await there.change(goods("left", "old", cost=TEXT), "goods.stock:left") == 8
    assert await versions(there) == [8, 7, 6, 5, 4, 3, 2, 1]
    assert await there.shown("goods/a", 1) == {"id": "a", "stock": 1}
    assert await there.shown("goods/a", 3) == {"id": "a", "stock": 1, "exact": "5"}
    assert await there.shown("goods/a", 8) == {"id": "a", "left": 1, "cost": "5"}
    assert_problem(await there.send("GET", "goods/a", 9), 400, "invalid")


async def test_a_retired_version_stays_retired(installation: Start, tmp_path: Path) -> None:
    source, target = await installation(), await installation()
    shop = await evolved(source)
    await source.mediator.control.retire_versions(shop.database, 3)
    await back_up(source, tmp_path / "b")
    await restore(target, tmp_path / "b")
    there, control = on(target, shop.database), target.mediator.control
    assert_problem(await there.send("GET", "goods/a", 2), 410, "schema-retired")
    assert await there.shown("goods/a", 3) == {"id": "a", "stock": 1, "exact": "5"}
    assert await there.change(goods("stock", cost=TEXT), drop=("goods.old",)) == 8
    assert_problem(await there.send("GET", "goods/a", 2), 410, "schema-retired")
    await control.retire_versions(shop.database, 0)
    assert await there.shown("goods/a", 2) == {"id": "a", "stock": 1}


@pytest.mark.parametrize("added_again", [False, True])
async def test_what_was_dropped_since_the_backup_is_served_to_those_who_knew_it(
    installation: Start, tmp_path: Path, *, added_again: bool
) -> None:
    own = await installation()
    shop = Shop.of(own)
    first = {**goods("price", "stock"), "carts": {"fields": {"owner": TEXT}}}
    await shop.change(first)
    await shop.send("PUT", "goods/a", json={"price": 5, "stock": 1})
    await shop.send("PUT", "carts/c", json={"owner": "ada"})
    await back_up(own, tmp_path / "b")
    kept = await history(shop)
    newest = await shop.change(goods("stock"), drop=("goods.price", "carts"))
    if added_again:
        newest = await shop.change(first)
    for _ in range(2):  # the second one has nothing to set
        report = await restore(own, tmp_path / "b", force=True)
        assert (report.overwritten, report.histories) == ([shop.database], [])
        assert await versions(shop) == [*range(newest + 1, 0, -1)]
    assert (await history(shop))[-1:] == kept
    for version in (None, 1, newest + 1):
        assert await shop.shown("goods/a", version) == {"id": "a", "price": 5, "stock": 1}
        assert await shop.shown("carts/c", version) == {"id": "c", "owner": "ada"}
    assert await shop.shown("goods/a", 2) == {"id": "a", "stock": 1}
    assert_problem(await shop.send("GET", "carts/c", 2), 404, "not-found")


async def test_a_field_that_was_renamed_since_is_not_overwritten(
    installation: Start, tmp_path: Path
) -> None:
    own = await installation()
    shop = Shop.of(own)
    await shop.change(goods("price"))
    await shop.send("PUT", "goods/a", json={"price": 5})
    await back_up(own, tmp_path / "b")
    seen = await history(shop)
    await shop.change(goods("cost"), "goods.price:cost")
    with pytest.raises(DataWouldMove):
        await restore(own, tmp_path / "b", force=True)
    assert await shop.shown("goods/a", 1) == {"id": "a", "price": 5}
    await own.mediator.control.delete_schema(shop.database)
    await restore(own, tmp_path / "b")
    assert await history(shop) == seen
    assert await shop.shown("goods/a", 1) == {"id": "a", "price": 5}


async def test_a_database_that_is_there_keeps_its_own_history(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    shop = await evolved(source)
    await source.mediator.control.retire_versions(shop.database, 3)
    await back_up(source, tmp_path / "b")
    there = on(target, shop.database)
    await there.change(goods("amount", cost=TEXT))
    await there.change(goods("stock", cost=TEXT), "goods.amount:stock")
    kept = await history(there)
    report = await restore(target, tmp_path / "b", force=True)
    assert report.histories == []
    assert await versions(there) == [3, 2, 1]
    assert (await history(there))[1:] == kept
    assert await there.shown("goods/a", 1) == {"id": "a", "amount": 1, "cost": "5"}
    assert_problem(await there.send("GET", "goods/a", 4), 400, "invalid")


async def test_a_version_of_another_database_brings_nothing_back(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    shop = Shop.of(source)
    await shop.change(goods("price"))
    await shop.send("PUT", "goods/a", json={"price": 5})
    await back_up(source, tmp_path / "b")
    there = on(target, shop.database)
    await there.change(goods("price"))
    await there.change(goods())
    await restore(target, tmp_path / "b", force=True)
    assert await versions(there) == [3, 2, 1]
    assert await there.shown("goods/a", 3) == {"id": "a", "price": 5}
    assert await there.shown("goods/a", 1) == {"id": "a"}


async def test_a_database_has_all_of_its_history_or_none(mediator: Service) -> None:
    def broken() -> Iterator[StoredRevision]:
        yield StoredRevision(1, {"classes": {}}, None, ChangeRecord())
        raise ArchiveInvalid("The second line cannot be read.")

    shop = Shop.of(mediator)
    control, document = mediator.mediator.control, {"classes": goods("price")}
    options = ChangeOptions(history=SchemaHistory(2, None, 0, broken()))
    with pytest.raises(ArchiveInvalid):
        await control.set_schema(shop.database, document, options=options)
    assert shop.database not in [each["name"] for each in await control.databases()]
    assert await shop.change(goods("price")) == 1
    change = await control.set_schema(shop.database, document, options=options)
    assert change.version == 2, "one that is there has its own"
    assert await versions(shop) == [2, 1]


async def test_nobody_waits_while_a_history_is_added(mediator: Service) -> None:
    """It may be a hundred megabytes; replicas read the catalogue every second."""
    begun, goes_on = Event(), Event()

    def slow() -> Iterator[StoredRevision]:
        begun.set()
        assert goes_on.wait(60.0)
        yield StoredRevision(1, {"classes": {}}, None, ChangeRecord())

    shop = Shop.of(mediator)
    options = ChangeOptions(history=SchemaHistory(1, None, 0, slow()))
    restoring = asyncio.create_task(
        mediator.mediator.control.set_schema(
            shop.database, {"classes": goods("price")}, options=options
        )
    )
    replica = Catalogue(mediator.catalogue_url)
    try:
        assert await asyncio.to_thread(begun.wait, 60.0)
        found = await CatalogueSchemas(replica).snapshot()
        assert shop.database not in found.databases
        await CatalogueSchemas(replica).release(Hold("nobody's", ()))  # as a change would
    finally:
        goes_on.set()
        await restoring
        await replica.close()
    assert await versions(shop) == [1]


async def test_a_backup_without_histories_is_restored_as_version_one(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    shop = await evolved(source)
    await back_up(source, tmp_path / "b")
    manifest = read_manifest(tmp_path / "b")
    part = replace(manifest.databases[shop.database], history=None)
    write_manifest(tmp_path / "b", replace(manifest, databases={shop.database: part}))
    (tmp_path / "b" / history_file(shop.database)).unlink()
    for service in (target, source):  # where there is none, and over one
        report = await restore(service, tmp_path / "b", force=True)
        assert (report.put, report.histories) == (1, [])
    there = on(target, shop.database)
    assert await versions(there) == [1]
    assert await there.shown("goods/a", 1) == {"id": "a", "stock": 1, "cost": "5"}
    assert await versions(shop) == [7, 6, 5, 4, 3, 2, 1]


async def test_another_layout_of_the_same_schema_does_not_end_a_backup(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await installation()
    shop = await evolved(own)
    schemas, read = own.mediator.stored_schemas, CatalogueRows.read

    async def changing(self: CatalogueRows) -> list[dict[str, Any]]:
        [stored] = (await schemas.snapshot()).databases.values()
        layout = {"goods": {**stored.layout["goods"], "dropped": ["old", "other"]}}
        await schemas.put_layout(replace(stored, layout=layout), stored)
        return await read(self)

    monkeypatch.setattr(CatalogueRows, "read", changing)
    manifest = await back_up(own, tmp_path / "b")
    assert manifest.databases[shop.database].history is not None


async def test_the_command_says_whose_history_it_restores(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    shop = await evolved(source)
    await done(source, "backup", str(tmp_path / "b"))
    expected = f"schema histories restored: {shop.database}"
    assert expected in await done(target, "restore", str(tmp_path / "b"), "--dry-run")
    assert expected in await done(target, "restore", str(tmp_path / "b"))
    again = await done(target, "restore", str(tmp_path / "b"), "--force")
    assert "schema histories restored: none" in again
    await target.mediator.schemas.refresh()
    there = on(target, shop.database)
    assert await history(there) == await history(shop)
