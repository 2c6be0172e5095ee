"""A batch executed by the rewritten plan has the results of its messages one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.clock import Clock, SystemClock
from mediator.base.concurrency import end
from mediator.base.errors import Invalid, Unavailable
from mediator.flows.execution import BatchExecution, Message
from mediator.flows.http_request import HttpRequest
from mediator.flows.message_values import MAX_BYTES, MessageValues
from mediator.flows.plan import Plan, Query, Write
from mediator.flows.queue import QueuedMessage
from mediator.flows.rewriting import Step, rewrite, steps_of_message
from tests.unit.flows.plans import LOOKUP, flow

NAMES, TOTALS = ("A", "B", "unknown"), (1, 2, 3, True)


class Credits:
    """Implements `Invoker`: only customers A and B have credits."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def query(self, query: Query, document: Any) -> list[dict[str, Any]]:
        name = document["filter"]["eq"][1]
        self.names.append(name)
        return [{"customer": name, "amount": len(self.names[0])}] if name in "AB" else []

    async def write(self, write: Write, id_: Any, body: Any, operation: str) -> None:
        raise Unavailable("It does not answer.", system="none")

    async def send(self, request: HttpRequest) -> Any:
        raise Unavailable("It does not answer.", system="none")


RECEIVE = {"op": "receive", "attributes": {"name": "string", "total": "json", "note": "integer"}}
ASSIGN = {"op": "assign", "to": "wanted", "value": {"$": "/name"}}
JOIN = {"op": "join", "with": "credits", "on": {"customer": {"$": "/name"}}, "to": "credit"}
SWITCH = {
    "op": "switch",
    "on": {"$": "/total"},
    "cases": [
        {"equals": [1], "operators": [{"op": "assign", "to": "size", "value": {"$": "/note"}}]},
        # Fails for the customer without a credit.
        {
            "equals": [2],
            "operators": [{"op": "assign", "to": "size", "value": {"$": "/credit/amount"}}],
        },
    ],
    "default": [{"op": "assign", "to": "size", "value": "large"}],
}
LAST = {"op": "translate", "value": {"of": {"$": "/wanted"}, "size": {"$": "/size"}}}
LAST_ONE = {"op": "translate", "value": {"of": {"$": "/note"}}}
PLAN = flow([RECEIVE, ASSIGN, LOOKUP, JOIN, SWITCH, LAST]).plan


def batch(bodies: Sequence[dict[str, Any]]) -> list[Message]:
    return [
        Message(QueuedMessage(i, 0, str(i), orjson.dumps(body)), body, MessageValues.of(body))
        for i, body in enumerate(bodies)
    ]


async def results(steps: Sequence[Step], messages: list[Message]) -> list[Any]:
    await BatchExecution(Credits(), "flow", SystemClock()).run(steps, messages)
    return [message.values if message.error is None else "failed" for message in messages]


async def one_by_one(plan: Plan, bodies: Sequence[dict[str, Any]]) -> list[Any]:
    steps = steps_of_message(plan.operators)
    return [result for body in bodies for result in await results(steps, batch([body]))]


@given(
    st.sampled_from(NAMES),
    st.lists(st.tuples(st.sampled_from(TOTALS), st.integers(0, 3)), max_size=8),
)
async def test_a_batch_has_the_results_of_its_messages_one_by_one(
    name: str, rows: list[tuple[Any, int]]
) -> None:
    bodies = [{"name": name, "total": total, "note": note} for total, note in rows]
    assert [attribute.name for attribute in PLAN.levels[0]] == ["name"]
    assert await results(rewrite(PLAN), batch(bodies)) == await one_by_one(PLAN, bodies)


async def test_a_batch_is_looked_up_once() -> None:
    bodies = [{"name": "A", "total": total, "note": total} for total in (1, 2, 3, 1)]
    invoker = Credits()
    execution = BatchExecution(invoker, "flow", SystemClock())
    await execution.run(rewrite(PLAN), batch(bodies))
    assert invoker.names == ["A"]
    assert (execution.metrics.lookups, execution.metrics.saved) == (1, 3)


async def execute(
    operators: Sequence[dict[str, Any]], bodies: Sequence[dict[str, Any]], clock: Clock
) -> list[Message]:
    messages = batch(bodies)
    steps = rewrite(flow([RECEIVE, *operators]).plan)
    await BatchExecution(Credits(), "flow", clock).run(steps, messages)
    return messages


async def test_a_value_that_doubles_forty_times_fails_its_message() -> None:
    """In memory it is forty small lists; as JSON it would be longer than any memory."""
    double = {"op": "assign", "to": "total", "value": [{"$": "/total"}, {"$": "/total"}]}
    bodies = [{"name": "A", "total": "x", "note": 1}]
    (message,) = await execute([double] * 40, bodies, SystemClock())
    assert isinstance(message.error, Invalid)
    assert [location.pointer for location in message.error.locations] == ["/total"]


async def test_a_shared_value_fails_only_the_messages_without_room_for_it() -> None:
    share = {"op": "assign", "to": "shared", "value": {"of": {"$": "/name"}}}
    half = "x" * (MAX_BYTES // 2)
    bodies = [
        {"name": half[:-100], "total": total, "note": 1} for total in ("", half[:1000], "", half)
    ]
    messages = await execute([share, {**share, "to": "name"}], bodies, SystemClock())
    assert [message.error is None for message in messages] == [True, False, True, False]


class FastClock:
    """Implements `Clock`: a second passes at each call."""

    now = staticmethod(SystemClock.now)

    def __init__(self) -> None:
        self._passed_s = 0.0

    def monotonic(self) -> float:
        self._passed_s += 1
        return self._passed_s


JOIN_NONE = {"op": "join", "with": "total", "on": {"of": 1}, "to": "found"}


@pytest.mark.parametrize(
    ("operator", "messages", "rows", "min_rounds"),
    [(JOIN_NONE, 1, 3_000, 5), (LAST_ONE, 50, 0, 50)],
)
async def test_other_tasks_run_between_messages_and_within_the_rows_of_a_join(
    operator: dict[str, Any], messages: int, rows: int, min_rounds: int
) -> None:
    rounds = 0

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count_rounds())
    body = {"name": "A", "total": [{}] * rows, "note": 1}
    await execute([operator], [body] * messages, FastClock())
    assert rounds >= min_rounds
    await end([task])
