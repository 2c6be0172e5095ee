"""A coordination Redis that has lost its last results gives their numbers again."""

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
    kept = await published.state()
    await publish(published, 1, b"3", b"4")
    seen = [each.position for each in await published.after(ResultPosition())]
    assert await published.results.last_result(published.key) == seen[-1]

    await published.go_back(kept)
    assert await published.after(seen[1]) == []
    for lost in seen[2:]:
        with pytest.raises(PositionGone):
            await published.after(lost)

    await publish(published, 1, b"3", b"4")
    again = await published.after(ResultPosition())
    assert [each.position for each in again] == seen
    assert [await published.after(each) for each in seen] == [again[1:], again[2:], again[3:], []]

    # The last one alone is as it was: what follows the others has not been seen.
    await published.go_back(kept)
    await publish(published, 1, b"another", b"4", b"5")
    assert [each.document for each in await published.after(seen[1])] == [b"another", b"4", b"5"]
    for lost in seen[2:]:
        with pytest.raises(PositionGone, match="lost"):
            await published.after(lost)
    # A plain number does not say what was seen.
    assert [each.document for each in await published.after(ResultPosition(4))] == [b"5"]

    await published.go_back(kept)
    await publish(published, 1, b"3", b"another")
    with pytest.raises(PositionGone, match="lost"):
        await published.after(seen[3])


async def test_a_reader_that_waits_meanwhile_is_refused(published: Published) -> None:
    await publish(published, 0, b"1")
    kept = await published.state()
    await publish(published, 1, b"2")
    [seen] = await published.after(ResultPosition(1))
    waiting = asyncio.create_task(
        published.results.results(published.key, seen.position, 100, wait_s=60.0)
    )

    async def is_blocked() -> bool:
        clients = await published.redis.client_list()
        return any(each["cmd"] == "xread" and "b" in each["flags"] for each in clients)

    await eventually(is_blocked)
    await published.go_back(kept)
    await publish(published, 1, b"another", b"3")
    with pytest.raises(PositionGone, match="lost"):
        await waiting


async def test_a_position_is_what_a_page_says_and_events_have(bench: Bench) -> None:
    query = await bench.ready(Q1)
    await bench.send("r", (1, {"a": 1}))
    await bench.send("s", (1, {"a": 1, "b": 2}))
    await bench.has_taken_all()
    await bench.send("t", (1, {"b": 2, "c": 0}))
    await bench.finds(query, {"r": {"a": 1}, "s": {"a": 1, "b": 2}, "t": {"b": 2, "c": 0}})
    page = await bench.page(query, after="0")
    number, _, digest = page["after"].partition("-")
    assert (number, len(digest)) == ("1", 16)
    assert await bench.page(query, after=page["after"]) == {"results": [], "after": page["after"]}
    path = f"standing-queries/{query}/results"
    other = f"1-{int(digest, 16) ^ 1:016x}"
    unseen: list[dict[str, Any]] = [
        {"params": {"after": other}},
        {"headers": {"last-event-id": other}},
    ]
    for options in unseen:
        answer = await bench.client.get(path, **options)
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/gone")
    for wrong in ("1-", "1-12", "-1", "1-" + "g" * 16, "1" * 16, f"{other}0"):
        answer = await bench.client.get(path, params={"after": wrong})
        assert answer.status_code == 400, wrong
    begin = (b"last-event-id", b"0")
    events = await read_text(bench.api, f"/v1/{bench.database}/{path}", '"id":1', begin)
    assert f"id: {page['after']}\nevent: result\n" in events
