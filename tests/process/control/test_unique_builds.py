"""Builds of a unique constraint: in several requests, abandoned, restarted, and under load."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from random import Random
from time import time
from typing import Any

import pytest

from mediator.base.clock import Clock
from mediator.base.errors import Conflict, ConstraintViolated, Unavailable
from mediator.control.claim_sweep import Unique
from mediator.control.unique_builds import ABANDON_AFTER_S, BUILD_S
from mediator.data_plane import port
from mediator.model.operations import Delete, Outcome, Put, Update
from mediator.routing.model import ClassRoute
from tests.process.control.test_placing_anew import pause_at
from tests.process.control.unique_building import (
    SYSTEMS,
    UNCHECKED,
    can_claim,
    fill_database,
    is_building,
    objects,
    put,
    users,
)
from tests.process.service import Service, error_of, unique

PAUSE_S, WITHIN_S = 0.02, 240


class TickingClock:
    """A clock whose every reading takes half of the time of a request."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now
        self._readings = count(step=BUILD_S / 2)

    def monotonic(self) -> float:
        return next(self._readings)


async def test_a_build_resumes_where_it_stopped(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, emails = mediator.mediator.unique_builds, [f"{n}@x" for n in range(5)]
    database = await fill_database(mediator, "postgres", emails)
    document, claimed_ids = users("postgres", unique=True), list[str]()
    monkeypatch.setattr(port, "PAGE", 2)
    monkeypatch.setattr(builds, "clock", TickingClock(builds.clock))
    claim = builds.sweep.claim

    async def record_and_claim(route: ClassRoute, unique: Unique, page: Sequence[Outcome]) -> Any:
        claimed_ids.extend(outcome.id for outcome in page)
        return await claim(route, unique, page)

    monkeypatch.setattr(builds.sweep, "claim", record_and_claim)
    with pytest.raises(Conflict, match="to continue"):
        await put(mediator, database, document)
    assert claimed_ids == ["u00000", "u00001"]
    assert (await mediator.mediator.control.schema(database)).notes[-1].startswith("email of users")
    assert [await can_claim(mediator, database, email) for email in emails] == [False] * 2 + [
        True
    ] * 3
    with pytest.raises(Conflict, match="to continue"):
        await put(mediator, database, document)
    assert (await put(mediator, database, document)).version == 2
    assert claimed_ids == [f"u{n:05}" for n in range(5)]
    assert not any([await can_claim(mediator, database, email) for email in emails])


async def test_a_build_that_nobody_continues_is_abandoned(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, document = mediator.mediator.unique_builds, users("redis", unique=True)
    database = await fill_database(mediator, "redis", ["a@x", "b@x", "c@x"])
    with monkeypatch.context() as patched:
        patched.setattr(port, "PAGE", 1)
        patched.setattr(builds, "clock", TickingClock(builds.clock))
        with pytest.raises(Conflict, match="to continue"):
            await put(mediator, database, document)
    await builds.abandon_overdue()
    assert is_building(mediator, database)
    with monkeypatch.context() as patched:
        patched.setattr(builds.clock, "now", lambda: time() + ABANDON_AFTER_S + 1)
        await builds.abandon_overdue()
    assert not is_building(mediator, database)
    assert await can_claim(mediator, database, "a@x")
    await mediator.create(database, "users", "twin", email="a@x")
    with pytest.raises(ConstraintViolated):
        await put(mediator, database, document, options=UNCHECKED)


async def test_a_build_that_is_abandoned_puts_nothing_in_force(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica abandons it after the last claim; writes no longer claim values."""
    builds, catalogue = mediator.mediator.unique_builds, mediator.mediator.stored_schemas
    database = await fill_database(mediator, "redis", ["a@x"])
    put_schema = catalogue.put

    async def abandon_then_put(*change: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(builds.clock, "now", lambda: time() + ABANDON_AFTER_S + 1)
            await builds.abandon_overdue()
        await mediator.create(database, "users", "twin", email="a@x")
        return await put_schema(*change)

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", abandon_then_put)
        with pytest.raises(ConstraintViolated):
            await put(mediator, database, users("redis", unique=True))
    assert (await mediator.mediator.control.schema(database)).version == 1


async def test_another_change_meanwhile_restarts_the_build(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await fill_database(mediator, "redis", ["a@x", "b@x"])
    pause = pause_at(monkeypatch, mediator.mediator.unique_builds.sweep, "claim", after=True)
    change = asyncio.create_task(put(mediator, database, users("redis", unique=True)))
    await pause.reached.wait()
    await put(mediator, database, users("redis", index=True))
    assert not is_building(mediator, database)
    await mediator.create(database, "users", "c", email="c@x")
    pause.open.set()
    assert (await change).version == 3
    assert not any([await can_claim(mediator, database, f"{name}@x") for name in "abc"])


@pytest.mark.parametrize("system", SYSTEMS)
async def test_no_duplicate_slips_through_while_replicas_write(
    mediator: Service, replica: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """Writers take each other's values; the change is retried until it is in force.

    They take fewer with each attempt: the number of claims between two writes depends on the
    machine, and an attempt fails if one of the claimed values was taken.
    """
    monkeypatch.setattr(port, "PAGE", 2)
    database = await fill_database(mediator, system, [f"{n}@x" for n in range(20)])
    await replica.get(database, "users", "u00000")
    document, random, ended = users(system, unique=True), Random(7), asyncio.Event()
    fresh, results, emails = count(), Counter[str](), {f"u{n:05}": f"{n}@x" for n in range(20)}

    async def write(replica: Service) -> None:
        while not ended.is_set():
            id_ = random.choice([*emails])
            # Others' values are taken only once all writes claim: before, each is a duplicate.
            takes_value = (
                is_building(replica, database) and random.random() < 0.3 / results["tries"]
            )
            email = random.choice([*emails.values()]) if takes_value else f"{next(fresh)}@y"
            kind = random.choice([Put, Update])
            operation = kind(database, "users", id_, unique(), values={"email": email})
            error = await error_of(replica, operation)
            if error is None:
                emails[id_] = email
            elif isinstance(error, Unavailable):
                # Like a client; and this process also makes the change, which must progress.
                await asyncio.sleep(PAUSE_S)
            results["written" if error is None else type(error).__name__] += 1

    writers = [asyncio.create_task(write(plane)) for plane in (mediator, replica) for _ in range(3)]
    try:
        async with asyncio.timeout(WITHIN_S):
            version = 1
            while version == 1:
                results["tries"] += 1
                for twins in await duplicates(mediator, database):
                    for id_ in twins[1:]:
                        await error_of(mediator, Delete(database, "users", id_, unique()))
                with suppress(ConstraintViolated, Conflict):  # or joint writes do not end in time
                    change = await put(mediator, database, document, options=UNCHECKED)
                    version = change.version
        assert not await duplicates(mediator, database)
    finally:
        ended.set()
        await asyncio.gather(*writers)
    assert not await duplicates(mediator, database)
    for outcome in (await objects(mediator, database)).values():
        assert not await can_claim(mediator, database, str((outcome.values or {})["email"]))
    assert results["written"] > 20, results


async def duplicates(mediator: Service, database: str) -> list[list[str]]:
    """Return the ids of users who have the same address at one moment.

    They are read twice: an object with the same versions both times was unchanged in between.
    """
    before, after = await objects(mediator, database), await objects(mediator, database)
    holders: defaultdict[Any, list[str]] = defaultdict(list)
    for id_, outcome in before.items():
        if id_ in after and after[id_].versions == outcome.versions:
            holders[(outcome.values or {}).get("email")].append(id_)
    return [ids for email, ids in holders.items() if email is not None and len(ids) > 1]
