"""URLs with expressions such as `{name}` for values of a message (RFC 6570, level 1).

Expressions are allowed in path segments and in query values. Their values are percent-encoded, so
they never become a host, a separator or another parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

import orjson

from mediator.base.errors import Invalid, Location
from mediator.flows.http_hosts import Origin, parse_origin
from mediator.query.json_node import Node

__all__ = ["MAX_URL_LENGTH", "UrlTemplate", "read_url"]

MAX_URL_LENGTH: Final = 8_000
"""In characters; RFC 9110, section 4.1, recommends that servers support at least as many."""

_NAME_EXPRESSION: Final = r"\{[^{}/?#&=%]+\}"
_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_ENCODED: Final = r"%[0-9A-Fa-f]{2}"
_SEGMENT: Final = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_ENCODED}|{_NAME_EXPRESSION})*"
_PARAMETER: Final = rf"(?:[A-Za-z0-9._~!$'()*+,;:@/?-]|{_ENCODED})+"
_VALUE: Final = rf"(?:[A-Za-z0-9._~!$'()*+,;:@/?-]|{_ENCODED}|{_NAME_EXPRESSION})*"
_URL: Final = re.compile(
    rf"(?P<origin>[a-z]+://[^/?#{{}}]+)(?P<path>(?:/{_SEGMENT})*)"
    rf"(?:\?(?P<query>{_PARAMETER}={_VALUE}(?:&{_PARAMETER}={_VALUE})*))?"
)
_DOT_SEGMENTS: Final = frozenset({".", ".."})


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """A URL whose host is fixed.

    Attributes:
        path: Empty, or with a leading slash.
        query: Without the question mark.
    """

    origin: Origin
    path: str
    query: str

    @property
    def names(self) -> frozenset[str]:
        """The names in the expressions."""
        return frozenset(_EXPRESSION.findall(f"{self.path}?{self.query}"))

    def fill(self, message: Mapping[str, Any]) -> str:
        """Return the URL for a message.

        Raises:
            Invalid: A value is not a scalar, would change the path, or is too long.
        """
        path = "/".join(_segment(segment, message) for segment in self.path.split("/"))
        query = _expand(self.query, message)
        url = f"{self.origin}{path or '/'}" + (f"?{query}" if query else "")
        if len(url) > MAX_URL_LENGTH:
            raise Invalid(f"The URL has more than {MAX_URL_LENGTH} characters.")
        return url


def read_url(node: Node, names: Iterable[str]) -> UrlTemplate | None:
    """Read a template whose expressions are names of a message; None after an error."""
    text = node.value if isinstance(node.value, str) else ""
    match = _URL.fullmatch(text) if len(text) <= MAX_URL_LENGTH and text.isprintable() else None
    origin = parse_origin(match["origin"]) if match else None
    if match is None or origin is None:
        if node.given:
            node.error("must be a URL such as https://host/path/{name}?parameter={name}")
        return None
    template = UrlTemplate(origin, match["path"], match["query"] or "")
    for name in sorted(template.names.difference(names)):
        node.unknown(f"names {name!r}, which no message has here", name, names)
    return template


def _segment(template: str, message: Mapping[str, Any]) -> str:
    if "{" not in template:
        return template
    segment = _expand(template, message)
    # Some servers decode a segment before they look at its slashes.
    parts = re.split(r"[/\\]", unquote(segment))
    if not segment or not _DOT_SEGMENTS.isdisjoint(parts):
        detail = "is empty, or has a dot segment, where a segment of a path is expected"
        raise _wrong(template, detail)
    return segment


def _expand(template: str, message: Mapping[str, Any]) -> str:
    return _EXPRESSION.sub(lambda match: _encode(match[1], message), template)


def _encode(name: str, message: Mapping[str, Any]) -> str:
    value = message.get(name)
    if isinstance(value, bool | int | float):
        return quote(orjson.dumps(value), safe="")
    if isinstance(value, str):
        return quote(value, safe="")
    raise _wrong(f"{{{name}}}", "must be a string, a number or a boolean")


def _wrong(expression: str, detail: str) -> Invalid:
    pointer = "/" + "/".join(_EXPRESSION.findall(expression))
    return Invalid(f"{pointer} {detail}.", locations=[Location(pointer, detail)])
