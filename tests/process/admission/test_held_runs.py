"""Held runs in the catalogue: no worker takes or keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text, update

from mediator.admission.load import Load
from mediator.base.errors import PreconditionFailed
from mediator.catalogue.admission import MAX_LOG_ENTRIES, NO_RULES, CatalogueAdmission
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.held_runs import HeldRuns
from mediator.catalogue.run_queue import CatalogueWorkers, RunQueue
from mediator.catalogue.runs import CatalogueRuns, StoredRun
from mediator.catalogue.schema_revisions import Author
from mediator.catalogue.tables import admission_rules
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import scratch_catalogue

LEASE_S = 60.0


class Stored:
    """An empty catalogue, and shortcuts for its parts."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.runs = CatalogueRuns(catalogue)
        self.queue = RunQueue(catalogue)
        self.held = HeldRuns(catalogue)
        self.workers = CatalogueWorkers(catalogue)
        self.admission = CatalogueAdmission(catalogue)

    async def submit(self, priority: int | None = None) -> str:
        job: dict[str, Any] = {"kind": "example.count", "spec": {}}
        if priority is not None:
            job["priority"] = priority
        document = {"version": 1, "job": job}
        run, _ = await self.runs.submit(
            uuid4().hex, ("club", "club"), document, dry_run=False, key=None, fingerprint=None
        )
        return run.id

    async def is_waiting(self) -> bool:
        """Whether a statement waits for a lock."""
        query = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return bool((await self.catalogue.execute(query)).scalar_one())

    async def find(self, run: str) -> StoredRun:
        return await self.runs.find("club", run)

    async def hold(self, run: str) -> bool:
        """Hold a run under the current rules; without rules, set some first."""
        rules = await self.admission.rules()
        if rules is NO_RULES:
            rules = await self.admission.put("-- some", None, None, lets_go=False)
        return await self.held.hold(run, rules.version)

    async def states(self) -> list[tuple[str, int, str]]:
        return [(r["id"], r["prio"], r["state"]) for r in await self.held.pending(10)]


@pytest.fixture
async def stored(postgresql_config: SystemConfig) -> AsyncIterator[Stored]:
    async with scratch_catalogue(postgresql_config) as url:
        catalogue = Catalogue(url)
        await catalogue.open()
        try:
            yield Stored(catalogue)
        finally:
            await catalogue.close()


async def test_a_held_run_is_passed_over(stored: Stored) -> None:
    first, second = await stored.submit(), await stored.submit()
    assert await stored.hold(first)
    assert not await stored.hold(first)
    run = await stored.queue.take(LEASE_S)
    assert run is not None
    assert run.id == second
    assert await stored.queue.take(LEASE_S) is None
    assert await stored.held.let_go(first)
    assert not await stored.held.let_go(first)
    run = await stored.queue.take(LEASE_S)
    assert run is not None
    assert run.id == first


async def test_the_worker_of_a_held_run_releases_it(stored: Stored) -> None:
    run = await stored.submit()
    taken_run = await stored.queue.take(LEASE_S)
    assert taken_run is not None
    assert await stored.queue.heartbeat(taken_run, "running", {}, LEASE_S) == "continue"
    assert await stored.hold(run)
    assert await stored.queue.heartbeat(taken_run, "running", {}, LEASE_S) == "release"
    await stored.queue.release(taken_run)
    assert await stored.queue.take(LEASE_S) is None
    assert ((await stored.find(run)).state, (await stored.find(run)).held) == ("queued", True)
    await stored.held.let_go(run)
    second_attempt = await stored.queue.take(LEASE_S)
    assert second_attempt is not None
    assert (second_attempt.id, second_attempt.attempt) == (run, 2)


async def test_a_held_run_can_be_cancelled_and_resumed(stored: Stored) -> None:
    run = await stored.submit()
    await stored.hold(run)
    assert (await stored.runs.cancel("club", run)).state == "cancelled"
    assert not await stored.held.let_go(run)
    await stored.runs.resume("club", run)
    assert await stored.queue.take(LEASE_S) is not None


async def test_a_held_run_is_cancelled_while_a_worker_has_it(stored: Stored) -> None:
    run = await stored.submit()
    taken_run = await stored.queue.take(LEASE_S)
    assert taken_run is not None
    await stored.hold(run)
    await stored.runs.cancel("club", run)
    assert not await stored.hold(run)
    assert await stored.queue.heartbeat(taken_run, "running", {}, LEASE_S) == "cancel"
    await stored.queue.abandon(taken_run)
    second_attempt = await stored.queue.take(LEASE_S)
    assert second_attempt is not None, "no worker is left to end it"
    assert second_attempt.cancelling


async def test_rules_see_priorities_and_states(stored: Stored) -> None:
    low, high, held = await stored.submit(), await stored.submit(10), await stored.submit(5)
    await stored.hold(held)
    await stored.queue.take(LEASE_S)
    assert await stored.states() == [
        (low, 0, "ACTIVE"),
        (high, 10, "QUEUED"),
        (held, 5, "INACTIVE"),
    ]
    assert [run["id"] for run in await stored.held.pending(1)] == [low]
    await stored.runs.cancel("club", high)
    (ended_run,) = await stored.held.ended([low, high])
    assert (ended_run["id"], ended_run["state"]) == (high, "CANCELLED")


async def test_rules_are_replaced_only_in_the_version_that_was_read(stored: Stored) -> None:
    assert (await stored.admission.rules()).version == 0
    author = Author("operator", "ada")
    first = await stored.admission.put("-- one", author, 0, lets_go=False)
    assert (first.version, first.text, first.author) == (1, "-- one", author)
    with pytest.raises(PreconditionFailed):
        await stored.admission.put("-- two", None, 0, lets_go=False)
    assert await stored.admission.newer(1) is None
    second = await stored.admission.put("-- two", None, None, lets_go=False)
    assert await stored.admission.newer(1) == second == await stored.admission.rules()


async def test_rules_that_start_no_run_release_all_held_runs(stored: Stored) -> None:
    run = await stored.submit()
    await stored.hold(run)
    await stored.admission.put("", None, None, lets_go=False)
    assert (await stored.find(run)).held
    await stored.admission.put("", None, None, lets_go=True)
    assert not (await stored.find(run)).held


async def test_replaced_rules_hold_no_run(stored: Stored) -> None:
    """Else it would be held for ever: the new rules released all runs before."""
    run, former = await stored.submit(), await stored.admission.put("", None, None, lets_go=True)
    async with stored.catalogue.begin() as connection:
        # As `put` does after it has released runs, before the commit.
        replacement = update(admission_rules).values(version=former.version + 1)
        await connection.execute(replacement)
        holding = asyncio.create_task(stored.held.hold(run, former.version))
        await eventually(stored.is_waiting)
    assert not await holding
    assert not (await stored.find(run)).held


async def test_one_replica_evaluates_until_its_lease_ends(stored: Stored) -> None:
    assert await stored.admission.lease("a", LEASE_S)
    assert not await stored.admission.lease("b", LEASE_S)
    assert await stored.admission.lease("a", -1)
    assert await stored.admission.lease("b", LEASE_S)
    assert not await stored.admission.lease("a", LEASE_S)


async def test_the_log_is_bounded_and_read_in_pages(stored: Stored) -> None:
    entries = [{"rule": number} for number in range(MAX_LOG_ENTRIES + 5)]
    await stored.admission.record("a", entries[:5])
    await stored.admission.record("b", entries[5:])
    newest = await stored.admission.log(None, 2)
    assert [(entry["rule"], entry["replica"]) for entry in newest] == [(1004, "b"), (1003, "b")]
    older = await stored.admission.log(newest[-1]["id"], 2 * MAX_LOG_ENTRIES)
    assert [entry["rule"] for entry in older] == [*range(1002, 4, -1)]


async def test_workers_report_their_load(stored: Stored) -> None:
    await stored.workers.heartbeat("a", None, Load(71.5, 20.0))
    await stored.workers.heartbeat("b", None, Load(None, 30.0))
    await stored.workers.heartbeat("c", "no Spark")
    assert set(await stored.workers.loads(60)) == {Load(71.5, 20.0), Load(None, 30.0)}
    assert await stored.workers.loads(-1) == []
