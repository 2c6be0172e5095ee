"""Lease holders: they report errors, and their successors take over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mediator.base import holding
from mediator.base.errors import PortolanError, Unavailable
from mediator.base.holding import Holder, Holders
from mediator.base.lease import Lease


class Leases:
    """Grants every lease and records the tokens."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    async def acquire(self, name: str, token: str, ttl_s: float) -> bool:
        self.tokens.append(token)
        return True

    async def release(self, name: str, token: str) -> None: ...


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "PAUSE_S", 0.0)


async def test_every_error_is_passed_on_and_each_outage_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leases, errors, finished = Leases(), list[str](), asyncio.Event()
    outages: Sequence[bool] = [True, True, False, True]

    async def report(error: PortolanError) -> None:
        errors.append(error.args[0])
        raise Unavailable("The report fails as well.", system="redis")

    async def work(_: Lease) -> None:
        attempt = len(leases.tokens)
        if attempt == len(outages):
            finished.set()
        if outages[attempt - 1]:
            raise Unavailable(f"attempt {attempt}", system="redis")

    holder = Holder(leases, "me", "lease", "the work", finished.is_set, on_error=report)
    await holder.run(work)
    assert errors == ["attempt 1", "attempt 2", "attempt 4"]
    assert [r.getMessage() for r in caplog.records] == [
        "the work: attempt 1",
        "the work: attempt 4",
    ]
    assert len(set(leases.tokens)) == len(outages), "each acquisition has its own token"


async def test_reconciling_starts_and_cancels_holders() -> None:
    running: set[tuple[str, int]] = set()
    started = asyncio.Event()

    async def hold(id_: tuple[str, int]) -> None:
        running.add(id_)
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            running.remove(id_)

    holders = Holders[tuple[str, int]]()
    for ids in ({("a", 0), ("a", 1)}, {("a", 1), ("b", 0)}):
        started.clear()
        await holders.reconcile(ids, hold)
        await started.wait()
        await asyncio.sleep(0)
        assert running == ids
    await holders.cancel()
    assert running == set()
