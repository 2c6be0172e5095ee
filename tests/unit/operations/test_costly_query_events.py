"""The executor reports long and refused queries as costly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mediator.base.errors import NeedsScan, TooCostly, Unavailable
from mediator.base.observation import CostlyQueryFound, Observation
from mediator.data_plane.executor import LONG_QUERY_S, Executor
from mediator.model.query import Query
from mediator.query.budget import Limits

QUERY = Query("news", "articles")


class Stub(Executor):
    """An executor that answers with seven records, or fails, after `seconds`."""

    def __init__(self, seconds: float, error: Exception | None = None) -> None:
        unused: Any = None
        self.now, self.seconds, self.error = 0.0, seconds, error
        self.events: list[Observation] = []
        clock: Any = SimpleNamespace(monotonic=lambda: self.now)
        calls: Any = SimpleNamespace(systems=None)
        super().__init__(calls, unused, unused, Limits(), clock, self.events.append)

    async def _answer(self, *_: Any) -> Any:
        self.now += self.seconds
        if self.error is not None:
            raise self.error
        return SimpleNamespace(budget=SimpleNamespace(rows=7))


async def test_a_long_query_is_reported_with_its_cost() -> None:
    stub = Stub(LONG_QUERY_S)
    await stub.query(QUERY)
    assert stub.events == [CostlyQueryFound("news", "articles", "{}", LONG_QUERY_S, 7, (), None)]


async def test_a_fast_query_is_not_reported() -> None:
    stub = Stub(LONG_QUERY_S * 0.99)
    await stub.query(QUERY)
    assert stub.events == []


@pytest.mark.parametrize(
    ("error", "refusal"), [(NeedsScan("no"), "needs a scan"), (TooCostly("no"), "too costly")]
)
async def test_a_refused_query_is_reported_however_fast(error: Exception, refusal: str) -> None:
    stub = Stub(0.0, error)
    with pytest.raises(type(error)):
        await stub.query(QUERY)
    (event,) = stub.events
    assert isinstance(event, CostlyQueryFound)
    assert (event.refusal, event.rows) == (refusal, None)


async def test_an_outage_makes_no_query_costly() -> None:
    stub = Stub(9.0, Unavailable("away", system="redis", retry_after_s=1))
    with pytest.raises(Unavailable):
        await stub.query(QUERY)
    assert stub.events == []
