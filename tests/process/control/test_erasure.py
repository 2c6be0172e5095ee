"""The erasure of dropped fields while others drop further ones, and while a system is away."""

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
    erased_here_only,
    filled,
    held,
    late,
    names_of,
    put,
)
from tests.process.service import Service, unique

__all__ = ["late"]  # a fixture

TAGS: Final = ChangeOptions(drop=frozenset({"products.tags"}))


async def without_price(of: Service, system: str = "redis") -> str:
    """Return a database of which a field was dropped, and not erased yet."""
    database = await filled(of, system)
    await put(of, database, classes(system, "price"), options=LAST)
    return database


async def without_tags_either(of: Service, database: str, system: str = "redis") -> None:
    await put(of, database, classes(system, "price", "tags"), options=TAGS)


async def erased(of: Service, database: str) -> int:
    """Erase all that is dropped; returns the number of runs."""
    runs = 0
    while (await names_of(of, database))[1]:
        await of.mediator.erasure.run()
        runs += 1
    return runs


@pytest.mark.parametrize("system", ["redis", "mongo"])
async def test_a_field_that_is_dropped_during_an_erasure_is_erased_from_the_beginning(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    erased_here_only(monkeypatch)
    monkeypatch.setattr(erasure, "PAGE", 1)
    monkeypatch.setattr(erasure, "ERASE_S", -1.0)
    runs = await erased(mediator, await without_price(mediator, system))
    database = await without_price(mediator, system)
    for _ in range(runs // 2):  # some objects are behind it
        await mediator.mediator.erasure.run()
    assert await names_of(mediator, database) == (["price"], ["price"])
    await without_tags_either(mediator, database, system)
    await erased(mediator, database)
    assert not await held(mediator, database)


def once_agreed(
    monkeypatch: pytest.MonkeyPatch, of: Service, change: Callable[[], Awaitable[object]]
) -> None:
    """Change something once, as soon as all replicas have agreed for the first time."""
    members = of.mediator.membership
    agree, is_due = members.agree, True

    async def then_changed(epoch: int) -> None:
        nonlocal is_due
        await agree(epoch)
        if is_due:
            is_due = False
            await change()

    monkeypatch.setattr(members, "agree", then_changed)


async def test_a_field_that_is_dropped_once_all_have_agreed_is_erased_later(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica may still write it: it has confirmed no more than the change before."""
    erased_here_only(monkeypatch)
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    database = await filled(mediator, "redis")
    await late.mediator.membership.renew()
    await put(mediator, database, classes("redis", "price"), options=LAST)
    await late.mediator.membership.renew()
    once_agreed(monkeypatch, mediator, lambda: without_tags_either(mediator, database))
    with pytest.raises(PreconditionFailed):
        await mediator.mediator.erasure.run()
    values: Values = {"tags": ["late"]}
    await late.mediator.data.write(Update(database, "products", "d", unique(), values=values))
    assert (await names_of(mediator, database))[1] == ["price", "tags"]
    await late.mediator.membership.renew()
    await erased(mediator, database)
    assert not await held(mediator, database)


async def test_a_drop_that_follows_a_change_of_another_replica_is_waited_for(
    mediator: Service, replica: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch that a replica knows is before its own change, if others came between."""
    erased_here_only(monkeypatch)
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    await replica.mediator.scheduler.stop()
    database = await filled(replica, "redis")
    for of in (mediator, late):
        await of.mediator.membership.renew()
    catalogue = replica.mediator.stored_schemas
    put_schema = catalogue.put

    async def after_another(*change: Any) -> Any:
        await mediator.put_schema(classes("redis"))
        return await put_schema(*change)

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", after_another)
        await put(replica, database, classes("redis", "price"), options=LAST)
    await mediator.mediator.membership.renew()
    with pytest.raises(Unavailable, match="do not confirm"):
        await replica.mediator.erasure.run()


async def test_a_class_that_is_dropped_meanwhile_keeps_nothing_waiting(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    erased_here_only(monkeypatch)
    gone, other = sorted([await without_price(mediator), await without_price(mediator)])
    drop = ChangeOptions(drop=frozenset({"products"}))
    once_agreed(monkeypatch, mediator, lambda: put(mediator, gone, {}, options=drop))
    with pytest.raises(PreconditionFailed):
        await mediator.mediator.erasure.run()
    assert (await mediator.mediator.schemas.stored(gone)).layout == {}
    assert await names_of(mediator, other) == (["price"], [])


async def test_a_system_that_is_away_keeps_only_its_own_waiting(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    erased_here_only(monkeypatch)
    away, other = sorted([await without_price(mediator), await without_price(mediator)])
    away_id = mediator.mediator.data.model.databases[away].id
    store = mediator.mediator.systems.get("redis").store
    assert isinstance(store, Erasing)
    erase = store.erase

    async def partly(fragment: Fragment, *more: Any) -> str | None:
        if fragment.database_id == away_id:
            raise StoreUnavailable("away")
        return await erase(fragment, *more)

    with monkeypatch.context() as patched:
        patched.setattr(store, "erase", partly)
        with pytest.raises(MediatorError):
            await mediator.mediator.erasure.run()
    assert await names_of(mediator, away) == (["price"], ["price"])
    assert await names_of(mediator, other) == (["price"], [])
    await mediator.mediator.erasure.run()
    assert await names_of(mediator, away) == (["price"], [])


async def test_what_is_retired_meanwhile_stays_so(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    erased_here_only(monkeypatch)
    database = await filled(mediator, "redis")
    await put(mediator, database, classes("redis", "price", "tags"), options=DROP)
    retire = mediator.mediator.schemas.retire
    once_agreed(monkeypatch, mediator, lambda: retire(database, 2, dry_run=False))
    await mediator.mediator.erasure.run()
    assert await names_of(mediator, database) == (["price", "tags"], [])
    assert (await mediator.mediator.schemas.stored(database)).retired_before == 2
    assert mediator.mediator.data.model.databases[database].retired_before == 2
