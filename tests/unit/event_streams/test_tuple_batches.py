"""Reading batches of tuples: invalid ones cost little and do not block other tasks."""

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
    """The names for which similar attributes were searched."""
    names: list[str] = []

    def record(name: str, known: Iterable[str]) -> str:
        assert set(known) == STREAM.attributes
        names.append(name)
        return ""

    monkeypatch.setattr(batch, "did_you_mean", record)
    return names


@pytest.mark.parametrize(("tuples", "names"), [(1, 5_000), (500, 10), (1_000, 1)])
async def test_only_reported_names_are_compared_with_attributes(
    looked_for: list[str], tuples: int, names: int
) -> None:
    values = {f"name{n}": 1 for n in range(names)}
    with pytest.raises(Invalid) as error:
        await read_tuples(STREAM, [document(values)] * tuples, 1.0)
    assert len(looked_for) == MAX_ERRORS
    assert len(error.value.locations) == MAX_ERRORS
    expected = [f"/tuples/{n // names}/values/name{n % names}" for n in range(MAX_ERRORS)]
    assert [location.pointer for location in error.value.locations] == expected


async def test_errors_without_names_are_bounded_as_well() -> None:
    with pytest.raises(Invalid) as error:
        await read_tuples(STREAM, [{"time_s": -1, "values": 5}] * 500, 1.0)
    assert len(error.value.locations) == MAX_ERRORS


async def test_the_event_loop_runs_while_errors_are_collected() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(tick())
    with pytest.raises(Invalid):
        await read_tuples(STREAM, [document({"sped": 1})] * (MAX_ERRORS - 1), 1.0)
    task.cancel()
    assert ticks > 5
