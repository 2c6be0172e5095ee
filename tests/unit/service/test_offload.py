"""Long computations yield to the event loop: for each second they compute, they rest six."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from mediator.base.offload import offload, throttle
from mediator.placement.advice import notes_on, placements_of
from mediator.placement.candidates import Candidate
from mediator.placement.decide import decide
from mediator.placement.scores import node_scores
from mediator.schema.annotations import Metric
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document

USED_S = 0.01
FIELDS = 500
GOALS = [{"metric": "read_latency", "goal": 0.001}, {"metric": "write_throughput", "goal": 1e4}]
WIDE: dict[str, Any] = {
    "classes": {
        "wide": {
            "fields": {f"f{n}": {"type": "string", "annotations": GOALS} for n in range(FIELDS)}
        }
    }
}
SYSTEMS = [
    Candidate(f"s{n}", metrics={Metric.READ_LATENCY: 0.001 * n, Metric.WRITE_THROUGHPUT: 1e4})
    for n in range(1, 11)
]


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of every rest."""
    durations: list[float] = []
    monkeypatch.setattr("mediator.base.offload.sleep", durations.append)
    return durations


def compute() -> float:
    """Use the processor for a while; returns for how long (seconds)."""
    started = time.thread_time()
    while time.thread_time() - started < USED_S:
        throttle()
    throttle()
    return time.thread_time() - started


async def test_a_thread_rests_for_six_times_as_long_as_it_computes(rests: list[float]) -> None:
    used_s = await offload(True, compute)
    # The last slice may be too short to rest for.
    assert 6 * (used_s - 0.001) <= sum(rests) <= 6 * used_s
    assert len(rests) > 2


async def test_the_event_loop_never_rests(rests: list[float]) -> None:
    await offload(False, compute)
    await offload(True, int)
    compute()
    assert rests == []


def test_every_step_of_placing_a_large_schema_yields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Field by field: work between two yields must not grow with the schema."""
    calls: list[None] = []
    monkeypatch.setattr("mediator.base.offload.throttle", lambda: calls.append(None))
    schema = parse_schema("news", WIDE)
    decision = decide(schema, SYSTEMS)
    steps: tuple[Callable[[], object], ...] = (
        partial(node_scores, decision.ranking),
        partial(placements_of, decision),
        partial(notes_on, schema, decision),
        partial(schema_document, schema),
    )
    for step in steps:
        calls.clear()
        step()
        assert len(calls) >= FIELDS, step


async def test_a_large_schema_yields_while_it_is_read_and_placed(rests: list[float]) -> None:
    schema = await offload(True, parse_schema, "news", WIDE)
    rests_of_parsing = len(rests)
    decision = await offload(True, decide, schema, SYSTEMS)
    rests_of_placing = len(rests)
    await offload(True, lambda: [decision.why(node) for node in decision.placements])
    assert 0 < rests_of_parsing < rests_of_placing < len(rests)
