"""Explanations of placements (DESIGN, guarantee 7)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mediator.errors import NotFound
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide
from mediator.placement.explain import explain
from mediator.placement.utility import INDEX_CAP, advantage
from mediator.schema.annotations import Metric
from mediator.schema.parse import parse_schema

A = Candidate("A", metrics={Metric.READ_LATENCY: 0.004})
B = Candidate("B", metrics={Metric.READ_LATENCY: 0.002})


def decided(annotation: dict[str, Any], *systems: Candidate, **members: str) -> Decision:
    annotations = [{"metric": "read_latency", **annotation}]
    field = {"type": "string", "annotations": annotations, **members}
    fields = {"title": field, "note": {"type": "string", **members}}
    return decide(parse_schema("news", {"classes": {"articles": {"fields": fields}}}), systems)


def flips(explanation: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {each["system"]: (each["below"], each["above"]) for each in explanation["thresholds"]}


def test_an_explanation_has_candidates_metrics_scores_margin_and_thresholds() -> None:
    told = explain(decided({"goal": 0.02}, A, B), "articles.title")
    json.dumps(told)
    assert told["system"] == "B"
    assert told["why"] == (
        "articles.title decides for itself: B reads twice as fast as A (2 ms, 4 ms),"
        " and read latency is 100 % of the score."
    )
    assert told["candidates"]["A"]["parts"] == [
        {
            "metric": "read_latency",
            "statistic": "mean",
            "measured": 0.004,
            "by": "goal",
            "goal": 0.020,
            "f": pytest.approx(5),
            "weight": 1,
        }
    ]
    assert told["margin"] == {
        "runner_up": "A",
        "difference": pytest.approx(5),
        "ratio": pytest.approx(1),
    }
    found = flips(told)
    assert found["A"] == (pytest.approx(0.002), None)
    assert found["B"] == (None, pytest.approx(0.004))


def test_no_threshold_is_told_where_no_value_flips_the_choice() -> None:
    curve = {"shape": "linear", "points": [[0.02, 1], [0.05, 0]]}
    told = explain(decided({"utility": curve}, A, B), "articles.title")
    assert told["system"] == "A"  # equal scores: the first registered
    assert flips(told) == {"A": (None, pytest.approx(0.02)), "B": (None, None)}


def test_a_step_flips_at_its_corner() -> None:
    curve = {"shape": "step", "points": [[0.0, 1], [0.003, 0.5]]}
    found = flips(explain(decided({"utility": curve}, A, B), "articles.title"))
    assert found["B"] == (None, 0.003)
    assert found["A"] == (pytest.approx(0.003), None)


def test_a_field_that_follows_is_explained_by_what_it_follows() -> None:
    told = explain(decided({"goal": 0.02}, A, B, group="hot"), "articles.note")
    assert (told["kind"], told["by"], told["score"]) == ("follows", "articles#hot", None)
    assert flips(told)["B"] == (None, pytest.approx(0.004))
    assert told["why"].startswith(
        "nothing is asked of it, so it follows cache group articles#hot: B reads twice as fast as A"
    )


def test_a_default_has_no_thresholds_and_a_single_candidate_no_margin() -> None:
    fields = {"note": {"type": "string"}}
    plan = parse_schema("news", {"classes": {"articles": {"fields": fields}}})
    told = explain(decide(plan, (A, B)), "articles.note")
    assert (told["kind"], told["margin"], told["thresholds"]) == ("default", None, [])
    alone = explain(decided({"goal": 0.02}, B), "articles.title")
    assert alone["margin"] is None
    assert alone["why"] == "articles.title decides for itself: only B is left."


def test_a_node_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound):
        explain(decided({"goal": 0.02}, A), "articles.nothing")


def test_an_advantage_is_finite() -> None:
    assert advantage(1.2, 1.0) == pytest.approx(0.2)
    assert advantage(1.0, 0.0) == INDEX_CAP
    assert advantage(0.0, 0.0) == 0
    assert advantage(0.0, None) == INDEX_CAP
