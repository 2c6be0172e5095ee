"""From ranking to placements: ties, defaults, cache groups, pins and routes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mediator.base.errors import Unplaceable
from mediator.placement.candidates import Candidate
from mediator.placement.decide import (
    build_routes,
    decide,
    view_system,
)
from mediator.schema.annotations import Capability
from mediator.schema.parse import parse_schema
from tests.unit.placement.deciding import (
    FAST,
    HITS,
    READ,
    READER,
    SAFE,
    SORTING,
    TITLE,
    TWO,
    WRITER,
    schema,
    system,
    systems_of,
)


def test_equal_scores_go_to_the_first_registered_system() -> None:
    twins = (system("one", 0.01, 0.01), system("two", 0.01, 0.01))
    assert decide(schema({"title": TITLE}), twins).placements["articles"].system == "one"


def test_equal_scores_go_to_the_view_before_the_first_registered() -> None:
    twins = (system("one", 0.01, 0.01), system("two", 0.01, 0.01))
    plan = schema({"title": TITLE}, materialised_view={"system": "two"})
    assert decide(plan, twins).placements["articles.title"].system == "two"


def test_a_field_without_requirements_is_on_the_default_system() -> None:
    decision = decide(schema({"hits": HITS, "body": {}}), TWO)
    placement = decision.placements["articles.body"]
    assert (placement.system, placement.choice.kind, placement.score) == ("reader", "default", None)
    assert decision.groups["articles"] == {
        "main": ("reader", ("body",)),
        "hits": ("writer", ("hits",)),
    }


def test_a_field_that_the_default_system_cannot_hold_is_placed_elsewhere() -> None:
    body = {"annotations": [SORTING]}
    search = {"annotations": [{"require": "full_text_search"}]}
    searching = system("search", 0.01, 0.01, Capability.FULL_TEXT_SEARCH)
    decision = decide(schema({"hits": HITS, "body": body, "text": search}), (*TWO, searching))
    assert systems_of(decision) == {
        "articles.hits": "writer",
        "articles.body": "reader",
        "articles.text": "search",
    }


SHOP = {
    "customers": {"fields": {"address": {"type": "string"}}},
    "products": {
        "fields": {"name": {"type": "string"}, "views": {"type": "integer", **HITS}},
    },
}


def shop(*systems: Candidate, **members: Any) -> dict[str, str]:
    decision = decide(parse_schema("shop", {"classes": SHOP, **members}), systems)
    return {node: placement.system for node, placement in decision.placements.items()}


def test_no_field_follows_the_goals_of_another_field_or_class() -> None:
    assert shop(FAST, SAFE) == {
        "*": "fast",
        "customers": "safe",
        "customers.address": "safe",
        "products": "safe",
        "products.name": "safe",
        "products.views": "fast",
    }


def test_the_default_system_is_the_named_one_else_the_most_durable() -> None:
    assert shop(FAST, SAFE, default={"system": "fast"})["customers.address"] == "fast"
    declared = replace(SAFE, durability_s=None, capabilities=frozenset({Capability.DURABILITY}))
    worse = replace(FAST, durability_s=2.0)
    assert shop(worse, declared)["customers.address"] == "safe"
    assert shop(FAST, declared)["customers.address"] == "fast"  # 1 s for both
    unknown = replace(SAFE, durability_s=None)
    assert shop(unknown, FAST)["customers.address"] == "fast"
    unmeasured = replace(SAFE, metrics={})
    assert shop(unmeasured, FAST)["customers.address"] == "fast"


def test_equally_durable_systems_are_the_view_then_the_first_registered() -> None:
    equal = replace(FAST, name="equal")
    assert shop(equal, FAST)["customers.address"] == "equal"
    assert shop(equal, FAST, materialised_view={"system": "fast"})["customers.address"] == "fast"


def test_the_default_system_supports_all_that_its_class_requires() -> None:
    fields = {"note": {}, "text": {"annotations": [{"require": "full_text_search"}]}}
    capable = replace(FAST, capabilities=frozenset({Capability.FULL_TEXT_SEARCH}))
    decision = decide(schema(fields), (SAFE, capable))
    assert set(systems_of(decision).values()) == {"fast"}
    assert decision.why("articles.note") == (
        "nothing is required of it, so it is on the default system: only fast can do all that is"
        " required of articles; out: safe (lacks full_text_search, required by articles.text)."
    )


def test_a_class_that_the_named_default_cannot_hold_is_placed_elsewhere() -> None:
    plan = schema({"title": {}}, require=[{"require": "joins"}], default={"system": "fast"})
    capable = replace(SAFE, capabilities=frozenset({Capability.JOINS}))
    decision = decide(plan, (FAST, capable))
    assert systems_of(decision) == {"articles.title": "safe"}
    assert "out: fast (lacks joins, required by articles)" in decision.why("articles.title")


def test_requirements_of_a_field_decide_its_default_placement() -> None:
    """Requirements of another field do not change its placement."""
    capabilities = frozenset({Capability.SORTING})
    safe, fast = replace(SAFE, capabilities=capabilities), replace(FAST, capabilities=capabilities)
    title = {"annotations": [SORTING]}
    for fields in ({"title": title}, {"title": title, "hits": HITS}):
        decision = decide(schema(fields), (fast, safe))
        assert decision.placements["articles.title"].system == "safe"
        assert decision.placements["articles"].system == "safe"
        scores = decision.ranking.children[0].children[0].scores
        assert scores == {"fast": 1.0, "safe": 1.0}
    incapable = replace(FAST, name="incapable", capabilities=frozenset())
    (class_,) = decide(schema({"title": title, "hits": HITS}), (fast, incapable)).ranking.children
    assert class_.scores == {"fast": pytest.approx((1 + 20) / 2)}
    assert class_.dropped == {"incapable": "lacks sorting, required by articles.title"}


def test_requirements_of_a_class_are_votes_of_its_fields() -> None:
    capabilities = frozenset({Capability.JOINS})
    systems = replace(SAFE, capabilities=capabilities), replace(FAST, capabilities=capabilities)
    plan = schema({"title": {}, "body": {}, "hits": HITS}, require=[{"require": "joins"}])
    scores = decide(plan, systems).ranking.children[0].scores
    assert scores == {"safe": pytest.approx(1), "fast": pytest.approx((1 + 1 + 20) / 3)}


def test_of_equal_scores_the_default_system_wins() -> None:
    annotation = {"utility": {"shape": "linear", "points": [[0.02, 1], [0.05, 0]]}}
    plan = schema({"title": {"annotations": [{"metric": "read_latency", **annotation}]}})
    decision = decide(plan, (FAST, SAFE))
    assert systems_of(decision) == {"articles.title": "safe"}
    assert decision.why("articles.title") == (
        "articles.title decides for itself: safe and fast score alike, and of the systems that can"
        " do all that is required of articles, safe loses least in a crash (0 s; fast 1 s)."
    )


def test_a_class_without_goals_is_on_the_default_system() -> None:
    document = {
        "classes": {
            "notes": {"fields": {"text": {"type": "string"}}},
            "articles": {"fields": {"hits": {"type": "integer", **HITS}}},
        }
    }
    decision = decide(parse_schema("news", document), TWO)
    assert decision.placements["notes"].system == "reader"
    assert decision.placements["notes"].choice.kind == "default"


def test_the_default_is_the_view_and_has_metrics_if_any_system_has() -> None:
    plan = schema({"title": {}}, materialised_view={"system": "writer"})
    assert decide(plan, TWO).placements["articles"].system == "writer"
    fresh = Candidate("fresh")
    assert decide(schema({"title": {}}), (fresh, *TWO)).placements["articles"].system == "reader"
    assert decide(schema({"title": {}}), (fresh,)).placements["articles"].system == "fresh"


def test_a_field_without_requirements_follows_its_declared_group() -> None:
    fields = {"hits": {**HITS, "group": "hot"}, "note": {"group": "hot"}, "rest": {"group": "cold"}}
    decision = decide(schema(fields), TWO)
    assert systems_of(decision) == {
        "articles.hits": "writer",
        "articles.note": "writer",
        "articles.rest": "reader",
    }
    kinds = {node: placement.choice.kind for node, placement in decision.placements.items()}
    assert kinds["articles.hits"] == "own"
    assert kinds["articles.note"] == "follows"
    assert kinds["articles.rest"] == "default"


def test_a_declared_group_is_never_split() -> None:
    grouped = {
        "title": {**TITLE, "group": "hot"},
        "hits": {**HITS, "group": "hot"},
        "body": {},
    }
    decision = decide(schema(grouped), TWO)
    # title: reader 20, writer 2; hits: reader 2, writer 10: the means are 11 and 6.
    assert decision.groups["articles"]["hot"] == ("reader", ("title", "hits"))
    placement = decision.placements["articles.hits"]
    assert placement.choice.kind == "group"
    assert placement.choice.scores is not None
    assert placement.choice.scores.by_system == pytest.approx({"reader": 11, "writer": 6})
    assert placement.score == pytest.approx(10 if placement.system == "writer" else 2)


def test_a_declared_group_that_no_system_can_hold_is_refused() -> None:
    searching = system("search", 0.01, 0.01, Capability.FULL_TEXT_SEARCH)
    fields = {
        "a": {"annotations": [SORTING], "group": "both"},
        "b": {"annotations": [{"require": "full_text_search"}], "group": "both"},
    }
    with pytest.raises(Unplaceable) as refused:
        decide(schema(fields), (READER, searching))
    (node,) = refused.value.extra["nodes"]
    assert node["node"] == "articles#both"
    assert set(node["systems"]) == {"reader", "search"}


def test_groups_of_single_fields_get_names_that_fit_and_differ() -> None:
    fields = {
        "title": TITLE,
        "author": TITLE,
        "editor": TITLE,
        "Hits": HITS,
        "hits": HITS,
        "Main": HITS,
    }
    groups = decide(schema(fields), TWO).groups["articles"]
    assert groups == {
        "main": ("reader", ("title", "author", "editor")),
        "hits": ("writer", ("Hits",)),
        "hits_2": ("writer", ("hits",)),
        "main_2": ("writer", ("Main",)),
    }


def test_mode_entity_never_splits_an_object() -> None:
    decision = decide(schema({"title": TITLE, "hits": HITS}, mode="entity"), TWO)
    assert set(systems_of(decision).values()) == {"reader"}
    assert decision.placements["articles.hits"].bound
    assert list(decision.groups["articles"]) == ["main"]


def test_the_outermost_bound_node_wins() -> None:
    safe = system("safe", 0.01, 0.01, Capability.DURABILITY, Capability.SORTING)
    fields = {"title": {"annotations": [READ, SORTING]}, "hits": HITS}
    plan = schema(fields, annotations=[{"require": "durability"}])
    decision = decide(plan, (READER, WRITER, safe))
    assert {p.system for p in decision.placements.values()} == {"safe"}
    assert {p.choice.by for p in decision.placements.values()} == {"*"}


def test_routes_have_one_fragment_for_each_system_the_anchor_first() -> None:
    plan = schema({"hits": HITS, "title": TITLE, "body": TITLE})
    route = build_routes(plan, decide(plan, TWO).groups, {"articles": 7}).classes["articles"]
    assert [fragment.system for fragment in route.fragments] == ["reader", "writer"]
    assert route.anchor.groups == {"main": ("title", "body")}
    assert route.fragments[1].groups == {"hits": ("hits",)}
    assert list(route.fragments[1].fields) == ["hits"]
    assert {fragment.schema_version for fragment in route.fragments} == {7}
    assert route.group_of == {"title": "main", "body": "main", "hits": "hits"}


def test_the_anchor_fragment_exists_even_without_fields() -> None:
    middle = system("middle", 0.0015, 0.0022)
    plan = schema({"title": TITLE, "hits": HITS})
    decision = decide(plan, (READER, WRITER, middle))
    assert decision.groups["articles"]["main"] == ("middle", ())
    route = build_routes(plan, decision.groups, {"articles": 1}).classes["articles"]
    assert (route.anchor.system, route.anchor.groups) == ("middle", {"main": ()})


def test_a_database_in_advisory_mode_has_no_routes() -> None:
    plan = schema({"title": TITLE}, mode="advisory")
    assert not build_routes(plan, decide(plan, TWO).groups, {"articles": 1}).classes


def test_the_view_is_the_best_ranked_system_proven_for_it() -> None:
    capabilities = (Capability.SCANS, Capability.SORTING, Capability.RANGE_QUERIES)
    slow, quick = (
        system("slow", 0.1, 0.1, *capabilities),
        system("quick", 0.01, 0.01, *capabilities),
    )
    plan = schema({"title": TITLE})
    assert view_system(plan, decide(plan, (READER, slow, quick))) == "quick"
    assert view_system(plan, decide(plan, TWO)) is None
    named = schema({"title": TITLE}, materialised_view={"system": "slow"})
    assert view_system(named, decide(named, (READER, slow, quick))) == "slow"
