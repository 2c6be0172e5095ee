"""Results that go into an event stream: each once, so that queries compose."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from mediator.base import holding
from mediator.base.errors import IdempotencyReused, TooManyRequests, Unavailable
from mediator.event_streams.port import NewTuple, StreamKey
from mediator.standing import delivery
from tests.faults.conditions import eventually
from tests.process.standing.bench import Bench, pointers

PAIRS: dict[str, Any] = {
    "relations": ["r", "s"],
    "predicates": [["r.a", "s.a"]],
    "window_s": 10,
    "into": {"stream": "pairs", "values": {"k": "s.b"}},
}
WITH_T: dict[str, Any] = {
    "relations": ["pairs", "t"],
    "predicates": [["pairs.k", "t.b"]],
    "window_s": 10,
}


async def test_a_query_reads_the_results_of_another(bench: Bench) -> None:
    await bench.declare("pairs", "k")
    await bench.ready(PAIRS)
    query = await bench.ready(WITH_T)
    await bench.send("t", (1, {"b": 2, "c": 3}))
    await bench.send("r", (1, {"a": 1}))
    await bench.send("s", (2, {"a": 1, "b": 2}))
    await bench.expect_results(query, {"pairs": {"k": 2}, "t": {"b": 2, "c": 3}})
    # A cycle through another query is refused.
    back = {**WITH_T, "into": {"stream": "r", "values": {"a": "t.c"}}}
    answer = await bench.client.post("standing-queries", json=back)
    assert (answer.status_code, pointers(answer)) == (400, ["/into/stream"])


@pytest.mark.parametrize("step", ["noted", "appended", "not appended"])
async def test_results_are_appended_once_wherever_the_holder_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(holding, "PAUSE_S", 0.01)
    await bench.declare("pairs", "k")
    shared = bench.service.mediator.coordination
    assert shared is not None
    append, note = bench.streams.append_once, shared.standing_results.put_delivery
    calls = {"append": 0, "note": 0}

    async def append_once(*args: Any) -> Any:
        calls["append"] += 1
        if step == "not appended" and calls["append"] % 2:
            raise Unavailable("It went down.", system="coordination")
        result = await append(*args)
        if step == "appended" and calls["append"] % 2:
            raise Unavailable("It went down.", system="coordination")
        return result

    async def put_delivery(*args: Any) -> None:
        calls["note"] += 1
        await note(*args)
        if step == "noted" and calls["note"] % 3 == 1:
            raise Unavailable("It went down.", system="coordination")

    replace_append(bench, monkeypatch, append_once)
    monkeypatch.setattr(shared.standing_results, "put_delivery", put_delivery)
    await bench.ready(PAIRS)
    await bench.send("r", (1, {"a": 1}))
    await bench.wait_until_taken()
    for number in range(6):
        await bench.send("s", (1, {"a": 1, "b": number}))
        await bench.wait_until_taken()
    key = StreamKey(bench.id, "pairs")

    async def are_there() -> bool:
        return await bench.streams.last(key) >= 6

    await eventually(are_there)
    keys = [tuple_.values["k"] for tuple_ in (await bench.streams.read(key, 0, 100)).tuples]
    assert keys == [0, 1, 2, 3, 4, 5]
    assert calls["append"] > 6 or step == "noted"


async def test_a_stream_that_is_full_holds_results_up(bench: Bench) -> None:
    await bench.declare("pairs", "k", most_tuples=1)
    key = StreamKey(bench.id, "pairs")
    await bench.streams.append(key, [NewTuple(0, b'{"k": 0}')])
    query = await bench.ready(PAIRS)
    await bench.send("r", (1, {"a": 1}))
    await bench.send("s", (1, {"a": 1, "b": 2}))
    await bench.expect_results(query, {"r": {"a": 1}, "s": {"a": 1, "b": 2}})
    assert await bench.has_state(query, "ready")
    assert await bench.streams.last(key) == 1


def replace_append(bench: Bench, monkeypatch: pytest.MonkeyPatch, replacement: Any) -> None:
    """Replace appends to the streams of this database.

    Queries of earlier tests can still append to theirs.
    """
    append = bench.streams.append_once

    async def append_once(key: StreamKey, *args: Any) -> Any:
        return await (replacement if key.database == bench.id else append)(key, *args)

    monkeypatch.setattr(bench.streams, "append_once", append_once)


class Appended:
    """Records the tuples that the service appends and the stream takes."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chunks: list[list[Any]] = []
        self._append = bench.streams.append_once
        replace_append(bench, monkeypatch, self._append_once)

    async def _append_once(self, key: StreamKey, tuples: Any, *args: Any) -> Any:
        result = await self._append(key, tuples, *args)
        self.chunks.append([orjson.loads(tuple_.values)["k"] for tuple_ in tuples])
        return result

    @property
    def values(self) -> list[Any]:
        return [value for chunk in self.chunks for value in chunk]


async def burst(bench: Bench, count: int) -> None:
    """Produce a number of results in one batch."""
    await bench.send("s", *[(1, {"a": 1, "b": number}) for number in range(count)])
    await bench.wait_until_taken()
    await bench.send("r", (1, {"a": 1}))
    await bench.wait_until_taken()


async def test_a_stream_that_is_smaller_than_a_burst_takes_it_in_chunks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended = Appended(bench, monkeypatch)
    await bench.declare("pairs", "k", most_tuples=2, retention_s=1)
    query = await bench.ready(PAIRS)
    await burst(bench, 5)

    async def are_there() -> bool:
        return len(appended.values) >= 5

    await eventually(are_there)
    assert sorted(appended.values) == list(range(5))
    assert max(map(len, appended.chunks)) == 2
    assert await bench.has_state(query, "ready")


async def test_a_stream_with_other_tuples_takes_the_results_that_fit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended = Appended(bench, monkeypatch)
    await bench.declare("pairs", "k", most_tuples=5)
    await bench.send("pairs", *[(1, {"k": "of another"})] * 2)
    query = await bench.ready(PAIRS)
    await burst(bench, 4)

    async def are_there() -> bool:
        return len(appended.values) >= 3

    await eventually(are_there)
    assert await bench.has_state(query, "ready")
    assert len(appended.values) == 3


async def test_a_chunk_that_has_no_room_any_more_becomes_smaller(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer takes the room between the check and the append."""
    appended, append, calls = Appended(bench, monkeypatch), bench.streams.append_once, list[Any]()

    async def append_overtaken(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            await bench.send("pairs", *[(1, {"k": "of another"})] * 3)
        return await append(*args)

    replace_append(bench, monkeypatch, append_overtaken)
    await bench.declare("pairs", "k", most_tuples=5)
    query = await bench.ready(PAIRS)
    await burst(bench, 4)

    async def are_there() -> bool:
        return len(appended.values) >= 2

    await eventually(are_there)
    assert [len(chunk) for chunk in appended.chunks] == [2]
    assert await bench.has_state(query, "ready")


@pytest.mark.parametrize("order", ["before the smaller chunk", "behind it"])
async def test_a_chunk_that_arrives_after_it_was_abandoned_is_not_appended_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """The driver has sent the call twice, and the stream has no room for the first to arrive."""
    append, calls = bench.streams.append_once, list[Any]()
    abandoned, refused = list[Any](), list[str]()

    async def send_twice(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            await bench.send("pairs", *[(1, {"k": "of another"})] * 3)
        elif abandoned and order == "before the smaller chunk":
            await arrive()
        try:
            result = await append(*args)
        except TooManyRequests:
            abandoned.append(args)
            raise
        await arrive()
        return result

    async def arrive() -> None:
        """Let abandoned appends arrive, with room for them."""
        while abandoned:
            await make_room()
            try:
                await append(*abandoned.pop())
            except IdempotencyReused as error:
                refused.append(error.fingerprint)

    async def make_room() -> None:
        state = f"{{portolan:event-streams:{bench.id}}}:state:pairs"
        shared = bench.service.mediator.coordination
        assert shared is not None
        await shared.redis.hincrby(state, "clock", -7_200_000)

    replace_append(bench, monkeypatch, send_twice)
    await bench.declare("pairs", "k", most_tuples=5)
    query, results = await bench.ready(PAIRS), 4
    await burst(bench, results)
    key = StreamKey(bench.id, "pairs")

    async def are_there() -> bool:
        return await bench.streams.last(key) >= 3 + results

    await eventually(are_there)
    # The next result shows that no other append was on its way.
    await bench.send("s", (1, {"a": 1, "b": "last"}))
    results += 1
    await eventually(are_there)
    keys = [tuple_.values["k"] for tuple_ in (await bench.streams.read(key, None, 100)).tuples]
    own_keys = [k for k in keys if k != "of another"]
    assert own_keys == [0, 1, 2, 3, "last"][-len(own_keys) :]
    assert await bench.streams.last(key) == 3 + results
    assert await bench.has_state(query, "ready")
    assert refused == ([] if order == "before the smaller chunk" else ["2"])


async def test_the_bytes_of_a_chunk_are_limited(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_CHUNK_BYTES", 10)
    appended = Appended(bench, monkeypatch)
    await bench.declare("pairs", "k")
    await bench.ready(PAIRS)
    await burst(bench, 5)

    async def are_there() -> bool:
        return len(appended.values) >= 5

    await eventually(are_there)
    assert [len(chunk) for chunk in appended.chunks] == [2, 2, 1]


async def redeclare(bench: Bench) -> None:
    assert await bench.streams.drop(StreamKey(bench.id, "pairs"))
    await bench.declare("pairs", "k")


async def wait_until_stopped(bench: Bench, query: str) -> None:
    await eventually(lambda: bench.has_state(query, "stopped"))
    assert "pairs" in (detail := (await bench.show(query))["detail"])
    assert "declared anew" in detail


async def test_a_query_whose_stream_was_declared_anew_is_stopped(bench: Bench) -> None:
    await bench.declare("pairs", "k")
    query = await bench.ready(PAIRS)
    await redeclare(bench)
    # Before any result.
    await wait_until_stopped(bench, query)
    # A query created now knows the present stream.
    await bench.ready(PAIRS)


async def test_a_query_whose_stream_is_removed_is_stopped(bench: Bench) -> None:
    await bench.declare("pairs", "k")
    query = await bench.ready(PAIRS)
    assert await bench.streams.drop(StreamKey(bench.id, "pairs"))
    await eventually(lambda: bench.has_state(query, "stopped"))
    assert "there is no event stream pairs" in (await bench.show(query))["detail"]


async def test_a_stream_is_declared_anew_while_results_are_on_their_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.declare("pairs", "k")
    query, append, calls = await bench.ready(PAIRS), bench.streams.append_once, list[Any]()

    async def append_once(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            await redeclare(bench)
        return await append(*args)

    replace_append(bench, monkeypatch, append_once)
    await burst(bench, 1)
    await wait_until_stopped(bench, query)
    assert calls
    assert await bench.streams.last(StreamKey(bench.id, "pairs")) == 0


async def test_a_stream_is_declared_anew_while_nobody_holds_the_query(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "PAUSE_S", 0.01)
    await bench.declare("pairs", "k")
    query, failures = await bench.ready(PAIRS), list[str]()

    async def fail(database: str) -> Any:
        failures.append(database)
        raise Unavailable("It is down.", system="coordination")

    async def has_failed() -> bool:
        return bench.id in failures

    with monkeypatch.context() as down:
        down.setattr(bench.streams, "of_database", fail)
        await eventually(has_failed)
        await redeclare(bench)
    await wait_until_stopped(bench, query)
