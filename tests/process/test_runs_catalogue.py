"""Runs in the catalogue: a queue of which nobody gets what another has, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from sqlalchemy import select, update

from mediator.base.errors import Conflict, IdempotencyReused, NotFound, Unavailable
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.run_queue import RunQueue, TakenRun
from mediator.catalogue.runs import CatalogueRuns, StoredRun
from mediator.catalogue.tables import runs as table
from mediator.catalogue.workers import CatalogueWorkers
from mediator.stores.port import SystemConfig
from tests.process.service import scratch_catalogue

LEASE_S = 60.0


class Desk:
    """A catalogue with nothing in it, and short names."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.runs = CatalogueRuns(catalogue)
        self.queue = RunQueue(catalogue)
        self.workers = CatalogueWorkers(catalogue)

    async def submit(self, key: str | None = None, fingerprint: str | None = None) -> StoredRun:
        document = {"kind": "example.count", "spec": {}}
        run, _ = await self.runs.submit(
            uuid4().hex, ("club", "club"), document, dry_run=False, key=key, fingerprint=fingerprint
        )
        return run

    async def take(self) -> TakenRun:
        taken = await self.queue.take(LEASE_S)
        assert taken is not None
        return taken

    async def find(self, run: str) -> StoredRun:
        return await self.runs.find("club", run)

    async def let_lease_pass(self, run: str) -> None:
        passed = update(table).where(table.c.id == run)
        async with self.catalogue.begin() as connection:
            await connection.execute(passed.values(leased_until=table.c.created))


@pytest.fixture
async def desk(postgresql_config: SystemConfig) -> AsyncIterator[Desk]:
    async with scratch_catalogue(postgresql_config) as url:
        catalogue = Catalogue(url)
        await catalogue.open()
        try:
            yield Desk(catalogue)
        finally:
            await catalogue.close()


async def test_runs_are_taken_in_order_and_each_once(desk: Desk) -> None:
    submitted = [(await desk.submit()).id for _ in range(12)]
    taken = await asyncio.gather(*(desk.queue.take(LEASE_S) for _ in range(8)))
    rest = [await desk.queue.take(LEASE_S) for _ in range(5)]
    ids = [run.id for run in (*taken, *rest) if run is not None]
    assert sorted(ids) == sorted(submitted)
    assert [run.id for run in rest if run] == submitted[-len([r for r in rest if r]) :]


async def test_a_worker_that_says_nothing_loses_its_run(desk: Desk) -> None:
    run = await desk.submit()
    first = await desk.take()
    assert await desk.queue.take(LEASE_S) is None
    await desk.let_lease_pass(run.id)
    second = await desk.take()
    assert (second.id, second.attempt) == (run.id, first.attempt + 1)
    assert await desk.queue.beat(first, "running", {"by": 1}, LEASE_S) == "lost"
    assert not await desk.queue.end(first, "done", {}, {"rows": 1})
    await desk.queue.release(first)
    await desk.queue.abandon(first)
    assert await desk.queue.take(LEASE_S) is None
    assert await desk.queue.beat(second, "running", {"by": 2}, LEASE_S) == "go on"
    assert (await desk.find(run.id)).progress == {"by": 2}
    assert await desk.queue.end(second, "done", {}, {"rows": 2})
    assert await desk.queue.beat(second, "running", {}, LEASE_S) == "lost"
    assert (await desk.find(run.id)).ending == {"rows": 2}


async def test_a_worker_that_is_heard_in_time_keeps_its_run(desk: Desk) -> None:
    run = await desk.submit()
    taken = await desk.take()
    await desk.let_lease_pass(run.id)
    assert await desk.queue.beat(taken, "running", {}, LEASE_S) == "go on"
    assert await desk.queue.take(LEASE_S) is None


async def test_a_worker_does_not_wait_for_one_that_takes_another_run(desk: Desk) -> None:
    first, second = await desk.submit(), await desk.submit()
    held = select(table.c.id).where(table.c.id == first.id).with_for_update()
    async with desk.catalogue.begin() as connection:
        await connection.execute(held)
        async with asyncio.timeout(60):
            assert (await desk.take()).id == second.id


async def test_a_run_that_kills_its_workers_fails(desk: Desk) -> None:
    run = await desk.submit()
    for _ in range(3):
        await desk.take()
        await desk.let_lease_pass(run.id)
    assert await desk.queue.take(LEASE_S) is None
    failed = await desk.find(run.id)
    assert failed.state == "failed"
    assert "Spark died 3 times" in failed.ending["reasons"][0]
    await desk.runs.resume("club", run.id)
    assert (await desk.take()).id == run.id


async def test_a_run_that_kills_the_spark_of_its_workers_fails(desk: Desk) -> None:
    """They live and leave it, each at once: nobody waits for a lease."""
    run = await desk.submit()
    for attempt in range(1, 4):
        taken = await desk.take()
        assert (taken.id, taken.attempt) == (run.id, attempt)
        await desk.queue.abandon(taken)
    assert await desk.queue.take(LEASE_S) is None
    failed = await desk.find(run.id)
    assert failed.state == "failed"
    assert "Spark died 3 times" in failed.ending["reasons"][0]
    assert "rows" not in failed.ending


async def test_a_run_that_is_given_back_is_no_death(desk: Desk) -> None:
    run = await desk.submit()
    for _ in range(5):
        await desk.queue.release(await desk.take())
    assert (await desk.find(run.id)).state == "queued"


async def test_cancelling(desk: Desk) -> None:
    waiting, held, orphan = [await desk.submit() for _ in "123"]
    assert (await desk.runs.cancel("club", waiting.id)).state == "cancelled"
    taken = await desk.take()
    assert taken.id == held.id
    assert (await desk.runs.cancel("club", held.id)).state == "forecasting"
    assert await desk.queue.beat(taken, "running", {}, LEASE_S) == "cancel"
    await desk.queue.end(taken, "cancelled", {}, {})
    assert (await desk.runs.cancel("club", held.id)).state == "cancelled"
    taken = await desk.take()
    await desk.let_lease_pass(orphan.id)
    assert (await desk.runs.cancel("club", orphan.id)).state == "cancelled"
    assert await desk.queue.beat(taken, "running", {}, LEASE_S) == "lost"
    assert await desk.queue.take(LEASE_S) is None


async def test_a_cancelled_run_whose_worker_died_is_taken_as_cancelled(desk: Desk) -> None:
    run = await desk.submit()
    await desk.take()
    await desk.runs.cancel("club", run.id)
    await desk.let_lease_pass(run.id)
    assert (await desk.take()).cancelling


async def test_resuming(desk: Desk) -> None:
    run = await desk.submit()
    with pytest.raises(Conflict, match="queued"):
        await desk.runs.resume("club", run.id)
    await desk.runs.cancel("club", run.id)
    again = await desk.runs.resume("club", run.id)
    assert (again.state, again.cancelling, again.ended) == ("queued", False, None)
    held = await desk.take()
    await desk.runs.cancel("club", run.id)
    await desk.queue.end(held, "cancelled", {}, {})
    assert not (await desk.runs.resume("club", run.id)).cancelling
    await desk.queue.end(await desk.take(), "stopped", {}, {})
    with pytest.raises(Conflict, match="stopped"):
        await desk.runs.resume("club", run.id)
    run = await desk.submit()
    await desk.queue.end(await desk.take(), "done", {}, {})
    with pytest.raises(Conflict, match="done"):
        await desk.runs.resume("club", run.id)
    with pytest.raises(Conflict, match="done"):
        await desk.runs.cancel("club", run.id)


async def test_a_key_makes_one_run(desk: Desk) -> None:
    runs = await asyncio.gather(*(desk.submit("k", "print") for _ in range(5)))
    assert len({run.id for run in runs}) == 1
    with pytest.raises(IdempotencyReused):
        await desk.submit("k", "other")
    assert (await desk.submit("l", "print")).id != runs[0].id


async def test_a_queue_has_an_end(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mediator.catalogue.runs.MOST_QUEUED", 2)
    first = await desk.submit("k", "print")
    await desk.submit()
    with pytest.raises(Unavailable, match="Too many runs"):
        await desk.submit()
    assert (await desk.submit("k", "print")).id == first.id


async def test_runs_that_have_ended_do_not_pile_up(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.catalogue.runs.MOST_RUNS", 3)
    monkeypatch.setattr("mediator.catalogue.run_queue.MOST_KEPT", 1)
    ended = [await desk.submit() for _ in range(3)]
    for run in ended:
        await desk.runs.cancel("club", run.id)
    with pytest.raises(Unavailable, match="Too many runs"):
        await desk.submit()
    old = await desk.queue.old(3600, 10)
    assert {*old} == {run.id for run in ended[:2]}
    await desk.queue.forget(old)
    later = await desk.submit()
    assert await desk.queue.old(3600, 10) == [ended[2].id]
    assert (await desk.find(later.id)).state == "queued"


async def test_runs_belong_to_their_database(desk: Desk) -> None:
    run = await desk.submit()
    for call in (desk.runs.find, desk.runs.cancel, desk.runs.resume):
        with pytest.raises(NotFound):
            await call("others", run.id)
    assert await desk.runs.newest("others", None, 10) == []
    later = await desk.submit()
    assert [r.id for r in await desk.runs.newest("club", None, 10)] == [later.id, run.id]
    assert [r.id for r in await desk.runs.newest("club", later.position, 10)] == [run.id]


async def test_runs_are_forgotten_when_they_are_old(desk: Desk) -> None:
    ended, waiting = await desk.submit(), await desk.submit()
    await desk.queue.end(await desk.take(), "done", {}, {})
    assert await desk.queue.old(3600, 10) == []
    assert await desk.queue.old(-3600, 10) == [ended.id]
    await desk.queue.forget([ended.id, waiting.id])
    with pytest.raises(NotFound):
        await desk.find(ended.id)
    assert (await desk.find(waiting.id)).state == "queued"


async def test_who_works(desk: Desk) -> None:
    assert (await desk.workers.seen(60)).working == 0
    await desk.workers.greet("a", None)
    await desk.workers.greet("b", "no Java")
    seen = await desk.workers.seen(60)
    assert (seen.working, seen.trouble) == (1, "no Java")
    assert (await desk.workers.seen(-60)).working == 0
    await desk.workers.greet("b", None)
    seen = await desk.workers.seen(60)
    assert (seen.working, seen.trouble) == (2, None)
