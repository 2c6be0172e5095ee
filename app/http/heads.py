"""Checks of a parsed request head (RFC 9112) that prevent request smuggling.

A head that the parser accepts but a proxy could read differently is refused (RFC 9112, section
11.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.http.problems import HEAD_TOO_LARGE, INVALID, HttpError

__all__ = ["FIELDS_LIMIT", "check_head"]

FIELDS_LIMIT: Final = 200
"""Header fields of a request: each takes far more bytes in memory than on the connection."""

_HOST_CHARACTERS: Final = (
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%!$&'()*+,;=:[]"
)
"""The characters of a host and a port (RFC 3986, section 3.2.2)."""

_VERSIONS: Final = frozenset({"1.0", "1.1"})


def check_head(
    version: str, target: bytes, fields: Sequence[tuple[bytes, bytes]], *, switches: bool
) -> None:
    """Refuse a head that must not be served; the problem's detail states the reason.

    Args:
        version: Such as ``1.1``.
        target: The request's target, undecoded.
        fields: Names, in lower case, and values of its fields.
        switches: Whether it requests another protocol; the parser then expects no body.
    """
    names = [name for name, _ in fields]
    if version not in _VERSIONS:
        # Not 505: proxies take servers that answer 5xx out of service.
        raise _refuse("Only HTTP/1.1 and HTTP/1.0 are supported.")
    if names.count(b"host") != 1:
        if version == "1.1" or b"host" in names:
            raise _refuse("A request has exactly one Host field.")  # RFC 9112, section 3.2
    elif fields[names.index(b"host")][1].translate(None, _HOST_CHARACTERS):
        raise _refuse("The Host field must be the name of a host, and its port.")
    if b"#" in target:
        raise _refuse("The target of a request has no fragment.")  # RFC 9112, section 3.2
    if b"transfer-encoding" in names:
        _check_coding(version, fields)
    if switches and _has_body(fields):
        raise _refuse("Protocols are not switched here: send a body without `Upgrade`.")
    if len(names) > FIELDS_LIMIT:
        raise HttpError(HEAD_TOO_LARGE, f"A request may have {FIELDS_LIMIT} header fields.")


def _check_coding(version: str, fields: Sequence[tuple[bytes, bytes]]) -> None:
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if version == "1.0" or codings != [b"chunked"]:  # RFC 9112, section 6.1
        raise _refuse("The only Transfer-Encoding is `chunked`, of HTTP/1.1; send one of it.")


def _has_body(fields: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in fields
    )


def _refuse(detail: str) -> HttpError:
    return HttpError(INVALID, detail)
