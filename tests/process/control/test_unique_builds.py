"""Builds of a unique constraint: in several requests, abandoned, begun anew, and under load."""

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
from mediator.control.unique_builds import BUILD_S, KEPT_S
from mediator.data_plane import port
from mediator.model.operations import Delete, Outcome, Put, Update
from mediator.routing.model import ClassRoute
from tests.process.control.test_placing_anew import paused
from tests.process.control.unique_building import (
    SYSTEMS,
    UNCHECKED,
    filled,
    is_building,
    objects,
    put,
    takes,
    users,
)
from tests.process.service import Service, error_of, unique

PAUSE_S, WITHIN_S = 0.02, 240


class Ticking:
    """A clock by which each look takes half of the time that a request has."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now
        self._looks = count(step=BUILD_S / 2)

    def monotonic(self) -> float:
        return next(self._looks)


async def test_a_build_goes_on_where_it_was(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, emails = mediator.mediator.unique_builds, [f"{n}@x" for n in range(5)]
    database = await filled(mediator, "postgres", emails)
    document, claimed = users("postgres", unique=True), list[str]()
    monkeypatch.setattr(port, "PAGE", 2)
    monkeypatch.setattr(builds, "clock", Ticking(builds.clock))
    claim = builds.sweep.claim

    async def noted(route: ClassRoute, unique: Unique, page: Sequence[Outcome]) -> Any:
        claimed.extend(outcome.id for outcome in page)
        return await claim(route, unique, page)

    monkeypatch.setattr(builds.sweep, "claim", noted)
    with pytest.raises(Conflict, match="to continue"):
        await put(mediator, database, document)
    assert claimed == ["u00000", "u00001"]
    assert (await mediator.mediator.control.schema(database)).notes[-1].startswith("email of users")
    assert [await takes(mediator, database, each) for each in emails] == [False] * 2 + [True] * 3
    with pytest.raises(Conflict, match="to continue"):
        await put(mediator, database, document)
    assert (await put(mediator, database, document)).version == 2
    assert claimed == [f"u{n:05}" for n in range(5)]
    assert not any([await takes(mediator, database, each) for each in emails])


async def test_a_build_with_which_nobody_goes_on_is_abandoned(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, document = mediator.mediator.unique_builds, users("redis", unique=True)
    database = await filled(mediator, "redis", ["a@x", "b@x", "c@x"])
    with monkeypatch.context() as patched:
        patched.setattr(port, "PAGE", 1)
        patched.setattr(builds, "clock", Ticking(builds.clock))
        with pytest.raises(Conflict, match="to continue"):
            await put(mediator, database, document)
    await builds.abandon_overdue()
    assert is_building(mediator, database)
    with monkeypatch.context() as patched:
        patched.setattr(builds.clock, "now", lambda: time() + KEPT_S + 1)
        await builds.abandon_overdue()
    assert not is_building(mediator, database)
    assert await takes(mediator, database, "a@x")
    await mediator.create(database, "users", "twin", email="a@x")
    with pytest.raises(ConstraintViolated):
        await put(mediator, database, document, options=UNCHECKED)


async def test_a_build_that_is_abandoned_puts_nothing_in_force(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another replica, after the last claim: others write without claims already."""
    builds, catalogue = mediator.mediator.unique_builds, mediator.mediator.stored_schemas
    database = await filled(mediator, "redis", ["a@x"])
    put_schema = catalogue.put

    async def late_put(*change: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(builds.clock, "now", lambda: time() + KEPT_S + 1)
            await builds.abandon_overdue()
        await mediator.create(database, "users", "twin", email="a@x")
        return await put_schema(*change)

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", late_put)
        with pytest.raises(ConstraintViolated):
            await put(mediator, database, users("redis", unique=True))
    assert (await mediator.mediator.control.schema(database)).version == 1


async def test_another_change_meanwhile_makes_the_build_begin_anew(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await filled(mediator, "redis", ["a@x", "b@x"])
    pause = paused(monkeypatch, mediator.mediator.unique_builds.sweep, "claim", after=True)
    change = asyncio.create_task(put(mediator, database, users("redis", unique=True)))
    await pause.reached.wait()
    await put(mediator, database, users("redis", index=True))
    assert not is_building(mediator, database)
    await mediator.create(database, "users", "c", email="c@x")
    pause.open.set()
    assert (await change).version == 3
    assert not any([await takes(mediator, database, f"{each}@x") for each in "abc"])


@pytest.mark.parametrize("system", SYSTEMS)
async def test_no_duplicate_slips_through_while_replicas_write(
    mediator: Service, replica: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """Writers take values of each other, at all times; the change is sent until it is in force.

    They take fewer from try to try: how many claims are made between two writes depends on the
    machine, and as long as one is taken among them, a try fails.
    """
    monkeypatch.setattr(port, "PAGE", 2)
    database = await filled(mediator, system, [f"{n}@x" for n in range(20)])
    await replica.get(database, "users", "u00000")
    document, random, ended = users(system, unique=True), Random(7), asyncio.Event()
    fresh, results, had = count(), Counter[str](), {f"u{n:05}": f"{n}@x" for n in range(20)}

    async def write(of: Service) -> None:
        while not ended.is_set():
            id_ = random.choice([*had])
            # Others' values are tried once all writes claim: before, each would be a duplicate.
            taking = is_building(of, database) and random.random() < 0.3 / results["tries"]
            email = random.choice([*had.values()]) if taking else f"{next(fresh)}@y"
            kind = random.choice([Put, Update])
            operation = kind(database, "users", id_, unique(), values={"email": email})
            error = await error_of(of, operation)
            if error is None:
                had[id_] = email
            elif isinstance(error, Unavailable):
                # As clients do, too: the change is made by this process, and must get on.
                await asyncio.sleep(PAUSE_S)
            results["written" if error is None else type(error).__name__] += 1

    writers = [asyncio.create_task(write(of)) for of in (mediator, replica) for _ in range(3)]
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
        assert not await takes(mediator, database, str((outcome.values or {})["email"]))
    assert results["written"] > 20, results


async def duplicates(of: Service, database: str) -> list[list[str]]:
    """Return the ids of those who have one address at one moment.

    They are read twice: what has the same versions both times was so in between.
    """
    before, after = await objects(of, database), await objects(of, database)
    holders: defaultdict[Any, list[str]] = defaultdict(list)
    for id_, outcome in before.items():
        if id_ in after and after[id_].versions == outcome.versions:
            holders[(outcome.values or {}).get("email")].append(id_)
    return [ids for email, ids in holders.items() if email is not None and len(ids) > 1]
