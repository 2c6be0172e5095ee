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
from tests.process.operation.backups import Start, back_up, restore, run_command
from tests.process.operation.histories import documents, history, restored_shop, versions
from tests.process.service import Service

TEXT: Final = {"type": "string"}


async def reads_by_version(shop: Shop, path: str, newest: int) -> list[Any]:
    """Return an object as clients of each version see it."""
    return [await shop.shown(path, version) for version in range(1, newest + 1)]


async def evolved_shop(service: Service) -> Shop:
    """Return a shop of seven versions.

    One field is renamed, converted and renamed back; another is dropped, and added again before
    its values are erased.
    """
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
    shop = await evolved_shop(source)
    expected = await reads_by_version(shop, "goods/a", 7)
    assert expected[0] == {"id": "a", "stock": 1}
    assert expected[2] == {"id": "a", "stock": 1, "exact": "5"}
    assert expected[6] == {"id": "a", "stock": 1, "cost": "5"}
    await back_up(source, tmp_path / "b")
    report = await restore(target, tmp_path / "b")
    assert report.histories == [shop.database]
    restored = restored_shop(target, shop.database)
    assert await history(restored) == await history(shop)
    assert await documents(restored) == await documents(shop)
    assert await reads_by_version(restored, "goods/a", 7) == expected
    response = await restored.send("PUT", "goods/a", 3, json={"exact": "7", "stock": 2})
    assert response.status_code == 200, response.text
    assert await restored.shown("goods/a", 5) == {"id": "a", "stock": 2, "cost": "7"}


async def test_changes_after_a_restoration_are_followed_from_earlier_versions(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    shop = await evolved_shop(source)
    await back_up(source, tmp_path / "b")
    await restore(target, tmp_path / "b")
    restored = restored_shop(target, shop.database)
    assert await restored.change(goods("left", "old", cost=TEXT), "goods.stock:left") == 8
    assert await versions(restored) == [8, 7, 6, 5, 4, 3, 2, 1]
    assert await restored.shown("goods/a", 1) == {"id": "a", "stock": 1}
    assert await restored.shown("goods/a", 3) == {"id": "a", "stock": 1, "exact": "5"}
    assert await restored.shown("goods/a", 8) == {"id": "a", "left": 1, "cost": "5"}
    assert_problem(await restored.send("GET", "goods/a", 9), 400, "invalid")


async def test_a_retired_version_stays_retired(installation: Start, tmp_path: Path) -> None:
    source, target = await installation(), await installation()
    shop = await evolved_shop(source)
    await source.mediator.control.retire_versions(shop.database, 3)
    await back_up(source, tmp_path / "b")
    await restore(target, tmp_path / "b")
    restored, control = restored_shop(target, shop.database), target.mediator.control
    assert_problem(await restored.send("GET", "goods/a", 2), 410, "schema-retired")
    assert await restored.shown("goods/a", 3) == {"id": "a", "stock": 1, "exact": "5"}
    assert await restored.change(goods("stock", cost=TEXT), drop=("goods.old",)) == 8
    assert_problem(await restored.send("GET", "goods/a", 2), 410, "schema-retired")
    await control.retire_versions(shop.database, 0)
    assert await restored.shown("goods/a", 2) == {"id": "a", "stock": 1}


@pytest.mark.parametrize("added_again", [False, True])
async def test_classes_and_fields_dropped_since_the_backup_are_served_to_earlier_versions(
    installation: Start, tmp_path: Path, *, added_again: bool
) -> None:
    service = await installation()
    shop = Shop.of(service)
    first = {**goods("price", "stock"), "carts": {"fields": {"owner": TEXT}}}
    await shop.change(first)
    await shop.send("PUT", "goods/a", json={"price": 5, "stock": 1})
    await shop.send("PUT", "carts/c", json={"owner": "ada"})
    await back_up(service, tmp_path / "b")
    saved_history = await history(shop)
    newest = await shop.change(goods("stock"), drop=("goods.price", "carts"))
    if added_again:
        newest = await shop.change(first)
    for _ in range(2):  # the second restoration has nothing to set
        report = await restore(service, tmp_path / "b", force=True)
        assert (report.overwritten, report.histories) == ([shop.database], [])
        assert await versions(shop) == [*range(newest + 1, 0, -1)]
    assert (await history(shop))[-1:] == saved_history
    for version in (None, 1, newest + 1):
        assert await shop.shown("goods/a", version) == {"id": "a", "price": 5, "stock": 1}
        assert await shop.shown("carts/c", version) == {"id": "c", "owner": "ada"}
    assert await shop.shown("goods/a", 2) == {"id": "a", "stock": 1}
    assert_problem(await shop.send("GET", "carts/c", 2), 404, "not-found")


async def test_a_field_that_was_renamed_since_is_not_overwritten(
    installation: Start, tmp_path: Path
) -> None:
    service = await installation()
    shop = Shop.of(service)
    await shop.change(goods("price"))
    await shop.send("PUT", "goods/a", json={"price": 5})
    await back_up(service, tmp_path / "b")
    expected = await history(shop)
    await shop.change(goods("cost"), "goods.price:cost")
    with pytest.raises(DataWouldMove):
        await restore(service, tmp_path / "b", force=True)
    assert await shop.shown("goods/a", 1) == {"id": "a", "price": 5}
    await service.mediator.control.delete_schema(shop.database)
    await restore(service, tmp_path / "b")
    assert await history(shop) == expected
    assert await shop.shown("goods/a", 1) == {"id": "a", "price": 5}


async def test_an_existing_database_keeps_its_history(installation: Start, tmp_path: Path) -> None:
    source, target = await installation(), await installation()
    shop = await evolved_shop(source)
    await source.mediator.control.retire_versions(shop.database, 3)
    await back_up(source, tmp_path / "b")
    restored = restored_shop(target, shop.database)
    await restored.change(goods("amount", cost=TEXT))
    await restored.change(goods("stock", cost=TEXT), "goods.amount:stock")
    saved_history = await history(restored)
    report = await restore(target, tmp_path / "b", force=True)
    assert report.histories == []
    assert await versions(restored) == [3, 2, 1]
    assert (await history(restored))[1:] == saved_history
    assert await restored.shown("goods/a", 1) == {"id": "a", "amount": 1, "cost": "5"}
    assert_problem(await restored.send("GET", "goods/a", 4), 400, "invalid")


async def test_a_version_of_another_database_brings_nothing_back(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    shop = Shop.of(source)
    await shop.change(goods("price"))
    await shop.send("PUT", "goods/a", json={"price": 5})
    await back_up(source, tmp_path / "b")
    restored = restored_shop(target, shop.database)
    await restored.change(goods("price"))
    await restored.change(goods())
    await restore(target, tmp_path / "b", force=True)
    assert await versions(restored) == [3, 2, 1]
    assert await restored.shown("goods/a", 3) == {"id": "a", "price": 5}
    assert await restored.shown("goods/a", 1) == {"id": "a"}


async def test_a_database_has_all_of_its_history_or_none(mediator: Service) -> None:
    def broken_history() -> Iterator[StoredRevision]:
        yield StoredRevision(1, {"classes": {}}, None, ChangeRecord())
        raise ArchiveInvalid("The second line cannot be read.")

    shop = Shop.of(mediator)
    control, document = mediator.mediator.control, {"classes": goods("price")}
    options = ChangeOptions(history=SchemaHistory(2, None, 0, broken_history()))
    with pytest.raises(ArchiveInvalid):
        await control.set_schema(shop.database, document, options=options)
    assert shop.database not in [entry["name"] for entry in await control.databases()]
    assert await shop.change(goods("price")) == 1
    change = await control.set_schema(shop.database, document, options=options)
    assert change.version == 2, "an existing database keeps its history"
    assert await versions(shop) == [2, 1]


async def test_nobody_waits_while_a_history_is_added(mediator: Service) -> None:
    """A history can have a hundred megabytes; replicas read the catalogue every second."""
    started, resume = Event(), Event()

    def slow_history() -> Iterator[StoredRevision]:
        started.set()
        assert resume.wait(60.0)
        yield StoredRevision(1, {"classes": {}}, None, ChangeRecord())

    shop = Shop.of(mediator)
    options = ChangeOptions(history=SchemaHistory(1, None, 0, slow_history()))
    restoring = asyncio.create_task(
        mediator.mediator.control.set_schema(
            shop.database, {"classes": goods("price")}, options=options
        )
    )
    replica = Catalogue(mediator.catalogue_url)
    try:
        assert await asyncio.to_thread(started.wait, 60.0)
        snapshot = await CatalogueSchemas(replica).snapshot()
        assert shop.database not in snapshot.databases
        await CatalogueSchemas(replica).release(Hold("nobody's", ()))  # as a change would
    finally:
        resume.set()
        await restoring
        await replica.close()
    assert await versions(shop) == [1]


async def test_a_backup_without_histories_is_restored_as_version_one(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    shop = await evolved_shop(source)
    await back_up(source, tmp_path / "b")
    manifest = read_manifest(tmp_path / "b")
    entry = replace(manifest.databases[shop.database], history=None)
    write_manifest(tmp_path / "b", replace(manifest, databases={shop.database: entry}))
    (tmp_path / "b" / history_file(shop.database)).unlink()
    for service in (target, source):  # into nothing, and over a database
        report = await restore(service, tmp_path / "b", force=True)
        assert (report.put, report.histories) == (1, [])
    restored = restored_shop(target, shop.database)
    assert await versions(restored) == [1]
    assert await restored.shown("goods/a", 1) == {"id": "a", "stock": 1, "cost": "5"}
    assert await versions(shop) == [7, 6, 5, 4, 3, 2, 1]


async def test_another_layout_of_the_same_schema_does_not_end_a_backup(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await installation()
    shop = await evolved_shop(service)
    schemas, read = service.mediator.stored_schemas, CatalogueRows.read

    async def read_after_change(self: CatalogueRows) -> list[dict[str, Any]]:
        [stored] = (await schemas.snapshot()).databases.values()
        layout = {"goods": {**stored.layout["goods"], "dropped": ["old", "other"]}}
        await schemas.put_layout(replace(stored, layout=layout), stored)
        return await read(self)

    monkeypatch.setattr(CatalogueRows, "read", read_after_change)
    manifest = await back_up(service, tmp_path / "b")
    assert manifest.databases[shop.database].history is not None


async def test_the_command_says_whose_history_it_restores(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    shop = await evolved_shop(source)
    await run_command(source, "backup", str(tmp_path / "b"))
    expected = f"schema histories restored: {shop.database}"
    assert expected in await run_command(target, "restore", str(tmp_path / "b"), "--dry-run")
    assert expected in await run_command(target, "restore", str(tmp_path / "b"))
    output = await run_command(target, "restore", str(tmp_path / "b"), "--force")
    assert "schema histories restored: none" in output
    await target.mediator.schemas.refresh()
    restored = restored_shop(target, shop.database)
    assert await history(restored) == await history(shop)
