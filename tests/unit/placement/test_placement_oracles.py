"""The worked examples of docs/papers/ppm.md, section 4: utilities, R1 (a) to (d), R2."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import Unplaceable
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide
from mediator.placement.utility import evaluate, goal_index
from mediator.schema.annotations import Capability, Linear, Metric
from mediator.schema.parse import parse_schema

ATOMIC = {"require": "atomic_updates"}
READ = {"metric": "read_latency", "goal": 0.020, "weight": 1}
A = Candidate(
    "A",
    frozenset({Capability.ATOMIC_UPDATES, Capability.RANGE_QUERIES}),
    {Metric.WRITE_LATENCY: 0.001, Metric.WRITE_THROUGHPUT: 25_000, Metric.READ_LATENCY: 0.004},
)
B = Candidate(
    "B",
    frozenset({Capability.ATOMIC_UPDATES}),
    {Metric.WRITE_LATENCY: 0.004, Metric.WRITE_THROUGHPUT: 12_000, Metric.READ_LATENCY: 0.002},
)
C = Candidate("C")
SYSTEMS = (A, B, C)


def newspaper(
    *, require: list[Any] | None = None, title: list[Any] | None = None, user: bool = False
) -> dict[str, Any]:
    hits = [
        {"metric": "write_latency", "goal": 0.005, "weight": 1},
        {"metric": "write_throughput", "goal": 10_000, "weight": 3},
    ]
    classes: dict[str, Any] = {
        "articles": {
            "annotations": require or [],
            "fields": {
                "title": {"type": "string", "annotations": [READ, *(title or [])]},
                "body": {"type": "string", "annotations": [READ]},
                "hits": {"type": "integer", "annotations": hits},
            },
        }
    }
    if user:
        classes["users"] = {"fields": {"name": {"type": "string", "annotations": [READ]}}}
    return {"mode": "mixed", "classes": classes}


def decide_on(document: dict[str, Any]) -> Decision:
    return decide(parse_schema("news", document), SYSTEMS)


def systems(decision: Decision) -> dict[str, str]:
    return {node: placement.system for node, placement in decision.placements.items()}


def scores(decision: Decision, node: str) -> dict[str, float]:
    return dict(next(rank.scores for rank in decision.ranking.walk() if rank.node == node))


def test_the_printed_utility_at_five_latencies() -> None:
    curve = Linear(((0.020, 1.0), (0.050, 0.0)))
    utilities = [evaluate(curve, ms / 1000) for ms in (10, 20, 35, 50, 80)]
    assert utilities == pytest.approx([1, 1, 0.5, 0, 0])


def test_the_printed_performance_indices() -> None:
    assert goal_index(Metric.READ_LATENCY, 0.050, 0.020) == pytest.approx(2.5)
    assert goal_index(Metric.WRITE_THROUGHPUT, 10_000, 25_000) == pytest.approx(2.5)


def test_r1a_without_a_class_annotation_the_object_is_split() -> None:
    decision = decide_on(newspaper())
    assert scores(decision, "articles.hits") == pytest.approx({"A": 3.125, "B": 1.2125})
    assert scores(decision, "articles.title") == pytest.approx({"A": 5, "B": 10})
    assert systems(decision)["articles.hits"] == "A"
    assert systems(decision)["articles.title"] == systems(decision)["articles.body"] == "B"
    assert decision.groups["articles"] == {
        "main": ("B", ("title", "body")),
        "hits": ("A", ("hits",)),
    }


def test_r1b_a_class_requirement_ties_the_whole_class_to_one_system() -> None:
    decision = decide_on(newspaper(require=[ATOMIC]))
    assert scores(decision, "articles") == pytest.approx({"A": 4.375, "B": 7.0708}, abs=1e-4)
    assert set(systems(decision).values()) == {"B"}
    assert decision.placements["articles.hits"].bound
    assert decision.ranking.children[0].dropped == {
        "C": "lacks atomic_updates, required by articles"
    }


def test_r1c_a_system_that_one_child_excludes_is_no_longer_common() -> None:
    decision = decide_on(newspaper(require=[ATOMIC], title=[{"require": "range_queries"}]))
    assert scores(decision, "articles") == pytest.approx({"A": 4.375})
    assert set(systems(decision).values()) == {"A"}
    assert decision.ranking.children[0].dropped["B"] == (
        "lacks range_queries, required by articles.title"
    )


def test_r1d_the_database_is_the_mean_of_its_classes_not_of_all_fields() -> None:
    decision = decide_on(newspaper(require=[ATOMIC], user=True))
    assert scores(decision, "*") == pytest.approx({"A": 4.6875, "B": 8.5354}, abs=1e-4)
    assert not decision.placements["*"].bound
    assert not decision.placements["users"].bound


def test_r2_an_unmet_requirement_is_refused_with_what_each_system_lacks() -> None:
    with pytest.raises(Unplaceable) as refused:
        decide_on(newspaper(title=[{"require": "full_text_search"}]))
    (node,) = refused.value.extra["nodes"]
    lack = "lacks full_text_search, required by articles.title"
    assert node == {
        "node": "articles.title",
        "requirement": "full_text_search, read_latency",
        "systems": {"A": lack, "B": lack, "C": lack},
    }
    assert "articles.title requires full_text_search" in refused.value.detail


def test_changed_metrics_change_the_choice() -> None:
    slow = Candidate("A", A.capabilities, {**A.metrics, Metric.WRITE_THROUGHPUT: 1_000})
    slow = Candidate("A", slow.capabilities, {**slow.metrics, Metric.WRITE_LATENCY: 0.1})
    decision = decide(parse_schema("news", newspaper()), (slow, B, C))
    assert decision.placements["articles.hits"].system == "B"
