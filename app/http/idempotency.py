"""Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07): the identity of writes."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import blake2b

from app.http.problems import IDEMPOTENCY_KEY_IN_USE, INVALID, HttpError
from mediator.base.errors import Location

__all__ = ["Identity", "OperationIds", "fingerprint_of", "parse_key"]

_BARE = re.compile(r"[\x21\x23-\x7e][\x21-\x7e]{0,254}", re.ASCII)
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,255})"', re.ASCII)
_NO_CLAIM = nullcontext()
_RETRY = (("Retry-After", "1"),)


def parse_key(value: str) -> str:
    """Parse the key: a string of RFC 9651, or its characters unquoted, 255 at most."""
    text = value.strip(" \t")
    if match := _QUOTED.fullmatch(text):
        return re.sub(r"\\(.)", r"\1", match[1])
    if _BARE.fullmatch(text):
        return text
    location = Location("Idempotency-Key", "1 to 255 visible ASCII characters are expected")
    raise HttpError(INVALID, "The Idempotency-Key is malformed.", locations=[location])


def fingerprint_of(*parts: bytes) -> str:
    """Hash the parts that identify a request; different sequences of parts hash differently."""
    state = blake2b(digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.hexdigest()


class OperationIds:
    """Globally unique ids for writes without a key, and the keys in use in this process."""

    def __init__(self) -> None:
        self._prefix = os.urandom(12).hex()
        self._numbers = itertools.count(1)
        self._running: set[str] = set()

    def fresh(self) -> str:
        return f"{self._prefix}-{next(self._numbers):x}"

    def claim(self, identity: Identity) -> AbstractContextManager[None]:
        """Hold the key of a request, if any, while it runs; a second request is refused."""
        return _NO_CLAIM if identity.key is None else self._hold(identity.derive("claim"))

    @contextmanager
    def _hold(self, claim_id: str) -> Iterator[None]:
        if claim_id in self._running:
            detail = "The first request with this Idempotency-Key has not been answered yet."
            raise HttpError(IDEMPOTENCY_KEY_IN_USE, detail, headers=_RETRY)
        self._running.add(claim_id)
        try:
            yield
        finally:
            self._running.discard(claim_id)


@dataclass(eq=False, slots=True)
class Identity:
    """Identifies the writes of one request, and recognises a repeated request.

    The object is part of an operation's id: the same key used on two objects makes two operations,
    because each is recorded with its object.
    """

    _ids: OperationIds
    _database_id: str
    key: str | None
    fingerprint: str | None
    _sender: tuple[str, ...] = ()

    def operation(self, class_name: str, id_: str, index: int | None = None) -> str:
        """Return the id of a write: the one at `index` if the request carries many."""
        if self.key is None:
            return self._ids.fresh()
        name = self.derive("operation", class_name, id_)
        return name if index is None else f"{name}:{index}"

    def retry(self, *parts: str) -> tuple[str, str] | None:
        """Return the id and fingerprint that recognise a repeated request; None: it has no key."""
        if self.key is None or self.fingerprint is None:
            return None
        return self.derive(*parts), self.fingerprint

    def derive(self, *parts: str) -> str:
        """Return 32 hexadecimal digits that depend only on the parts, the key and the sender."""
        assert self.key is not None
        encoded = [part.encode() for part in (*parts, *self._sender)]
        return fingerprint_of(self._database_id.encode(), self.key.encode(), *encoded)
