"""Laws of YAML as another form of JSON."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from app.commands.yaml_text import NotJson, parse_yaml, yaml_text

words = st.sampled_from(["no", "on", "y", "~", "null", "1e3", "0o17", "0x1F", ".inf", "=", "<<"])
printable = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=20)
texts = words | printable | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def documents_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=10,
    )


def json_of(value: Any) -> bytes:
    return orjson.dumps(value)


@given(documents_of(texts))
def test_rendered_yaml_is_parsed_to_the_same(document: Any) -> None:
    assert json_of(parse_yaml(yaml_text(document).encode())) == json_of(document)


@given(documents_of(printable))
def test_json_is_yaml(document: Any) -> None:
    """Except for characters that YAML requires to be escaped."""
    assert json_of(parse_yaml(json_of(document))) == json_of(document)


@given(
    st.binary(max_size=40) | st.text("-:[]{}&*!|>%@`\"'#, \n\tab01", max_size=40).map(str.encode)
)
@example(b"\xff\xfe\x00")
@example(b"[" * 5_000)
@example(b"? " * 200)
@example(b"9" * 100_000)
def test_any_text_is_json_or_refused(text: bytes) -> None:
    try:
        value = parse_yaml(text)
    except NotJson:
        return
    json_of(value)
