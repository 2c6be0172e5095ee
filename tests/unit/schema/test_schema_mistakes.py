"""Mistakes in a schema document: each is refused and located."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.errors import SchemaInvalid
from mediator.schema.annotations import Capability, Metric
from mediator.schema.limits import CLASSES_PER_DATABASE, MAX_ERRORS
from mediator.schema.parse import RESERVED_CLASSES, parse_schema
from mediator.schema.render import schema_document
from mediator.schema.types import FieldType
from tests.unit.schema.documents import NEWSPAPER, REFERENCE, REFERENCES

ARTICLES = "/classes/articles"
FIELDS = f"{ARTICLES}/fields"
HITS = f"{FIELDS}/hits/annotations"


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/mod", "mixed"),
        ("/(name)", "mixed"),
        (f"{FIELDS}/title/(name)", "headline"),
        ("/mode", "Mixed"),
        ("/mode", None),
        ("/materialised_view", None),
        ("/materialised_view/system", "No Name"),
        ("/default", None),
        ("/default/system", "No Name"),
        ("/default/sytem", "postgres"),
        ("/system", "No Name"),
        ("/system", ["postgres"]),
        (f"{ARTICLES}/system", "a" * 64),
        (f"{FIELDS}/title/system", None),
        (f"{FIELDS}/title/system", {}),
        ("/materialised_view/staleness_s", 0),
        ("/materialised_view/staleness_s", float("inf")),
        ("/materialised_view/staleness_s", True),
        ("/materialised_view/staleness_s", "5"),
        ("/annotations", {}),
        ("/annotations/0/goal", 1.5),
        ("/annotations/0/goal", 0),
        ("/annotations/0/statistic", "mean"),
        ("/classes", []),
        ("/classes/Articles", {}),
        ("/classes/a\n", {}),
        ("/classes/" + "a" * 64, {}),
        ("/classes/query", {}),
        ("/classes/people", 1),
        ("/classes/people/ttl_s", 0.5),
        ("/classes/people/batching", 0.01),
        (f"{ARTICLES}/cache/visibility", "shared"),
        (f"{ARTICLES}/cache/max_ttl_s", 31_536_001),
        (f"{ARTICLES}/cache/max_ttl_s", 0),
        (f"{ARTICLES}/cache/invalidation_cost", 0),
        (f"{ARTICLES}/cache/stale_cost", 1_001),
        (f"{ARTICLES}/require_if_match", 1),
        (f"{ARTICLES}/annotations/0/require", "scans"),
        (f"{ARTICLES}/annotations/0/require", "magic"),
        (f"{FIELDS}/id", {"type": "string"}),
        (f"{FIELDS}/1a", {"type": "string"}),
        (f"{FIELDS}/title/type", "text"),
        (f"{FIELDS}/title/type", None),
        (f"{FIELDS}/title/required", "yes"),
        (f"{FIELDS}/title/max_length", 0),
        (f"{FIELDS}/title/max_length", 2**24 + 1),
        (f"{FIELDS}/title/max_length", 3.0),
        (f"{FIELDS}/title/max_length", None),
        (f"{FIELDS}/title/default", None),
        (f"{FIELDS}/title/default", "x" * 301),
        (f"{FIELDS}/title/items", "string"),
        (f"{FIELDS}/title/to", "people"),
        (f"{FIELDS}/author/to", "nobody"),
        (f"{FIELDS}/author/to", []),
        (f"{FIELDS}/tags/items", "document"),
        (f"{FIELDS}/tags/items", "set"),
        (f"{FIELDS}/tags/items", {}),
        (f"{FIELDS}/tags/index", True),
        (f"{FIELDS}/hits/max_length", 3),
        (f"{FIELDS}/hits/default", 0.0),
        (f"{FIELDS}/hits/group", "Hits"),
        (f"{FIELDS}/tags/default/1", 1),
        (HITS, [{"require": "sorting"}] * 65),
        (f"{HITS}/0", []),
        (f"{HITS}/0", {}),
        (f"{HITS}/0/require", "joins"),
        (f"{HITS}/0/weight", 1),
        (f"{HITS}/1/metric", "writes"),
        (f"{HITS}/1/weight", 0),
        (f"{HITS}/1/weight", -1),
        (f"{HITS}/1/weight", float("nan")),
        (f"{HITS}/1/weight", 10**400),
        (f"{HITS}/1/goal", -1),
        (f"{HITS}/2/statistic", "p95"),
        (f"{HITS}/2/violation/below", 0),
        (f"{HITS}/2/violation/below", 1.1),
        (f"{HITS}/2/violation/for_s", -1),
        (f"{HITS}/2/violation/then", "scale"),
        (f"{HITS}/2/utility/shape", "cubic"),
        (f"{HITS}/2/utility/steepness", 1),
        (f"{HITS}/2/utility/points", []),
        (f"{HITS}/2/utility/points", [[n, 0] for n in range(65)]),
        (f"{HITS}/2/utility/points/0", [1]),
        (f"{HITS}/2/utility/points/0/1", 1.01),
        (f"{HITS}/2/utility/points/1/0", "0"),
    ],
)
def test_a_mistake_is_located(pointer: str, value: Any) -> None:
    document = deepcopy(NEWSPAPER)
    *path, last = pointer.removeprefix("/").split("/")
    node: Any = document
    for name in path:
        node = node[int(name) if isinstance(node, list) else name]
    node[int(last) if isinstance(node, list) else last] = value
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", document)
    assert caught.value.locations[0].pointer == pointer


@pytest.mark.parametrize(
    ("field", "location"),
    [
        ({}, "/type"),
        ({"type": "list"}, "/items"),
        ({"type": "reference"}, "/to"),
        ({"type": "list", "items": "reference"}, "/to"),
        ({"type": "set", "items": "reference", "to": "nobody"}, "/to"),
        ({"type": "map", "items": "reference", "to": "c"}, "/items"),
        ({"type": "list", "items": "string", "to": "c"}, "/to"),
        ({"type": "document", "index": True}, "/index"),
        ({"type": "float", "default": True}, "/default"),
        ({"type": "map", "items": "integer", "default": {"a": "1"}}, "/default/a"),
        ({"type": "string", "updated": True}, "/updated"),
        ({"type": "timestamp", "updated": 1}, "/updated"),
        ({"type": "timestamp", "updated": True, "default": "now"}, "/default"),
        ({"type": "string", "on_delete": "ignore"}, "/on_delete"),
        ({"type": "list", "items": "string", "on_delete": "refuse"}, "/on_delete"),
        ({**REFERENCE, "on_delete": "restrict"}, "/on_delete"),
        ({**REFERENCE, "on_delete": None}, "/on_delete"),
        ({**REFERENCE, "index": False, "on_delete": "refuse"}, "/index"),
        ({**REFERENCE, "required": True, "on_delete": "nullify"}, "/on_delete"),
        ({**REFERENCES, "on_delete": "cascade"}, "/index"),
        ({**REFERENCES, "index": True, "type": "set", "on_delete": "nullify"}, "/index"),
        ({**REFERENCES, "index": True, "max_length": 101, "on_delete": "refuse"}, "/max_length"),
    ],
)
def test_members_that_a_type_needs_are_required(field: Any, location: str) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", {"classes": {"c": {"fields": {"f": field}}}})
    assert [p.pointer for p in caught.value.locations] == [f"/classes/c/fields/f{location}"]


@pytest.mark.parametrize(
    ("utility", "location"),
    [
        ({"shape": "sigmoid", "midpoint": 1}, "/steepness"),
        ({"shape": "sigmoid", "midpoint": 1, "steepness": 0}, "/steepness"),
        ({"shape": "step"}, "/points"),
        ({"points": [[0, 1]]}, "/shape"),
        ({"shape": "step", "points": [[1, 0], [1, 1]]}, "/points/1"),
    ],
)
def test_a_utility_has_what_its_shape_needs(utility: Any, location: str) -> None:
    annotation = {"metric": "read_latency", "utility": utility}
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", {"annotations": [annotation]})
    assert [p.pointer for p in caught.value.locations] == [f"/annotations/0/utility{location}"]


@pytest.mark.parametrize(
    "extra", [{}, {"goal": 1, "utility": {"shape": "step", "points": [[0, 1]]}}]
)
def test_goal_and_utility_exclude_each_other(extra: Any) -> None:
    with pytest.raises(SchemaInvalid, match="exactly one"):
        parse_schema("news", {"annotations": [{"metric": "read_latency", **extra}]})


@pytest.mark.parametrize("name", sorted(RESERVED_CLASSES))
def test_names_of_routes_are_reserved(name: str) -> None:
    with pytest.raises(SchemaInvalid, match="reserved"):
        parse_schema("news", {"classes": {name: {}}})


@pytest.mark.parametrize("database", ["", "News", "a-b", "1a", "a\n", "é", "portolan_scratch"])
def test_an_invalid_database_name_is_refused(database: str) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema(database, {})
    assert caught.value.locations[0].pointer == "database"


@pytest.mark.parametrize("document", [None, [], "x", 1, True])
def test_a_schema_is_an_object(document: Any) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", document)
    assert [location.pointer for location in caught.value.locations] == [""]


def test_the_number_of_reported_mistakes_is_bounded() -> None:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", {"mode": 1, "nope": 1, "classes": {"a": {"ttl_s": 0}}})
    assert [p.pointer for p in caught.value.locations] == ["/nope", "/mode", "/classes/a/ttl_s"]
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", {"classes": {"a": {f"x{n}": 1 for n in range(10_000)}}})
    assert len(caught.value.locations) == MAX_ERRORS
    many: dict[str, Any] = {f"a{n}": {} for n in range(CLASSES_PER_DATABASE + 1)}
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", {"classes": many})
    assert [p.pointer for p in caught.value.locations] == ["/classes"]


hostile = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=5)
    | st.sampled_from([*FieldType, *Capability, *Metric, "linear", "sigmoid", "people"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "items", "default", "classes", "fields", "require", "metric"])
            | st.text(max_size=4),
            inner,
        )
    ),
    max_leaves=10,
)


def paths(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all nodes of a document."""
    if isinstance(node, dict):
        members = list(node.items())
    else:
        members = list(enumerate(node)) if isinstance(node, list) else []
    return [path, *(inner for key, member in members for inner in paths(member, (*path, key)))]


def replace_node(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a document with one node replaced."""
    if not path:
        return value
    copy = node.copy()
    copy[path[0]] = replace_node(node[path[0]], path[1:], value)
    return copy


@given(st.sampled_from(paths(NEWSPAPER)), hostile)
def test_a_damaged_schema_is_refused_or_rendered_faithfully(path: Any, damage: Any) -> None:
    document = replace_node(NEWSPAPER, path, damage)
    try:
        schema = parse_schema("news", document)
    except SchemaInvalid as error:
        locations = error.locations
    else:
        assert parse_schema("news", schema_document(schema)) == schema
        return
    assert locations
    "".join(location.pointer + location.detail for location in locations).encode()
