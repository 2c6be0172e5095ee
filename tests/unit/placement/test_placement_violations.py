"""SLA violations and proposals: state machines over time (docs/papers/ppm.md, sections 2 and 7)."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.placement.candidates import Candidate
from mediator.placement.proposals import NOTHING_PROPOSED, Move, Proposals, differ, propose
from mediator.placement.utility import INDEX_CAP
from mediator.placement.violations import ViolationEvent, ViolationState, detect_violations
from mediator.schema.annotations import Metric
from mediator.schema.parse import parse_schema

RULE = {
    "metric": "write_latency",
    "utility": {"shape": "linear", "points": [[0.020, 1], [0.050, 0]]},
    "violation": {"below": 0.5, "for_s": 60},
}
HITS = {"type": "integer", "annotations": [RULE]}
SCHEMA = parse_schema("news", {"classes": {"articles": {"fields": {"hits": HITS}}}})


class Detector:
    """The violation detector, fed with latencies of the system that holds the field."""

    def __init__(self, schema: Any = SCHEMA) -> None:
        self.state: ViolationState = {}
        self.schema = schema

    def feed(self, now: float, latency: float | None, system: str = "A") -> list[ViolationEvent]:
        metrics = {} if latency is None else {Metric.WRITE_LATENCY: latency}
        systems = {system: Candidate(system, metrics=metrics)}
        placements = {"articles.hits": system, "articles.likes": system}
        self.state, events = detect_violations(self.state, self.schema, placements, systems, now)
        return events


def test_a_violation_is_reported_after_its_duration_and_at_its_end() -> None:
    detector = Detector()
    assert detector.feed(0, 0.045) == []
    assert detector.feed(59, 0.045) == []
    (began,) = detector.feed(60, 0.044)
    assert began.phase == "began"
    assert (began.detected.node, began.detected.system) == ("articles.hits", "A")
    assert began.detected.measured == 0.044
    assert began.detected.score == pytest.approx(0.2)
    assert began.detected.duration_s == 60
    assert detector.feed(100, 0.045) == []
    (ended,) = detector.feed(130, 0.010)
    assert (ended.phase, ended.detected.duration_s, ended.detected.score) == ("ended", 130, 1)
    assert detector.feed(140, 0.010) == []


def test_a_detector_restarts_after_a_violation_ended() -> None:
    detector = Detector()
    for now, latency in ((0, 0.045), (60, 0.045), (70, 0.01), (80, 0.045)):
        detector.feed(now, latency)
    assert detector.feed(139, 0.045) == []
    assert [event.phase for event in detector.feed(140, 0.045)] == ["began"]


def test_a_short_dip_is_no_violation() -> None:
    detector = Detector()
    for now in range(0, 600, 50):
        assert detector.feed(now, 0.045) == []
        assert detector.feed(now + 30, 0.010) == []


def test_an_unknown_metric_neither_starts_nor_ends_a_violation() -> None:
    detector = Detector()
    assert detector.feed(0, None) == []
    detector.feed(1, 0.045)
    detector.feed(30, None)
    assert len(detector.feed(61, 0.045)) == 1
    assert detector.feed(70, None) == []
    assert [event.phase for event in detector.feed(80, 0.01)] == ["ended"]


def test_a_moved_field_restarts_its_violation() -> None:
    detector = Detector()
    detector.feed(0, 0.045)
    assert detector.feed(60, 0.045, system="B") == []
    assert len(detector.feed(120, 0.045, system="B")) == 1


def test_a_rule_of_the_class_applies_to_every_field_and_can_have_no_delay() -> None:
    rule = {**RULE, "violation": {"below": 0.5, "for_s": 0}}
    plain = {"type": "integer"}
    class_ = {"annotations": [rule], "fields": {"hits": plain, "likes": plain}}
    detector = Detector(parse_schema("news", {"classes": {"articles": class_}}))
    nodes = [event.detected.node for event in detector.feed(0, 0.045)]
    assert nodes == ["articles.hits", "articles.likes"]


def move(ratio: float, proposed: str = "B") -> Move:
    why = f"articles.hits decides for itself: {proposed} writes {ratio:g} times as fast as A."
    return Move("articles.hits", "A", proposed, "", False, 1.0, ratio, why)


def feed_proposals(
    state: Proposals, *steps: tuple[float, Move | None]
) -> tuple[Proposals, list[float]]:
    times = []
    for now, lead in steps:
        state, fresh = propose(state, [lead] if lead else [], now, margin=0.2, dwell_s=60.0)
        times += [now] * len(fresh)
    return state, times


def test_a_proposal_needs_its_margin_for_its_dwell_time() -> None:
    state, proposed_at = feed_proposals(
        NOTHING_PROPOSED, (0, move(1.3)), (59, move(1.3)), (60, move(1.4))
    )
    assert proposed_at == [60]
    (proposal,) = state.recorded
    assert (proposal.current, proposal.proposed, proposal.since) == ("A", "B", 0)
    assert proposal.margin == pytest.approx(0.4)
    assert feed_proposals(state, (61, move(1.4)), (200, move(1.3)))[1] == []


def test_a_move_with_too_small_a_margin_is_never_proposed() -> None:
    state, proposed_at = feed_proposals(
        NOTHING_PROPOSED, *((now, move(1.19)) for now in range(0, 600, 10))
    )
    assert (proposed_at, state.recorded) == ([], ())


def test_two_nearly_equal_systems_do_not_flap() -> None:
    steps = [(now, move(1.5) if now % 20 else None) for now in range(0, 3600, 10)]
    assert feed_proposals(NOTHING_PROPOSED, *steps)[1] == []
    recorded, proposed_at = feed_proposals(NOTHING_PROPOSED, (0, move(1.5)), (60, move(1.5)))
    later_steps = [(now + 70, move(1.5) if now % 20 else None) for now in range(0, 3600, 10)]
    assert proposed_at == [60]
    assert feed_proposals(recorded, *later_steps)[1] == []


def test_a_proposal_is_withdrawn_once_the_lead_is_gone_for_the_dwell_time() -> None:
    state, _ = feed_proposals(
        NOTHING_PROPOSED, (0, move(1.5)), (60, move(1.5)), (70, None), (129, move(1.1))
    )
    assert len(state.recorded) == 1
    assert feed_proposals(state, (130, None))[0] == NOTHING_PROPOSED


def test_another_leader_replaces_a_proposal_only_after_the_dwell_times() -> None:
    state, _ = feed_proposals(NOTHING_PROPOSED, (0, move(1.5)), (60, move(1.5)), (70, move(2, "C")))
    assert [proposal.proposed for proposal in state.recorded] == ["B"]
    state, proposed_at = feed_proposals(state, (130, move(2, "C")), (190, move(2, "C")))
    assert proposed_at == [190]
    assert [proposal.proposed for proposal in state.recorded] == ["C"]


def test_a_current_system_without_a_score_loses_by_a_finite_margin() -> None:
    gone = Move("articles.hits", "A", "B", "", True, None, 1.0)
    state, _ = feed_proposals(NOTHING_PROPOSED, (0, gone), (60, gone))
    assert state.recorded[0].margin == INDEX_CAP


def test_a_proposal_has_a_reason_and_differs_only_if_its_margin_differs_notably() -> None:
    state, _ = feed_proposals(NOTHING_PROPOSED, (0, move(1.5)))
    assert state.by_node["articles.hits"].why == move(1.5).why
    for ratio, differs in ((1.5, False), (1.52, False), (1.6, True)):
        after, _ = feed_proposals(state, (10, move(ratio)))
        assert after.by_node["articles.hits"].why == move(ratio).why
        assert differ(state, after) is differs
    assert differ(state, feed_proposals(state, (60, move(1.5)))[0])
