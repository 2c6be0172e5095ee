"""One write stalls at the critical point, while the other one runs."""

from __future__ import annotations

import asyncio

import pytest

from mediator.base.errors import DanglingReference, StillReferenced
from mediator.model.operations import Create, Update
from mediator.model.operators import Operator, OperatorCall
from tests.process.service import Service, unique
from tests.process.transactions.foreign_keys.library import (
    ACTIONS,
    WRITES,
    author_of,
    create_reference,
    delete,
    error_of,
    exists,
    is_dangling,
)
from tests.process.transactions.foreign_keys.stalls import stall_at, wait_for_calls
from tests.process.transactions.open_writes import all_over

pytestmark = pytest.mark.usefixtures("patient")

WITH_OBJECT = ("update", "read_modify_write")


async def create_object(mediator: Service, library: str, class_name: str = "authors") -> str:
    id_ = unique()
    await mediator.create(library, class_name, id_)
    return id_


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", WRITES)
async def test_a_deletion_waits_for_a_write_that_has_checked_its_target(
    mediator: Service, replica: Service, library: str, action: str, kind: str
) -> None:
    author, id_ = await create_object(mediator, library), unique()
    if kind in WITH_OBJECT:
        await mediator.create(library, action, id_)
    write = WRITES[kind](library, action, id_, author)
    log, other_log = mediator.mediator.transactions.log, replica.mediator.transactions.log
    async with stall_at(mediator, write, log, "commit") as (stall, writing):
        deleting = asyncio.create_task(error_of(replica, delete(library, author)))
        await wait_for_calls(other_log, "find", deleting, times=2)
        assert not deleting.done()
        stall.resume.set()
        assert await writing is None
        refused = await deleting
    assert isinstance(refused, StillReferenced) == (action == "refuse")
    assert await exists(mediator, library, action, id_) == (action != "cascade")
    assert await exists(mediator, library, "authors", author) == (action == "refuse")
    assert not await is_dangling(mediator, library, action, id_)
    await all_over(mediator)


@pytest.mark.parametrize("kind", WRITES)
async def test_a_write_waits_for_a_deletion_that_has_searched(
    mediator: Service, replica: Service, library: str, kind: str
) -> None:
    author, id_ = await create_object(mediator, library), unique()
    if kind in WITH_OBJECT:
        await mediator.create(library, "nullify", id_)
    log, other_log = mediator.mediator.transactions.log, replica.mediator.transactions.log
    async with stall_at(mediator, delete(library, author), log, "commit") as (stall, deleting):
        write = WRITES[kind](library, "nullify", id_, author)
        writing = asyncio.create_task(error_of(replica, write))
        await wait_for_calls(other_log, "begin", writing, times=2)
        stall.resume.set()
        assert await deleting is None
        refused = await writing
    assert isinstance(refused, DanglingReference)
    assert [location.pointer for location in refused.locations] == ["/author"]
    assert not await is_dangling(mediator, library, "nullify", id_)
    await all_over(mediator)


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_write_between_the_first_search_and_the_intents_is_found(
    mediator: Service, replica: Service, library: str, action: str
) -> None:
    author, first, second = await create_object(mediator, library), unique(), unique()
    if action != "refuse":
        await mediator.create(library, action, first, author=author)
    log = mediator.mediator.transactions.log
    async with stall_at(mediator, delete(library, author), log, "begin") as (stall, deleting):
        assert await error_of(replica, create_reference(library, action, second, author)) is None
        stall.resume.set()
        refused = await deleting
    assert isinstance(refused, StillReferenced) == (action == "refuse")
    for id_ in (first, second):
        assert not await is_dangling(mediator, library, action, id_)
    assert await exists(mediator, library, action, second) == (action != "cascade")
    await all_over(mediator)


async def test_an_object_that_no_longer_refers_is_not_deleted(
    mediator: Service, replica: Service, library: str
) -> None:
    old, new, id_ = (
        await create_object(mediator, library),
        await create_object(mediator, library),
        unique(),
    )
    await mediator.create(library, "cascade", id_, author=old)
    log = mediator.mediator.transactions.log
    async with stall_at(mediator, delete(library, old), log, "begin") as (stall, deleting):
        assert await error_of(replica, WRITES["update"](library, "cascade", id_, new)) is None
        stall.resume.set()
        assert await deleting is None
    assert await author_of(mediator, library, "cascade", id_) == new
    assert await error_of(replica, WRITES["update"](library, "cascade", id_, new)) is None
    await all_over(mediator)


async def test_a_target_that_is_being_written_is_waited_for(
    mediator: Service, replica: Service, library: str
) -> None:
    """Its intent does not tell whether the write under way creates or deletes it."""
    author = unique()
    create = Create(library, "authors", author, unique(), values={"name": "n", "hits": "h"})
    transactions, others = mediator.mediator.transactions, replica.mediator.transactions
    async with stall_at(mediator, create, transactions.resolver, "apply") as (stall, creating):
        write = create_reference(library, "refuse", unique(), author)
        writing = asyncio.create_task(error_of(replica, write))
        await wait_for_calls(others.log, "begin", writing, times=2)
        stall.resume.set()
        assert await creating is None
        assert await writing is None
    await all_over(mediator)


async def test_deletions_along_one_chain_do_not_wait_for_each_other(
    mediator: Service, replica: Service, library: str
) -> None:
    """Each finds the log entries of the others; none may wait for another in a cycle."""
    ids = [unique() for _ in range(8)]
    for parent, id_ in zip([None, *ids], ids, strict=False):
        await mediator.create(library, "nodes", id_, **({"author": parent} if parent else {}))
    both = (mediator, replica)
    errors = await asyncio.gather(
        *(error_of(both[n % 2], delete(library, id_, "nodes")) for n, id_ in enumerate(ids))
    )
    await all_over(mediator)
    for id_ in ids:
        assert not await is_dangling(mediator, library, "nodes", id_)
    assert any(error is None for error in errors)


def add_author(library: str, id_: str, author: str) -> Update:
    push = OperatorCall("authors", Operator.PUSH, author)
    return Update(library, "several", id_, unique(), operators=(push,))


async def test_a_deletion_waits_for_an_element_that_is_being_added(
    mediator: Service, replica: Service, library: str
) -> None:
    author, other, id_ = (
        await create_object(mediator, library),
        await create_object(mediator, library),
        unique(),
    )
    await mediator.create(library, "several", id_, authors=[other])
    log, other_log = mediator.mediator.transactions.log, replica.mediator.transactions.log
    write = add_author(library, id_, author)
    async with stall_at(mediator, write, log, "commit") as (stall, writing):
        deleting = asyncio.create_task(error_of(replica, delete(library, author)))
        await wait_for_calls(other_log, "find", deleting, times=2)
        assert not deleting.done()
        stall.resume.set()
        assert await writing is None
        assert await deleting is None
    assert await mediator.values(library, "several", id_) == {"authors": [other]}
    await all_over(mediator)


async def test_a_deletion_removes_its_element_from_the_current_list(
    mediator: Service, replica: Service, library: str
) -> None:
    author, other, id_ = (
        await create_object(mediator, library),
        await create_object(mediator, library),
        unique(),
    )
    await mediator.create(library, "several", id_, authors=[author])
    log = mediator.mediator.transactions.log
    async with stall_at(mediator, delete(library, author), log, "begin") as (stall, deleting):
        assert await error_of(replica, add_author(library, id_, other)) is None
        assert await error_of(replica, add_author(library, id_, author)) is None
        stall.resume.set()
        assert await deleting is None
    assert await mediator.values(library, "several", id_) == {"authors": [other]}
    await all_over(mediator)
