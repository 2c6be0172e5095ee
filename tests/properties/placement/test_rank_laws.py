"""Laws of scoring, RANK and thresholds, over random schemas and systems."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mediator.base.errors import Unplaceable
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide
from mediator.placement.explain import explain
from mediator.schema.annotations import Capability, Metric
from mediator.schema.parse import parse_schema

METRICS = ("read_latency", "write_latency", "write_throughput", "read_availability")
CAPABILITIES = ("sorting", "atomic_updates", "scans")
BASE = {
    "read_latency": 0.01,
    "write_latency": 0.01,
    "write_throughput": 10_000.0,
    "read_availability": 0.99,
}

# Coarse values cause ties, and otherwise keep scores apart by more than rounding.
levels = st.sampled_from([0.25, 0.4, 0.5, 0.8, 1.0])


@st.composite
def continuous(draw: st.DrawFn) -> dict[str, Any]:
    metric = draw(st.sampled_from(METRICS))
    base = BASE[metric]
    falling = metric.endswith("latency")
    ends = (1, 0) if falling else (0, 1)
    points = [[base * 0.3, ends[0]], [base * 0.9, ends[1]]]
    goal: dict[str, Any] = {"goal": base * draw(levels)}
    linear: dict[str, Any] = {"utility": {"shape": "linear", "points": points}}
    step: dict[str, Any] = {"utility": {"shape": "step", "points": points}}
    steepness = (-8 if falling else 8) / base
    sigmoid: dict[str, Any] = {
        "utility": {"shape": "sigmoid", "midpoint": base / 2, "steepness": steepness}
    }
    measure = draw(st.sampled_from([goal, linear, step, sigmoid]))
    return {"metric": metric, "weight": draw(st.sampled_from([1, 2, 5])), **measure}


groups: st.SearchStrategy[dict[str, Any]] = st.sampled_from([{}, {}, {"group": "hot"}])
binary = st.sampled_from(CAPABILITIES).map(lambda name: {"require": name})


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    annotations = st.lists(continuous(), max_size=3)
    bound = st.lists(binary, max_size=1)
    classes = {}
    for class_name in draw(st.sampled_from([("a",), ("a", "b")])):
        fields = {
            name: {
                "type": "string",
                "annotations": draw(annotations) + draw(bound),
                **draw(groups),
            }
            for name in draw(st.sampled_from([("x",), ("x", "y"), ("x", "y", "z")]))
        }
        class_annotations = draw(st.sampled_from([[], [], [{"require": "atomic_updates"}]]))
        classes[class_name] = {"fields": fields, "annotations": class_annotations}
    return {
        "mode": draw(st.sampled_from(["mixed", "mixed", "entity"])),
        "annotations": draw(st.lists(continuous(), max_size=1)),
        "classes": classes,
    }


@st.composite
def systems(draw: st.DrawFn) -> tuple[Candidate, ...]:
    metrics = st.fixed_dictionaries({Metric(m): levels.map(BASE[m].__mul__) for m in METRICS})
    capabilities = st.frozensets(st.sampled_from([Capability(c) for c in CAPABILITIES]), min_size=1)
    count = draw(st.integers(1, 4))
    return tuple(Candidate(f"s{n}", draw(capabilities), draw(metrics)) for n in range(count))


def decide_or_reject(document: dict[str, Any], candidates: tuple[Candidate, ...]) -> Decision:
    try:
        return decide(parse_schema("news", document), candidates)
    except Unplaceable:
        assume(False)
        raise


def systems_of(decision: Decision) -> dict[str, str]:
    return {node: placement.system for node, placement in decision.placements.items()}


def is_clear_cut(decision: Decision) -> bool:
    """Whether every placement has scores, and was decided by more than rounding."""
    all_scores = [placement.choice.scores for placement in decision.placements.values()]
    if not all(all_scores):
        return False
    tops = [sorted(scores.by_system.values())[-2:] for scores in all_scores if scores]
    return all(len(top) < 2 or top[1] - top[0] > 1e-9 * top[1] for top in tops)


@given(documents(), systems(), st.sampled_from([1e-9, 0.1, 3.0, 1e12]))
def test_scaling_all_weights_changes_nothing(
    document: dict[str, Any], candidates: tuple[Candidate, ...], factor: float
) -> None:
    before = decide_or_reject(document, candidates)

    def scale(value: Any) -> Any:
        if isinstance(value, list):
            return [scale(item) for item in value]
        if isinstance(value, dict):
            return {k: v * factor if k == "weight" else scale(v) for k, v in value.items()}
        return value

    after = decide_or_reject(scale(document), candidates)
    for one, two in zip(before.ranking.walk(), after.ranking.walk(), strict=True):
        assert two.scores == pytest.approx(dict(one.scores))
    assume(is_clear_cut(before))
    assert systems_of(after) == systems_of(before)


@given(documents(), systems(), st.randoms(use_true_random=False))
def test_permuting_the_systems_changes_nothing_but_ties(
    document: dict[str, Any], candidates: tuple[Candidate, ...], random: Any
) -> None:
    before = decide_or_reject(document, candidates)
    after = decide_or_reject(document, tuple(random.sample(candidates, len(candidates))))
    for one, two in zip(before.ranking.walk(), after.ranking.walk(), strict=True):
        assert two.scores == one.scores
    if is_clear_cut(before):
        assert systems_of(after) == systems_of(before)
        assert after.groups == before.groups


@given(documents(), systems(), st.integers(0, 3), st.booleans())
def test_adding_a_dominated_system_never_changes_a_placement(
    document: dict[str, Any],
    candidates: tuple[Candidate, ...],
    index: int,
    without_capabilities: bool,
) -> None:
    before = decide_or_reject(document, candidates)
    model = candidates[index % len(candidates)]
    worse = {
        metric: value * 1.25 if metric.small_is_good else value / 1.25
        for metric, value in model.metrics.items()
    }
    capabilities = frozenset() if without_capabilities else model.capabilities
    weak = Candidate("weak", capabilities, worse)
    after = decide_or_reject(document, (*candidates, weak))
    assert systems_of(after) == systems_of(before)


@given(documents(), systems())
def test_every_placement_is_a_candidate_that_meets_the_requirements(
    document: dict[str, Any], candidates: tuple[Candidate, ...]
) -> None:
    decision = decide_or_reject(document, candidates)
    for node in decision.ranking.walk():
        system = decision.placements[node.node].system
        assert system in node.qualified
        if not node.children:
            assert system in node.eligible


@given(documents(), systems())
def test_every_field_is_in_one_group_and_on_the_system_of_its_group(
    document: dict[str, Any], candidates: tuple[Candidate, ...]
) -> None:
    decision = decide_or_reject(document, candidates)
    for class_name, class_ in document["classes"].items():
        groups = decision.groups[class_name]
        assert sorted(f for group in groups.values() for f in group.fields) == sorted(
            class_["fields"]
        )
        assert next(iter(groups)) == "main"
        for group in groups.values():
            for field in group.fields:
                assert decision.placements[f"{class_name}.{field}"].system == group.system


@given(documents(), systems())
def test_the_same_input_gives_the_same_decision(
    document: dict[str, Any], candidates: tuple[Candidate, ...]
) -> None:
    assert decide_or_reject(document, candidates) == decide_or_reject(document, candidates)


def with_metric(
    candidates: tuple[Candidate, ...], system: str, metric: str, value: float
) -> tuple[Candidate, ...]:
    return tuple(
        replace(c, metrics={**c.metrics, Metric(metric): value}) if c.name == system else c
        for c in candidates
    )


@settings(max_examples=40, deadline=None)
@given(documents(), systems(), st.data())
def test_a_decision_changes_exactly_beyond_its_thresholds(
    document: dict[str, Any], candidates: tuple[Candidate, ...], data: st.DataObject
) -> None:
    before = decide_or_reject(document, candidates)
    node = data.draw(st.sampled_from(sorted(before.placements)))
    explanation = explain(before, node)
    assume(explanation["thresholds"])
    threshold = data.draw(st.sampled_from(explanation["thresholds"]))
    system, metric = threshold["system"], threshold["metric"]

    def winners(value: float) -> set[str]:
        """Return the chosen system, and systems that only rounding separates from it."""
        after = explain(
            decide_or_reject(document, with_metric(candidates, system, metric, value)), node
        )
        return {after["system"], *_best_systems(after)}

    for side, outward in (("below", -1e-7), ("above", 1e-7)):
        value = threshold[side]
        if value is None:
            far = threshold["measured"] * data.draw(st.sampled_from([1e-6, 0.1, 0.7]))
            inverse = threshold["measured"] ** 2 / far
            assert explanation["system"] in winners(
                far if side == "below" else _within(metric, inverse)
            )
            continue
        assume(abs(value - threshold["measured"]) > 1e-6 * threshold["measured"])
        assert winners(value * (1 + outward)) != {explanation["system"]}
        assert explanation["system"] in winners(value * (1 - outward))


def _best_systems(explanation: dict[str, Any]) -> list[str]:
    scores: dict[str, float] = explanation["scores"]
    best = max(scores.values(), default=0.0)
    return [name for name, score in scores.items() if math.isclose(score, best, rel_tol=1e-9)]


def _within(metric: str, value: float) -> float:
    return min(value, 1.0) if metric.endswith("availability") else value


@given(documents(), systems(), st.data())
def test_a_required_system_is_used_and_changes_no_other_choice(
    document: dict[str, Any], candidates: tuple[Candidate, ...], data: st.DataObject
) -> None:
    unconstrained = decide_or_reject(document, candidates)
    node = data.draw(st.sampled_from([name for name in unconstrained.placements if name != "*"]))
    system = data.draw(st.sampled_from([candidate.name for candidate in candidates]))
    class_name, _, field = node.partition(".")
    class_ = document["classes"][class_name]
    (class_["fields"][field] if field else class_)["system"] = system
    decision = decide_or_reject(document, candidates)
    assert decision.ranking == unconstrained.ranking
    assert decision.placements[node].system == system
    for name, placement in decision.placements.items():
        required = placement.choice.required
        expected = required.system if required else unconstrained.placements[name].system
        assert placement.system == expected
        assert explain(decision, name)["why"].endswith(".")
