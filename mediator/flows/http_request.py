"""Requests to HTTP services: templates in a plan, and requests for a message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from mediator.flows.http_hosts import Origin
from mediator.flows.message_values import MessageValues
from mediator.flows.templates import fill, names_in, read_template
from mediator.flows.url_template import UrlTemplate, read_url
from mediator.query.json_node import Node

__all__ = ["METHODS", "HttpRequest", "RequestTemplate", "post", "read_request"]

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_WITHOUT_BODY: Final = ("GET", "DELETE")
_MAX_HEADERS: Final = 16
_HEADER: Final = re.compile(
    # Fields that the client sets, and fields of the connection.
    r"(?i:(?!(?:host|idempotency-key|content-.*|accept-encoding|connection|keep-alive|te|trailer"
    r"|transfer-encoding|upgrade|expect|proxy-.*|cookie)\Z)[a-z][a-z0-9-]{0,63})"
)
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,998}[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to send.

    Attributes:
        is_safe: Whether the method is safe (RFC 9110, section 9.2.1).
    """

    method: str
    origin: Origin
    url: str
    headers: Mapping[str, str]
    body: bytes | None

    @property
    def is_safe(self) -> bool:
        return self.method == "GET"


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """A request template: values of a message are put into its URL and body.

    Attributes:
        body: A template; None: no body.
    """

    method: str
    url: UrlTemplate
    headers: Mapping[str, str]
    body: Any

    @property
    def names(self) -> frozenset[str]:
        """The names of a message that it refers to."""
        return self.url.names | names_in(self.body)

    def fill(self, message: MessageValues, key: str | None = None) -> HttpRequest:
        """Return the request for a message, with an Idempotency-Key.

        Raises:
            Invalid: The message lacks a value to put in, or the value would be too large.
        """
        headers, body = dict(self.headers), None
        if self.body is not None:
            headers["content-type"] = "application/json"
            body = orjson.dumps(fill(self.body, message).value)
        if key is not None:
            headers["idempotency-key"] = f'"{key}"'
        return HttpRequest(self.method, self.url.origin, self.url.fill(message), headers, body)


def post(url: UrlTemplate, key: str, document: Any) -> HttpRequest:
    """Return a request that sends a document to a URL without expressions."""
    headers = {"content-type": "application/json", "idempotency-key": f'"{key}"'}
    return HttpRequest("POST", url.origin, url.fill({}), headers, orjson.dumps(document))


def read_request(node: Node, names: Mapping[str, object]) -> RequestTemplate | None:
    """Read a request that refers to the names of a message; None after an error."""
    node.shape("headers", "body", required=("method", "url"))
    method = node["method"].read("", METHODS.__contains__, f"one of {', '.join(METHODS)}")
    url = read_url(node["url"], names)
    headers = {
        name.lower(): member.read("", _is_value, "printable ASCII of 1,000 characters at most")
        for name, member in node["headers"].members(_MAX_HEADERS, _HEADER)
    }
    body = None
    if node["body"].given:
        if method in _WITHOUT_BODY:
            node["body"].error(f"has no meaning for {method}")
        body = read_template(node["body"], names)
    return None if url is None else RequestTemplate(method, url, headers, body)


def _is_value(value: Any) -> bool:
    return isinstance(value, str) and _VALUE.fullmatch(value) is not None
