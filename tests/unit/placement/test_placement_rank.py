"""RANK's rules one by one (docs/papers/ppm.md, Algorithm 1 and the notes below it)."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import Unplaceable
from mediator.placement.candidates import Candidate
from mediator.placement.rank import NodeRank, rank
from mediator.schema.annotations import Capability, Metric
from mediator.schema.parse import parse_schema
from mediator.schema.types import FieldType

READ = {"metric": "read_latency", "goal": 0.02}
WRITE = {"metric": "write_latency", "goal": 0.02}


def system(name: str, *capabilities: Capability, **metrics: float) -> Candidate:
    return Candidate(name, frozenset(capabilities), {Metric(m): v for m, v in metrics.items()})


def rank_nodes(fields: dict[str, Any], *systems: Candidate, **members: Any) -> dict[str, NodeRank]:
    class_ = {"fields": {n: {"type": "string", **f} for n, f in fields.items()}}
    class_["annotations"] = members.pop("require", [])
    tree = rank(parse_schema("news", {"classes": {"articles": class_}, **members}), systems)
    return {node.node: node for node in tree.walk()}


FAST = system("fast", read_latency=0.001, write_latency=0.01)
SLOW = system("slow", Capability.FULL_TEXT_SEARCH, read_latency=0.01, write_latency=0.001)


def test_continuous_requirements_are_pushed_down_to_every_field() -> None:
    nodes = rank_nodes({"title": {}, "body": {"annotations": [WRITE]}}, FAST, annotations=[READ])
    assert nodes["articles.title"].scores == pytest.approx({"fast": 20})
    assert nodes["articles.body"].scores == pytest.approx({"fast": (20 + 2) / 2})
    assert not nodes["*"].bound
    assert not nodes["articles"].bound


def test_a_field_without_continuous_requirements_does_not_vote() -> None:
    nodes = rank_nodes({"title": {"annotations": [READ]}, "body": {}}, FAST)
    assert nodes["articles"].scores == pytest.approx({"fast": 20})
    assert not nodes["articles.body"].votes


def test_a_class_without_voting_fields_does_not_vote() -> None:
    document = {
        "classes": {
            "articles": {"fields": {"title": {"type": "string", "annotations": [READ]}}},
            "notes": {"fields": {"text": {"type": "string"}}},
        }
    }
    tree = rank(parse_schema("news", document), [FAST])
    assert tree.scores == pytest.approx({"fast": 20})
    assert not tree.children[1].votes


def test_a_missing_metric_drops_the_candidate_with_that_reason() -> None:
    nodes = rank_nodes({"title": {"annotations": [READ]}}, FAST, system("new"))
    assert nodes["articles.title"].dropped == {
        "new": "has no measured read_latency, needed by articles.title"
    }


def test_a_missing_percentile_is_named() -> None:
    requirement = {**READ, "statistic": "p99"}
    with pytest.raises(Unplaceable, match="has no measured p99 read_latency"):
        rank_nodes({"title": {"annotations": [requirement]}}, FAST)


def test_an_inexact_type_and_a_suspension_drop_a_candidate() -> None:
    inexact = Candidate("rough", metrics=FAST.metrics, inexact=frozenset({FieldType.DECIMAL}))
    suspended = Candidate("racy", metrics=FAST.metrics, suspended="its updates are not atomic")
    nodes = rank_nodes({"price": {"type": "decimal"}}, FAST, inexact, suspended)
    assert nodes["articles.price"].eligible == ("fast",)
    assert nodes["articles.price"].dropped == {
        "racy": "suspended: its updates are not atomic",
        "rough": "lacks an exact operator for type decimal, the type of articles.price",
    }


def test_an_empty_intersection_at_an_unbound_node_is_no_error() -> None:
    only_slow = {"annotations": [READ, {"require": "full_text_search"}]}
    only_fast = {"annotations": [{**READ, "statistic": "p99"}]}
    quick = Candidate("fast", metrics=FAST.metrics, p99={Metric.READ_LATENCY: 0.002})
    nodes = rank_nodes({"body": only_slow, "title": only_fast}, quick, SLOW)
    assert nodes["articles"].scores == {}
    assert set(nodes["articles"].dropped) == {"fast", "slow"}


def test_a_bound_node_respects_children_that_do_not_vote() -> None:
    strong = system("strong", Capability.ATOMIC_UPDATES, Capability.SORTING, read_latency=0.01)
    quick = system("quick", Capability.ATOMIC_UPDATES, read_latency=0.001)
    nodes = rank_nodes(
        {"title": {"annotations": [READ]}, "body": {"annotations": [{"require": "sorting"}]}},
        quick,
        strong,
        require=[{"require": "atomic_updates"}],
    )
    assert set(nodes["articles"].scores) == {"strong"}


def test_parents_filter_before_their_children_choose() -> None:
    nodes = rank_nodes(
        {"title": {"annotations": [READ]}},
        FAST,
        system("safe", Capability.DURABILITY, read_latency=0.01),
        annotations=[{"require": "durability"}],
    )
    assert set(nodes["articles.title"].scores) == {"safe"}
    assert nodes["*"].bound
    assert nodes["*"].dropped == {"fast": "lacks durability, required by the database"}


def test_mode_entity_binds_every_class() -> None:
    nodes = rank_nodes({"title": {"annotations": [READ]}}, FAST, mode="entity")
    assert nodes["articles"].bound
    assert not nodes["*"].bound


def test_all_unplaceable_nodes_are_named_at_once() -> None:
    with pytest.raises(Unplaceable) as refused:
        rank_nodes(
            {
                "title": {"annotations": [{"require": "sorting"}]},
                "body": {"annotations": [{"require": "scans"}, READ]},
            },
            FAST,
            SLOW,
        )
    nodes = refused.value.extra["nodes"]
    assert [(node["node"], node["requirement"]) for node in nodes] == [
        ("articles.title", "sorting"),
        ("articles.body", "scans, read_latency"),
    ]
    assert nodes[0]["systems"]["fast"] == "lacks sorting, required by articles.title"


def test_a_bound_class_that_no_single_system_serves_is_refused() -> None:
    text = {"annotations": [{"require": "full_text_search"}]}
    order = {"annotations": [{"require": "sorting"}]}
    with pytest.raises(Unplaceable) as refused:
        rank_nodes({"a": text, "b": order}, SLOW, system("x", Capability.SORTING), mode="entity")
    (node,) = refused.value.extra["nodes"]
    assert node["node"] == "articles"
    assert node["requirement"] == "one system for all below it"
    assert node["systems"] == {
        "slow": "lacks sorting, required by articles.b",
        "x": "lacks full_text_search, required by articles.a",
    }


def test_without_any_system_nothing_can_be_placed() -> None:
    with pytest.raises(Unplaceable, match="there is no system"):
        rank_nodes({"title": {}})
