"""Objects split over three systems, with a replica killed or stalled during a write.

Writes that another replica acknowledged meanwhile stay, and nothing stays torn. A client that reads
an incomplete write sees that it is partial, or waits for the missing fragments.
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
    """The process was killed."""


@dataclass
class Pair:
    """Two replicas on the same systems; data sent by the first can be held back."""

    first: Service
    second: Service
    proxies: dict[str, Holding]
    database: str

    async def create(self) -> str:
        id_ = unique()
        await self.second.create(self.database, "split", id_, **OLD)
        return id_

    async def write(self, replica: Service, operation: WriteOperation) -> Outcome:
        return await replica.mediator.data.write(operation)

    def put(self, id_: str) -> Put:
        return Put(self.database, "split", id_, unique(), values=NEW)

    def update(self, id_: str, **values: Any) -> Update:
        return Update(self.database, "split", id_, unique(), values=values)

    def add(self, id_: str, amount: int) -> Update:
        operators = (OperatorCall("p", Operator.INC, amount),)
        return Update(self.database, "split", id_, unique(), operators=operators)

    async def current(self, id_: str) -> Outcome:
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
        proxies, proxied_configs = {}, []
        for config in systems:
            holding, proxied_config = await stack.enter_async_context(proxied(config))
            proxies[config.name] = holding
            proxied_configs.append(replace(proxied_config, pool_size=4, deadline_s=DEADLINE_S))
        first = await stack.enter_async_context(service(proxied_configs, catalogue))
        replicas = Pair(first, second, proxies, database)
        await eventually(lambda: _is_connected(replicas))
        yield replicas


@asynccontextmanager
async def killed_on_write(pair: Pair, reachable: Sequence[str]) -> AsyncIterator[None]:
    """Kill the first replica when it writes to a system that is not in `reachable`."""
    with pytest.MonkeyPatch.context() as patch:
        for name in SYSTEMS:
            if name not in reachable:
                store: Any = pair.first.mediator.systems.get(name).store
                patch.setattr(store, "write", _die)
        yield


async def _die(*_: object) -> Any:
    raise Killed


async def abandon_write(pair: Pair, operation: WriteOperation, *systems: str) -> None:
    """Start a write on the first replica, and kill it once `systems` have applied it."""
    async with killed_on_write(pair, systems):
        with pytest.raises(Killed):
            await pair.write(pair.first, operation)
        if systems:
            await eventually(lambda: _has_applied(pair, operation, systems))


async def _has_applied(pair: Pair, operation: WriteOperation, systems: Sequence[str]) -> bool:
    fields = {"postgres": ("a",), "redis": ("p",), "mongo": ("mv",)}
    for name in systems:
        get = Get(pair.database, "split", operation.id, fields[name])
        values = (await pair.second.mediator.data.read(get)).values
        if values != {field: NEW[field] for field in fields[name]}:
            return False
    return True


# Acknowledged writes stay


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_roll_forward_undoes_nothing_that_was_acknowledged(pair: Pair, system: str) -> None:
    id_ = await pair.create()
    await abandon_write(pair, pair.put(id_), system)
    incremented = await pair.write(pair.second, pair.add(id_, 5))
    incremented = await pair.write(pair.second, pair.add(id_, 1))
    conditional = await _write_if_unchanged(pair, id_)
    await expire(pair.second)
    current = await pair.current(id_)
    assert current.values == {"a": "P", "p": 6, "mv": "C2"}
    assert current.values["p"] == (incremented.values or {})["p"]
    assert current.versions["mv"] == conditional.versions["mv"]


async def _write_if_unchanged(pair: Pair, id_: str) -> Outcome:
    """Write on condition that the object is unchanged; retry until it succeeds."""
    while True:
        get = Get(pair.database, "split", id_, ("mv",))
        outcome = await pair.second.mediator.data.read(get)
        condition = Condition(versions=(dict(outcome.versions),))
        try:
            return await pair.write(
                pair.second, replace(pair.update(id_, mv="C2"), condition=condition)
            )
        except PreconditionFailed:
            continue


@pytest.mark.parametrize("kind", ["put", "update", "delete"])
@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_late_step_of_a_resolved_write_leaves_nothing_torn(
    pair: Pair, system: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection stalls until the writer has given up and others have resolved the write."""
    id_ = await pair.create()
    operations: dict[str, WriteOperation] = {
        "put": pair.put(id_),
        "update": pair.update(id_, **NEW),
        "delete": Delete(pair.database, "split", id_, unique()),
    }
    operation = operations[kind]
    store: Any = pair.first.mediator.systems.get(system).store
    send = store.write

    async def stall(calls: Sequence[Write], *token: str) -> Any:
        pair.proxies[system].hold()
        return await send(calls, *token)

    with monkeypatch.context() as patch:
        patch.setattr(store, "write", stall)
        with pytest.raises(Unavailable):
            await pair.write(pair.first, operation)
    assert pair.proxies[system].holds
    await expire(pair.second)
    await pair.proxies[system].release()
    await eventually(lambda: _is_connected(pair))
    current = await _values(pair, id_)
    assert current in (OLD, None if kind == "delete" else NEW)
    replaced = await pair.write(pair.second, pair.put(id_))
    assert (await pair.current(id_)).versions == replaced.versions


async def _values(pair: Pair, id_: str) -> Any:
    try:
        current = await pair.current(id_)
    except NotFound:
        return None
    assert not current.partial
    return current.values


async def _are_open(replica: Service) -> bool:
    return all(replica.mediator.systems.find(name) for name in SYSTEMS)


async def _is_connected(pair: Pair) -> bool:
    """Return whether the first replica reaches all systems again."""
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


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_reader_gets_a_partial_object_or_waits_for_the_rest(
    pair: Pair, system: str
) -> None:
    id_ = await pair.create()
    await abandon_write(pair, pair.put(id_), system)
    missing_groups = {"postgres": "main", "redis": "p", "mongo": "mv"}
    del missing_groups[system]
    async with http_of(pair) as http:
        for path in (f"split/{id_}", "split?limit=1000&allow_scan=true", f"split?ids={id_}"):
            response = await http.get(path)
            assert response.status_code == 200
            partial_groups = set(response.headers["portolan-partial"].split(", "))
            assert partial_groups == set(missing_groups.values())
            assert response.headers["cache-control"] == "no-store"
        tag = (await http.get(f"split/{id_}")).headers["etag"]
        response = await http.get(f"split/{id_}", headers={"if-none-match": tag})
        assert response.status_code == 200
        prefer = {"prefer": "consistency=strong"}
        strong = await http.get(f"split/{id_}", headers=prefer)
        assert "portolan-partial" not in strong.headers
        assert strong.json() == {"id": id_, **NEW}
        assert "portolan-partial" not in (await http.get(f"split/{id_}")).headers
    await expire(pair.second)
