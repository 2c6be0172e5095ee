"""Events of late flows and queries, from the counts of two samples."""

from __future__ import annotations

from random import Random

import pytest

from mediator.admission.engine import parse_rules
from mediator.admission.evaluation import Event, Snapshot, Subject
from mediator.admission.installation import INSTALLATION
from mediator.admission.lateness import LateEvents, flow_subject, query_subject
from mediator.flows.queue import FlowLoad
from mediator.flows.service import FlowState
from mediator.model.pause import Pause
from mediator.standing.results import PAUSED, READY, RESUMING, QueryState, StoredQuery
from mediator.standing.service import StandingLoad, StandingState

MAX_EVENTS = 50


def late(id_: str, total: int, recent: int = 0) -> tuple[Subject, int]:
    return flow_subject(FlowState(id_, "shop", "orders", FlowLoad(5, recent, total, 0.0))), total


def flow_events() -> LateEvents:
    return LateEvents("FlowLate", "flow")


def ids(events: list[Event]) -> list[str]:
    assert {event.name for event in events} <= {"FlowLate"}
    return [event.attributes["flow"]["id"] for event in events]


def test_more_late_messages_than_in_the_last_sample_are_an_event() -> None:
    events = flow_events()
    samples = [
        ([late("a", 7), late("b", 3, 3)], ["b"]),  # former lateness is no event
        ([late("a", 8), late("b", 3, 3)], ["a"]),
        ([late("a", 8), late("b", 3, 3)], []),
        ([late("a", 0)], []),  # Redis has lost its counts
        ([late("a", 1), late("b", 1, 1)], ["a", "b"]),
    ]
    for flows, expected in samples:
        assert ids(events.of(flows, MAX_EVENTS)) == expected


def test_events_beyond_the_limit_follow_with_the_next_sample() -> None:
    events, flows = flow_events(), [late(id_, 1, 1) for id_ in "abc"]
    assert ids(events.of(flows, 2)) == ["a", "b"]
    assert ids(events.of(flows, 2)) == ["c"]
    flows = [late(id_, 2, 2) for id_ in "abc"]
    assert ids(events.of(flows, 2)) == ["a", "b"]
    assert ids(events.of(flows, 2)) == ["c"]
    assert ids(events.of(flows, 2)) == []


def test_another_replica_starts_with_recent_lateness() -> None:
    events = flow_events()
    events.of([late("a", 1, 1)], MAX_EVENTS)
    events.forget()
    assert ids(events.of([late("a", 1, 1)], MAX_EVENTS)) == ["a"]


def lagging(lag: int, state: str = READY) -> tuple[Subject, int]:
    stored = StoredQuery({"name": "matches"}, ("r",), QueryState(state, numbers={"r": 1}))
    standing_state = StandingState("a", "shop", stored, StandingLoad(lag, 100, Pause(1, 1, 7.0)))
    return query_subject(standing_state), standing_state.late


def test_a_query_whose_lag_exceeds_its_limit_is_an_event() -> None:
    events = LateEvents("QueryLate", "query")
    samples = [(100, 0), (101, 1), (101, 0), (300, 1), (200, 0), (201, 1), (0, 0), (101, 1)]
    for lag, expected in samples:
        late_events = events.of([lagging(lag)], MAX_EVENTS)
        assert len(late_events) == expected
        assert all(event.attributes["query"]["lag"] == lag for event in late_events)
    events.forget()
    assert len(events.of([lagging(101)], MAX_EVENTS)) == 1


def test_a_query_is_not_late_because_of_its_pause() -> None:
    events = LateEvents("QueryLate", "query")
    assert events.of([lagging(0)], MAX_EVENTS) == []
    for state in (PAUSED, RESUMING):
        subject, late = lagging(1_000, state)
        assert (subject["lag"], subject["late"], subject["paused_s"]) == (1_000, 0, 7.0)
        assert events.of([(subject, late)], MAX_EVENTS) == []


@pytest.mark.parametrize("kind", ["Flow", "Query"])
@pytest.mark.parametrize(
    ("snapshot", "holds"),
    [(Snapshot(), False), (Snapshot(subjects={"flow": [], "query": []}), True)],
)
def test_no_condition_holds_on_unknown_subjects(snapshot: Snapshot, holds: bool, kind: str) -> None:
    action = f"resume{kind}(selectRandom{kind}(1 < 2))"
    text = f"ON EVENT Timer e IF NOT exists{kind}(late > 0) THEN {action}"
    (decision,) = parse_rules(text, INSTALLATION).decide(Event("Timer"), snapshot, Random(1))
    assert decision.holds is holds


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ("pauseFlow(e.flow, 5)", ["flows"]),
        ("pauseQuery(selectRandomQuery(lag > 5), 5), resumeFlow(e.flow)", ["flows", "queries"]),
        ("resumeFlow(e.flow), startRun(selectRandomRun(1 < 2))", ["flows", "runs"]),
    ],
)
def test_the_subjects_a_rule_acts_on(actions: str, expected: list[str]) -> None:
    rules = parse_rules(f"ON EVENT FlowLate e IF 1 < 2 THEN {actions}", INSTALLATION)
    assert rules.acted_on(rules.rules[0]) == expected
