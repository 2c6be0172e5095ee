"""Results that go into an event stream: each once, so that queries compose."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base import holding
from mediator.base.errors import Unavailable
from mediator.event_streams.port import NewTuple, StreamKey
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


@pytest.mark.parametrize("step", ["begun", "appended", "not appended"])
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
        if step == "begun" and calls["note"] % 3 == 1:
            raise Unavailable("It went down.", system="coordination")

    monkeypatch.setattr(bench.streams, "append_once", append_once)
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
    found = [each.values["k"] for each in await bench.streams.read(key, 0, 100)]
    assert found == [0, 1, 2, 3, 4, 5]
    assert calls["append"] > 6 or step == "begun"


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
