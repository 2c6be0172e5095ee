"""Events of flows, from how many of their messages were late at two looks."""

from __future__ import annotations

from random import Random

import pytest

from mediator.admission.engine import parse_rules
from mediator.admission.evaluation import Event, Snapshot, Subject
from mediator.admission.flows import FlowEvents, flow_subject
from mediator.admission.installation import INSTALLATION
from mediator.flows.queue import FlowLoad
from mediator.flows.service import FlowState

MOST = 50


def late(id_: str, ever: int, lately: int = 0) -> tuple[Subject, int]:
    return flow_subject(FlowState(id_, "shop", "orders", FlowLoad(5, lately, ever, 0.0))), ever


def ids(events: list[Event]) -> list[str]:
    assert {event.name for event in events} <= {"FlowLate"}
    return [event.attributes["flow"]["id"] for event in events]


def test_more_late_messages_than_at_the_last_look_are_an_event() -> None:
    events = FlowEvents()
    looks = [
        ([late("a", 7), late("b", 3, 3)], ["b"]),  # what was late long ago is none
        ([late("a", 8), late("b", 3, 3)], ["a"]),
        ([late("a", 8), late("b", 3, 3)], []),
        ([late("a", 0)], []),  # Redis has lost its counts
        ([late("a", 1), late("b", 1, 1)], ["a", "b"]),
    ]
    for flows, expected in looks:
        assert ids(events.of(flows, MOST)) == expected


def test_what_is_beyond_the_bound_is_an_event_of_the_next_look() -> None:
    events, flows = FlowEvents(), [late(each, 1, 1) for each in "abc"]
    assert ids(events.of(flows, 2)) == ["a", "b"]
    assert ids(events.of(flows, 2)) == ["c"]
    flows = [late(each, 2, 2) for each in "abc"]
    assert ids(events.of(flows, 2)) == ["a", "b"]
    assert ids(events.of(flows, 2)) == ["c"]
    assert ids(events.of(flows, 2)) == []


def test_another_replica_begins_with_what_was_late_lately() -> None:
    events = FlowEvents()
    events.of([late("a", 1, 1)], MOST)
    events.forget()
    assert ids(events.of([late("a", 1, 1)], MOST)) == ["a"]


@pytest.mark.parametrize(
    ("snapshot", "holds"),
    [(Snapshot(), False), (Snapshot(subjects={"flow": []}), True)],
)
def test_no_condition_holds_on_flows_that_are_not_known(snapshot: Snapshot, holds: bool) -> None:
    text = "ON EVENT Timer e IF NOT existsFlow(late > 0) THEN resumeFlow(selectRandomFlow(1 < 2))"
    (decision,) = parse_rules(text, INSTALLATION).decide(Event("Timer"), snapshot, Random(1))
    assert decision.holds is holds


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ("pauseFlow(e.flow, 5)", ["flows"]),
        ("resumeFlow(e.flow), startRun(selectRandomRun(1 < 2))", ["flows", "runs"]),
    ],
)
def test_what_a_rule_acts_on(actions: str, expected: list[str]) -> None:
    rules = parse_rules(f"ON EVENT FlowLate e IF 1 < 2 THEN {actions}", INSTALLATION)
    assert rules.acted_on(rules.rules[0]) == expected
