"""A worker on a real catalogue: runs are executed, cancelled, released and resumed by another."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from threading import Event
from time import time
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from mediator.base.errors import NotFound, Unavailable
from mediator.catalogue.admission import CatalogueAdmission
from mediator.catalogue.held_runs import HeldRuns
from mediator.catalogue.run_queue import CatalogueWorkers, RunQueue, TakenRun
from mediator.catalogue.runs import RunState, StoredRun
from mediator.stores.port import REPEATABLE_S
from spark_jobs.runner.control import Control
from spark_jobs.runner.port import Input
from spark_jobs.session import LazySession, SessionDied, SparkUnavailable
from tests.faults.conditions import WITHIN_S, eventually
from tests.spark.office import JOB, ClassStandIn, Office, people


async def test_runs_are_executed(office: Office) -> None:
    run, dry = await office.submit(), await office.submit(dry_run=True)
    small = await office.submit({**JOB, "limits": {"rows": 2}})
    unknown = await office.submit({**JOB, "kind": "example.none"})
    async with office.worker():
        done = await office.ended(run)
        assert done.state == "done"
        assert [row["rows"] for row in office.rows(done)] == [2, 1]
        assert done.outcome["rows"] == 2
        assert done.outcome["forecast"]["rows"] == {"records": 3}
        assert {stage["state"] for stage in done.progress["stages"]} == {"done"}
        assert done.progress["counters"] == {"values": 2}
        dry_ended = await office.ended(dry)
        assert dry_ended.state == "done"
        assert "result" not in dry_ended.outcome
        stopped = await office.ended(small)
        assert stopped.state == "stopped"
        assert "2 are allowed" in stopped.outcome["reasons"][0]
        assert (await office.ended(unknown)).state == "failed"
        assert (await CatalogueWorkers(office.catalogue).seen(60)).working == 1


async def test_a_result_that_fits_no_class_is_refused_before_anything_is_read(
    office: Office,
) -> None:
    """The class can have changed since the job was submitted."""
    run = await office.submit({**JOB, "into": {"class": "cities", "id": ["value"]}})
    async with office.worker(writer=ClassStandIn("there is no field rows")):
        failed = await office.ended(run)
    assert (failed.state, failed.outcome["reasons"]) == ("failed", ["there is no field rows"])
    assert failed.progress["stages"] == []
    await office.runs.resume("club", run)
    async with office.worker(writer=(target := ClassStandIn())):
        assert (await office.ended(run)).state == "done"
    assert len(target.rows) == 2


async def test_a_result_keeps_its_name_until_it_is_recomputed(office: Office) -> None:
    """The class recognises repeated writes of a result by its name."""
    run = await office.submit({**JOB, "into": {"class": "cities", "id": ["value"]}})
    writer = ClassStandIn(failure="no room")
    for lost in (False, True, False):
        async with office.worker(writer=writer):
            assert (await office.ended(run)).state == "failed"
        if lost:
            shutil.rmtree(office.directory / run / "stages")
        await office.runs.resume("club", run)
    writer.failure = None
    async with office.worker(writer=writer):
        assert (await office.ended(run)).state == "done"
    first, second, recomputed, last = writer.results
    assert first == second
    assert recomputed == last != first


def endless(spark: SparkSession, input_: Input) -> DataFrame:
    """Return an input that is never read to its end."""

    def sleep(batches: Any) -> Any:
        import time

        for batch in batches:
            time.sleep(3600)
            yield batch

    return people(spark, input_).mapInArrow(sleep, "id string, city string")


def failing_codec(_spark: SparkSession, _input: Input) -> DataFrame:
    """Raise Spark's lasting error for a codec that it once could not unpack."""
    raise RuntimeError("Could not initialize class org.xerial.snappy.Snappy")


async def test_a_broken_session_is_replaced_and_its_run_resumes(office: Office) -> None:
    run = await office.submit()
    with pytest.raises(SessionDied):
        async with office.worker(failing_codec):
            await office.ended(run)
    failed = await office.find(run)
    assert failed.state == "failed"
    assert "free space" in failed.outcome["reasons"][0]
    await office.runs.resume("club", run)
    async with office.worker():
        assert len(office.rows(await office.ended(run))) == 2


async def test_a_run_that_needs_spark_is_released_by_a_worker_without_it(office: Office) -> None:
    def missing() -> SparkSession:
        raise SparkUnavailable("there is no Java", "install some")

    async def is_released() -> bool:
        stored = await office.find(run)
        return stored.attempt == 1 and stored.state == "queued"

    run = await office.submit()
    with pytest.raises(SparkUnavailable):
        async with office.worker(session=LazySession(missing)):
            await eventually(is_released)
    async with office.worker():
        assert (await office.ended(run)).state == "done"


async def test_spark_is_opened_by_the_first_run_that_needs_it(office: Office) -> None:
    session = LazySession(lambda: office.spark)
    unknown = await office.submit({**JOB, "kind": "example.none"})
    async with office.worker(session=session):
        assert (await office.ended(unknown)).state == "failed"
        before = session.opened
        done = await office.ended(await office.submit())
    assert (before, session.opened) == (False, True)
    assert done.outcome["forecast"]["starting_s"] == session.opening_s > 0


async def test_a_run_that_sleeps_is_cancelled(office: Office) -> None:
    run = await office.submit()
    async with office.worker(endless):
        await eventually(reading(office, run))
        await office.runs.cancel("club", run)
        assert (await office.ended(run)).state == "cancelled"
    await office.runs.resume("club", run)
    async with office.worker():
        assert len(office.rows(await office.ended(run))) == 2


async def test_a_stopping_worker_releases_its_run(office: Office) -> None:
    run = await office.submit()
    async with office.worker(endless, drain_s=0.0) as ending:
        await eventually(reading(office, run))
        ending.set()
    assert (await office.find(run)).state == "queued"
    async with office.worker():
        assert (await office.ended(run)).state == "done"


async def test_a_held_run_is_released_and_resumes_later(office: Office) -> None:
    run, held_runs = await office.submit(), HeldRuns(office.catalogue)
    rules = await CatalogueAdmission(office.catalogue).put("", None, None, lets_go=False)

    async def is_released() -> bool:
        return (await office.find(run)).state == "queued"

    async with office.worker(endless):
        await eventually(reading(office, run))
        assert await held_runs.hold(run, rules.version)
        await eventually(is_released)
    await held_runs.let_go(run)
    async with office.worker():
        assert (await office.ended(run)).state == "done"


async def test_a_run_that_is_let_go_before_its_worker_stops_continues(office: Office) -> None:
    """The worker stops slowly, so it learns of the hold and then of its end."""
    run, held_runs, may_end = await office.submit(), HeldRuns(office.catalogue), Event()
    rules = await CatalogueAdmission(office.catalogue).put("", None, None, lets_go=False)

    def slow(spark: SparkSession, input_: Input) -> DataFrame:
        assert may_end.wait(WITHIN_S)
        return people(spark, input_)

    async with office.worker(slow):
        await eventually(reading(office, run))
        assert await held_runs.hold(run, rules.version)
        await eventually(has_new_heartbeat(office, await office.find(run)))
        assert await held_runs.let_go(run)
        await eventually(has_new_heartbeat(office, await office.find(run)))
        may_end.set()
        done = await office.ended(run)
    assert (done.state, done.attempt) == ("done", 2)


async def test_a_worker_that_lost_its_run_changes_nothing(office: Office) -> None:
    run = await office.submit()
    async with office.worker(endless):
        await eventually(reading(office, run))
        await office.runs.cancel("club", run)
        next_run = await RunQueue(office.catalogue).take(60)
        assert next_run is None
        await office.ended(run)
    assert (await office.find(run)).state == "cancelled"


async def test_a_worker_with_an_expired_lease_writes_into_no_class(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is not renewed and expires; the next attempt reuses the finished stages."""
    hold, target = Control.hold_until, ClassStandIn()
    silent = [True]

    def hold_or_expire(control: Control, until: float) -> None:
        hold(control, -inf if silent else until)

    monkeypatch.setattr(Control, "hold_until", hold_or_expire)
    run = await office.submit({**JOB, "into": {"class": "cities", "id": ["value"]}})
    async with office.worker(people, target):
        await eventually(retried(office, run))
        assert target.rows == []
        silent.clear()
        done = await office.ended(run)
    assert done.state == "done"
    assert target.rows == office.rows(done)


async def test_a_write_is_not_continued_when_its_operations_may_be_forgotten(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores remember operations for a day, so an older write is not repeated."""
    run = await office.submit({**JOB, "into": {"class": "cities", "id": ["value"]}})
    async with office.worker(people, ClassStandIn(failure="it is down")):
        assert (await office.ended(run)).state == "failed"
    target = ClassStandIn()
    with monkeypatch.context() as a_day_later:
        later = time() + REPEATABLE_S + 60
        a_day_later.setattr("spark_jobs.runner.attempt.time", lambda: later)
        await office.runs.resume("club", run)
        async with office.worker(people, target):
            failed = await office.ended(run)
    assert failed.state == "failed"
    assert "Submit the job again" in failed.outcome["reasons"][0]
    assert target.rows == []
    await office.runs.resume("club", run)
    async with office.worker(people, target):
        assert (await office.ended(run)).state == "done"
    assert len(target.rows) == 2


async def test_a_reason_that_postgresql_cannot_store_ends_the_run(office: Office) -> None:
    """A column name can contain NUL, and the reason quotes it."""
    job = {**JOB, "into": {"class": "cities", "id": ["value"]}}
    run, next_run = await office.submit(job), await office.submit()
    async with office.worker(writer=ClassStandIn("there is no field \0")):
        failed = await office.ended(run)
        assert (await office.ended(next_run)).state == "done"
    assert failed.state == "failed"
    assert failed.outcome["reasons"] == ["there is no field \ufffd"]


class UnstorableOutcomes(RunQueue):
    """A run queue that adds to successful outcomes a number too large for the catalogue."""

    async def end(
        self,
        run: TakenRun,
        state: RunState,
        progress: Mapping[str, Any],
        outcome: Mapping[str, Any],
    ) -> bool:
        extra = {} if state == "failed" else {"number": 2**70}
        return await super().end(run, state, progress, {**outcome, **extra})


async def test_a_run_whose_outcome_cannot_be_stored_fails(office: Office) -> None:
    run = await office.submit()
    async with office.worker(queue=UnstorableOutcomes(office.catalogue)):
        failed = await office.ended(run)
    assert failed.state == "failed"
    assert "cannot store" in failed.outcome["reasons"][0]
    assert failed.attempt == 1


class Unreachable(RunQueue):
    """A queue that is unreachable at the end of a run; `lost`: the worker has tried to end it."""

    def __init__(self, office: Office) -> None:
        super().__init__(office.catalogue)
        self.lost = asyncio.Event()

    async def end(self, *_: Any) -> bool:
        self.lost.set()
        raise Unavailable("The catalogue does not answer.", system="catalogue")


async def test_a_stopping_worker_does_not_wait_for_the_catalogue_forever(
    office: Office,
) -> None:
    run, queue = await office.submit(), Unreachable(office)
    async with office.worker(queue=queue, lease_s=2.0) as ending:
        await queue.lost.wait()
        ending.set()  # the block ends after the worker
    assert (await office.find(run)).state == "running"
    async with office.worker():
        done = await office.ended(run)
    assert (done.state, done.attempt) == ("done", 2)


async def test_a_worker_removes_old_runs(office: Office) -> None:
    run = await office.submit()
    async with office.worker():
        await office.ended(run)

    async def is_removed() -> bool:
        with suppress(NotFound):
            return not await office.find(run)
        return not any(office.directory.iterdir())

    assert any(office.directory.iterdir())
    async with office.worker(keep_s=-3600.0):
        await eventually(is_removed)


def retried(office: Office, run: str) -> Callable[[], Any]:
    async def is_retried() -> bool:
        return (await office.find(run)).attempt > 1

    return is_retried


def has_new_heartbeat(office: Office, before: StoredRun) -> Callable[[], Any]:
    """Return a check that the worker has sent two heartbeats: it has the reply to the first."""

    async def is_reported() -> bool:
        return (await office.find(before.id)).version >= before.version + 2

    return is_reported


def reading(office: Office, run: str) -> Callable[[], Any]:
    async def is_started() -> bool:
        stages = (await office.find(run)).progress.get("stages", [])
        return bool(stages) and stages[0]["state"] == "running"

    return is_started
