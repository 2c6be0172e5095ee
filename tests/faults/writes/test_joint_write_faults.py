"""Objects split over three systems: a replica is killed or stalled in the middle of a write.

What another replica acknowledged meanwhile stays, and nothing stays torn. A client that reads part
of a write sees that it is partial, or waits for the rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from app.api.options import DataOptions
from app.api.router import DataApi
from mediator.base.errors import NotFound, PreconditionFailed, Unavailable
from mediator.model.operations import (
    Condition,
    Delete,
    Get,
    Outcome,
    Put,
    Update,
    WriteOperation,
)
from mediator.model.operators import Operator, OperatorCall
from mediator.stores.port import SystemConfig, Write
from tests.faults.conditions import eventually
from tests.faults.holding import Holding, proxied
from tests.faults.writes.split_objects import NEW, OLD, SPLIT, SYSTEMS
from tests.process.service import (
    Service,
    scratch_catalogue,
    scratch_systems,
    service,
    unique,
)
from tests.process.transactions.open_writes import expire

DEADLINE_S = 2.0


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Pair:
    """Two replicas on the same systems; bytes of the first can be held back on their way."""

    first: Service
    second: Service
    proxies: dict[str, Holding]
    database: str

    async def create(self) -> str:
        id_ = unique()
        await self.second.create(self.database, "split", id_, **OLD)
        return id_

    async def write(self, by: Service, operation: WriteOperation) -> Outcome:
        return await by.mediator.data.write(operation)

    def put(self, id_: str) -> Put:
        return Put(self.database, "split", id_, unique(), values=NEW)

    def update(self, id_: str, **values: Any) -> Update:
        return Update(self.database, "split", id_, unique(), values=values)

    def add(self, id_: str, amount: int) -> Update:
        operators = (OperatorCall("p", Operator.INC, amount),)
        return Update(self.database, "split", id_, unique(), operators=operators)

    async def now(self, id_: str) -> Outcome:
        return await self.second.get(self.database, "split", id_)


@pytest.fixture(scope="module")
async def pair(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Pair]:
    configs = (redis_config, postgresql_config, mongodb_config)
    async with AsyncExitStack() as stack:
        systems = await stack.enter_async_context(scratch_systems(*configs))
        catalogue = await stack.enter_async_context(scratch_catalogue(postgresql_config))
        second = await stack.enter_async_context(service(systems, catalogue))
        await eventually(lambda: _are_open(second))
        await second.favour()
        database = await second.put_schema({"split": SPLIT})
        assert set(second.systems_of(database, "split")) == set(SYSTEMS)
        proxies, reached = {}, []
        for config in systems:
            holding, through = await stack.enter_async_context(proxied(config))
            proxies[config.name] = holding
            reached.append(replace(through, pool_size=4, deadline_s=DEADLINE_S))
        first = await stack.enter_async_context(service(reached, catalogue))
        both = Pair(first, second, proxies, database)
        await eventually(lambda: _is_well(both))
        yield both


@asynccontextmanager
async def killed_at_end(pair: Pair, alive: Sequence[str]) -> AsyncIterator[None]:
    """Kill the first replica when it writes to any system but some."""
    with pytest.MonkeyPatch.context() as patched:
        for name in SYSTEMS:
            if name not in alive:
                store: Any = pair.first.mediator.systems.get(name).store
                patched.setattr(store, "write", _die)
        yield


async def _die(*_: object) -> Any:
    raise Killed


async def leave_behind(pair: Pair, operation: WriteOperation, *reached: str) -> None:
    """Let the first replica carry out a write, and kill it when it has reached some systems."""
    async with killed_at_end(pair, reached):
        with pytest.raises(Killed):
            await pair.write(pair.first, operation)
        if reached:
            await eventually(lambda: _has_reached(pair, operation, reached))


async def _has_reached(pair: Pair, operation: WriteOperation, reached: Sequence[str]) -> bool:
    names = {"postgres": ("a",), "redis": ("p",), "mongo": ("mv",)}
    for name in reached:
        one = Get(pair.database, "split", operation.id, names[name])
        values = (await pair.second.mediator.data.read(one)).values
        if values != {field: NEW[field] for field in names[name]}:
            return False
    return True


# What is acknowledged stays


@pytest.mark.parametrize("reached", SYSTEMS)
async def test_a_roll_forward_undoes_nothing_that_was_acknowledged(
    pair: Pair, reached: str
) -> None:
    id_ = await pair.create()
    await leave_behind(pair, pair.put(id_), reached)
    added = await pair.write(pair.second, pair.add(id_, 5))
    added = await pair.write(pair.second, pair.add(id_, 1))
    named = await _insist(pair, id_)
    await expire(pair.second)
    now = await pair.now(id_)
    assert now.values == {"a": "P", "p": 6, "mv": "C2"}
    assert now.values["p"] == (added.values or {})["p"]
    assert now.versions["mv"] == named.versions["mv"]


async def _insist(pair: Pair, id_: str) -> Outcome:
    """Write on condition that the object is unchanged; repeat until that succeeds."""
    while True:
        get = Get(pair.database, "split", id_, ("mv",))
        seen = await pair.second.mediator.data.read(get)
        condition = Condition(versions=(dict(seen.versions),))
        try:
            return await pair.write(
                pair.second, replace(pair.update(id_, mv="C2"), condition=condition)
            )
        except PreconditionFailed:
            continue


@pytest.mark.parametrize("kind", ["put", "update", "delete"])
@pytest.mark.parametrize("held", SYSTEMS)
async def test_a_late_step_of_a_resolved_write_leaves_nothing_torn(
    pair: Pair, held: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its link stalls: the writer has given up, and others have resolved the write long since."""
    id_ = await pair.create()
    operations: dict[str, WriteOperation] = {
        "put": pair.put(id_),
        "update": pair.update(id_, **NEW),
        "delete": Delete(pair.database, "split", id_, unique()),
    }
    operation = operations[kind]
    store: Any = pair.first.mediator.systems.get(held).store
    send = store.write

    async def stall(calls: Sequence[Write], *token: str) -> Any:
        pair.proxies[held].hold()
        return await send(calls, *token)

    with monkeypatch.context() as patched:
        patched.setattr(store, "write", stall)
        with pytest.raises(Unavailable):
            await pair.write(pair.first, operation)
    assert pair.proxies[held].holds
    await expire(pair.second)
    await pair.proxies[held].release()
    await eventually(lambda: _is_well(pair))
    now = await _values(pair, id_)
    assert now in (OLD, None if kind == "delete" else NEW)
    again = await pair.write(pair.second, pair.put(id_))
    assert (await pair.now(id_)).versions == again.versions


async def _values(pair: Pair, id_: str) -> Any:
    try:
        now = await pair.now(id_)
    except NotFound:
        return None
    assert not now.partial
    return now.values


async def _are_open(replica: Service) -> bool:
    return all(replica.mediator.systems.find(name) for name in SYSTEMS)


async def _is_well(pair: Pair) -> bool:
    """Whether the first replica reaches all systems again."""
    try:
        await pair.first.create(pair.database, "split", unique(), **OLD)
    except Unavailable:
        return False
    return True


# Readers


@asynccontextmanager
async def http_of(pair: Pair) -> AsyncIterator[httpx.AsyncClient]:
    app = DataApi(pair.second.mediator.data, DataOptions(cursor_key=b"secret"), lambda _: None)
    base = f"http://test/v1/{pair.database}/"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base) as client:
        yield client


@pytest.mark.parametrize("reached", SYSTEMS)
async def test_a_reader_gets_a_partial_object_or_waits_for_the_rest(
    pair: Pair, reached: str
) -> None:
    id_ = await pair.create()
    await leave_behind(pair, pair.put(id_), reached)
    behind = {"postgres": "main", "redis": "p", "mongo": "mv"}
    del behind[reached]
    async with http_of(pair) as http:
        for address in (f"split/{id_}", "split?limit=1000&allow_scan=true", f"split?ids={id_}"):
            partial = await http.get(address)
            assert partial.status_code == 200
            missing = set(partial.headers["portolan-partial"].split(", "))
            assert missing == set(behind.values())
            assert partial.headers["cache-control"] == "no-store"
        tag = (await http.get(f"split/{id_}")).headers["etag"]
        again = await http.get(f"split/{id_}", headers={"if-none-match": tag})
        assert again.status_code == 200
        prefer = {"prefer": "consistency=strong"}
        whole = await http.get(f"split/{id_}", headers=prefer)
        assert "portolan-partial" not in whole.headers
        assert whole.json() == {"id": id_, **NEW}
        assert "portolan-partial" not in (await http.get(f"split/{id_}")).headers
    await expire(pair.second)
