"""Explanations of placements (docs/design.md, "Guarantees")."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mediator.base.errors import NotFound
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide
from mediator.placement.explain import explain
from mediator.placement.utility import INDEX_CAP, advantage
from mediator.schema.annotations import Metric
from mediator.schema.parse import parse_schema

A = Candidate("A", metrics={Metric.READ_LATENCY: 0.004})
B = Candidate("B", metrics={Metric.READ_LATENCY: 0.002})


def make_decision(annotation: dict[str, Any], *systems: Candidate, **members: str) -> Decision:
    annotations = [{"metric": "read_latency", **annotation}]
    field = {"type": "string", "annotations": annotations, **members}
    fields = {"title": field, "note": {"type": "string", **members}}
    return decide(parse_schema("news", {"classes": {"articles": {"fields": fields}}}), systems)


def threshold_values(explanation: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {
        threshold["system"]: (threshold["below"], threshold["above"])
        for threshold in explanation["thresholds"]
    }


def test_an_explanation_has_candidates_metrics_scores_margin_and_thresholds() -> None:
    explanation = explain(make_decision({"goal": 0.02}, A, B), "articles.title")
    json.dumps(explanation)
    assert explanation["system"] == "B"
    assert explanation["why"] == (
        "articles.title decides for itself: B reads twice as fast as A (2 ms, 4 ms),"
        " and read latency is 100 % of the score."
    )
    assert explanation["candidates"]["A"]["terms"] == [
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
    assert explanation["margin"] == {
        "runner_up": "A",
        "difference": pytest.approx(5),
        "ratio": pytest.approx(1),
    }
    thresholds = threshold_values(explanation)
    assert thresholds["A"] == (pytest.approx(0.002), None)
    assert thresholds["B"] == (None, pytest.approx(0.004))


def test_there_is_no_threshold_if_no_value_changes_the_choice() -> None:
    curve = {"shape": "linear", "points": [[0.02, 1], [0.05, 0]]}
    explanation = explain(make_decision({"utility": curve}, A, B), "articles.title")
    assert explanation["system"] == "A"  # equal scores: the first registered
    assert threshold_values(explanation) == {"A": (None, pytest.approx(0.02)), "B": (None, None)}


def test_the_threshold_of_a_step_is_its_corner() -> None:
    curve = {"shape": "step", "points": [[0.0, 1], [0.003, 0.5]]}
    thresholds = threshold_values(
        explain(make_decision({"utility": curve}, A, B), "articles.title")
    )
    assert thresholds["B"] == (None, 0.003)
    assert thresholds["A"] == (pytest.approx(0.003), None)


def test_a_field_that_follows_a_group_is_explained_by_it() -> None:
    explanation = explain(make_decision({"goal": 0.02}, A, B, group="hot"), "articles.note")
    assert (explanation["kind"], explanation["by"], explanation["score"]) == (
        "follows",
        "articles#hot",
        None,
    )
    assert threshold_values(explanation)["B"] == (None, pytest.approx(0.004))
    assert explanation["why"].startswith(
        "nothing is required of it, so it follows cache group articles#hot:"
        " B reads twice as fast as A"
    )


def test_a_default_has_no_thresholds_and_a_single_candidate_no_margin() -> None:
    fields = {"note": {"type": "string"}}
    plan = parse_schema("news", {"classes": {"articles": {"fields": fields}}})
    explanation = explain(decide(plan, (A, B)), "articles.note")
    assert (explanation["kind"], explanation["margin"], explanation["thresholds"]) == (
        "default",
        None,
        [],
    )
    single = explain(make_decision({"goal": 0.02}, B), "articles.title")
    assert single["margin"] is None
    assert single["why"] == "articles.title decides for itself: only B is left."


def why(annotations: list[dict[str, Any]], *systems: Candidate, **members: Any) -> str:
    fields = {"title": {"type": "string", "annotations": annotations}}
    document = {"classes": {"articles": {"fields": fields}}, **members}
    return decide(parse_schema("news", document), systems).why("articles.title")


def candidate(name: str, metric: Metric, value: float, p99: float = 1.0) -> Candidate:
    return Candidate(name, metrics={metric: value}, p99={metric: p99})


@pytest.mark.parametrize(
    ("metric", "goal", "values", "sentence"),
    [
        (
            "write_throughput",
            5_000,
            (5321, 2616),
            "A writes twice as fast as B (5,321/s, 2,616/s), and write throughput is 100 % of",
        ),
        (
            "write_latency",
            0.01,
            (0.001, 0.0053),
            "A writes 5.3 times as fast as B (1 ms, 5.3 ms), and write latency is 100 % of",
        ),
        (
            "read_availability",
            0.9,
            (0.999, 0.98),
            "A answers reads more reliably than B (99.9 %, 98 %), and read availability is",
        ),
        ("read_latency", 0.01, (0.0, 0.01), "A reads faster than B (0 s, 10 ms), and read latency"),
    ],
)
def test_a_sentence_compares_the_best_two(
    metric: str, goal: float, values: tuple[float, float], sentence: str
) -> None:
    systems = [candidate(n, Metric(metric), v) for n, v in zip("AB", values, strict=True)]
    explanation = why([{"metric": metric, "goal": goal}], *systems)
    assert explanation.startswith(f"articles.title decides for itself: {sentence}")


def test_a_sentence_names_the_metric_that_decides_between_the_best_two() -> None:
    quick = Candidate("A", metrics={Metric.READ_LATENCY: 0.001, Metric.WRITE_THROUGHPUT: 2_000})
    strong = Candidate("B", metrics={Metric.READ_LATENCY: 0.002, Metric.WRITE_THROUGHPUT: 9_000})
    sentence = why(
        [
            {"metric": "read_latency", "goal": 0.001},
            {"metric": "write_throughput", "goal": 3_000, "weight": 3},
        ],
        quick,
        strong,
    )
    assert "B writes 4.5 times as fast as A" in sentence
    assert "write throughput is 75 % of the score" in sentence


def test_a_sentence_names_the_statistic_and_a_curve_that_prefers_the_worse() -> None:
    slow_tail = candidate("A", Metric.READ_LATENCY, 0.001, p99=0.1)
    sentence = why(
        [{"metric": "read_latency", "goal": 0.01, "statistic": "p99"}],
        slow_tail,
        candidate("B", Metric.READ_LATENCY, 0.002, p99=0.05),
    )
    assert "B reads twice as fast as A (50 ms, 100 ms)" in sentence
    assert "the 99th percentile of read latency is 100 % of the score" in sentence
    curve = {"shape": "step", "points": [[0, 0], [0.0015, 1]]}
    odd = why(
        [{"metric": "read_latency", "utility": curve}], A, candidate("C", Metric.READ_LATENCY, 0)
    )
    assert "the read latency of A suits it better than that of C (4 ms, 0 s)" in odd


def test_a_sentence_names_the_first_few_systems_that_are_ruled_out() -> None:
    many = [Candidate(f"s{n}") for n in range(8)]
    sentence = why([{"metric": "read_latency", "goal": 0.01}], A, *many)
    reason = "has no measured read_latency, needed by articles.title"
    assert sentence.startswith(
        f"articles.title decides for itself: only A is left; out: s0 ({reason})"
    )
    assert sentence.endswith(f"s4 ({reason}) and 3 others.")


def test_a_sentence_names_modes_and_named_defaults() -> None:
    goal = [{"metric": "read_latency", "goal": 0.01}]
    assert why(goal, A, B, mode="entity").startswith(
        "articles stays on one system, as mode entity splits no object: B reads twice as fast as A"
    )
    named = Candidate("named")
    assert why([], A, named, default={"system": "named"}) == (
        "nothing is required of it, so it is on the default system: the schema names named as"
        " default."
    )


def test_an_unknown_node_is_not_found() -> None:
    with pytest.raises(NotFound):
        explain(make_decision({"goal": 0.02}, A), "articles.nothing")


def test_an_advantage_is_finite() -> None:
    assert advantage(1.2, 1.0) == pytest.approx(0.2)
    assert advantage(1.0, 0.0) == INDEX_CAP
    assert advantage(0.0, 0.0) == 0
    assert advantage(0.0, None) == INDEX_CAP
