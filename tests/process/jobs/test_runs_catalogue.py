"""Runs in the catalogue: a queue that gives each run to one worker, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import select, text, update

from mediator.base.errors import Conflict, IdempotencyReused, Invalid, NotFound, Unavailable
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.run_queue import CatalogueWorkers, RunQueue, TakenRun
from mediator.catalogue.runs import CatalogueRuns, StoredRun
from mediator.catalogue.tables import runs as table
from mediator.stores.port import SystemConfig
from spark_jobs.runner.retention import remove_old_runs
from tests.faults.conditions import eventually
from tests.process.service import scratch_catalogue

LEASE_S = 60.0


class RunCatalogue:
    """An empty catalogue, with short names."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.runs = CatalogueRuns(catalogue)
        self.queue = RunQueue(catalogue)
        self.workers = CatalogueWorkers(catalogue)

    async def submit(self, key: str | None = None, fingerprint: str | None = None) -> StoredRun:
        document = {"version": 1, "job": {"kind": "example.count", "spec": {}}}
        run, _ = await self.runs.submit(
            uuid4().hex, ("club", "club"), document, dry_run=False, key=key, fingerprint=fingerprint
        )
        return run

    async def take(self) -> TakenRun:
        taken_run = await self.queue.take(LEASE_S)
        assert taken_run is not None
        return taken_run

    async def find(self, run: str) -> StoredRun:
        return await self.runs.find("club", run)

    async def forget(self, older_than_s: float) -> list[str]:
        async with self.queue.forgetting(older_than_s, 10) as ids:
            return ids

    async def is_waiting(self) -> bool:
        """Whether a statement waits for a lock."""
        query = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return bool((await self.catalogue.execute(query)).scalar_one())

    async def let_lease_pass(self, run: str) -> None:
        statement = update(table).where(table.c.id == run)
        async with self.catalogue.begin() as connection:
            await connection.execute(statement.values(leased_until=table.c.created))


@pytest.fixture
async def catalogue(postgresql_config: SystemConfig) -> AsyncIterator[RunCatalogue]:
    async with scratch_catalogue(postgresql_config) as url:
        catalogue = Catalogue(url)
        await catalogue.open()
        try:
            yield RunCatalogue(catalogue)
        finally:
            await catalogue.close()


async def test_runs_are_taken_in_order_and_each_once(catalogue: RunCatalogue) -> None:
    submitted = [(await catalogue.submit()).id for _ in range(12)]
    first_runs = await asyncio.gather(*(catalogue.queue.take(LEASE_S) for _ in range(8)))
    later_runs = [await catalogue.queue.take(LEASE_S) for _ in range(5)]
    ids = [run.id for run in (*first_runs, *later_runs) if run is not None]
    assert sorted(ids) == sorted(submitted)
    assert [run.id for run in later_runs if run] == submitted[-len([r for r in later_runs if r]) :]


async def test_a_worker_without_heartbeats_loses_its_run(catalogue: RunCatalogue) -> None:
    run = await catalogue.submit()
    first = await catalogue.take()
    assert await catalogue.queue.take(LEASE_S) is None
    await catalogue.let_lease_pass(run.id)
    second = await catalogue.take()
    assert (second.id, second.attempt) == (run.id, first.attempt + 1)
    assert await catalogue.queue.heartbeat(first, "running", {"by": 1}, LEASE_S) == "lost"
    assert not await catalogue.queue.end(first, "done", {}, {"rows": 1})
    await catalogue.queue.release(first)
    await catalogue.queue.abandon(first)
    assert await catalogue.queue.take(LEASE_S) is None
    assert await catalogue.queue.heartbeat(second, "running", {"by": 2}, LEASE_S) == "continue"
    assert (await catalogue.find(run.id)).progress == {"by": 2}
    assert await catalogue.queue.end(second, "done", {}, {"rows": 2})
    assert await catalogue.queue.heartbeat(second, "running", {}, LEASE_S) == "lost"
    assert (await catalogue.find(run.id)).outcome == {"rows": 2}


async def test_texts_that_postgresql_cannot_keep_are_replaced(catalogue: RunCatalogue) -> None:
    """They come from messages of libraries, and data. Otherwise nobody could end the run."""
    run = await catalogue.submit()
    taken_run = await catalogue.take()
    progress = {"log": ["a\0b", "c\ud800d", "\U0001f600"]}
    stored_progress = {"log": ["a\ufffdb", "c\ufffdd", "\U0001f600"]}
    assert await catalogue.queue.heartbeat(taken_run, "running", progress, LEASE_S) == "continue"
    assert (await catalogue.find(run.id)).progress == stored_progress
    assert await catalogue.queue.end(
        taken_run, "failed", progress, {"reports": {"\0": [{"n": 1}, "\0"]}}
    )
    ended_run = await catalogue.find(run.id)
    assert ended_run.progress == stored_progress
    assert ended_run.outcome == {"reports": {"\ufffd": [{"n": 1}, "\ufffd"]}}
    await catalogue.workers.heartbeat("one", "Java\0is missing")
    assert (await catalogue.workers.seen(60)).failure == "Java\ufffdis missing"


@pytest.mark.parametrize("document", [{"text": "\0"}, {"text": "\ud800"}, {"number": 2**70}])
async def test_a_document_that_cannot_be_kept_is_invalid(
    catalogue: RunCatalogue, document: dict[str, object]
) -> None:
    """Not unavailable, which is retried: it would be refused each time."""
    run = await catalogue.submit()
    statement = update(table).where(table.c.id == run.id).values(document=document)
    with pytest.raises(Invalid, match="cannot keep"):
        await catalogue.catalogue.execute(statement)
    assert (await catalogue.find(run.id)).document == run.document


@pytest.mark.parametrize("parameter", ["\0", "\ud800"])
async def test_a_parameter_that_cannot_be_sent_is_invalid(
    catalogue: RunCatalogue, parameter: str
) -> None:
    with pytest.raises(Invalid, match="cannot keep"):
        await catalogue.catalogue.fetch("SELECT $1::text", parameter)
    assert await catalogue.catalogue.fetch("SELECT 1 AS one")


async def test_a_worker_whose_heartbeat_is_in_time_keeps_its_run(catalogue: RunCatalogue) -> None:
    run = await catalogue.submit()
    taken_run = await catalogue.take()
    await catalogue.let_lease_pass(run.id)
    assert await catalogue.queue.heartbeat(taken_run, "running", {}, LEASE_S) == "continue"
    assert await catalogue.queue.take(LEASE_S) is None


async def test_a_worker_does_not_wait_for_one_that_takes_another_run(
    catalogue: RunCatalogue,
) -> None:
    first, second = await catalogue.submit(), await catalogue.submit()
    lock = select(table.c.id).where(table.c.id == first.id).with_for_update()
    async with catalogue.catalogue.begin() as connection:
        await connection.execute(lock)
        async with asyncio.timeout(60):
            assert (await catalogue.take()).id == second.id


async def test_a_run_that_kills_its_workers_fails(catalogue: RunCatalogue) -> None:
    run = await catalogue.submit()
    for _ in range(3):
        await catalogue.take()
        await catalogue.let_lease_pass(run.id)
    assert await catalogue.queue.take(LEASE_S) is None
    failed = await catalogue.find(run.id)
    assert failed.state == "failed"
    assert "Spark died 3 times" in failed.outcome["reasons"][0]
    await catalogue.runs.resume("club", run.id)
    assert (await catalogue.take()).id == run.id


async def test_a_run_that_kills_the_spark_of_its_workers_fails(catalogue: RunCatalogue) -> None:
    """The workers release it, all at once: none waits for a lease."""
    run = await catalogue.submit()
    for attempt in range(1, 4):
        taken_run = await catalogue.take()
        assert (taken_run.id, taken_run.attempt) == (run.id, attempt)
        await catalogue.queue.abandon(taken_run)
    assert await catalogue.queue.take(LEASE_S) is None
    failed = await catalogue.find(run.id)
    assert failed.state == "failed"
    assert "Spark died 3 times" in failed.outcome["reasons"][0]
    assert "rows" not in failed.outcome


async def test_a_released_run_is_not_counted_as_a_failure(catalogue: RunCatalogue) -> None:
    run = await catalogue.submit()
    for _ in range(5):
        await catalogue.queue.release(await catalogue.take())
    assert (await catalogue.find(run.id)).state == "queued"


async def test_cancelling(catalogue: RunCatalogue) -> None:
    queued, claimed, orphan = [await catalogue.submit() for _ in "123"]
    assert (await catalogue.runs.cancel("club", queued.id)).state == "cancelled"
    taken_run = await catalogue.take()
    assert taken_run.id == claimed.id
    assert (await catalogue.runs.cancel("club", claimed.id)).state == "forecasting"
    assert await catalogue.queue.heartbeat(taken_run, "running", {}, LEASE_S) == "cancel"
    await catalogue.queue.end(taken_run, "cancelled", {}, {})
    assert (await catalogue.runs.cancel("club", claimed.id)).state == "cancelled"
    taken_run = await catalogue.take()
    await catalogue.let_lease_pass(orphan.id)
    assert (await catalogue.runs.cancel("club", orphan.id)).state == "cancelled"
    assert await catalogue.queue.heartbeat(taken_run, "running", {}, LEASE_S) == "lost"
    assert await catalogue.queue.take(LEASE_S) is None


async def test_a_cancelled_run_whose_worker_died_is_taken_as_cancelled(
    catalogue: RunCatalogue,
) -> None:
    run = await catalogue.submit()
    await catalogue.take()
    await catalogue.runs.cancel("club", run.id)
    await catalogue.let_lease_pass(run.id)
    assert (await catalogue.take()).cancelling


async def test_resuming(catalogue: RunCatalogue) -> None:
    run = await catalogue.submit()
    with pytest.raises(Conflict, match="queued"):
        await catalogue.runs.resume("club", run.id)
    await catalogue.runs.cancel("club", run.id)
    resumed = await catalogue.runs.resume("club", run.id)
    assert (resumed.state, resumed.cancelling, resumed.ended) == ("queued", False, None)
    taken_run = await catalogue.take()
    await catalogue.runs.cancel("club", run.id)
    await catalogue.queue.end(taken_run, "cancelled", {}, {})
    assert not (await catalogue.runs.resume("club", run.id)).cancelling
    await catalogue.queue.end(await catalogue.take(), "stopped", {}, {})
    with pytest.raises(Conflict, match="stopped"):
        await catalogue.runs.resume("club", run.id)
    run = await catalogue.submit()
    await catalogue.queue.end(await catalogue.take(), "done", {}, {})
    with pytest.raises(Conflict, match="done"):
        await catalogue.runs.resume("club", run.id)
    with pytest.raises(Conflict, match="done"):
        await catalogue.runs.cancel("club", run.id)


async def test_a_key_makes_one_run(catalogue: RunCatalogue) -> None:
    runs = await asyncio.gather(*(catalogue.submit("k", "print") for _ in range(5)))
    assert len({run.id for run in runs}) == 1
    with pytest.raises(IdempotencyReused):
        await catalogue.submit("k", "other")
    assert (await catalogue.submit("l", "print")).id != runs[0].id


async def test_the_number_of_queued_runs_is_bounded(
    catalogue: RunCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.catalogue.runs.MAX_QUEUED", 2)
    first = await catalogue.submit("k", "print")
    await catalogue.submit()
    with pytest.raises(Unavailable, match="Too many runs"):
        await catalogue.submit()
    assert (await catalogue.submit("k", "print")).id == first.id


async def test_runs_that_have_ended_do_not_pile_up(
    catalogue: RunCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.catalogue.runs.MAX_RUNS", 3)
    monkeypatch.setattr("mediator.catalogue.run_queue.MAX_STORED_RUNS", 1)
    ended = [await catalogue.submit() for _ in range(3)]
    for run in ended:
        await catalogue.runs.cancel("club", run.id)
    with pytest.raises(Unavailable, match="Too many runs"):
        await catalogue.submit()
    assert {*await catalogue.forget(3600)} == {run.id for run in ended[:2]}
    later = await catalogue.submit()
    assert await catalogue.forget(3600) == [ended[2].id]
    assert (await catalogue.find(later.id)).state == "queued"


async def test_runs_belong_to_their_database(catalogue: RunCatalogue) -> None:
    run = await catalogue.submit()
    for call in (catalogue.runs.find, catalogue.runs.cancel, catalogue.runs.resume):
        with pytest.raises(NotFound):
            await call("others", run.id)
    assert await catalogue.runs.newest("others", None, 10) == []
    later = await catalogue.submit()
    assert [r.id for r in await catalogue.runs.newest("club", None, 10)] == [later.id, run.id]
    assert [r.id for r in await catalogue.runs.newest("club", later.position, 10)] == [run.id]


async def test_runs_are_forgotten_when_they_are_old(catalogue: RunCatalogue) -> None:
    ended, waiting = await catalogue.submit(), await catalogue.submit()
    await catalogue.queue.end(await catalogue.take(), "done", {}, {})
    assert await catalogue.forget(3600) == []
    assert await catalogue.forget(-3600) == [ended.id]
    with pytest.raises(NotFound):
        await catalogue.find(ended.id)
    assert (await catalogue.find(waiting.id)).state == "queued"


async def test_a_run_that_is_resumed_is_not_forgotten(catalogue: RunCatalogue) -> None:
    """Whichever comes first: both change its row."""
    resumed, other = await catalogue.submit(), await catalogue.submit()
    for run in (resumed, other):
        await catalogue.runs.cancel("club", run.id)
    async with catalogue.catalogue.begin() as connection:
        # As `resume` does, which is not committed yet.
        statement = update(table).where(table.c.id == resumed.id).values(state="queued", ended=None)
        await connection.execute(statement)
        assert await catalogue.forget(-3600) == [other.id]
    assert (await catalogue.find(resumed.id)).state == "queued"
    await catalogue.runs.cancel("club", resumed.id)
    async with catalogue.queue.forgetting(-3600, 10) as ids:
        assert ids == [resumed.id]
        resuming = asyncio.create_task(catalogue.runs.resume("club", resumed.id))
        await eventually(catalogue.is_waiting)
    with pytest.raises(NotFound):
        await resuming


async def test_a_run_stays_if_its_directory_cannot_be_renamed(
    catalogue: RunCatalogue, tmp_path: Path
) -> None:
    run = await catalogue.submit()
    await catalogue.runs.cancel("club", run.id)
    (tmp_path / run.id).mkdir()
    (tmp_path / f"{run.id}.gone").touch()
    with pytest.raises(Unavailable, match="cannot be renamed"):
        await remove_old_runs(catalogue.queue, tmp_path, -3600)
    assert (await catalogue.find(run.id)).state == "cancelled"
    assert (tmp_path / run.id).is_dir()


async def test_the_files_of_old_runs_are_removed_and_those_of_others_stay(
    catalogue: RunCatalogue, tmp_path: Path
) -> None:
    ended, waiting = await catalogue.submit(), await catalogue.submit()
    await catalogue.queue.end(await catalogue.take(), "done", {}, {})
    # The last one is of a worker that was killed after it had renamed it.
    for name in (ended.id, waiting.id, f"{uuid4().hex}.gone"):
        (tmp_path / name / "stages").mkdir(parents=True)
    await remove_old_runs(catalogue.queue, tmp_path, -3600)
    assert names_in(tmp_path) == [waiting.id]
    with pytest.raises(NotFound):
        await catalogue.find(ended.id)
    await remove_old_runs(catalogue.queue, tmp_path / "none", -3600)


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


async def test_workers_are_counted_by_their_heartbeats(catalogue: RunCatalogue) -> None:
    assert (await catalogue.workers.seen(60)).working == 0
    await catalogue.workers.heartbeat("a", None)
    await catalogue.workers.heartbeat("b", "no Java")
    workers = await catalogue.workers.seen(60)
    assert (workers.working, workers.failure) == (1, "no Java")
    assert (await catalogue.workers.seen(-60)).working == 0
    await catalogue.workers.heartbeat("b", None)
    workers = await catalogue.workers.seen(60)
    assert (workers.working, workers.failure) == (2, None)
