"""Observations reach their observers in order."""

from __future__ import annotations

from typing import get_args

from app.telemetry.log import LOGGED_EVENTS
from app.telemetry.recent_events import RECORDED_EVENTS
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


def test_observers_are_notified_in_order_unless_filtered() -> None:
    observed: list[tuple[str, Observation]] = []
    notify = broadcast(
        lambda event: observed.append(("first", event)),
        FilteredObserver(lambda event: observed.append(("second", event)), {CircuitChanged}),
        lambda event: observed.append(("third", event)),
    )
    for _ in range(2):
        observed.clear()
        for event in (RELAYED, OPENED):
            notify(event)
        assert observed == [
            ("first", RELAYED),
            ("third", RELAYED),
            ("first", OPENED),
            ("second", OPENED),
            ("third", OPENED),
        ]


def test_an_observer_that_is_called_directly_gets_everything() -> None:
    observed: list[Observation] = []
    FilteredObserver(observed.append, frozenset())(RELAYED)
    assert observed == [RELAYED]


def test_an_observation_without_observers_is_no_error() -> None:
    notify = broadcast(FilteredObserver(lambda _: None, {CircuitChanged}))
    notify(RELAYED)


def test_a_broadcast_can_be_nested() -> None:
    observed: list[Observation] = []
    broadcast(FilteredObserver(broadcast(observed.append), {CircuitChanged}))(OPENED)
    assert observed == [OPENED]


def test_observations_of_every_request_are_neither_logged_nor_kept() -> None:
    frequent = {RequestFinished, StoreCallFinished}
    assert not LOGGED_EVENTS & frequent
    assert not RECORDED_EVENTS & frequent
    assert set(get_args(Observation)) >= LOGGED_EVENTS | RECORDED_EVENTS | MetricsRegistry.EVENTS
    assert CircuitChanged in LOGGED_EVENTS & RECORDED_EVENTS & MetricsRegistry.EVENTS
