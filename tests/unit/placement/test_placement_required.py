"""Systems that a schema requires by name, at each level, and their cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from mediator.base.errors import SchemaInvalid, Unplaceable
from mediator.placement.advice import advise, notes_on
from mediator.placement.decide import build_routes, decide, named_mistakes, pins_of
from mediator.placement.explain import explain, summarise
from mediator.placement.proposals import NOTHING_PROPOSED, propose
from mediator.placement.what_if import what_if
from mediator.schema.annotations import Capability
from mediator.schema.limits import MAX_ERRORS
from mediator.schema.overrides import Override, in_force
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document
from mediator.schema.tree import Schema
from tests.unit.placement.deciding import (
    HITS,
    READER,
    SORTING,
    TITLE,
    TWO,
    WRITE,
    WRITER,
    systems_of,
)

FIELDS: dict[str, Any] = {"title": TITLE, "hits": HITS, "note": {}}


def schema(
    fields: dict[str, Any], *, database: str | None = None, mode: str = "mixed", **members: Any
) -> Schema:
    typed_fields = {name: {"type": "string", **field} for name, field in fields.items()}
    classes = {"articles": {"fields": typed_fields, **members}}
    return parse_schema("news", {"system": database, "mode": mode, "classes": classes})


def pointers(caught: Any) -> list[str]:
    return [location.pointer for location in caught.value.locations]


def test_the_nearest_requirement_wins() -> None:
    plan = schema(
        {"title": TITLE, "hits": {**HITS, "system": "reader"}, "note": {}}, database="reader"
    )
    assert set(systems_of(decide(plan, TWO)).values()) == {"reader"}
    plan = schema(
        {"title": TITLE, "hits": {**HITS, "system": "reader"}, "note": {}},
        system="writer",
        database="reader",
    )
    decision = decide(plan, TWO)
    assert systems_of(decision) == {
        "articles.title": "writer",
        "articles.hits": "reader",
        "articles.note": "writer",
    }
    assert [decision.placements[n].system for n in ("*", "articles")] == ["reader", "writer"]
    assert decision.groups["articles"] == {
        "main": ("writer", ("title", "note")),
        "hits": ("reader", ("hits",)),
    }


def test_the_requirement_of_a_field_is_that_of_its_cache_group() -> None:
    fields = {name: {**field, "group": "hot"} for name, field in FIELDS.items()}
    fields["note"]["system"] = "reader"
    decision = decide(schema(fields, system="writer"), TWO)
    assert decision.groups["articles"]["hot"] == ("reader", ("title", "hits", "note"))
    assert {p.choice.by for n, p in decision.placements.items() if "." in n} == {"articles.note"}


def test_the_requirement_of_a_field_moves_no_other_field() -> None:
    for system in ("reader", "writer"):
        plan = schema({**FIELDS, "note": {"system": system}, "rest": {}})
        unconstrained = systems_of(decide(schema({**FIELDS, "rest": {}}), TWO))
        assert systems_of(decide(plan, TWO)) == {**unconstrained, "articles.note": system}


@pytest.mark.parametrize("members", [{"mode": "entity"}, {"annotations": [{"require": "joins"}]}])
def test_a_class_bound_to_one_system_is_on_that_of_its_field(members: Any) -> None:
    systems = [
        replace(candidate, capabilities=candidate.capabilities | {Capability.JOINS})
        for candidate in TWO
    ]
    fields = {**FIELDS, "note": {"system": "writer"}}
    decision = decide(schema(fields, **members), systems)
    assert set(systems_of(decision).values()) == {"writer"}
    placements = [placement for node, placement in decision.placements.items() if node != "*"]
    assert {(placement.bound, placement.choice.kind) for placement in placements} == {
        (True, "required")
    }
    contradictory = {**fields, "title": {**TITLE, "system": "reader"}}
    with pytest.raises(Unplaceable, match=r"ruled out, as articles\.title requires the"):
        decide(schema(contradictory, **members), systems)
    with pytest.raises(Unplaceable) as refused:
        decide(schema(fields, **members, system="reader"), systems)
    assert pointers(refused) == [
        "/classes/articles/system",
        "/classes/articles/fields/note/system",
    ]


def test_a_database_bound_to_one_system_is_on_that_of_its_field() -> None:
    document = schema_document(schema({**FIELDS, "note": {"system": "writer"}}))
    document["annotations"] = [{"require": "joins"}]
    systems = [
        replace(candidate, capabilities=candidate.capabilities | {Capability.JOINS})
        for candidate in TWO
    ]
    placements = decide(parse_schema("news", document), systems).placements
    assert {placement.system for placement in placements.values()} == {"writer"}
    with pytest.raises(Unplaceable) as refused:
        decide(parse_schema("news", {**document, "system": "reader"}), systems)
    assert pointers(refused) == ["/system", "/classes/articles/fields/note/system"]


def test_contradictory_requirements_of_a_cache_group_are_refused_with_both_locations() -> None:
    fields = {
        "title": {**TITLE, "group": "hot", "system": "reader"},
        "hits": {**HITS, "group": "hot", "system": "writer"},
    }
    with pytest.raises(Unplaceable) as refused:
        decide(schema(fields), TWO)
    assert refused.value.detail == (
        "No system can serve articles#hot requires one system for all of it (reader is ruled out,"
        " as articles.hits requires the system writer; writer is ruled out, as articles.title"
        " requires the system reader)."
    )
    assert pointers(refused) == [
        "/classes/articles/fields/title/system",
        "/classes/articles/fields/hits/system",
    ]


@pytest.mark.parametrize(
    ("node", "pointer"),
    [
        ("database", "/system"),
        ("class", "/classes/articles/system"),
        ("field", "/classes/articles/fields/hits/system"),
    ],
)
def test_a_required_system_that_lacks_a_capability_is_refused(node: str, pointer: str) -> None:
    hits = {"annotations": [WRITE, SORTING]}
    plan = {
        "database": schema({"hits": hits}, database="writer"),
        "class": schema({"hits": hits}, system="writer"),
        "field": schema({"hits": {**hits, "system": "writer"}}),
    }[node]
    with pytest.raises(Unplaceable) as refused:
        decide(plan, TWO)
    [location] = refused.value.locations
    assert location.pointer == pointer
    assert location.detail == "writer lacks sorting, required by articles.hits"
    assert "requires the system writer" in refused.value.detail


def test_a_required_system_that_is_suspended_or_gone_is_refused_with_the_reason() -> None:
    plan = schema(FIELDS, system="writer")
    for systems, reason in (
        (
            (READER, replace(WRITER, suspended="it does not answer")),
            "suspended: it does not answer",
        ),
        ((READER,), "does not exist"),
    ):
        with pytest.raises(Unplaceable) as refused:
            decide(plan, systems)
        [location] = refused.value.locations
        assert (location.pointer, location.detail) == (
            "/classes/articles/system",
            f"writer {reason}",
        )


def test_an_unknown_system_is_refused_with_its_location_and_a_near_name() -> None:
    plan = schema({"title": {**TITLE, "system": "raeder"}}, system="nowhere", database="writer")
    assert [(location.pointer, location.detail) for location in named_mistakes(plan, TWO)] == [
        ("/classes/articles/system", "there is no system nowhere; known: reader, writer"),
        (
            "/classes/articles/fields/title/system",
            'there is no system raeder; known: reader, writer; did you mean "reader"?',
        ),
    ]


def test_the_number_of_reported_unknown_systems_is_bounded() -> None:
    plan = schema({f"f{i}": {"system": f"s{i}"} for i in range(2 * MAX_ERRORS)})
    assert len(named_mistakes(plan, TWO)) == MAX_ERRORS


def test_a_requirement_is_explained_with_its_cost() -> None:
    plan = schema({**FIELDS, "hits": {**HITS, "system": "reader"}})
    decision = decide(plan, TWO)
    explanation = explain(decision, "articles.hits")
    assert explanation["why"] == (
        "articles.hits requires the system reader, though writer would score 10 against 2: writer"
        " writes 5 times as fast as reader (2 ms, 10 ms), and write latency is 100 % of the score."
    )
    assert (explanation["kind"], explanation["by"]) == ("required", "articles.hits")
    required = {"system": "reader", "node": "articles.hits", "override": None}
    assert explanation["required_system"] == required
    assert explanation["scores"] == {"reader": pytest.approx(2), "writer": pytest.approx(10)}
    assert (explanation["margin"], explanation["thresholds"]) == (None, [])
    assert explain(decision, "articles.title")["required_system"] is None
    assert summarise(decision)["nodes"]["articles.hits"]["kind"] == "required"
    assert notes_on(plan, decision) == [explanation["why"]]


def test_a_requirement_that_costs_nothing_is_explained_without_a_note() -> None:
    plan = schema({**FIELDS, "hits": {**HITS, "system": "writer"}})
    decision = decide(plan, TWO)
    assert decision.why("articles.hits") == "articles.hits requires the system writer."
    assert not notes_on(plan, decision)


def test_the_cost_for_a_field_names_the_node_that_requires_it() -> None:
    plan = schema(FIELDS, system="writer")
    decision = decide(plan, TWO)
    assert decision.why("articles.title").startswith(
        "articles requires the system writer, though reader would score 20 against 2"
        " for articles.title: reader reads"
    )
    assert decision.why("articles.note") == "articles requires the system writer."
    [note] = notes_on(plan, decision)
    assert note.startswith(
        "articles requires the system writer, though reader would score 11 against 6: reader reads"
    )


def test_a_required_system_without_a_score_has_no_known_cost() -> None:
    fields = {"title": {**TITLE, "system": "reader"}, "hits": {**HITS, "system": "reader"}}
    decision = decide(
        schema(fields, system="lite"), (*TWO, replace(READER, name="lite", metrics={}))
    )
    assert set(systems_of(decision).values()) == {"reader"}
    assert decision.placements["articles"].system == "lite"
    assert decision.why("articles") == "articles requires the system lite."


def test_a_requirement_moves_data_and_says_why() -> None:
    before, after = schema(FIELDS), schema({**FIELDS, "hits": {**HITS, "system": "reader"}})
    route = build_routes(before, decide(before, TWO).groups, {"articles": 1})
    decision = decide(after, TWO, pins_of(route, ["articles"]))
    [move] = decision.moves
    assert (move.node, move.current, move.proposed, move.required) == (
        "articles.hits",
        "writer",
        "reader",
        True,
    )
    assert move.reason == "articles.hits requires the system reader"
    # Whatever the scores: the current system is not compared.
    proposals, _ = propose(NOTHING_PROPOSED, [move], now=0, margin=0.2, dwell_s=0)
    assert [proposal.proposed for proposal in proposals.recorded] == ["reader"]
    placement = decision.placements["articles.hits"]
    assert (placement.system, placement.choice.kind) == ("writer", "pinned")
    assert decision.why("articles.hits").startswith(
        "writer holds its data, which only a migration moves; articles.hits requires the system"
        " reader, though writer would score 10 against 2"
    )


def override_to(system: str) -> Override:
    return Override(system, "the disk is full", datetime(2026, 12, 24, 12, tzinfo=UTC))


def test_an_override_precedes_the_requirements_of_the_schema() -> None:
    fields = {**FIELDS, "hits": {**HITS, "system": "writer"}, "note": {"system": "writer"}}
    for overrides, systems in (
        ({}, ("writer", "writer", "writer")),
        ({"articles": override_to("reader")}, ("reader", "reader", "reader")),
        ({"articles.hits": override_to("reader")}, ("writer", "reader", "writer")),
        (
            {"articles": override_to("reader"), "articles.hits": override_to("writer")},
            ("reader", "writer", "reader"),
        ),
        ({"others": override_to("reader")}, ("writer", "writer", "writer")),
    ):
        plan = schema(fields, system="writer")
        assert tuple(systems_of(decide(plan, TWO, overrides=overrides)).values()) == systems


def test_an_override_of_a_field_is_that_of_its_cache_group() -> None:
    fields = {name: {**field, "group": "hot", "system": "writer"} for name, field in FIELDS.items()}
    overrides = {"articles.note": override_to("reader")}
    decision = decide(schema(fields), TWO, overrides=overrides)
    assert set(systems_of(decision).values()) == {"reader"}
    overrides["articles.hits"] = override_to("writer")
    with pytest.raises(Unplaceable) as refused:
        decide(schema(fields), TWO, overrides=overrides)
    assert pointers(refused) == ["override", "override"]


def test_an_override_is_explained_with_its_reason_its_end_and_its_cost() -> None:
    overrides = {"articles.hits": override_to("reader")}
    plan = schema(FIELDS)
    decision = decide(plan, TWO, overrides=overrides)
    explanation = explain(decision, "articles.hits")
    assert explanation["why"].startswith(
        "articles.hits is overridden to reader until 2026-12-24T12:00Z (the disk is full),"
        " though writer would score 10 against 2: writer writes 5 times as fast as reader"
    )
    assert (explanation["kind"], notes_on(plan, decision)) == ("overridden", [explanation["why"]])
    assert explanation["required_system"] == {
        "system": "reader",
        "node": "articles.hits",
        "override": {"reason": "the disk is full", "until": "2026-12-24T12:00:00+00:00"},
    }


def test_an_override_is_in_force_until_it_ends() -> None:
    overrides = {"articles": override_to("reader")}
    end = overrides["articles"].until.timestamp()
    assert in_force(overrides, end - 1) == overrides
    assert not in_force(overrides, end)


def test_what_if_respects_requirements() -> None:
    plan = schema({**FIELDS, "hits": {**HITS, "system": "reader"}})
    faster = {"metrics": {"writer": {"write_latency": 1e-6}}}
    outcome = what_if(plan, TWO, faster)
    assert [move["node"] for move in outcome["moves"]] == ["*"]
    after = outcome["nodes"]["articles.hits"]["after"]
    assert (after["system"], after["kind"]) == ("reader", "required")
    assert "though writer would score" in after["why"]


def test_advice_respects_requirements() -> None:
    systems = {
        "reader": {"metrics": {"read_latency": 0.001, "write_latency": 0.01}},
        "writer": {"metrics": {"read_latency": 0.01, "write_latency": 0.002}},
    }
    fields = {name: {"type": "string", **field} for name, field in FIELDS.items()}
    fields["hits"]["system"] = "reader"
    body: dict[str, Any] = {"schema": {"classes": {"articles": {"fields": fields}}}}
    advice = advise({**body, "systems": systems})
    assert advice["placements"]["articles.hits"]["kind"] == "required"
    assert advice["best_single_system"]["system"] == "reader"
    fields["title"]["system"] = "writer"
    assert advise({**body, "systems": systems})["best_single_system"] == {
        "system": None,
        "why": "no system serves everything: writer is ruled out, as articles.hits requires the"
        " system reader; reader is ruled out, as articles.title requires the system writer",
    }
    fields["title"]["system"] = "nowhere"
    with pytest.raises(SchemaInvalid) as unknown:
        advise({**body, "systems": systems})
    assert pointers(unknown) == ["/schema/classes/articles/fields/title/system"]
    fields["title"] |= {"system": "writer", "group": "hot"}
    fields["hits"]["group"] = "hot"
    with pytest.raises(Unplaceable) as refused:
        advise({**body, "systems": systems})
    assert pointers(refused)[0] == "/schema/classes/articles/fields/title/system"
