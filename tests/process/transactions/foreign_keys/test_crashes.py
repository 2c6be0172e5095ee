"""Writes that set foreign keys, and deletions, killed at every step."""

from __future__ import annotations

import asyncio

import pytest

from mediator.base.errors import StillReferenced
from tests.process.service import Service, unique
from tests.process.transactions.crashable import CrashPoint
from tests.process.transactions.foreign_keys.library import (
    ACTIONS,
    author_of,
    create_reference,
    delete,
    exists,
    is_dangling,
    write_unlocked,
)
from tests.process.transactions.joint.pairs import attempt
from tests.process.transactions.open_writes import expire

before_and_after = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])


@before_and_after
@pytest.mark.parametrize("action", ACTIONS)
async def test_a_write_killed_at_any_step_leaves_no_dangling_reference(
    mediator: Service, replica: Service, library: str, crashable: None, action: str, after: bool
) -> None:
    """The author is deleted before the killed write is recovered."""
    step, crash = 0, CrashPoint(0, after)
    while not step or crash.is_over:
        crash, author, id_ = CrashPoint(step, after), unique(), unique()
        await mediator.create(library, "authors", author, name="n")
        acknowledged = await attempt(
            mediator, create_reference(library, action, id_, author), crash
        )
        # The deletion can have to wait for the lease of the killed write.
        deleting = asyncio.create_task(write_unlocked(replica, delete(library, author)))
        await expire(mediator)
        error = await deleting
        await expire(mediator)
        refers = await exists(mediator, library, action, id_)
        assert refers or not acknowledged or action == "cascade", crash.taken
        assert not await is_dangling(mediator, library, action, id_), crash.taken
        if action == "refuse":
            assert isinstance(error, StillReferenced) == refers, crash.taken
        else:
            assert error is None, crash.taken
        step += 1
    assert {"begin", "lock", "record_states", "commit", "write"} <= set(crash.taken)


@before_and_after
@pytest.mark.parametrize("action", ["cascade", "nullify"])
async def test_a_deletion_killed_at_any_step_is_atomic(
    mediator: Service, library: str, crashable: None, action: str, after: bool
) -> None:
    step, crash = 0, CrashPoint(0, after)
    while not step or crash.is_over:
        crash, author, ids = CrashPoint(step, after), unique(), [unique(), unique()]
        await mediator.create(library, "authors", author, name="n", hits="h")
        for id_ in ids:
            await mediator.create(library, action, id_, author=author)
        acknowledged = await attempt(mediator, delete(library, author), crash)
        await expire(mediator)
        author_exists = await exists(mediator, library, "authors", author)
        assert not (author_exists and acknowledged), crash.taken
        for id_ in ids:
            if action == "cascade":
                assert await exists(mediator, library, action, id_) == author_exists, crash.taken
            else:
                assert await author_of(mediator, library, action, id_) == (
                    author if author_exists else None
                ), crash.taken
        step += 1
    assert {"begin", "lock", "find_open", "commit", "write"} <= set(crash.taken)
