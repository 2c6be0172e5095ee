"""The erasure of dropped fields during further drops, and while a system is unavailable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from mediator.base.errors import MediatorError, PreconditionFailed, Unavailable
from mediator.control import erasure, membership
from mediator.control.port import ChangeOptions
from mediator.model.operations import Update
from mediator.schema.types import Values
from mediator.stores.port import Erasing, Fragment, StoreUnavailable
from tests.process.control.test_dropped_fields import (
    DROP,
    LAST,
    classes,
    erase_here_only,
    fill_database,
    late,
    names_of,
    put,
    residue,
)
from tests.process.service import Service, unique

__all__ = ["late"]  # a fixture

TAGS: Final = ChangeOptions(drop=frozenset({"products.tags"}))


async def drop_price(mediator: Service, system: str = "redis") -> str:
    """Return a database with a field that was dropped and not yet erased."""
    database = await fill_database(mediator, system)
    await put(mediator, database, classes(system, "price"), options=LAST)
    return database


async def drop_tags(mediator: Service, database: str, system: str = "redis") -> None:
    await put(mediator, database, classes(system, "price", "tags"), options=TAGS)


async def erase_all(mediator: Service, database: str) -> int:
    """Erase all dropped fields; return the number of runs."""
    runs = 0
    while (await names_of(mediator, database))[1]:
        await mediator.mediator.erasure.run()
        runs += 1
    return runs


@pytest.mark.parametrize("system", ["redis", "mongo"])
async def test_a_field_that_is_dropped_during_an_erasure_is_erased_from_the_beginning(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    erase_here_only(monkeypatch)
    monkeypatch.setattr(erasure, "PAGE", 1)
    monkeypatch.setattr(erasure, "ERASE_S", -1.0)
    runs = await erase_all(mediator, await drop_price(mediator, system))
    database = await drop_price(mediator, system)
    for _ in range(runs // 2):  # some objects are erased already
        await mediator.mediator.erasure.run()
    assert await names_of(mediator, database) == (["price"], ["price"])
    await drop_tags(mediator, database, system)
    await erase_all(mediator, database)
    assert not await residue(mediator, database)


def after_agreement(
    monkeypatch: pytest.MonkeyPatch, mediator: Service, change: Callable[[], Awaitable[object]]
) -> None:
    """Await `change` after the first agreement of all replicas."""
    members = mediator.mediator.membership
    agree, is_due = members.agree, True

    async def agree_then_change(epoch: int) -> None:
        nonlocal is_due
        await agree(epoch)
        if is_due:
            is_due = False
            await change()

    monkeypatch.setattr(members, "agree", agree_then_change)


async def test_a_field_dropped_after_the_agreement_is_erased_later(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that has confirmed only the previous change can still write it."""
    erase_here_only(monkeypatch)
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    database = await fill_database(mediator, "redis")
    await late.mediator.membership.renew()
    await put(mediator, database, classes("redis", "price"), options=LAST)
    await late.mediator.membership.renew()
    after_agreement(monkeypatch, mediator, lambda: drop_tags(mediator, database))
    with pytest.raises(PreconditionFailed):
        await mediator.mediator.erasure.run()
    values: Values = {"tags": ["late"]}
    await late.mediator.data.write(Update(database, "products", "d", unique(), values=values))
    assert (await names_of(mediator, database))[1] == ["price", "tags"]
    await late.mediator.membership.renew()
    await erase_all(mediator, database)
    assert not await residue(mediator, database)


async def test_a_drop_that_follows_a_change_of_another_replica_is_waited_for(
    mediator: Service, replica: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes of others can come between a replica's last epoch and its own change."""
    erase_here_only(monkeypatch)
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    await replica.mediator.scheduler.stop()
    database = await fill_database(replica, "redis")
    for plane in (mediator, late):
        await plane.mediator.membership.renew()
    catalogue = replica.mediator.stored_schemas
    put_schema = catalogue.put

    async def put_after_another(*change: Any) -> Any:
        await mediator.put_schema(classes("redis"))
        return await put_schema(*change)

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", put_after_another)
        await put(replica, database, classes("redis", "price"), options=LAST)
    await mediator.mediator.membership.renew()
    with pytest.raises(Unavailable, match="do not confirm"):
        await replica.mediator.erasure.run()


async def test_a_class_that_is_dropped_meanwhile_delays_no_other(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    erase_here_only(monkeypatch)
    dropped, other = sorted([await drop_price(mediator), await drop_price(mediator)])
    drop = ChangeOptions(drop=frozenset({"products"}))
    after_agreement(monkeypatch, mediator, lambda: put(mediator, dropped, {}, options=drop))
    with pytest.raises(PreconditionFailed):
        await mediator.mediator.erasure.run()
    assert (await mediator.mediator.schemas.stored(dropped)).layout == {}
    assert await names_of(mediator, other) == (["price"], [])


async def test_an_unavailable_system_delays_only_its_own_erasures(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    erase_here_only(monkeypatch)
    blocked, other = sorted([await drop_price(mediator), await drop_price(mediator)])
    blocked_id = mediator.mediator.data.model.databases[blocked].id
    store = mediator.mediator.systems.get("redis").store
    assert isinstance(store, Erasing)
    erase = store.erase

    async def erase_others(fragment: Fragment, *more: Any) -> str | None:
        if fragment.database_id == blocked_id:
            raise StoreUnavailable("away")
        return await erase(fragment, *more)

    with monkeypatch.context() as patched:
        patched.setattr(store, "erase", erase_others)
        with pytest.raises(MediatorError):
            await mediator.mediator.erasure.run()
    assert await names_of(mediator, blocked) == (["price"], ["price"])
    assert await names_of(mediator, other) == (["price"], [])
    await mediator.mediator.erasure.run()
    assert await names_of(mediator, blocked) == (["price"], [])


async def test_versions_retired_meanwhile_stay_retired(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    erase_here_only(monkeypatch)
    database = await fill_database(mediator, "redis")
    await put(mediator, database, classes("redis", "price", "tags"), options=DROP)
    retire = mediator.mediator.schemas.retire
    after_agreement(monkeypatch, mediator, lambda: retire(database, 2, dry_run=False))
    await mediator.mediator.erasure.run()
    assert await names_of(mediator, database) == (["price", "tags"], [])
    assert (await mediator.mediator.schemas.stored(database)).retired_before == 2
    assert mediator.mediator.data.model.databases[database].retired_before == 2
