"""YAML is parsed as JSON: by the core schema of YAML 1.2, without anything that JSON lacks."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from app.commands.yaml_text import NotJson, parse_yaml, yaml_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("[on, off, yes, y, n]", ["on", "off", "yes", "y", "n"]),
        ("[true, False, NULL, ~]", [True, False, None, None]),
        ("2026-01-02", "2026-01-02"),
        ("12:30:45", "12:30:45"),
        ("[0o17, 0x1F, 010, -7, +7]", [15, 31, 10, -7, 7]),
        ("1_000", "1_000"),
        ("[1.5, 1e3, .5, 1.]", [1.5, 1000.0, 0.5, 1.0]),
        ("['1', \"true\", '']", ["1", "true", ""]),
        ("a:\n  <<: b\nno: 1", {"a": {"<<": "b"}, "no": 1}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("# nothing", None),
        ("--- {a: 1}\n...\n", {"a": 1}),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    assert parse_yaml(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &x 1\nb: *x", "line 1, column 4: anchors and aliases are not read"),
        ("*x", "anchors and aliases"),
        ("a: !!python/object/apply:os.system [ls]", "tags are not read"),
        ("!!str 1", "tags are not read"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' is there twice"),
        ("1: a", "quote '1'"),
        ("[a]: b", "a key must be a text"),
        ("a\n---\nb", "line 2, column 1: expected a single document"),
        (".inf", "not a JSON number"),
        (".NaN", "not a JSON number"),
        ("1e999", "beyond a double"),
        (str(2**63), "64 bits"),
        ("- " * 101 + "x", "100 levels"),
        ("[" * 101 + "]" * 101, "100 levels"),
        ("a: [", "line 1"),
        ("a: \x00", "special characters"),
    ],
)
def test_yaml_that_json_lacks_is_refused(text: str, reason: str) -> None:
    with pytest.raises(NotJson, match=reason):
        parse_yaml(text.encode())


@pytest.mark.parametrize("text", ["no", "on", "1e3", "0o17", "2026-01-02", "1:30", "~", "", "<<"])
def test_strings_are_strings_to_parsers_of_both_versions(text: str) -> None:
    rendered = yaml_text([text])
    assert parse_yaml(rendered.encode()) == [text]
    assert yaml.safe_load(rendered) == [text]
