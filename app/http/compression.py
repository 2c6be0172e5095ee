"""Content codings of answers (RFC 9110, section 8.4): gzip, where it pays.

A strong tag names the bytes of one coding (section 8.8.3.3), so a compressed answer has a different
tag, `app.http.preconditions.gzip_tag`.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from app.http.browser import is_own
from app.http.caching import merge_vary
from app.http.message import Headers, Receive, Scope, Send
from app.http.negotiation import accepts_gzip, prefers_gzip
from app.http.preconditions import GZIP_END, gzip_tag
from mediator.base.offload import offload

__all__ = ["COMPRESSED_FROM", "Compression", "compress", "name_coding"]

COMPRESSED_FROM: Final = 1024
"""Smallest body that is compressed, in bytes; a shorter one fits into one packet anyway."""

_LARGE: Final = 2**16
"""Bytes of a body that takes about a millisecond to compress."""

_LEVEL: Final = 1
"""The level of zlib. Level 6 takes twice as long for JSON and saves a tenth more."""

_COMPRESSIBLE: Final = re.compile(
    rb"(?:text/(?!event-stream)|image/svg\+xml|application/(?:(?:[\w.-]+\+)?json|x-ndjson"
    rb"|openmetrics-text|vnd\.portolan\.sketch)(?![\w.+-]))"
)


async def compress(accept_encoding: str, headers: Headers, body: bytes) -> bytes:
    """Return a body in the client's preferred coding, and name the coding in the header fields."""
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
    """Give a 304 the tag of the client's copy if that copy is compressed.

    A cache updates the copy that has this tag (RFC 9111, section 4.3.4).
    """
    client_tags = request.get(b"if-none-match", "")
    if GZIP_END not in client_tags or not accepts_gzip(request.get(b"accept-encoding", "")):
        return
    for index, (name, value) in enumerate(headers):
        if name == b"etag" and (tag := gzip_tag(value.decode())) in client_tags:
            headers[index] = name, tag.encode()


@dataclass(eq=False)
class Compression:
    """ASGI middleware that compresses the answers to GET that come in one piece.

    BREACH guesses a secret from the lengths of answers that also repeat the attacker's text. So
    answers to cross-site requests stay uncompressed, as do those to other methods: some of these,
    like new keys, are secrets.
    """

    _app: Any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = dict(scope["headers"]) if scope["type"] == "http" else {}
        if not request or scope["method"] != "GET" or not is_own(request):
            await self._app(scope, receive, send)
            return
        starts: list[MutableMapping[str, Any]] = []
        accepted = request.get(b"accept-encoding", b"").decode("latin-1")

        async def send_compressed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                starts.append(message)
                return
            if starts:
                start = starts.pop()
                if not message.get("more_body"):
                    await _compress_message(accepted, start, message)
                await send(start)
            await send(message)

        await self._app(scope, receive, send_compressed)


async def _compress_message(
    accepted: str, start: MutableMapping[str, Any], message: MutableMapping[str, Any]
) -> None:
    headers: Headers = list(start["headers"])
    headers.append(merge_vary(headers, b"Accept-Encoding"))
    body: bytes = message.get("body", b"")
    if len(body) >= COMPRESSED_FROM:
        message["body"] = await compress(accepted, headers, body)
        headers = [field for field in headers if field[0] != b"content-length"]
        headers.append((b"content-length", b"%d" % len(message["body"])))
    start["headers"] = headers
