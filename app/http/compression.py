"""Content codings of answers (RFC 9110, section 8.4): gzip, where it pays.

A strong tag names the bytes of one coding (section 8.8.3.3), so what is compressed has a tag of its
own, `app.http.preconditions.gzip_tag`.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from app.http.browser import is_own
from app.http.caching import varying
from app.http.message import Headers, Receive, Scope, Send
from app.http.negotiation import accepts_gzip, prefers_gzip
from app.http.preconditions import GZIP_END, gzip_tag
from mediator.base.offload import offload

__all__ = ["COMPRESSED_FROM", "Compression", "compress", "name_coding"]

COMPRESSED_FROM: Final = 1024
"""Bytes of a body from which on it is compressed; a shorter one fits into one packet anyway."""

_LARGE: Final = 2**16
"""Bytes of a body that take about a millisecond to compress."""

_LEVEL: Final = 1
"""Of zlib. Level 6 takes twice as long for JSON, to save a tenth more."""

_COMPRESSIBLE: Final = re.compile(
    rb"(?:text/(?!event-stream)|image/svg\+xml|application/(?:(?:[\w.-]+\+)?json|x-ndjson"
    rb"|openmetrics-text|vnd\.portolan\.sketch)(?![\w.+-]))"
)


async def compress(accept_encoding: str, headers: Headers, body: bytes) -> bytes:
    """Return a body in the coding that the client prefers, and name that in the header fields."""
    if not prefers_gzip(accept_encoding) or not _is_compressible(dict(headers)):
        return body
    for index, (name, value) in enumerate(headers):
        if name == b"etag":
            headers[index] = name, gzip_tag(value.decode()).encode()
    headers.append((b"content-encoding", b"gzip"))
    return await offload(len(body) > _LARGE, gzip.compress, body, _LEVEL, mtime=0)


def _is_compressible(fields: Mapping[bytes, bytes]) -> bool:
    type_ = fields.get(b"content-type", b"")
    return b"content-encoding" not in fields and _COMPRESSIBLE.match(type_) is not None


def name_coding(request: Mapping[bytes, str], headers: Headers) -> None:
    """Give a 304 the tag of the client's own copy, where that is compressed.

    Of its copies a cache updates the one with this tag (RFC 9111, section 4.3.4).
    """
    known = request.get(b"if-none-match", "")
    if GZIP_END not in known or not accepts_gzip(request.get(b"accept-encoding", "")):
        return
    for index, (name, value) in enumerate(headers):
        if name == b"etag" and (tag := gzip_tag(value.decode())) in known:
            headers[index] = name, tag.encode()


@dataclass(eq=False)
class Compression:
    """ASGI middleware that compresses what an application answers at once to a GET.

    BREACH guesses a secret by the lengths of answers that also repeat what the attacker wrote. So
    nothing is compressed that a page of another site had a browser request, and no answer to
    another method: some of these are secrets, as new keys are.
    """

    _app: Any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = dict(scope["headers"]) if scope["type"] == "http" else {}
        if not request or scope["method"] != "GET" or not is_own(request):
            await self._app(scope, receive, send)
            return
        held: list[MutableMapping[str, Any]] = []
        accepted = request.get(b"accept-encoding", b"").decode("latin-1")

        async def compressed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                held.append(message)
                return
            if held:
                start = held.pop()
                if not message.get("more_body"):
                    await _compress_message(accepted, start, message)
                await send(start)
            await send(message)

        await self._app(scope, receive, compressed)


async def _compress_message(
    accepted: str, start: MutableMapping[str, Any], message: MutableMapping[str, Any]
) -> None:
    headers: Headers = list(start["headers"])
    headers.append(varying(headers, b"Accept-Encoding"))
    body: bytes = message.get("body", b"")
    if len(body) >= COMPRESSED_FROM:
        message["body"] = await compress(accepted, headers, body)
        headers = [field for field in headers if field[0] != b"content-length"]
        headers.append((b"content-length", b"%d" % len(message["body"])))
    start["headers"] = headers
