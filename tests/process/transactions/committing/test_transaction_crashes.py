"""Transactions whose coordinators are killed at any step."""

from __future__ import annotations

import pytest

from mediator.model.operations import (
    Update,
)
from mediator.model.operators import Operator, OperatorCall
from tests.process.service import Service, unique
from tests.process.transactions.committing.shop import (
    SINGLE,
    attempt,
    check_killed,
    retry,
    transaction,
    values,
)
from tests.process.transactions.crashable import CrashPoint


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_transaction_killed_at_any_step_is_atomic(
    mediator: Service, shop: str, crashable: None, after: bool
) -> None:
    step, crash = 0, CrashPoint(0, after)
    while not step or crash.is_over:
        crash = CrashPoint(step, after)
        await check_killed(mediator, shop, crash)
        step += 1
    assert {"begin", "lock", "commit", "write"} <= set(crash.taken)


async def test_a_retry_finishes_a_committed_transaction(
    mediator: Service, shop: str, crashable: None
) -> None:
    """A retry with the key gets the result; no write is applied twice."""
    operators = (OperatorCall("n", Operator.INC, 1),)
    step, crash = 0, CrashPoint(0, after=True)
    while not step or crash.is_over:
        crash = CrashPoint(step, after=True)
        trio = {name: await mediator.create(shop, name, unique(), n=0) for name in SINGLE}
        writes = [
            Update(shop, n, o.id, unique(), fingerprint="f", operators=operators)
            for n, o in trio.items()
        ]
        request = transaction(shop, *writes, fingerprint="f")
        await attempt(mediator, request, crash)
        log = mediator.mediator.transactions.log
        if entry := await log.find_operation(request.operation):
            await log.postpone(entry.intent, 0 if entry.answer is None else 60)
        outcomes = await retry(mediator, request)
        assert [outcome.values for outcome in outcomes] == [{"n": 1}] * 3
        for name, o in trio.items():
            assert await values(mediator, shop, name, o.id) == {"n": 1}, crash.taken
        step += 1
