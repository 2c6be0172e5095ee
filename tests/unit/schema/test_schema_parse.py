"""The document of a schema: what is read, and where each mistake is located."""

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.errors import SchemaInvalid
from mediator.schema.annotations import (
    LEVELS,
    BinaryRequirement,
    Capability,
    ContinuousRequirement,
    Linear,
    Metric,
    ViolationRule,
)
from mediator.schema.differences import differences
from mediator.schema.foreign_keys import ForeignKey, foreign_keys_of
from mediator.schema.limits import CLASSES_PER_DATABASE, MAX_ERRORS
from mediator.schema.parse import RESERVED_CLASSES, parse_schema, schema_document
from mediator.schema.tree import (
    MISSING,
    CachePolicy,
    DefaultSystem,
    Field,
    MaterialisedView,
    Mode,
    OnDelete,
)
from mediator.schema.types import FieldType

REFERENCE: Final = {"type": "reference", "to": "c", "index": True}
REFERENCES: Final = {"type": "list", "items": "reference", "to": "c"}
FOREIGN: Final = {**REFERENCES, "index": True, "max_length": 100}
NEWSPAPER: dict[str, Any] = {
    "mode": "microbatched",
    "materialised_view": {"system": None, "staleness_s": 5},
    "default": {"system": "postgres"},
    "system": "postgres",
    "annotations": [{"metric": "read_availability", "goal": 0.995}],
    "classes": {
        "people": {"ttl_s": 3600},
        "articles": {
            "annotations": [{"require": "joins"}],
            "cache": {"visibility": "public", "max_ttl_s": 60},
            "require_if_match": True,
            "ttl_s": None,
            "system": "mongo",
            "fields": {
                "title": {"type": "string", "required": True, "max_length": 300},
                "author": {"type": "reference", "to": "people"},
                "price": {"type": "decimal", "default": "1.50", "group": "main"},
                "tags": {"type": "set", "items": "string", "default": ["b", "a"]},
                "hits": {
                    "type": "integer",
                    "default": 0,
                    "index": True,
                    "group": "hits",
                    "system": "redis",
                    "annotations": [
                        {"require": "sorting"},
                        {"metric": "write_throughput", "goal": 10000, "weight": 3},
                        {
                            "metric": "write_latency",
                            "utility": {"shape": "linear", "points": [[0.020, 1], [0.050, 0]]},
                            "statistic": "p99",
                            "violation": {"below": 0.5, "for_s": 60},
                        },
                    ],
                },
            },
        },
    },
}


def test_the_newspaper_is_read() -> None:
    schema = parse_schema("news", NEWSPAPER)
    assert (schema.database, schema.mode) == ("news", Mode.MICROBATCHED)
    people, articles = schema.classes["people"], schema.classes["articles"]
    assert schema.default == DefaultSystem("postgres")
    assert people.ttl_s == 3600.0
    assert (schema.system, people.system, articles.system) == ("postgres", None, "mongo")
    assert (articles.fields["title"].system, articles.fields["hits"].system) == (None, "redis")
    assert articles.cache == CachePolicy("public", 60.0)
    assert articles.require_if_match
    assert articles.fields["price"].default == Decimal("1.5")
    assert articles.fields["price"].group is None
    assert articles.fields["tags"].default == ["a", "b"]
    assert articles.fields["author"] == Field("author", FieldType.REFERENCE, to="people")
    assert articles.fields["hits"].annotations == (
        BinaryRequirement(Capability.SORTING),
        ContinuousRequirement(Metric.WRITE_THROUGHPUT, 3.0, goal=10_000.0),
        ContinuousRequirement(
            Metric.WRITE_LATENCY,
            1.0,
            utility=Linear(((0.02, 1.0), (0.05, 0.0))),
            statistic="p99",
            violation=ViolationRule(0.5, 60.0),
        ),
    )


def test_everything_has_a_default() -> None:
    schema = parse_schema("news", {"classes": {"a": {"fields": {"x": {"type": "float"}}}}})
    assert (schema.mode, schema.materialised_view) == (Mode.MIXED, MaterialisedView(None, 5.0))
    assert schema.default == DefaultSystem(None)
    assert schema.classes["a"].cache == CachePolicy("none", 600.0)
    assert schema.classes["a"].fields["x"].default is MISSING
    assert parse_schema("news", {}).classes == {}


def test_rendering_gives_the_same_schema_back() -> None:
    schema = parse_schema("news", NEWSPAPER)
    document = schema_document(schema)
    assert parse_schema("news", document) == schema
    assert schema_document(parse_schema("news", document)) == document
    assert document["classes"]["articles"]["fields"]["title"] == {
        "type": "string",
        "max_length": 300,
        "required": True,
        "index": False,
        "group": "main",
        "annotations": [],
    }


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


def test_foreign_keys_are_read_and_written() -> None:
    fields = {
        "ignored": {**REFERENCE, "on_delete": "ignore"},
        "listed": {**REFERENCES, "on_delete": "ignore"},
        "kept": {**REFERENCE, "required": True, "on_delete": "cascade"},
        "several": {**FOREIGN, "type": "set", "required": True, "on_delete": "nullify"},
    }
    schema = parse_schema("news", {"classes": {"c": {"fields": fields}}})
    keys = foreign_keys_of(schema.classes["c"])
    assert keys == (
        ForeignKey("c", "kept", "c", OnDelete.CASCADE),
        ForeignKey("c", "several", "c", OnDelete.NULLIFY, is_array=True),
    )
    document = schema_document(schema)
    written = document["classes"]["c"]["fields"]
    assert [name for name, field in written.items() if "on_delete" in field] == ["kept", "several"]
    assert parse_schema("news", document) == schema
    former = deepcopy(document)
    del former["classes"]["c"]["fields"]["kept"]["on_delete"]
    [difference] = differences(former, document)
    assert (difference.node, difference.member, difference.after) == (
        "c.kept",
        "on_delete",
        "cascade",
    )


def test_so_many_foreign_keys_refer_to_one_class() -> None:
    fields = {f"f{n}": {**REFERENCE, "on_delete": "refuse"} for n in range(66)}
    with pytest.raises(SchemaInvalid, match="64 foreign keys") as caught:
        parse_schema("news", {"classes": {"c": {"fields": fields}}})
    assert [p.pointer for p in caught.value.locations] == [
        f"/classes/c/fields/f{n}/on_delete" for n in (64, 65)
    ]
    del fields["f65"], fields["f64"]
    parse_schema("news", {"classes": {"c": {"fields": fields}}})


def test_what_expires_has_no_foreign_keys_to_it() -> None:
    fields = {"f": {**REFERENCE, "on_delete": "nullify"}}
    classes = {"c": {"ttl_s": 60, "fields": fields}}
    with pytest.raises(SchemaInvalid, match="ttl_s") as caught:
        parse_schema("news", {"classes": classes})
    assert [p.pointer for p in caught.value.locations] == ["/classes/c/fields/f/on_delete"]


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


def test_a_class_has_one_time_of_its_last_write() -> None:
    field = {"type": "timestamp", "updated": True}
    document = {"classes": {"c": {"fields": {"one": field, "two": field, "three": field}}}}
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", document)
    assert [(p.pointer, p.detail) for p in caught.value.locations] == [
        (f"/classes/c/fields/{name}/updated", "would be equal to one") for name in ("two", "three")
    ]
    del document["classes"]["c"]["fields"]["two"], document["classes"]["c"]["fields"]["three"]
    schema = parse_schema("news", document)
    assert schema_document(schema)["classes"]["c"]["fields"]["one"]["updated"] is True
    assert parse_schema("news", schema_document(schema)) == schema


@pytest.mark.parametrize("capability", Capability)
def test_a_capability_is_required_where_the_paper_allows_it(capability: Capability) -> None:
    """docs/papers/ppm.md, section 2, the table of requirements."""
    need = {"annotations": [{"require": capability.value}]}
    documents = {
        "database": need,
        "class": {"classes": {"c": need}},
        "field": {"classes": {"c": {"fields": {"f": {"type": "integer", **need}}}}},
    }
    for level, document in documents.items():
        if level in LEVELS[capability]:
            parse_schema("news", document)
        else:
            with pytest.raises(SchemaInvalid, match=" or ".join(LEVELS[capability])) as caught:
                parse_schema("news", document)
            assert caught.value.locations[0].pointer.endswith("/annotations/0/require")


@pytest.mark.parametrize("name", sorted(RESERVED_CLASSES))
def test_names_of_routes_are_reserved(name: str) -> None:
    with pytest.raises(SchemaInvalid, match="reserved"):
        parse_schema("news", {"classes": {name: {}}})


@pytest.mark.parametrize("database", ["", "News", "a-b", "1a", "a\n", "é", "portolan_scratch"])
def test_the_database_has_a_name(database: str) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema(database, {})
    assert caught.value.locations[0].pointer == "database"


@pytest.mark.parametrize("document", [None, [], "x", 1, True])
def test_a_schema_is_an_object(document: Any) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", document)
    assert [location.pointer for location in caught.value.locations] == [""]


def test_all_mistakes_are_reported_up_to_a_bound() -> None:
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
    """List the paths to every node of a document."""
    if isinstance(node, dict):
        members = list(node.items())
    else:
        members = list(enumerate(node)) if isinstance(node, list) else []
    return [path, *(inner for key, member in members for inner in paths(member, (*path, key)))]


def replaced(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Copy a document with one node replaced."""
    if not path:
        return value
    copy = node.copy()
    copy[path[0]] = replaced(node[path[0]], path[1:], value)
    return copy


@given(st.sampled_from(paths(NEWSPAPER)), hostile)
def test_a_damaged_schema_is_refused_or_rendered_faithfully(path: Any, damage: Any) -> None:
    document = replaced(NEWSPAPER, path, damage)
    try:
        schema = parse_schema("news", document)
    except SchemaInvalid as error:
        locations = error.locations
    else:
        assert parse_schema("news", schema_document(schema)) == schema
        return
    assert locations
    "".join(location.pointer + location.detail for location in locations).encode()


OWNED: dict[str, Any] = {
    "owner_field": "author",
    "fields": {"author": {"type": "string", "required": True, "index": True}},
}


def test_the_owner_field_is_read_and_written() -> None:
    schema = parse_schema("news", {"classes": {"drafts": OWNED}})
    assert schema.classes["drafts"].owner_field == "author"
    assert parse_schema("news", schema_document(schema)) == schema


@pytest.mark.parametrize(
    ("location", "given"),
    [
        ("owner_field", "nobody"),
        ("owner_field", "id"),
        ("owner_field", 1),
        ("fields/author/type", "reference"),
        ("fields/author/required", False),
        ("fields/author/index", False),
        ("fields/author/group", "apart"),
        ("cache/visibility", "public"),
        ("cache/visibility", "private"),
    ],
)
def test_an_unsuitable_owner_field_is_refused(location: str, given: Any) -> None:
    class_: dict[str, Any] = deepcopy({**OWNED, "cache": {}})
    *above, last = location.split("/")
    node = class_
    for name in above:
        node = node[name]
    node[last] = given
    if given == "reference":
        node["to"] = "drafts"
    with pytest.raises(SchemaInvalid) as refused:
        parse_schema("news", {"classes": {"drafts": class_}})
    assert f"/classes/drafts/{location}" in [found.pointer for found in refused.value.locations]
