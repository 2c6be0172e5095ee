"""One write is held at the point that matters, while the other one takes its course."""

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
    dangling,
    delete,
    error_of,
    exists,
    referring,
)
from tests.process.transactions.foreign_keys.stalls import called, stalled
from tests.process.transactions.open_writes import all_over

pytestmark = pytest.mark.usefixtures("patient")

WITH_OBJECT = ("update", "read_modify_write")


async def created(mediator: Service, library: str, class_name: str = "authors") -> str:
    id_ = unique()
    await mediator.create(library, class_name, id_)
    return id_


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("how", WRITES)
async def test_a_deletion_waits_for_a_write_that_has_looked(
    mediator: Service, replica: Service, library: str, action: str, how: str
) -> None:
    author, id_ = await created(mediator, library), unique()
    if how in WITH_OBJECT:
        await mediator.create(library, action, id_)
    write = WRITES[how](library, action, id_, author)
    log, others = mediator.mediator.transactions.log, replica.mediator.transactions.log
    async with stalled(mediator, write, log, "commit") as (stall, writing):
        deleting = asyncio.create_task(error_of(replica, delete(library, author)))
        await called(others, "find", deleting, times=2)
        assert not deleting.done()
        stall.go_on.set()
        assert await writing is None
        refused = await deleting
    assert isinstance(refused, StillReferenced) == (action == "refuse")
    assert await exists(mediator, library, action, id_) == (action != "cascade")
    assert await exists(mediator, library, "authors", author) == (action == "refuse")
    assert not await dangling(mediator, library, action, id_)
    await all_over(mediator)


@pytest.mark.parametrize("how", WRITES)
async def test_a_write_waits_for_a_deletion_that_has_looked(
    mediator: Service, replica: Service, library: str, how: str
) -> None:
    author, id_ = await created(mediator, library), unique()
    if how in WITH_OBJECT:
        await mediator.create(library, "nullify", id_)
    log, others = mediator.mediator.transactions.log, replica.mediator.transactions.log
    async with stalled(mediator, delete(library, author), log, "commit") as (stall, deleting):
        write = WRITES[how](library, "nullify", id_, author)
        writing = asyncio.create_task(error_of(replica, write))
        await called(others, "begin", writing, times=2)
        stall.go_on.set()
        assert await deleting is None
        refused = await writing
    assert isinstance(refused, DanglingReference)
    assert [each.pointer for each in refused.locations] == ["/author"]
    assert not await dangling(mediator, library, "nullify", id_)
    await all_over(mediator)


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_write_between_the_first_search_and_the_intents_is_found(
    mediator: Service, replica: Service, library: str, action: str
) -> None:
    author, first, second = await created(mediator, library), unique(), unique()
    if action != "refuse":
        await mediator.create(library, action, first, author=author)
    log = mediator.mediator.transactions.log
    async with stalled(mediator, delete(library, author), log, "begin") as (stall, deleting):
        assert await error_of(replica, referring(library, action, second, author)) is None
        stall.go_on.set()
        refused = await deleting
    assert isinstance(refused, StillReferenced) == (action == "refuse")
    for id_ in (first, second):
        assert not await dangling(mediator, library, action, id_)
    assert await exists(mediator, library, action, second) == (action != "cascade")
    await all_over(mediator)


async def test_what_no_longer_refers_is_left_as_it_is(
    mediator: Service, replica: Service, library: str
) -> None:
    old, new, id_ = await created(mediator, library), await created(mediator, library), unique()
    await mediator.create(library, "cascade", id_, author=old)
    log = mediator.mediator.transactions.log
    async with stalled(mediator, delete(library, old), log, "begin") as (stall, deleting):
        assert await error_of(replica, WRITES["update"](library, "cascade", id_, new)) is None
        stall.go_on.set()
        assert await deleting is None
    assert await author_of(mediator, library, "cascade", id_) == new
    assert await error_of(replica, WRITES["update"](library, "cascade", id_, new)) is None
    await all_over(mediator)


async def test_a_target_that_is_being_written_is_waited_for(
    mediator: Service, replica: Service, library: str
) -> None:
    """Whether the write under way creates it or deletes it cannot be seen from its intent."""
    author = unique()
    create = Create(library, "authors", author, unique(), values={"name": "n", "hits": "h"})
    transactions, others = mediator.mediator.transactions, replica.mediator.transactions
    async with stalled(mediator, create, transactions.resolver, "apply") as (stall, creating):
        write = referring(library, "refuse", unique(), author)
        writing = asyncio.create_task(error_of(replica, write))
        await called(others.log, "begin", writing, times=2)
        stall.go_on.set()
        assert await creating is None
        assert await writing is None
    await all_over(mediator)


async def test_deletions_along_one_chain_do_not_wait_for_each_other(
    mediator: Service, replica: Service, library: str
) -> None:
    """Each finds entries of the others in the log, none of which may be waited for in a circle."""
    ids = [unique() for _ in range(8)]
    for parent, id_ in zip([None, *ids], ids, strict=False):
        await mediator.create(library, "nodes", id_, **({"author": parent} if parent else {}))
    both = (mediator, replica)
    errors = await asyncio.gather(
        *(error_of(both[n % 2], delete(library, id_, "nodes")) for n, id_ in enumerate(ids))
    )
    await all_over(mediator)
    for id_ in ids:
        assert not await dangling(mediator, library, "nodes", id_)
    assert any(error is None for error in errors)


def adding(library: str, id_: str, author: str) -> Update:
    push = OperatorCall("authors", Operator.PUSH, author)
    return Update(library, "several", id_, unique(), operators=(push,))


async def test_a_deletion_waits_for_an_element_that_is_being_added(
    mediator: Service, replica: Service, library: str
) -> None:
    author, other, id_ = (
        await created(mediator, library),
        await created(mediator, library),
        unique(),
    )
    await mediator.create(library, "several", id_, authors=[other])
    log, others = mediator.mediator.transactions.log, replica.mediator.transactions.log
    write = adding(library, id_, author)
    async with stalled(mediator, write, log, "commit") as (stall, writing):
        deleting = asyncio.create_task(error_of(replica, delete(library, author)))
        await called(others, "find", deleting, times=2)
        assert not deleting.done()
        stall.go_on.set()
        assert await writing is None
        assert await deleting is None
    assert await mediator.values(library, "several", id_) == {"authors": [other]}
    await all_over(mediator)


async def test_a_deletion_removes_its_element_from_the_list_as_it_is_then(
    mediator: Service, replica: Service, library: str
) -> None:
    author, other, id_ = (
        await created(mediator, library),
        await created(mediator, library),
        unique(),
    )
    await mediator.create(library, "several", id_, authors=[author])
    log = mediator.mediator.transactions.log
    async with stalled(mediator, delete(library, author), log, "begin") as (stall, deleting):
        assert await error_of(replica, adding(library, id_, other)) is None
        assert await error_of(replica, adding(library, id_, author)) is None
        stall.go_on.set()
        assert await deleting is None
    assert await mediator.values(library, "several", id_) == {"authors": [other]}
    await all_over(mediator)
