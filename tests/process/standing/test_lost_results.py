"""A coordination Redis that has lost its last results gives out their numbers again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.changes.feed import PositionGone
from mediator.model.result_position import ResultPosition
from tests.faults.conditions import eventually
from tests.process.event_streams import read_text
from tests.process.standing.bench import Q1, Bench
from tests.process.standing.published import Published


async def publish(published: Published, sequence: int, *results: bytes) -> None:
    await published.publish(sequence, results={published.key.query: results})


async def test_the_same_results_are_followed_and_others_are_not(published: Published) -> None:
    await publish(published, 0, b"1", b"2")
    state = await published.state()
    await publish(published, 1, b"3", b"4")
    positions = [result.position for result in await published.after(ResultPosition())]
    assert await published.results.last_result(published.key) == positions[-1]

    await published.go_back(state)
    assert await published.after(positions[1]) == []
    for position in positions[2:]:
        with pytest.raises(PositionGone):
            await published.after(position)

    await publish(published, 1, b"3", b"4")
    results = await published.after(ResultPosition())
    assert [result.position for result in results] == positions
    assert [await published.after(position) for position in positions] == [
        results[1:],
        results[2:],
        results[3:],
        [],
    ]

    # Only the last one is as it was: the reader has not seen what follows the others.
    await published.go_back(state)
    await publish(published, 1, b"another", b"4", b"5")
    assert [result.document for result in await published.after(positions[1])] == [
        b"another",
        b"4",
        b"5",
    ]
    for position in positions[2:]:
        with pytest.raises(PositionGone, match="lost"):
            await published.after(position)
    # A plain number does not identify the result.
    assert [result.document for result in await published.after(ResultPosition(4))] == [b"5"]

    await published.go_back(state)
    await publish(published, 1, b"3", b"another")
    with pytest.raises(PositionGone, match="lost"):
        await published.after(positions[3])


async def test_a_reader_that_waits_meanwhile_is_refused(published: Published) -> None:
    await publish(published, 0, b"1")
    state = await published.state()
    await publish(published, 1, b"2")
    [result] = await published.after(ResultPosition(1))
    waiting = asyncio.create_task(
        published.results.results(published.key, result.position, 100, wait_s=60.0)
    )

    async def is_blocked() -> bool:
        clients = await published.redis.client_list()
        return any(client["cmd"] == "xread" and "b" in client["flags"] for client in clients)

    await eventually(is_blocked)
    await published.go_back(state)
    await publish(published, 1, b"another", b"3")
    with pytest.raises(PositionGone, match="lost"):
        await waiting


async def test_pages_and_events_have_positions(bench: Bench) -> None:
    query = await bench.ready(Q1)
    await bench.send("r", (1, {"a": 1}))
    await bench.send("s", (1, {"a": 1, "b": 2}))
    await bench.wait_until_taken()
    await bench.send("t", (1, {"b": 2, "c": 0}))
    await bench.expect_results(query, {"r": {"a": 1}, "s": {"a": 1, "b": 2}, "t": {"b": 2, "c": 0}})
    page = await bench.page(query, after="0")
    number, _, digest = page["after"].partition("-")
    assert (number, len(digest)) == ("1", 16)
    assert await bench.page(query, after=page["after"]) == {"results": [], "after": page["after"]}
    path = f"standing-queries/{query}/results"
    other = f"1-{int(digest, 16) ^ 1:016x}"
    requests: list[dict[str, Any]] = [
        {"params": {"after": other}},
        {"headers": {"last-event-id": other}},
    ]
    for options in requests:
        answer = await bench.client.get(path, **options)
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/gone")
    for wrong in ("1-", "1-12", "-1", "1-" + "g" * 16, "1" * 16, f"{other}0"):
        answer = await bench.client.get(path, params={"after": wrong})
        assert answer.status_code == 400, wrong
    header = (b"last-event-id", b"0")
    events = await read_text(bench.api, f"/v1/{bench.database}/{path}", '"id":1', header)
    assert f"id: {page['after']}\nevent: result\n" in events
