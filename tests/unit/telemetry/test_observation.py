"""What happens is told to those whom it concerns, in their order."""

from __future__ import annotations

from typing import get_args

from app.telemetry.log import LOGGED
from app.telemetry.recent_events import KEPT
from mediator.base.observation import (
    ChangesRelayed,
    CircuitChanged,
    FilteredObserver,
    Observation,
    RequestFinished,
    StoreCallFinished,
    broadcast,
)
from mediator.placement.metrics_registry import MetricsRegistry

RELAYED = ChangesRelayed("redis", 3)
OPENED = CircuitChanged("redis", open=True, reason="no answer")


def test_all_are_told_in_their_order_but_those_who_hear_other_kinds() -> None:
    told: list[tuple[str, Observation]] = []
    tell = broadcast(
        lambda one: told.append(("first", one)),
        FilteredObserver(lambda one: told.append(("second", one)), {CircuitChanged}),
        lambda one: told.append(("third", one)),
    )
    for _ in range(2):
        told.clear()
        for one in (RELAYED, OPENED):
            tell(one)
        assert told == [
            ("first", RELAYED),
            ("third", RELAYED),
            ("first", OPENED),
            ("second", OPENED),
            ("third", OPENED),
        ]


def test_who_is_called_by_itself_hears_all() -> None:
    told: list[Observation] = []
    FilteredObserver(told.append, frozenset())(RELAYED)
    assert told == [RELAYED]


def test_what_nobody_hears_is_no_error() -> None:
    tell = broadcast(FilteredObserver(lambda _: None, {CircuitChanged}))
    tell(RELAYED)


def test_a_broadcast_can_be_heard_by_another() -> None:
    told: list[Observation] = []
    broadcast(FilteredObserver(broadcast(told.append), {CircuitChanged}))(OPENED)
    assert told == [OPENED]


def test_what_each_request_tells_is_neither_logged_nor_kept() -> None:
    frequent = {RequestFinished, StoreCallFinished}
    assert not LOGGED & frequent
    assert not KEPT & frequent
    assert set(get_args(Observation)) >= LOGGED | KEPT | MetricsRegistry.EVENTS
    assert CircuitChanged in LOGGED & KEPT & MetricsRegistry.EVENTS
