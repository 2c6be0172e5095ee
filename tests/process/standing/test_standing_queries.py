"""Standing queries over HTTP, on real servers."""

from __future__ import annotations

from tests.process.standing.bench import Q1, Q2, Bench


async def test_two_overlapping_queries_share_the_store_of_what_they_have_in_common(
    bench: Bench,
) -> None:
    q1, q2 = await bench.ready(Q1), await bench.ready(Q2)
    await bench.send("r", (1, {"a": 1}))
    await bench.send("t", (2, {"b": 2, "c": 3}))
    await bench.has_taken_all()
    await bench.send("s", (3, {"a": 1, "b": 2}))
    await bench.send("u", (4, {"c": 3}))
    s, t = {"a": 1, "b": 2}, {"b": 2, "c": 3}
    await bench.finds(q1, {"r": {"a": 1}, "s": s, "t": t})
    await bench.finds(q2, {"S": s, "T": t, "U": {"c": 3}})
    plan = await bench.plan()
    stores = {each["store"]: each for each in plan["plans"][0]["stores"]}
    assert set(stores["s⋈t"]["queries"]) == {q1, q2}
    assert plan["names"] == {q1: "q1", q2: "q2"}
