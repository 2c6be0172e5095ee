"""The plan of standing queries, by measured rates."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from tests.faults.conditions import eventually
from tests.process.standing.bench import Q1, Bench


async def test_the_plan_follows_measurements(bench: Bench) -> None:
    await bench.ready(Q1)
    # Tuples of r match many of s; those of t none: a plan that starts with s and t is cheaper.
    seconds = count()

    async def send() -> None:
        second = next(seconds)
        await bench.send("r", *[(second, {"a": 1})] * 3)
        await bench.send("s", (second, {"a": 1, "b": second}))
        await bench.send("t", (second, {"b": -1, "c": 1}))
        await bench.wait_until_taken()

    for _ in range(40):
        await send()
    plan: dict[str, Any] = {}

    async def is_executed() -> bool:  # a better plan is found, activated and measured after a while
        await send()
        plan.update(await bench.plan())
        hops = {hop["order"]: hop for entry in plan["plans"] for hop in entry["hops"]}
        measured = [hop["measured"] for hop in hops.values() if hop["measured"] is not None]
        if "⟨s, t⟩" not in hops or "⟨s, r⟩" in hops or not measured:
            return False
        return bool(plan["running"]["measured"] == pytest.approx(sum(measured)))

    await eventually(is_executed)
    assert plan["rates"]["r"] == pytest.approx(3, rel=0.2)
    stores = {entry["store"]: entry["kept"] for entry in plan["plans"][0]["stores"]}
    assert stores["s"]
    for mode in ("individual", "greedy"):
        assert (await bench.plan(mode=mode))["mode"] == mode
    answer = await bench.client.get("standing-queries/plan", params={"mode": "best"})
    assert answer.status_code == 400


async def test_a_plan_is_drawn_and_names_are_text(bench: Bench) -> None:
    await bench.create({**Q1, "name": "<script>"})
    accept = {"accept": "image/svg+xml"}
    answer = await bench.client.get("standing-queries/plan", headers=accept)
    assert answer.headers["content-type"] == "image/svg+xml"
    assert "&lt;script&gt;" in answer.text
    assert "<script" not in answer.text
