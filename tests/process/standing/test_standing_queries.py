"""Standing queries over HTTP, on real servers."""

from __future__ import annotations

from time import time
from typing import Any

import pytest

from mediator.standing import service
from tests.faults.conditions import eventually
from tests.process.standing.bench import Q1, Q2, Bench, pointers


async def test_two_overlapping_queries_share_the_store_of_their_common_join(
    bench: Bench,
) -> None:
    q1, q2 = await bench.ready(Q1), await bench.ready(Q2)
    await bench.send("r", (1, {"a": 1}))
    await bench.send("t", (2, {"b": 2, "c": 3}))
    await bench.wait_until_taken()
    await bench.send("s", (3, {"a": 1, "b": 2}))
    await bench.send("u", (4, {"c": 3}))
    s, t = {"a": 1, "b": 2}, {"b": 2, "c": 3}
    await bench.expect_results(q1, {"r": {"a": 1}, "s": s, "t": t})
    await bench.expect_results(q2, {"S": s, "T": t, "U": {"c": 3}})
    plan = await bench.plan()
    stores = {store["store"]: store for store in plan["plans"][0]["stores"]}
    assert set(stores["s⋈t"]["queries"]) == {q1, q2}
    assert plan["names"] == {q1: "q1", q2: "q2"}


async def test_a_class_is_a_stream_of_its_objects_as_they_were_written(bench: Bench) -> None:
    await bench.declare("visits", ["customer"])
    document = {
        "relations": {"v": {"stream": "visits"}, "c": {"class": "customers"}},
        "predicates": [["v.customer", "c.id"]],
        "window_s": 3600,
        "lateness_s": 3600,
    }
    await bench.write("before", name="Zoe", city="Bonn")
    await eventually(lambda: bench.has_changes("before", 2))
    query = await bench.ready(document)
    # Two changes, one in each system; then one change in one system, and a deletion.
    await bench.write("ada", name="Ada", city="Oslo")
    await bench.wait_for_objects("customers", 1)
    await bench.write("ada", name="Ada", city="Rome")
    await bench.wait_for_objects("customers", 2)
    await bench.write("gone", name="Bob", city="Rome")
    await bench.wait_for_objects("customers", 3)
    answer = await bench.client.delete("customers/gone")
    assert answer.status_code == 204
    now_s = time()
    await bench.send("visits", *((now_s, {"customer": id_}) for id_ in ("ada", "gone", "before")))
    await bench.wait_until_taken()

    def result(id_: str, **values: str) -> dict[str, Any]:
        return {"v": {"customer": id_}, "c": {"id": id_, **values}}

    await bench.expect_results(
        query,
        result("ada", name="Ada", city="Oslo"),
        result("ada", name="Ada", city="Rome"),
        result("gone", name="Bob", city="Rome"),
    )


async def test_a_backlog_of_one_stream_is_not_late_behind_another_one(bench: Bench) -> None:
    """One stream has more tuples than a batch takes; the other one is read at once."""
    document = {"relations": ["r", "s"], "predicates": [["r.a", "s.a"]], "window_s": 10}
    query = await bench.ready(document)
    meeting = {100: 5.0, 700: 35.0, 1_100: 55.0}
    s = [(n / 20, {"a": n if n in meeting else -1, "b": n}) for n in range(1_200)]
    await bench.send("s", *s)
    await bench.send("r", *((time_s, {"a": n}) for n, time_s in meeting.items()))
    await bench.expect_results(query, *({"r": {"a": n}, "s": {"a": n, "b": n}} for n in meeting))
    await bench.wait_until_taken()


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"relations": ["r", "s", "nowhere"]}, "/relations/2"),
        ({"relations": {"r": {"stream": "r"}, "s": {"class": "nobody"}}}, "/relations/s/class"),
        ({"relations": {"r": {"stream": "r", "class": "customers"}}}, "/relations/r"),
        ({"relations": ["r", "s", "r"]}, "/relations/2"),
        ({"relations": ["r", "s", "t"], "predicates": [["r.a", "s.a"]]}, "/predicates"),
        ({"predicates": [["r.a", "s.z"]]}, "/predicates/0/1"),
        ({"window_s": 0}, "/window_s"),
        ({"window_s": 3601}, "/window_s"),
        ({"lateness_s": -1}, "/lateness_s"),
        ({"name": "x" * 101}, "/name"),
        ({"order": []}, "/order"),
        ({"into": {"stream": "nowhere", "values": {"a": "r.a"}}}, "/into/stream"),
        ({"into": {"stream": "u", "values": {"z": "r.a"}}}, "/into/values/z"),
        ({"into": {"stream": "u", "values": {"c": "r.c"}}}, "/into/values/c"),
        ({"into": {"stream": "r", "values": {"a": "s.b"}}}, "/into/stream"),
    ],
)
async def test_an_invalid_query_is_refused_with_its_location(
    bench: Bench, members: dict[str, Any], pointer: str
) -> None:
    document = {
        "relations": ["r", "s"],
        "predicates": [["r.a", "s.a"]],
        "window_s": 10,
        **members,
    }
    answer = await bench.client.post("standing-queries", json=document)
    assert answer.status_code == 400
    assert pointer in pointers(answer)


async def test_the_queries_of_a_database_are_limited(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_QUERIES", 1)
    await bench.create(Q1)
    answer = await bench.client.post("standing-queries", json=Q2)
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict")


async def test_a_query_is_listed_shown_and_dropped(bench: Bench) -> None:
    query = await bench.ready(Q1)
    items = (await bench.client.get("standing-queries")).json()["items"]
    assert items == [{"id": query, "name": "q1", "state": "ready"}]
    document = (await bench.client.get(f"standing-queries/{query}")).json()
    load = {"lag": 0, "max_lag": 10_000, "paused": None}
    assert document == {"id": query, "name": "q1", "state": "ready", "query": Q1, **load}
    assert (await bench.client.delete(f"standing-queries/{query}")).status_code == 204
    for path in ("", "/results"):
        answer = await bench.client.get(f"standing-queries/{query}{path}")
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
    assert (await bench.client.get("standing-queries/plan")).status_code == 404


async def test_a_query_begins_with_the_history_that_its_streams_keep(bench: Bench) -> None:
    await bench.send("r", (95, {"a": 1}), (100, {"a": 1}))
    await bench.send("s", (100, {"a": 1, "b": 2}))
    await bench.send("t", (100, {"b": 7, "c": 3}))
    short = await bench.ready({**Q1, "window_s": 2})
    await bench.send("t", (101, {"b": 2, "c": 3}))
    s = {"a": 1, "b": 2}
    await bench.expect_results(short, {"r": {"a": 1}, "s": s, "t": {"b": 2, "c": 3}})
    # Its window reaches further back than the history that was read before.
    long = await bench.ready(Q1)
    await bench.send("t", (102, {"b": 2, "c": 4}))
    result = {"r": {"a": 1}, "s": s, "t": {"b": 2, "c": 4}}
    await bench.expect_results(long, result, result)
    await bench.expect_results(short, {"r": {"a": 1}, "s": s, "t": {"b": 2, "c": 3}}, result)


async def test_results_are_followed_from_the_last_one_that_was_seen(bench: Bench) -> None:
    query = await bench.ready(Q1)
    await bench.send("r", (1, {"a": 1}))
    await bench.send("s", (1, {"a": 1, "b": 2}))
    await bench.wait_until_taken()
    for number in range(3):
        await bench.send("t", (1, {"b": 2, "c": number}))
    await bench.expect_results(query, *(r["tuples"] for r in await results_of(bench, query, 3)))
    events = await bench.events(query, 0, '"id":3')
    assert [event["id"] for event in events] == [1, 2, 3]
    assert events[1:] == await bench.events(query, 1, '"id":3')
    page = await bench.page(query, after=1, limit=1)
    assert page["results"] == events[1:2]
    page = await bench.page(query, after=page["after"], limit=1)
    assert page["results"] == events[2:]
    # Without a position, results come from now on.
    assert await bench.page(query) == {"results": [], "after": page["after"]}
    answer = await bench.client.get(f"standing-queries/{query}/results", params={"after": 4})
    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/gone")
    invalid_requests: list[dict[str, Any]] = [
        {"params": {"after": "x"}},
        {"headers": {"last-event-id": "1-1"}},
    ]
    for options in invalid_requests:
        answer = await bench.client.get(f"standing-queries/{query}/results", **options)
        assert answer.status_code == 400


async def results_of(bench: Bench, query: str, count: int) -> list[dict[str, Any]]:
    async def are_there() -> bool:
        return len(await bench.results(query)) >= count

    await eventually(are_there)
    return await bench.results(query)


async def test_late_tuples_are_dropped_and_counted(bench: Bench) -> None:
    pair = {"relations": ["r", "s"], "predicates": [["r.a", "s.a"]], "window_s": 100}
    query = await bench.ready({**pair, "lateness_s": 5})
    await bench.send("r", (100, {"a": 1}))
    await bench.wait_until_taken()
    await bench.send("s", (94, {"a": 1, "b": 1}), (95, {"a": 1, "b": 2}))
    await bench.expect_results(query, {"r": {"a": 1}, "s": {"a": 1, "b": 2}})
