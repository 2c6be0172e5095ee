"""Results that become objects of a class: each once, whatever fails, and whatever clients do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis

from mediator.base import holding
from mediator.base.errors import OutcomeUnknown, Unavailable
from mediator.coordination import standing_results
from mediator.event_streams.port import StreamKey
from mediator.standing import class_deliveries
from mediator.standing.results import QueryKey
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on
from tests.process.standing.bench import CLASSES, Bench, bench_on, pointers

HITS: dict[str, Any] = {
    "n": field_on("redis", "integer", required=True),
    "name": field_on("redis", max_length=5),
    "city": field_on("redis", default="Rome"),
    "at": field_on("redis", "timestamp", updated=True),
    "tags": field_on("redis", "list", items="string"),
}
PAIRS = {"n": field_on("postgres", "integer"), "share": field_on("mongo", "float")}
SCHEMA = {
    **CLASSES,
    "hits": {"fields": HITS},
    "pairs": {"fields": PAIRS},
    "expiring": {"fields": PAIRS, "ttl_s": 3600},
}
TYPES = {"n": "integer", "name": "string"}
JOIN: dict[str, Any] = {
    "relations": ["x", "y"],
    "predicates": [["x.n", "y.n"]],
    "window_s": 10,
    "into": {"class": "hits", "values": {"n": "y.n", "name": "y.name"}},
}
INTO_PAIRS = {**JOIN, "into": {"class": "pairs", "values": {"n": "x.n", "share": "y.n"}}}


@pytest.fixture
async def bench(started: Service, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(holding, "PAUSE_S", 0.01)
    monkeypatch.setattr(class_deliveries, "_MAX_PAUSE_S", 0.2)
    async with bench_on(started, SCHEMA) as opened:
        for name in "xy":
            await opened.declare(name, TYPES, types=TYPES)
        yield opened


async def send_names(bench: Bench, *names: str | None) -> None:
    """Produce a result of each name."""
    await bench.send("x", (1, {"n": 7}))
    for name in names:
        await bench.send("y", (1, {"n": 7, "name": name}))
        await bench.wait_until_taken()


async def get_object(bench: Bench, path: str) -> dict[str, Any] | None:
    answer = await bench.client.get(path)
    assert answer.status_code in (200, 404), answer.text
    return answer.json() if answer.status_code == 200 else None


async def wait_for_object(bench: Bench, path: str) -> dict[str, Any]:
    """Wait for an object, and return it."""
    await eventually(lambda: object_exists(bench, path))
    document = await get_object(bench, path)
    assert document is not None
    return document


async def object_exists(bench: Bench, path: str) -> bool:
    return await get_object(bench, path) is not None


class Faults:
    """Injects faults into the bench's deliveries, at systems and the coordination Redis."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        shared = bench.service.mediator.coordination
        assert shared is not None
        self._bench = bench
        self._write = bench.service.mediator.data.batch
        self._put = shared.standing_results.put_delivery
        self.notes = self.writes = 0
        self.fails_to_write: Callable[[int], bool] = lambda _: False
        self.fails_to_note: Callable[[int], bool] = lambda _: False
        self.is_written = True
        monkeypatch.setattr(bench.service.mediator.data, "batch", self._batch)
        monkeypatch.setattr(shared.standing_results, "put_delivery", self._put_delivery)

    async def _batch(self, operations: Any, **members: Any) -> Any:
        if operations[0].database != self._bench.database:
            return await self._write(operations, **members)
        self.writes += 1
        if not self.fails_to_write(self.writes):
            return await self._write(operations, **members)
        if not self.is_written:
            return [Unavailable("It is down.", system="redis") for _ in operations]
        await self._write(operations, **members)
        return [OutcomeUnknown("It has not answered.", system="redis") for _ in operations]

    async def _put_delivery(self, key: QueryKey, *args: Any) -> None:
        if key.database == self._bench.id:
            self.notes += 1
            if self.fails_to_note(self.notes):
                raise Unavailable("It went down.", system="coordination")
        await self._put(key, *args)

    async def wait_for_writes(self, writes: int) -> None:
        """Wait for more attempts to write."""
        target = self.writes + writes

        async def are_reached() -> bool:
            return self.writes >= target

        await eventually(are_reached)


@pytest.fixture
def faults(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(bench, monkeypatch)


async def test_results_are_objects_that_another_query_reads(bench: Bench) -> None:
    query = await bench.ready(INTO_PAIRS)
    reading = {
        "relations": {"p": {"class": "pairs"}, "c": {"class": "customers"}},
        "predicates": [["p.id", "c.name"]],
        "window_s": 3600,
    }
    chained = await bench.ready(reading)
    await bench.send("x", (1, {"n": 7}))
    await bench.send("y", (1, {"n": 7}))
    id_ = f"{query}-1"
    assert await wait_for_object(bench, f"pairs/{id_}") == {"id": id_, "n": 7, "share": 7.0}
    await bench.write("ada", name=id_, city="Oslo")
    await bench.expect_results(
        chained,
        {
            "p": {"id": id_, "n": 7, "share": 7.0},
            "c": {"id": "ada", "name": id_, "city": "Oslo"},
        },
    )
    # Cycles are refused, direct or through another query.
    direct = {**reading, "into": {"class": "pairs", "values": {"n": "p.n"}}}
    around = {**reading, "into": {"stream": "x", "values": {"n": "p.n"}}}
    for document, pointer in ((direct, "/into/class"), (around, "/into/stream")):
        answer = await bench.client.post("standing-queries", json=document)
        assert (answer.status_code, pointers(answer)) == (400, [pointer])


@pytest.mark.parametrize("step", ["written", "unknown", "not written"])
async def test_each_result_is_written_once_wherever_deliveries_fail(
    bench: Bench, faults: Faults, step: str
) -> None:
    if step == "written":
        faults.fails_to_note = lambda number: bool(number % 2)
    else:
        faults.is_written = step == "unknown"
        faults.fails_to_write = lambda number: bool(number % 2)
    query = await bench.ready(JOIN)
    await send_names(bench, *map(str, range(6)))
    for number in range(6):
        document = await wait_for_object(bench, f"hits/{query}-{number + 1}")
        assert (document["n"], document["name"], document["city"]) == (7, str(number), "Rome")
    await eventually(partial(has_delivered, bench, query, 6))
    assert await get_object(bench, f"hits/{query}-7") is None
    assert max(faults.writes, faults.notes) > 1  # the first attempt failed, with all results so far
    # Written twice, an object would have two changes.
    for number in range(6):
        await eventually(partial(bench.has_changes, f"{query}-{number + 1}", 1))


async def has_delivered(bench: Bench, query: str, number: int) -> bool:
    shared = bench.service.mediator.coordination
    assert shared is not None
    delivery = (await shared.standing_results.deliveries(bench.id)).get(query)
    return delivery is not None and delivery.done == number


@pytest.mark.parametrize("joined", [False, True])
async def test_writes_of_clients_to_an_object_stay(
    bench: Bench, faults: Faults, joined: bool
) -> None:
    faults.fails_to_note = lambda _: True
    query = await bench.ready(INTO_PAIRS if joined else JOIN)
    base = f"{'pairs' if joined else 'hits'}/{query}"
    await send_names(bench, "a", "b", "c")
    for number in (1, 2, 3):
        await wait_for_object(bench, f"{base}-{number}")
    headers = {"content-type": "application/merge-patch+json"}
    answer = await bench.client.patch(f"{base}-1", content=b'{"n": 1}', headers=headers)
    assert answer.status_code == 200, answer.text
    assert (await bench.client.delete(f"{base}-2")).status_code == 204
    # The same results are written again, and are acknowledged at last.
    await faults.wait_for_writes(writes=3)
    faults.fails_to_note = lambda _: False
    await eventually(partial(has_delivered, bench, query, 3))
    documents = [await get_object(bench, f"{base}-{number}") for number in (1, 2, 3)]
    assert [document and document["n"] for document in documents] == [1, None, 7]


async def test_an_outage_holds_results_up_and_no_other_query(bench: Bench, faults: Faults) -> None:
    faults.fails_to_write, faults.is_written = lambda _: True, False
    query = await bench.ready(JOIN)
    other = await bench.ready({**JOIN, "into": {"stream": "u", "values": {"c": "x.n"}}})
    await send_names(bench, "a")
    tuples = {"x": {"n": 7}, "y": {"n": 7, "name": "a"}}
    await bench.expect_results(query, tuples)
    await bench.expect_results(other, tuples)
    await faults.wait_for_writes(writes=3)
    assert await get_object(bench, f"hits/{query}-1") is None
    assert await bench.has_state(query, "ready")
    faults.fails_to_write = lambda _: False
    assert (await wait_for_object(bench, f"hits/{query}-1"))["name"] == "a"


async def test_results_from_before_a_query_was_stopped_are_written(
    bench: Bench, faults: Faults
) -> None:
    faults.fails_to_write, faults.is_written = lambda _: True, False
    query = await bench.ready(JOIN)
    await send_names(bench, "a", "b")
    await faults.wait_for_writes(writes=2)
    await bench.streams.drop(StreamKey(bench.id, "x"))
    await wait_until_stopped(bench, query)
    # Another replica, which does not know the query, takes over.
    faults.fails_to_note = lambda number: number == 1
    faults.fails_to_write = lambda _: False
    await wait_for_object(bench, f"hits/{query}-1")
    await eventually(partial(has_delivered, bench, query, 2))
    assert (await wait_for_object(bench, f"hits/{query}-2"))["name"] == "b"


async def wait_until_stopped(bench: Bench, query: str) -> str:
    """Wait until a query is stopped, and return the reason."""
    await eventually(lambda: bench.has_state(query, "stopped"))
    return str((await bench.show(query))["detail"])


async def test_results_that_are_removed_before_they_are_written_stop_the_query(
    bench: Bench, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_results, "MAX_RESULTS", 2)
    faults.fails_to_write, faults.is_written = lambda _: True, False
    query = await bench.ready(JOIN)
    await send_names(bench, "a")
    await bench.send("y", *[(1, {"n": 7})] * 200)
    assert "takes results too slowly" in await wait_until_stopped(bench, query)


async def test_a_result_that_the_class_refuses_stops_the_query_and_no_earlier_one(
    bench: Bench,
) -> None:
    query = await bench.ready(JOIN)
    other = await bench.ready({**JOIN, "into": {"class": "hits", "values": {"n": "x.n"}}})
    await send_names(bench, "a", "too long")
    detail = await wait_until_stopped(bench, query)
    assert "does not take the result 2: /into/values/name must be at most 5" in detail
    assert (await wait_for_object(bench, f"hits/{query}-1"))["name"] == "a"
    assert await get_object(bench, f"hits/{query}-2") is None
    await wait_for_object(bench, f"hits/{other}-2")
    assert await bench.has_state(other, "ready")


async def test_another_result_under_the_same_number_is_noticed(
    bench: Bench, redis_config: SystemConfig
) -> None:
    query = await bench.ready(JOIN)
    await send_names(bench, "a")
    await eventually(partial(has_delivered, bench, query, 1))
    # The coordination Redis rolls back, and another execution gives another result.
    async with Redis.from_url(redis_config.url) as redis:
        base = f"{{portolan:standing:{bench.id}}}:"
        entries: Any = await redis.xrange(f"{base}results:{query}")
        other = entries[0][1][b"r"].replace(b'"a"', b'"b"')
        async with redis.pipeline(transaction=True) as pipe:
            pipe.delete(f"{base}results:{query}")
            pipe.xadd(f"{base}results:{query}", {"r": other, "d": "0d"}, "1-0")
            pipe.hset(f"{base}deliveries", query, "0 0")
            await pipe.execute()
    assert "another result had its number" in await wait_until_stopped(bench, query)
    assert (await wait_for_object(bench, f"hits/{query}-1"))["name"] == "a"


def without(*path: str) -> dict[str, Any]:
    """Return the schema without a class, or without a field of it."""
    class_name, *field = path
    classes = {name: schema for name, schema in SCHEMA.items() if name != class_name}
    if field:
        fields = {k: v for k, v in SCHEMA[class_name]["fields"].items() if k not in field}
        classes[class_name] = {"fields": fields}
    return classes


@pytest.mark.parametrize("path", [("hits",), ("hits", "name")])
async def test_a_class_or_a_field_that_is_dropped_stops_the_query(
    bench: Bench, path: tuple[str, ...]
) -> None:
    query = await bench.ready(JOIN)
    control = bench.service.mediator.control
    await control.set_schema(bench.database, {"classes": without(*path)})
    pointer = "/into/class" if len(path) == 1 else "/into/values/name"
    assert f"no longer allow the query: {pointer}" in await wait_until_stopped(bench, query)


@pytest.mark.parametrize(
    ("into", "pointer"),
    [
        ({"values": {"n": "x.n"}}, "/into"),
        ({"class": "hits", "stream": "u", "values": {"n": "x.n"}}, "/into"),
        ({"class": "nobody", "values": {"n": "x.n"}}, "/into/class"),
        ({"class": ["hits"], "values": {"n": "x.n"}}, "/into/class"),
        ({"class": "hits"}, "/into/values"),
        ({"class": "hits", "values": {}}, "/into/values"),
        ({"class": "hits", "values": []}, "/into/values"),
        ({"class": "hits", "values": {"name": "x.name"}}, "/into/values/n"),
        ({"class": "hits", "values": {"n": "x.n", "z": "x.n"}}, "/into/values/z"),
        ({"class": "hits", "values": {"n": "x.n", "id": "x.name"}}, "/into/values/id"),
        ({"class": "hits", "values": {"n": "x.n", "at": "x.name"}}, "/into/values/at"),
        ({"class": "hits", "values": {"n": "x.n", "tags": "x.name"}}, "/into/values/tags"),
        ({"class": "hits", "values": {"n": "x.name"}}, "/into/values/n"),
        ({"class": "hits", "values": {"n": "x.z"}}, "/into/values/n"),
        ({"class": "hits", "values": {"n": 7}}, "/into/values/n"),
        ({"class": "hits", "values": {"n": "x.n", "name": "x.n"}}, "/into/values/name"),
    ],
)
async def test_invalid_values_are_refused_with_their_location(
    bench: Bench, into: dict[str, Any], pointer: str
) -> None:
    answer = await bench.client.post("standing-queries", json={**JOIN, "into": into})
    assert (answer.status_code, pointers(answer)) == (400, [pointer])


async def test_values_without_a_type_are_refused(bench: Bench) -> None:
    document = {
        "relations": ["r", "s"],
        "predicates": [["r.a", "s.a"]],
        "window_s": 10,
        "into": {"class": "expiring", "values": {"n": "r.a"}},
    }
    answer = await bench.client.post("standing-queries", json=document)
    assert (answer.status_code, pointers(answer)) == (400, ["/into/values/n"])
