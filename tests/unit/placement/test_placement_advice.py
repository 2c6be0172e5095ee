"""Advice on documents: R1 and R2 of docs/papers/ppm.md as a client sends them; bad documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mediator.base.errors import Invalid, SchemaInvalid, Unplaceable
from mediator.placement.advice import advise
from mediator.placement.candidates import Candidate

READ = {"metric": "read_latency", "goal": 0.020, "weight": 1}
SYSTEMS: dict[str, Any] = {
    "A": {
        "capabilities": ["atomic_updates", "range_queries"],
        "metrics": {"write_latency": 0.001, "write_throughput": 25_000, "read_latency": 0.004},
    },
    "B": {
        "capabilities": ["atomic_updates"],
        "metrics": {"write_latency": 0.004, "write_throughput": 12_000, "read_latency": 0.002},
    },
    "C": {"capabilities": [], "metrics": {}},
}


def document(**class_: Any) -> dict[str, Any]:
    hits = [
        {"metric": "write_latency", "goal": 0.005, "weight": 1},
        {"metric": "write_throughput", "goal": 10_000, "weight": 3},
    ]
    fields = {
        "title": {"type": "string", "annotations": [READ]},
        "body": {"type": "string", "annotations": [READ]},
        "hits": {"type": "integer", "annotations": hits},
    }
    schema = {"mode": "mixed", "classes": {"articles": {"fields": fields, **class_}}}
    return {"schema": schema, "systems": SYSTEMS}


def test_r1a_over_a_document() -> None:
    advice = advise(document())
    systems = {node: placement["system"] for node, placement in advice["placements"].items()}
    assert systems == {
        "*": "B",
        "articles": "B",
        "articles.title": "B",
        "articles.body": "B",
        "articles.hits": "A",
    }
    assert advice["scores"]["articles.hits"] == pytest.approx({"A": 3.125, "B": 1.2125})
    assert advice["dropped"]["articles.title"] == {
        "C": "has no measured read_latency, needed by articles.title"
    }
    assert advice["groups"]["articles"]["hits"] == {"system": "A", "fields": ("hits",)}
    assert advice["best_single_system"]["system"] == "B"
    assert advice["notes"] == [
        "C has no metrics yet: it is no candidate where anything is measured."
    ]
    json.dumps(advice)


def test_r1b_over_a_document() -> None:
    advice = advise(document(annotations=[{"require": "atomic_updates"}]))
    assert advice["scores"]["articles"] == pytest.approx({"A": 4.375, "B": 7.0708}, abs=1e-4)
    placement = advice["placements"]["articles.hits"]
    assert (placement["system"], placement["bound"], placement["kind"]) == ("B", True, "bound")
    assert placement["why"] == (
        "articles stays on one system, as it requires atomic_updates: B reads twice as fast as A"
        " (2 ms, 4 ms), and read latency is 66.7 % of the score;"
        " out: C (lacks atomic_updates, required by articles)."
    )


def test_r2_over_a_document() -> None:
    with pytest.raises(Unplaceable) as refused:
        advise(document(annotations=[{"require": "joins"}]))
    (node,) = refused.value.extra["nodes"]
    assert (node["node"], node["requirement"]) == ("articles", "joins")
    assert set(node["systems"]) == {"A", "B", "C"}


def test_the_best_single_system_is_none_if_none_serves_everything() -> None:
    body = document()
    fields = body["schema"]["classes"]["articles"]["fields"]
    fields["title"]["annotations"] = [{"require": "range_queries"}]
    fields["body"]["annotations"] = [{"require": "joins"}]
    body["systems"] = {**SYSTEMS, "D": {"capabilities": ["full_text_search"], "metrics": {}}}
    fields["body"]["annotations"] = [{"require": "full_text_search"}]
    best = advise(body)["best_single_system"]
    assert best["system"] is None
    assert "A lacks full_text_search, required by articles.body" in best["why"]


def test_without_systems_the_registered_ones_are_used() -> None:
    schema, registered = document()["schema"], [Candidate("B"), Candidate("A")]
    schema["classes"]["articles"]["fields"] = {"title": {"type": "string"}}
    assert advise({"schema": schema}, registered)["placements"]["*"]["system"] == "B"
    with pytest.raises(SchemaInvalid) as refused:
        advise({"schema": {**schema, "mode": "odd"}}, registered)
    assert [location.pointer for location in refused.value.locations] == ["/schema/mode"]


def test_mixing_goals_and_utilities_on_a_field_is_noted() -> None:
    body = document()
    curve = {"shape": "linear", "points": [[0.02, 1], [0.05, 0]]}
    body["schema"]["annotations"] = [{"metric": "write_latency", "utility": curve}]
    assert advise(body)["notes"][0].startswith("articles.title mixes goals")


@pytest.mark.parametrize(
    ("path", "value", "location"),
    [
        ((), [], ""),
        ((), {}, "/schema"),
        (("systems",), None, "/systems"),
        (("systems",), {}, "/systems"),
        (("systems", "A"), [], "/systems/A"),
        (("systems", "a b"), {}, "/systems/a b"),
        (("systems", "A/../x"), {}, "/systems/A~1..~1x"),
        (("systems", "A", "url"), "redis://", "/systems/A/url"),
        (("systems", "A", "capabilities"), "scans", "/systems/A/capabilities"),
        (("systems", "A", "capabilities"), ["fly"], "/systems/A/capabilities/0"),
        (("systems", "A", "capabilities"), [["scans"]], "/systems/A/capabilities/0"),
        (("systems", "A", "metrics", "speed"), 1, "/systems/A/metrics/speed"),
        (("systems", "A", "metrics", "read_latency"), -1, "/systems/A/metrics/read_latency"),
        (("systems", "A", "metrics", "read_latency"), True, "/systems/A/metrics/read_latency"),
        (("systems", "A", "metrics", "read_latency"), 10**400, "/systems/A/metrics/read_latency"),
        (("systems", "A", "metrics", "read_latency"), float("nan"), "/systems/A/metrics/read_late"),
        (("systems", "A", "metrics", "read_availability"), 1.1, "/systems/A/metrics/read_avail"),
        (("systems", "A", "p99"), {"write_throughput": 1}, "/systems/A/p99/write_throughput"),
        (("schema",), None, "/schema"),
        (("schema", "classes", "articles", "fields"), [], "/schema/classes/articles/fields"),
        (
            ("schema", "materialised_view"),
            {"system": "nowhere"},
            "/schema/materialised_view/system",
        ),
        (("extra",), 1, "/extra"),
    ],
)
def test_mistakes_in_a_document_are_located(
    path: tuple[str, ...], value: Any, location: str
) -> None:
    body = json.loads(json.dumps(document()))
    node = body
    for name in path[:-1]:
        node = node[name]
    if path:
        node[path[-1]] = value
    with pytest.raises(Invalid) as refused:
        advise(body if path else value)
    assert any(error.pointer.startswith(location) for error in refused.value.locations)
    assert isinstance(refused.value, SchemaInvalid) == location.startswith("/schema")
