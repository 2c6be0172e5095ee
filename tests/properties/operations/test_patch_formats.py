"""The three PATCH formats: operators, Merge Patch, JSON Patch."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.errors import Conflict, Invalid
from mediator.model.operators import APPLICABLE, Operator, OperatorCall
from mediator.operations.json_patch import COPY_BUDGET, OPERATIONS_MAX, POINTER_TOKENS
from mediator.operations.patch import (
    FieldChanges,
    parse_json_patch,
    parse_merge_patch,
    parse_update,
)
from mediator.schema.parse import parse_schema
from mediator.schema.values import Codec
from tests.properties.queries.things import CODEC, THINGS, hostile

FIELDS: dict[str, Any] = {
    "title": {"type": "string", "required": True},
    "hits": {"type": "integer"},
    "price": {"type": "decimal"},
    "tags": {"type": "set", "items": "string"},
    "stock": {"type": "map", "items": "integer", "max_length": 2},
    "meta": {"type": "document"},
    "at": {"type": "timestamp"},
    "log": {"type": "list", "items": "integer"},
}
ARTICLE = parse_schema("test", {"classes": {"a": {"fields": FIELDS}}}).classes["a"]
ARTICLES = Codec(ARTICLE)
ARGUMENTS: dict[str, Any] = {
    "string": "a",
    "integer": 1,
    "float": 1.5,
    "decimal": "1.5",
    "boolean": True,
    "timestamp": "2024-01-02T03:04:05Z",
    "binary": "AAEC",
    "reference": "a",
    "document": {"a": 1},
}
names = st.sampled_from(sorted(THINGS.fields)) | st.text(max_size=4)
words = st.sampled_from([*Operator, "rename", ""])


def locations(error: pytest.ExceptionInfo[Any]) -> list[str]:
    return [location.pointer for location in error.value.locations]


def argument(name: str, operator: Operator) -> Any:
    field = THINGS.fields[name]
    if operator in {Operator.UNSET, Operator.POP, Operator.SHIFT, Operator.NOW}:
        return True
    if field.items is None:
        return ARGUMENTS[field.type]
    item = ARGUMENTS[field.items]
    if operator in {Operator.SET, Operator.PUT}:
        return {"k": item} if field.type == "map" else [item]
    return "k" if field.type == "map" else item


@pytest.mark.parametrize("operator", Operator)
def test_each_operator_is_accepted_for_its_types(operator: Operator) -> None:
    fields = [name for name, f in THINGS.fields.items() if f.type in APPLICABLE[operator]]
    body = {name: {operator.value: argument(name, operator)} for name in fields}
    values, unset, operators = parse_update(THINGS, CODEC, body)
    assert [*values, *unset, *(call.field for call in operators)] == fields


@pytest.mark.parametrize("operator", sorted({*Operator} - {Operator.SET, Operator.UNSET}))
def test_no_operator_is_accepted_for_another_type(operator: Operator) -> None:
    fields = [name for name, f in THINGS.fields.items() if f.type not in APPLICABLE[operator]]
    body = {name: {operator.value: argument(name, operator)} for name in fields}
    with pytest.raises(Invalid, match="set, unset") as caught:
        parse_update(THINGS, CODEC, body)
    assert locations(caught) == [f"/{name}/{operator}" for name in fields]


def test_an_update_has_values_unset_and_operators() -> None:
    body = {"hits": {"inc": 1}, "price": {"set": None}, "tags": {"add_to_set": "x"}}
    assert parse_update(ARTICLE, ARTICLES, body | {"at": {"unset": True}}) == FieldChanges(
        values={"price": None},
        unset=("at",),
        operators=(
            OperatorCall("hits", Operator.INC, 1),
            OperatorCall("tags", Operator.ADD_TO_SET, "x"),
        ),
    )


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ([], ""),
        (None, ""),
        ({"nope": {"inc": 1}}, "/nope"),
        ({"hits": 1}, "/hits"),
        ({"hits": {}}, "/hits"),
        ({"hits": {"inc": 1, "mul": 2}}, "/hits"),
        ({"hits": {"inc": 1.0}}, "/hits/inc"),
        ({"hits": {"inc": None}}, "/hits/inc"),
        ({"hits": {"rename": "x"}}, "/hits/rename"),
        ({"title": {"unset": True}}, "/title/unset"),
        ({"title": {"set": None}}, "/title/set"),
        ({"hits": {"unset": 1}}, "/hits/unset"),
        ({"at": {"now": False}}, "/at/now"),
        ({"tags": {"set": ["a", 1]}}, "/tags/set/1"),
        ({"stock": {"put": {}}}, "/stock/put"),
        ({"stock": {"put": {"a": "1"}}}, "/stock/put/a"),
        ({"stock": {"put": {"a": 1, "b": 2, "c": 3}}}, "/stock/put"),
        ({"stock": {"remove": ""}}, "/stock/remove"),
        ({"log": {"push": None}}, "/log/push"),
    ],
)
def test_mistakes_in_an_update_are_located(body: Any, location: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_update(ARTICLE, ARTICLES, body, "/operations/7/body")
    assert locations(caught) == ["/operations/7/body" + location]


@given(hostile | st.dictionaries(names, hostile | st.dictionaries(words, hostile, max_size=2)))
def test_hostile_patches_raise_nothing_but_invalid(body: Any) -> None:
    for parse in (parse_update, parse_merge_patch):
        try:
            patch = parse(THINGS, CODEC, body)
            if callable(patch):
                CODEC.decode_object(patch({"document": {"a": {"b": 1}}}))
        except Invalid as error:
            invalid = error
        else:
            continue
        assert invalid.locations


# RFC 7396, appendix A; the cases whose original or patch is an object.
@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_members_of_documents_are_merged(original: Any, patch: Any, result: Any) -> None:
    compute = parse_merge_patch(ARTICLE, ARTICLES, {"meta": patch})
    assert callable(compute)
    present = {"title": "t", "meta": original}
    before = deepcopy(present)
    assert compute(present) == {"title": "t", "meta": result}
    assert present == before


def test_a_merge_of_top_level_fields_needs_no_read() -> None:
    body = {"title": "x", "price": "1.50", "hits": None, "meta": None, "tags": ["b", "a"]}
    changes = parse_merge_patch(ARTICLE, ARTICLES, body)
    assert isinstance(changes, FieldChanges)
    assert ARTICLES.encode(changes.values) == {"title": "x", "price": "1.5", "tags": ["a", "b"]}
    assert changes.unset == ("hits", "meta")
    assert changes.operators == ()


def test_a_merge_changes_the_other_fields_with_the_nested_ones() -> None:
    compute = parse_merge_patch(ARTICLE, ARTICLES, {"stock": {"a": None, "b": 2}, "hits": None})
    assert callable(compute)
    present = {"title": "t", "hits": 1, "stock": {"a": 1}}
    assert compute(present) == {"title": "t", "stock": {"b": 2}}
    assert compute({"title": "t"}) == {"title": "t", "stock": {"b": 2}}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([], [""]),
        ({"nope": None, "title": None}, ["/nope", "/title"]),
        ({"hits": {"a": 1}, "stock": {"a": 1}}, ["/hits"]),
        ({"tags": {"a": 1}}, ["/tags"]),
    ],
)
def test_mistakes_in_a_merge_are_located(body: Any, expected: list[str]) -> None:
    with pytest.raises(Invalid) as caught:
        parse_merge_patch(ARTICLE, ARTICLES, body)
    assert locations(caught) == expected


def test_the_depth_of_a_merge_is_bounded() -> None:
    patch: dict[str, Any] = {}
    for _ in range(900):
        patch = {"k": patch}
    with pytest.raises(Invalid) as caught:
        parse_merge_patch(ARTICLE, ARTICLES, {"meta": patch})
    assert locations(caught) == ["/meta"]


def test_a_json_patch_modifies_neither_its_argument_nor_itself() -> None:
    compute = parse_json_patch(
        [
            {"op": "test", "path": "/hits", "value": 1.0},
            {"op": "add", "path": "/meta", "value": {"list": []}, "ignored": 1},
            {"op": "add", "path": "/meta/list/-", "value": {"x": 1}},
            {"op": "copy", "from": "/title", "path": "/meta/title"},
            {"op": "move", "from": "/hits", "path": "/meta/list/0/hits"},
            {"op": "remove", "path": "/log/0"},
            {"op": "replace", "path": "/title", "value": "b"},
        ]
    )
    present = {"title": "a", "hits": 1, "log": [1, 2]}
    result = {"title": "b", "log": [2], "meta": {"title": "a", "list": [{"x": 1, "hits": 1}]}}
    for _ in range(2):
        assert compute(present) == result
        assert present == {"title": "a", "hits": 1, "log": [1, 2]}


@pytest.mark.parametrize(
    ("operation", "location"),
    [
        (1, "/1"),
        ({}, "/1/op"),
        ({"op": "append", "path": "/a", "value": 1}, "/1/op"),
        ({"op": ["add"], "path": "/a", "value": 1}, "/1/op"),
        ({"op": "add", "path": "/a"}, "/1/value"),
        ({"op": "remove"}, "/1/path"),
        ({"op": "move", "path": "/a"}, "/1/from"),
        ({"op": "remove", "path": "a"}, "/1/path"),
        ({"op": "remove", "path": "/~2"}, "/1/path"),
        ({"op": "remove", "path": 1}, "/1/path"),
        ({"op": "remove", "path": "/a" * (POINTER_TOKENS + 1)}, "/1/path"),
        ({"op": "copy", "path": "/a", "from": []}, "/1/from"),
        ({"op": "remove", "path": "/nope"}, "/1/path"),
        ({"op": "remove", "path": ""}, "/1/path"),
        ({"op": "replace", "path": "/title/0", "value": 1}, "/1/path"),
        ({"op": "add", "path": "/log/9", "value": 1}, "/1/path"),
        ({"op": "add", "path": "/log/" + "9" * 5000, "value": 1}, "/1/path"),
        ({"op": "move", "from": "/meta", "path": "/meta/a"}, "/1/path"),
        ({"op": "copy", "from": "/log/-", "path": "/hits"}, "/1/path"),
    ],
)
def test_mistakes_in_a_json_patch_are_located(operation: Any, location: str) -> None:
    present = {"title": "t", "log": [1], "meta": {}}
    with pytest.raises(Invalid) as caught:
        parse_json_patch([{"op": "test", "path": "/title", "value": "t"}, operation])(present)
    assert locations(caught) == [location]


@pytest.mark.parametrize(("path", "value"), [("/hits", True), ("/nope", 1), ("/hits", "1")])
def test_a_failed_test_is_a_conflict(path: str, value: Any) -> None:
    with pytest.raises(Conflict) as caught:
        parse_json_patch([{"op": "test", "path": path, "value": value}], "/body")({"hits": 1})
    assert locations(caught) == ["/body/0/path"]


def test_copies_that_double_the_object_are_refused() -> None:
    doubling = {"op": "copy", "from": "", "path": "/a/-"}
    seed = {"op": "add", "path": "/a", "value": ["x" * 100]}
    with pytest.raises(Invalid) as caught:
        parse_json_patch([seed, *[{"op": "copy", "from": "/a", "path": "/a/-"}] * 900])({})
    assert caught.value.locations[0].pointer.endswith("/from")
    with pytest.raises(Invalid):
        parse_json_patch([seed, *[doubling] * 900])({})
    large = {"title": "x" * (COPY_BUDGET // 2)}
    copies = [{"op": "copy", "from": "/title", "path": f"/{n}"} for n in range(3)]
    with pytest.raises(Invalid, match="copy"):
        parse_json_patch(copies)(large)


def test_moves_that_nest_the_object_terminate() -> None:
    chain: Any = {}
    for _ in range(30):
        chain = {"k": chain}
    operations: list[Any] = []
    for n in range(300):
        operations += [
            {"op": "add", "path": f"/{n + 1}", "value": chain},
            {"op": "move", "from": f"/{n}", "path": f"/{n + 1}" + "/k" * 31},
        ]
    deep = parse_json_patch(operations)({"0": 1})
    with pytest.raises(Invalid):
        CODEC.decode_object({"document": deep})
    for last in (
        {"op": "copy", "from": "", "path": "/x"},
        {"op": "test", "path": "/300", "value": chain},
    ):
        with pytest.raises((Invalid, Conflict)):
            parse_json_patch([*operations, last])({"0": 1})


@pytest.mark.parametrize("body", [{}, "add", None, [{}] * (OPERATIONS_MAX + 1)])
def test_a_json_patch_is_a_list_of_bounded_length(body: Any) -> None:
    with pytest.raises(Invalid) as caught:
        parse_json_patch(body)
    assert locations(caught) == [""]


@pytest.mark.parametrize("value", [1, [], None, "x"])
def test_a_json_patch_must_yield_an_object(value: Any) -> None:
    with pytest.raises(Invalid):
        parse_json_patch([{"op": "replace", "path": "", "value": value}])({"a": 1})


pointers = st.lists(
    st.sampled_from(["title", "log", "meta", "0", "1", "-", "", "~0", "~2", "01"]), max_size=3
).map(lambda tokens: "".join(f"/{token}" for token in tokens))
operations = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
            "path": pointers,
        },
        optional={"from": pointers, "value": hostile},
    )
    | hostile,
    max_size=4,
)


@given(operations)
def test_hostile_json_patches_raise_nothing_but_invalid_and_conflict(body: Any) -> None:
    present = {"title": "t", "log": [1, [2]], "meta": {"0": {"-": None}}}
    try:
        result: Any = parse_json_patch(body)(present)
    except (Invalid, Conflict) as error:
        result = error.locations
    assert type(result) is dict or result
    assert present == {"title": "t", "log": [1, [2]], "meta": {"0": {"-": None}}}
