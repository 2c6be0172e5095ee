"""JSON as paths: members, elements, numbers as written, empty and too deep values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_jobs.profiling.flatten import MAX_DEPTH, flatten


def test_members_and_elements_have_paths() -> None:
    document = '{"a": [{"b": 1.50}, {"b": "x", "c": true}], "d": 12345678901234567890}'
    assert list(flatten("f", document)) == [
        ("f.a[].b", "number", "1.50"),
        ("f.a[].b", "text", "x"),
        ("f.a[].c", "boolean", "true"),
        ("f.d", "number", "12345678901234567890"),
    ]


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"a": null}', '{"a": []}'])
def test_an_empty_value_has_a_path_and_no_value(text: str) -> None:
    assert [value for _, _, value in flatten("f", text)] == [None]


def test_a_too_deep_value_stays_json() -> None:
    value: Any = {"z": 1}
    for _ in range(MAX_DEPTH):
        value = [value]
    ((path, type_, text),) = flatten("f", json.dumps(value))
    assert path == "f" + "[]" * MAX_DEPTH
    assert (type_, text) == ("text", '{"z": "1"}')


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "no JSON"])
def test_invalid_json_is_a_text(text: str) -> None:
    assert list(flatten("f", text)) == [("f", "text", text)]


def test_unstorable_characters_are_replaced_in_values_and_names() -> None:
    document = r'{"a\u0000": "b\u0000c", "\ud800": ["\udc00\ud800", "\ud83d\ude00"], "n": 1}'
    cells = list(flatten("f", document))
    assert cells == [
        ("f.a\ufffd", "text", "b\ufffdc"),
        ("f.\ufffd[]", "text", "\ufffd\ufffd"),
        ("f.\ufffd[]", "text", "\U0001f600"),
        ("f.n", "number", "1"),
    ]


def test_a_too_deep_value_can_be_stored() -> None:
    document = "[" * MAX_DEPTH + r'{"\ud800": 1}' + "]" * MAX_DEPTH
    ((_, _, text),) = flatten("f", document)
    assert text == '{"\ufffd": "1"}'
