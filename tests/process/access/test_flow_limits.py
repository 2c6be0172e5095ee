"""Limits of tenants on the work of message flows, which wait where clients are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.faults.conditions import eventually
from tests.process.access.bounded import Bounded

NAMES = ("a", "b", "c")
PLAN = [
    {"op": "receive", "attributes": {"id": "string", "title": "string"}},
    {
        "op": "invoke",
        "query": {"class": "secrets", "filter": {"eq": ["title", {"$": "/title"}]}},
        "to": "found",
    },
    {
        "op": "invoke",
        "write": {"class": "notes", "id": {"$": "/id"}, "body": {"title": {"$": "/title"}}},
    },
]
"""A lookup and a write."""


async def call(bounded: Bounded, method: str, path: str, **request: Any) -> Any:
    """Send a request as the operator, who has no limits and counts for no tenant."""
    headers = await bounded.running.headers("operator", "write")
    path = f"/v1/{bounded.database}/{path}"
    answer = await bounded.running.data.request(method, path, headers=headers, **request)
    assert answer.is_success, answer.text
    return answer.json()


async def send(bounded: Bounded, flow: str, ids: Sequence[str] = NAMES) -> list[str]:
    messages = [{"id": id_, "title": id_} for id_ in ids]
    path = f"message-flows/{flow}/messages"
    tickets: list[str] = (await call(bounded, "POST", path, json={"messages": messages}))["tickets"]
    return tickets


async def create(bounded: Bounded, **members: Any) -> str:
    flow = {"plan": PLAN, "latency_s": 10, **members}
    return str((await call(bounded, "POST", "message-flows", json=flow))["id"])


async def final_states(bounded: Bounded, flow: str, tickets: Sequence[str]) -> list[dict[str, Any]]:
    path = f"message-flows/{flow}/messages/"

    async def states() -> list[dict[str, Any]]:
        return [await call(bounded, "GET", path + ticket) for ticket in tickets]

    async def have_ended() -> bool:
        return all(state["state"] != "queued" for state in await states())

    await eventually(have_ended)
    return await states()


def count_admitted(bounded: Bounded) -> int:
    """Return how many requests of the tenant were admitted."""
    flows = bounded.running.container.mediator.flows
    assert flows is not None
    limiter = flows.admitted.__self__._limiter  # type: ignore[attr-defined]  # noqa: SLF001
    count: int = limiter.account(bounded.tenant).admitted
    return count


async def delays(bounded: Bounded, limit: str) -> float | None:
    return await bounded.figure(f'portolan_tenant_delays_total{{limit="{limit}"')


async def test_each_lookup_and_each_write_of_a_flow_is_a_request_of_its_tenant(
    bounded: Bounded,
) -> None:
    before = count_admitted(bounded)
    for number, ordered in enumerate((True, False)):
        flow = await create(bounded, ordered=ordered)
        states = await final_states(bounded, flow, await send(bounded, flow))
        assert {state["state"] for state in states} == {"done"}
        assert count_admitted(bounded) - before == (number + 1) * 2 * len(NAMES)


async def test_a_flow_beyond_the_rate_of_its_tenant_waits(bounded: Bounded) -> None:
    # A busy machine takes as long for a request as it would wait at a higher rate.
    await bounded.limit(rate=5, burst=1)
    flow = await create(bounded)
    states = await final_states(bounded, flow, await send(bounded, flow))
    assert {state["state"] for state in states} == {"done"}
    assert (await delays(bounded, "rate") or 0) >= 2
    assert await bounded.refusals("rate") is None
    assert (await call(bounded, "GET", "notes/a"))["title"] == "a"


async def test_a_flow_waits_for_the_requests_of_its_tenant(bounded: Bounded) -> None:
    await bounded.limit(in_flight=1)
    flow = await create(bounded)
    flows = bounded.running.container.mediator.flows
    assert flows is not None
    async with flows.admitted(bounded.running.container.mediator.data, bounded.database):
        tickets = await send(bounded, flow)

        async def waits() -> bool:
            return bool(await delays(bounded, "in_flight"))

        await eventually(waits)
        report = await call(bounded, "GET", f"message-flows/{flow}")
        assert report["queued"] == len(NAMES)
    states = await final_states(bounded, flow, tickets)
    assert {state["state"] for state in states} == {"done"}


async def test_a_flow_pays_for_the_records_that_its_queries_examine(bounded: Bounded) -> None:
    for number in range(20):
        secret = {"json": {"title": NAMES[number % 3]}}
        await call(bounded, "PUT", f"secrets/{number}", **secret)
    # The first lookup uses more than the credit of ten seconds.
    await bounded.limit(rows_rate=0.5)
    flow = await create(bounded)
    tickets = await send(bounded, flow)

    async def waits() -> bool:
        return bool(await delays(bounded, "rows_rate"))

    await eventually(waits)
    assert await bounded.refusals("rows_rate") is None
    await bounded.limit()
    states = await final_states(bounded, flow, tickets)
    assert [len(state["result"]["found"]) for state in states] == [7, 7, 6]


async def test_a_limit_that_does_not_pass_by_waiting_fails_the_message(bounded: Bounded) -> None:
    await bounded.limit(objects=2)
    flow = await create(bounded, ordered=True)
    states = await final_states(bounded, flow, await send(bounded, flow))
    assert [state["state"] for state in states] == ["done", "done", "failed"]
    assert "its limit of 2 objects" in states[2]["error"]["detail"]
    assert await bounded.refusals("objects") == 1
    await bounded.limit(objects=3)
    await call(bounded, "POST", f"message-flows/{flow}/replay")
    (state,) = await final_states(bounded, flow, [states[2]["ticket"]])
    assert state["state"] == "done"
    await bounded.limit(query_rows=1)
    for number in range(2):
        await call(bounded, "PUT", f"secrets/{number}", json={"title": "a"})
    other = await create(bounded)
    (state,) = await final_states(bounded, other, await send(bounded, other, "a"))
    assert (state["state"], await bounded.refusals("query_rows")) == ("failed", 1)
