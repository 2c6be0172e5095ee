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
    dangling,
    delete,
    exists,
    once_free,
    referring,
)
from tests.process.transactions.joint.pairs import attempt
from tests.process.transactions.open_writes import expire

both = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])


@both
@pytest.mark.parametrize("action", ACTIONS)
async def test_a_write_killed_at_any_step_leaves_no_dangling_reference(
    mediator: Service, replica: Service, library: str, crashable: None, action: str, after: bool
) -> None:
    """A deletion comes before anybody has recovered what was killed."""
    step, crash = 0, CrashPoint(0, after)
    while not step or crash.is_over:
        crash, author, id_ = CrashPoint(step, after), unique(), unique()
        await mediator.create(library, "authors", author, name="n")
        acknowledged = await attempt(mediator, referring(library, action, id_, author), crash)
        # The deletion may have to wait for the lease of what was killed.
        deleting = asyncio.create_task(once_free(replica, delete(library, author)))
        await expire(mediator)
        error = await deleting
        await expire(mediator)
        refers = await exists(mediator, library, action, id_)
        assert refers or not acknowledged or action == "cascade", crash.taken
        assert not await dangling(mediator, library, action, id_), crash.taken
        if action == "refuse":
            assert isinstance(error, StillReferenced) == refers, crash.taken
        else:
            assert error is None, crash.taken
        step += 1
    assert {"begin", "lock", "record_states", "commit", "write"} <= set(crash.taken)


@both
@pytest.mark.parametrize("action", ["cascade", "nullify"])
async def test_a_deletion_killed_at_any_step_happens_wholly_or_not(
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
        is_there = await exists(mediator, library, "authors", author)
        assert not (is_there and acknowledged), crash.taken
        for id_ in ids:
            if action == "cascade":
                assert await exists(mediator, library, action, id_) == is_there, crash.taken
            else:
                assert await author_of(mediator, library, action, id_) == (
                    author if is_there else None
                ), crash.taken
        step += 1
    assert {"begin", "lock", "find_open", "commit", "write"} <= set(crash.taken)
