"""Reading batches of tuples: what wrong ones cost, and that others go on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from mediator.base.errors import Invalid
from mediator.event_streams import batch
from mediator.event_streams.batch import read_tuples
from mediator.event_streams.port import EventStream
from mediator.schema.limits import MAX_ERRORS

STREAM = EventStream("s", frozenset({"speed", "place"}), 60.0, 1_000)


def document(values: Any) -> dict[str, Any]:
    return {"time_s": 1.0, "values": values}


@pytest.fixture
def looked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were looked for among the attributes."""
    names: list[str] = []

    def recording(name: str, known: Iterable[str]) -> str:
        assert set(known) == STREAM.attributes
        names.append(name)
        return ""

    monkeypatch.setattr(batch, "did_you_mean", recording)
    return names


@pytest.mark.parametrize(("tuples", "names"), [(1, 5_000), (500, 10), (1_000, 1)])
async def test_no_more_names_are_looked_for_than_are_reported(
    looked_for: list[str], tuples: int, names: int
) -> None:
    values = {f"name{n}": 1 for n in range(names)}
    with pytest.raises(Invalid) as caught:
        await read_tuples(STREAM, [document(values)] * tuples, 1.0)
    assert len(looked_for) == MAX_ERRORS
    assert len(caught.value.locations) == MAX_ERRORS
    expected = [f"/tuples/{n // names}/values/name{n % names}" for n in range(MAX_ERRORS)]
    assert [each.pointer for each in caught.value.locations] == expected


async def test_mistakes_that_are_no_names_are_bounded_as_well() -> None:
    with pytest.raises(Invalid) as caught:
        await read_tuples(STREAM, [{"time_s": -1, "values": 5}] * 500, 1.0)
    assert len(caught.value.locations) == MAX_ERRORS


async def test_others_go_on_while_mistakes_are_looked_at() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    with pytest.raises(Invalid):
        await read_tuples(STREAM, [document({"sped": 1})] * (MAX_ERRORS - 1), 1.0)
    task.cancel()
    assert turns > 5
