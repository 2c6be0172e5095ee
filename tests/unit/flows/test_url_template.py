"""Values in URLs: they never become a host, a separator or another parameter."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.errors import Invalid
from mediator.flows.url_template import UrlTemplate, read_url
from mediator.query.json_node import Node

NAMES = ("name", "number")


def template(text: str) -> UrlTemplate:
    node = Node(text, "/url", [])
    url_template = read_url(node, NAMES)
    assert url_template is not None, node.errors
    assert not node.errors
    return url_template


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_values_stay_where_they_were_put(name: str, number: str) -> None:
    url_template = template("https://host.example:8443/v1/{name}/x?a={number}&b=1")
    try:
        url = url_template.fill({"name": name, "number": number})
    except Invalid:
        segments = name.replace("\\", "/").split("/")
        assert not name or {".", ".."}.intersection(segments)
        return
    # The client that sends it parses it alike.
    for parsed in (urlsplit(url), urlsplit(str(httpx.URL(url)))):
        assert (parsed.scheme, parsed.netloc) == ("https", "host.example:8443")
        assert [unquote(segment) for segment in parsed.path.split("/")] == ["", "v1", name, "x"]
        assert parse_qsl(parsed.query, keep_blank_values=True) == [("a", number), ("b", "1")]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [("a b/c?d#e&f=g", "a%20b%2Fc%3Fd%23e%26f%3Dg"), (7, "7"), (1.5, "1.5"), (True, "true")],
)
def test_scalars_are_percent_encoded(value: Any, encoded: str) -> None:
    assert template("http://h/{name}").fill({"name": value}) == f"http://h/{encoded}"


@pytest.mark.parametrize("value", ["", ".", "..", "a/../b", "..\\x", None, [], {}, "x" * 8000])
def test_a_value_that_is_no_segment_is_refused(value: Any) -> None:
    with pytest.raises(Invalid):
        template("http://h/{name}").fill({"name": value})


@pytest.mark.parametrize("text", ["http://h/{name}{number}", "http://h/.{name}"])
def test_a_segment_does_not_become_a_dot_segment_by_parts(text: str) -> None:
    with pytest.raises(Invalid):
        template(text).fill({"name": ".", "number": "."})


@pytest.mark.parametrize(
    "text",
    [
        "",
        7,
        "ftp://h/",
        "http://",
        "http://{name}/",
        "http://h{name}/",
        "http://h:{name}/",
        "http://user@h/",
        "http://h:0/",
        "http://h:65536/",
        "http://h/{name",
        "http://h/{}",
        "http://h/?{name}=1",
        "http://h/?{name}",
        "http://h/#{name}",
        "http://h/\r\nx",
        "http://h/ü",
        "http://h..x/",
        "http://h/{unknown}",
        "http://h/" + "x" * 8000,
    ],
)
def test_no_other_url_is_accepted(text: Any) -> None:
    node = Node(text, "/url", [])
    read_url(node, NAMES)
    assert [error.pointer for error in node.errors] == ["/url"]
