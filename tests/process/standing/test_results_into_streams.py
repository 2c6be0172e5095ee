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
    await bench.finds(query, {"pairs": {"k": 2}, "t": {"b": 2, "c": 3}})
    # And what leads back, through another query, is refused.
    back = {**WITH_T, "into": {"stream": "r", "values": {"a": "t.c"}}}
    answer = await bench.client.post("standing-queries", json=back)
    assert (answer.status_code, pointers(answer)) == (400, ["/into/stream"])


@pytest.mark.parametrize("step", ["noted", "appended", "not appended"])
async def test_what_is_appended_is_appended_once_wherever_the_holder_fails(
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
        done = await append(*args)
        if step == "appended" and calls["append"] % 2:
            raise Unavailable("It went down.", system="coordination")
        return done

    async def put_delivery(*args: Any) -> None:
        calls["note"] += 1
        await note(*args)
        if step == "noted" and calls["note"] % 3 == 1:
            raise Unavailable("It went down.", system="coordination")

    replace_append(bench, monkeypatch, append_once)
    monkeypatch.setattr(shared.standing_results, "put_delivery", put_delivery)
    await bench.ready(PAIRS)
    await bench.send("r", (1, {"a": 1}))
    await bench.has_taken_all()
    for number in range(6):
        await bench.send("s", (1, {"a": 1, "b": number}))
        await bench.has_taken_all()
    key = StreamKey(bench.id, "pairs")

    async def are_there() -> bool:
        return await bench.streams.last(key) >= 6

    await eventually(are_there)
    found = [each.values["k"] for each in (await bench.streams.read(key, 0, 100)).tuples]
    assert found == [0, 1, 2, 3, 4, 5]
    assert calls["append"] > 6 or step == "noted"


async def test_a_stream_that_is_full_holds_results_up(bench: Bench) -> None:
    await bench.declare("pairs", "k", most_tuples=1)
    key = StreamKey(bench.id, "pairs")
    await bench.streams.append(key, [NewTuple(0, b'{"k": 0}')])
    query = await bench.ready(PAIRS)
    await bench.send("r", (1, {"a": 1}))
    await bench.send("s", (1, {"a": 1, "b": 2}))
    await bench.finds(query, {"r": {"a": 1}, "s": {"a": 1, "b": 2}})
    assert await bench.has_state(query, "ready")
    assert await bench.streams.last(key) == 1


def replace_append(bench: Bench, monkeypatch: pytest.MonkeyPatch, replacement: Any) -> None:
    """Have a function called for appends to the streams of this database.

    Queries of tests before may still append to theirs.
    """
    append = bench.streams.append_once

    async def append_once(key: StreamKey, *args: Any) -> Any:
        return await (replacement if key.database == bench.id else append)(key, *args)

    monkeypatch.setattr(bench.streams, "append_once", append_once)


class Appended:
    """Records what the service appends to a stream, as far as that takes it."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: list[list[Any]] = []
        self._append = bench.streams.append_once
        replace_append(bench, monkeypatch, self._append_once)

    async def _append_once(self, key: StreamKey, tuples: Any, *args: Any) -> Any:
        done = await self._append(key, tuples, *args)
        self.parts.append([orjson.loads(each.values)["k"] for each in tuples])
        return done

    @property
    def values(self) -> list[Any]:
        return [each for part in self.parts for each in part]


async def burst(bench: Bench, count: int) -> None:
    """Make so many results in one batch."""
    await bench.send("s", *[(1, {"a": 1, "b": number}) for number in range(count)])
    await bench.has_taken_all()
    await bench.send("r", (1, {"a": 1}))
    await bench.has_taken_all()


async def test_a_stream_that_is_smaller_than_a_burst_takes_it_in_parts(
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
    assert max(map(len, appended.parts)) == 2
    assert await bench.has_state(query, "ready")


async def test_a_stream_with_tuples_of_others_takes_what_there_is_room_for(
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


async def test_a_part_for_which_there_is_no_room_any_more_becomes_smaller(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer takes the room between the look at it and the append."""
    appended, append, calls = Appended(bench, monkeypatch), bench.streams.append_once, list[Any]()

    async def overtaken(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            await bench.send("pairs", *[(1, {"k": "of another"})] * 3)
        return await append(*args)

    replace_append(bench, monkeypatch, overtaken)
    await bench.declare("pairs", "k", most_tuples=5)
    query = await bench.ready(PAIRS)
    await burst(bench, 4)

    async def are_there() -> bool:
        return len(appended.values) >= 2

    await eventually(are_there)
    assert [len(each) for each in appended.parts] == [2]
    assert await bench.has_state(query, "ready")


@pytest.mark.parametrize("order", ["before the smaller part", "behind it"])
async def test_a_part_that_arrives_after_it_was_given_up_is_not_appended_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """The driver has sent the call twice, and the stream has no room for the first one to come."""
    append, calls = bench.streams.append_once, list[Any]()
    given_up, refused = list[Any](), list[str]()

    async def sent_twice(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            await bench.send("pairs", *[(1, {"k": "of another"})] * 3)
        elif given_up and order == "before the smaller part":
            await arrive()
        try:
            done = await append(*args)
        except TooManyRequests:
            given_up.append(args)
            raise
        await arrive()
        return done

    async def arrive() -> None:
        """Let what was given up come, now that there is room for it."""
        while given_up:
            await make_room()
            try:
                await append(*given_up.pop())
            except IdempotencyReused as error:
                refused.append(error.fingerprint)

    async def make_room() -> None:
        state = f"{{portolan:event-streams:{bench.id}}}:state:pairs"
        shared = bench.service.mediator.coordination
        assert shared is not None
        await shared.redis.hincrby(state, "clock", -7_200_000)

    replace_append(bench, monkeypatch, sent_twice)
    await bench.declare("pairs", "k", most_tuples=5)
    query, results = await bench.ready(PAIRS), 4
    await burst(bench, results)
    key = StreamKey(bench.id, "pairs")

    async def are_there() -> bool:
        return await bench.streams.last(key) >= 3 + results

    await eventually(are_there)
    # What comes next shows that nothing else was on its way.
    await bench.send("s", (1, {"a": 1, "b": "last"}))
    results += 1
    await eventually(are_there)
    found = [each.values["k"] for each in (await bench.streams.read(key, None, 100)).tuples]
    own = [each for each in found if each != "of another"]
    assert own == [0, 1, 2, 3, "last"][-len(own) :]
    assert await bench.streams.last(key) == 3 + results
    assert await bench.has_state(query, "ready")
    assert refused == ([] if order == "before the smaller part" else ["2"])


async def test_a_part_has_so_many_bytes_at_most(
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
    assert [len(each) for each in appended.parts] == [2, 2, 1]


async def declare_anew(bench: Bench) -> None:
    assert await bench.streams.drop(StreamKey(bench.id, "pairs"))
    await bench.declare("pairs", "k")


async def is_stopped(bench: Bench, query: str) -> None:
    await eventually(lambda: bench.has_state(query, "stopped"))
    assert "pairs" in (detail := (await bench.show(query))["detail"])
    assert "declared anew" in detail


async def test_a_query_whose_stream_was_declared_anew_is_stopped(bench: Bench) -> None:
    await bench.declare("pairs", "k")
    query = await bench.ready(PAIRS)
    await declare_anew(bench)
    # Before there is any result.
    await is_stopped(bench, query)
    # One that is created now knows the present stream.
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
            await declare_anew(bench)
        return await append(*args)

    replace_append(bench, monkeypatch, append_once)
    await burst(bench, 1)
    await is_stopped(bench, query)
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
        await declare_anew(bench)
    await is_stopped(bench, query)
