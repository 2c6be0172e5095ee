"""Nodes with data stay; a move is required only if the schema excludes their system."""

from __future__ import annotations

from mediator.placement.candidates import Candidate
from mediator.placement.decide import (
    Pins,
    build_routes,
    decide,
    pins_of,
)
from mediator.schema.annotations import Capability
from mediator.schema.tree import Schema
from tests.unit.placement.deciding import (
    FAST,
    HITS,
    SAFE,
    SORTING,
    TITLE,
    TWO,
    WRITE,
    schema,
    system,
    systems_of,
)


def pins_after(plan: Schema, systems: tuple[Candidate, ...]) -> Pins:
    return pins_of(build_routes(plan, decide(plan, systems).groups, {"articles": 1}), ["articles"])


def test_fields_with_data_stay_although_scores_changed() -> None:
    plan = schema({"title": TITLE, "body": TITLE, "hits": HITS})
    swapped = (system("reader", 0.01, 0.002, Capability.SORTING), system("writer", 0.001, 0.01))
    decision = decide(plan, swapped, pins_after(plan, TWO))
    assert decision.groups["articles"] == decide(plan, TWO).groups["articles"]
    assert [(m.node, m.current, m.proposed, m.required) for m in decision.moves] == [
        ("articles", "reader", "writer", False),
        ("articles.title", "reader", "writer", False),
        ("articles.body", "reader", "writer", False),
        ("articles.hits", "writer", "reader", False),
    ]
    assert decision.placements["articles.hits"].choice.kind == "pinned"


def test_equal_placements_move_nothing() -> None:
    plan = schema({"title": TITLE, "hits": HITS})
    decision = decide(plan, TWO, pins_after(plan, TWO))
    assert not decision.moves
    assert decision.placements == decide(plan, TWO).placements


def test_a_new_field_joins_a_suitable_group() -> None:
    before = schema({"title": TITLE, "body": TITLE})
    after = schema({"title": TITLE, "body": TITLE, "hits": HITS, "note": {}})
    groups = decide(after, TWO, pins_after(before, TWO)).groups["articles"]
    assert groups == {"main": ("reader", ("title", "body", "note")), "hits": ("writer", ("hits",))}


def test_a_requirement_that_the_current_system_does_not_meet_is_a_required_move() -> None:
    before = schema({"hits": HITS, "title": {}})
    after = schema({"hits": {"annotations": [WRITE, SORTING]}, "title": {}})
    decision = decide(after, TWO, pins_after(before, TWO))
    assert decision.groups["articles"]["hits"] == ("writer", ("hits",))
    move = next(move for move in decision.moves if move.node == "articles.hits")
    assert (move.current, move.proposed, move.required) == ("writer", "reader", True)
    assert "does not meet the requirements" in move.reason


def test_a_new_field_without_goals_moves_no_other_field() -> None:
    before, after = schema({"hits": HITS}), schema({"hits": HITS, "note": {}})
    decision = decide(after, TWO, pins_after(before, TWO))
    assert not decision.moves
    assert decision.groups["articles"] == {
        "main": ("writer", ("hits",)),
        "note": ("reader", ("note",)),
    }


def test_a_field_without_requirements_stays_on_its_system() -> None:
    plan = schema({"title": {}})
    decision = decide(plan, (FAST, SAFE), pins_after(plan, (FAST,)))
    assert systems_of(decision) == {"articles.title": "fast"}
    assert not decision.moves
    assert decision.why("articles.title") == (
        "fast holds its data, which only a migration moves; by what is known today, of the systems"
        " that can do all that is required of articles, safe loses least in a crash (0 s;"
        " fast 1 s)."
    )


def test_binding_a_class_that_is_split_is_a_required_move() -> None:
    before = schema({"title": TITLE, "body": TITLE, "hits": HITS})
    after = schema({"title": TITLE, "body": TITLE, "hits": HITS}, mode="entity")
    decision = decide(after, TWO, pins_after(before, TWO))
    assert [(move.node, move.proposed, move.required) for move in decision.moves] == [
        ("articles.hits", "reader", True)
    ]


def test_new_fields_of_a_bound_class_stay_with_its_data() -> None:
    before = schema({"title": TITLE}, mode="entity")
    hits = {"annotations": [{**WRITE, "weight": 100}, WRITE]}
    many = {f"hits_{n}": hits for n in range(9)}
    after = schema({"title": TITLE, **many}, mode="entity")
    decision = decide(after, TWO, pins_after(before, TWO))
    assert set(systems_of(decision).values()) == {"reader"}
    assert {(move.node, move.required) for move in decision.moves} == {
        ("articles", False),
        ("articles.title", False),
    }


def test_declaring_another_group_for_a_field_with_data_is_a_required_move() -> None:
    before = schema({"title": TITLE, "body": TITLE})
    after = schema({"title": TITLE, "body": {**TITLE, "group": "text"}})
    decision = decide(after, TWO, pins_after(before, TWO))
    assert decision.groups["articles"]["main"].fields == ("title", "body")
    (move,) = decision.moves
    assert (move.node, move.required) == ("articles.body", True)
