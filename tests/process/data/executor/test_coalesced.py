"""Coalesced single operations get the same answers as separate ones, on each system."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from mediator.base.errors import (
    MediatorError,
    NotFound,
    OperatorRefused,
    PreconditionFailed,
    Unavailable,
)
from mediator.base.observation import BatchFinished
from mediator.model.operations import (
    Condition,
    Create,
    Delete,
    Get,
    Operation,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
)
from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import Value
from mediator.stores.port import Status, StoreRefused
from tests.process.service import Service, inc, unique

CLASS = "articles"
FIELDS = {
    "title": {"type": "string", "max_length": 100},
    "hits": {"type": "integer", "default": 0, "minimum": 0},
    "tags": {"type": "set", "items": "string", "group": "tags"},
    "slug": {"type": "string", "unique": True},
    "ratio": {"type": "float"},
}
THROUGHPUT = [
    {"metric": "read_throughput", "goal": 1000},
    {"metric": "write_throughput", "goal": 1000},
]
SYSTEMS = ("redis", "postgres", "mongo")


def class_on(system: str, *, batching: bool, **members: Any) -> dict[str, Any]:
    return {
        "system": system,
        "annotations": THROUGHPUT,
        "batching": {"max_wait_s": 0.02} if batching else None,
        "fields": FIELDS,
        **members,
    }


async def create_database(mediator: Service, system: str, *, batching: bool, **members: Any) -> str:
    return await mediator.put_schema({CLASS: class_on(system, batching=batching, **members)})


@pytest.fixture(scope="module", params=SYSTEMS)
async def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
async def batched(mediator: Service, system: str) -> str:
    """A database whose operations share store calls."""
    return await create_database(mediator, system, batching=True)


def batches_of(mediator: Service, database: str) -> list[BatchFinished]:
    events = (e for e in mediator.observed if isinstance(e, BatchFinished))
    return [event for event in events if event.database == database]


async def answer(mediator: Service, operation: Operation) -> Outcome | MediatorError:
    data = mediator.mediator.data
    try:
        if isinstance(operation, Get):
            return await data.read(operation)
        return await data.write(operation)
    except MediatorError as error:
        return error


async def hits_of(mediator: Service, database: str, id_: str) -> int:
    hits = ((await mediator.values(database, CLASS, id_)) or {})["hits"]
    assert isinstance(hits, int)
    return hits


class Client:
    """Sends random operations on one object in sequence; a seed determines them."""

    def __init__(self, mediator: Service, database: str, number: int, seed: int) -> None:
        self._mediator = mediator
        self._head = database, CLASS, f"object-{number}"
        self._slug = f"slug-{number}"
        self._random = random.Random(f"{seed} {number}")
        self._versions: list[dict[str, int | None]] = [{"main": 1, "tags": 1}]
        self._numbers: dict[tuple[str, int | None], int] = {}
        self._repeated: list[Any] = []
        self.answers: list[Any] = []

    async def work(self, operations: int) -> list[Any]:
        """Return the answers, with versions numbered by their first appearance."""
        for number in range(operations):
            operation = self._draw(f"{self._head[2]}-{number}")
            outcome = await answer(self._mediator, operation)
            self.answers.append((type(operation).__name__, self._comparable(outcome)))
        return self.answers

    def _draw(self, name: str) -> Operation:
        draw, head = self._random, self._head
        # Unique in a store, the same in the next run: ids of operations decide nothing.
        operation = unique(name)
        condition = Condition()
        if draw.random() < 0.3:
            condition = Condition(versions=(draw.choice(self._versions[-4:]),))
        elif draw.random() < 0.2:
            condition = Condition(present=draw.random() < 0.7)
        fingerprint = "same" if draw.random() < 0.2 else None
        values: dict[str, Value] = {
            "title": name,
            "hits": draw.randrange(3),
            "slug": self._slug,
            "ratio": 0.5,
        }
        arguments = (*head, operation, condition, fingerprint)
        candidates: list[Operation] = [
            Get(*head),
            Get(*head, ("hits",)),
            Get(*head, ("tags", "title")),
            Create(*arguments[:5], fingerprint, values=values),
            Put(*arguments, values=values | {"tags": [name]}),
            Update(*arguments, values={"title": name}, whole=draw.random() < 0.5),
            Update(
                *arguments, operators=(OperatorCall("hits", Operator.INC, draw.choice((1, -1))),)
            ),
            Update(*arguments, operators=(OperatorCall("tags", Operator.ADD_TO_SET, name),)),
            Update(*arguments, operators=(OperatorCall("ratio", Operator.MUL, 1e300),)),
            Update(*arguments, values={"slug": draw.choice((self._slug, f"{self._slug}-2"))}),
            Update(*arguments, unset=("title",)),
            ReadModifyWrite(*arguments, compute=lambda document: {**document, "title": "computed"}),
            Delete(*arguments),
        ]
        choice = draw.choices(candidates, (3, 2, 2, 3, 2, 2, 6, 2, 1, 1, 1, 1, 1))[0]
        if self._repeated and draw.random() < 0.1:
            return draw.choice(self._repeated)  # type: ignore[no-any-return]
        if fingerprint and not isinstance(choice, Get):
            self._repeated.append(choice)
        return choice

    def _comparable(self, outcome: Outcome | MediatorError) -> Any:
        if isinstance(outcome, MediatorError):
            return type(outcome).__name__, outcome.detail, outcome.locations
        self._versions.append(dict(outcome.versions))
        versions = {group: self._number(group, v) for group, v in outcome.versions.items()}
        return versions, outcome.values, outcome.created, outcome.replayed, outcome.partial

    def _number(self, group: str, version: int | None) -> int:
        return self._numbers.setdefault((group, version), len(self._numbers))


@pytest.mark.parametrize("seed", [1, 2])
async def test_concurrent_clients_get_the_same_answers_with_and_without_batching(
    mediator: Service, system: str, seed: int
) -> None:
    runs = []
    for batching in (True, False):
        database = await create_database(mediator, system, batching=batching)
        clients = [Client(mediator, database, number, seed) for number in range(24)]
        runs.append(await asyncio.gather(*(client.work(25) for client in clients)))
        shared_batches = [b for b in batches_of(mediator, database) if b.calls > 1]
        assert bool(shared_batches) is batching
    for with_batching, without in zip(*runs, strict=True):
        assert with_batching == without
    kinds = Counter(
        answer[1][0] for answers in runs[0] for answer in answers if len(answer[1]) == 3
    )
    assert len(kinds) >= 4  # the errors of one client did not touch the others


async def test_increments_of_one_object_answer_as_if_one_after_the_other(
    mediator: Service, batched: str
) -> None:
    id_, count = unique(), 60
    created = await mediator.create(batched, CLASS, id_, title="t", hits=0)
    outcomes = await asyncio.gather(
        *(mediator.mediator.data.write(inc(batched, CLASS, id_)) for _ in range(count))
    )
    versions = sorted(outcome.versions["main"] or 0 for outcome in outcomes)
    assert len(set(versions)) == count
    assert versions[0] > (created.versions["main"] or 0)
    assert await hits_of(mediator, batched, id_) == count
    assert (await mediator.get(batched, CLASS, id_)).versions["main"] == versions[-1]


async def test_a_bound_refuses_exactly_the_writes_beyond_it(
    mediator: Service, batched: str
) -> None:
    id_ = unique()
    await mediator.create(batched, CLASS, id_, hits=5)
    decrement = (OperatorCall("hits", Operator.INC, -1),)
    writes = [Update(batched, CLASS, id_, unique(), operators=decrement) for _ in range(12)]
    answers = await asyncio.gather(*(answer(mediator, write) for write in writes))
    kinds = Counter(type(result) for result in answers)
    assert kinds == {Outcome: 5, OperatorRefused: 7}
    assert await mediator.values(batched, CLASS, id_) == {"hits": 0}


async def test_of_equal_conditions_one_holds(mediator: Service, batched: str) -> None:
    id_ = unique()
    created = await mediator.create(batched, CLASS, id_, title="t", hits=0)
    condition = Condition(versions=({"main": created.versions["main"]},))
    writes = [inc(batched, CLASS, id_, condition=condition) for _ in range(10)]
    answers = await asyncio.gather(*(answer(mediator, write) for write in writes))
    assert Counter(map(type, answers)) == {Outcome: 1, PreconditionFailed: 9}
    assert await hits_of(mediator, batched, id_) == 1


async def test_a_repeated_operation_takes_effect_once(mediator: Service, batched: str) -> None:
    id_, operation = unique(), unique("op")
    await mediator.create(batched, CLASS, id_, hits=0)
    write = inc(batched, CLASS, id_, operation=operation, fingerprint="same")
    outcomes = await asyncio.gather(*(mediator.mediator.data.write(write) for _ in range(6)))
    assert sorted(outcome.replayed for outcome in outcomes) == [False] + [True] * 5
    assert len({outcome.versions["main"] for outcome in outcomes}) == 1
    assert await mediator.values(batched, CLASS, id_) == {"hits": 1}


async def test_a_read_sees_every_write_acknowledged_before_it(
    mediator: Service, batched: str
) -> None:
    ids = [unique() for _ in range(4)]
    for id_ in ids:
        await mediator.create(batched, CLASS, id_, hits=0)

    async def work(id_: str) -> None:
        for _ in range(15):
            write = await mediator.mediator.data.write(inc(batched, CLASS, id_))
            read = await mediator.get(batched, CLASS, id_)
            assert (read.versions["main"] or 0) >= (write.versions["main"] or 0)

    await asyncio.gather(*(work(id_) for id_ in ids * 5))
    for id_ in ids:
        assert await hits_of(mediator, batched, id_) == 75


async def test_equal_reads_share_one_call(mediator: Service, batched: str) -> None:
    id_ = unique()
    await mediator.create(batched, CLASS, id_, hits=3)
    before = len(batches_of(mediator, batched))
    absent = Get(batched, CLASS, unique())
    reads = [mediator.get(batched, CLASS, id_) for _ in range(20)]
    missing = [answer(mediator, absent) for _ in range(5)]
    outcomes, answers = await asyncio.gather(asyncio.gather(*reads), asyncio.gather(*missing))
    assert all(outcome.values == {"hits": 3} for outcome in outcomes)
    assert all(isinstance(result, NotFound) for result in answers)
    events = batches_of(mediator, batched)[before:]
    assert sum(event.operations for event in events) == 25
    assert sum(event.calls for event in events) < 25


async def test_a_cancelled_caller_takes_nothing_from_the_others(
    mediator: Service, batched: str
) -> None:
    id_ = unique()
    await mediator.create(batched, CLASS, id_, hits=0)
    tasks = [
        asyncio.create_task(mediator.mediator.data.write(inc(batched, CLASS, id_)))
        for _ in range(20)
    ]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    outcomes = [result for result in results if isinstance(result, Outcome)]
    assert len(outcomes) >= 10
    assert len(outcomes) <= await hits_of(mediator, batched, id_) <= 20


async def test_reads_that_a_store_refuses_together_are_sent_singly(
    mediator: Service, batched: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [unique() for _ in range(3)]
    for id_ in ids:
        await mediator.create(batched, CLASS, id_, hits=1)
    fragment = (await mediator.mediator.data.route(batched, CLASS)).anchor
    store = mediator.mediator.systems.get(fragment.system)
    read = store.read

    async def refuse_one(calls: Sequence[Any]) -> Any:
        if any(call.id == ids[1] for call in calls):
            raise StoreRefused("a record is broken")
        return await read(calls)

    monkeypatch.setattr(store, "read", refuse_one)
    answers = await asyncio.gather(*(answer(mediator, Get(batched, CLASS, id_)) for id_ in ids))
    assert [type(result) for result in answers] == [Outcome, Unavailable, Outcome]


async def test_a_class_without_the_annotation_never_waits(mediator: Service, system: str) -> None:
    database = await create_database(mediator, system, batching=False)
    await asyncio.gather(
        *(mediator.create(database, CLASS, unique(), hits=number) for number in range(5))
    )
    assert batches_of(mediator, database) == []


async def test_only_the_direction_that_is_required_waits(mediator: Service, system: str) -> None:
    database = await create_database(mediator, system, batching=True, annotations=THROUGHPUT[1:])
    id_ = unique()
    await mediator.create(database, CLASS, id_, hits=0)
    await asyncio.gather(*(mediator.get(database, CLASS, id_) for _ in range(5)))
    assert {event.operation for event in batches_of(mediator, database)} == {"write"}


async def test_batching_works_for_expiring_objects(mediator: Service, system: str) -> None:
    database = await create_database(mediator, system, batching=True, ttl_s=3600)
    id_ = unique()
    await mediator.create(database, CLASS, id_, hits=0)
    await asyncio.gather(
        *(mediator.mediator.data.write(inc(database, CLASS, id_)) for _ in range(10))
    )
    assert await mediator.values(database, CLASS, id_) == {"hits": 10}


async def test_the_wait_of_a_class_is_explained(mediator: Service, batched: str) -> None:
    await mediator.create(batched, CLASS, unique(), hits=0)
    explain = mediator.mediator.control.explain
    waits = (await explain(batched, CLASS))["batching"]
    assert [wait["operation"] for wait in waits] == ["read", "write"]
    assert all(0 <= wait["wait_s"] <= wait["max_wait_s"] == 0.02 for wait in waits)
    assert all(wait["why"] for wait in waits)
    assert (await explain(batched, CLASS, "hits"))["batching"] == []
    assert (await explain(batched))["batching"] == []


async def test_a_state_that_was_never_written_refuses_nothing(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await create_database(mediator, "mongo", batching=True)
    id_, data = unique(), mediator.mediator.data
    await mediator.create(database, CLASS, id_, hits=1)
    session = mediator.mediator.systems.get("mongo").store.link.session  # type: ignore[attr-defined]
    apply_all = session.apply_all

    async def apply_late(layout: Any, steps: Sequence[Any]) -> bool:
        monkeypatch.setattr(session, "apply_all", apply_all)
        # Another replica's write comes between; one of this replica would wait for the batch.
        await session.collection(layout).update_one(
            layout.key(id_),
            {"$set": {layout.paths["hits"]: 5}, "$inc": {layout.version_paths["main"]: 1}},
        )
        return bool(await apply_all(layout, steps))

    monkeypatch.setattr(session, "apply_all", apply_late)
    decrement = (OperatorCall("hits", Operator.INC, -1),)
    route = await data.route(database, CLASS)
    writes = [Update(database, CLASS, id_, unique(), operators=decrement) for _ in range(2)]
    steps = [data.plan_single(route, write) for write in writes]
    calls = [step.first for step in steps if step is not None]
    results = await mediator.mediator.systems.get("mongo").write(calls)
    assert [result.status for result in results] == [Status.APPLIED, Status.APPLIED]
    assert await hits_of(mediator, database, id_) == 3
