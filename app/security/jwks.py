"""The public keys of a token issuer (JWKS, RFC 7517), from a file or over HTTPS."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
from jwt import PyJWK, PyJWKError
from jwt.exceptions import InvalidKeyError

from mediator.base.clock import Clock
from mediator.base.periodic_tasks import PeriodicTask

__all__ = ["ALGORITHMS", "FLOOR_S", "KeySet"]

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Asymmetric ones only: a key that verifies must not be one that signs."""

FLOOR_S: Final = 10.0
"""Seconds between two fetches at least: tokens with made-up key ids must not cause more."""

_REFRESHED_S: Final = 300.0
_TIMEOUT_S: Final = 5.0
_LARGEST: Final = 256 * 2**10
_MOST_KEYS: Final = 64
_log = logging.getLogger("portolan.access")


class KeySet:
    """Keys by their ids, fetched anew from time to time and when an id is not known.

    While the issuer does not answer, the keys that were fetched last stay good.

    Args:
        location: A file, or an ``https`` address.
    """

    def __init__(self, location: str, clock: Clock) -> None:
        self._location = location
        self._clock = clock
        self._keys: Mapping[str, PyJWK] = {}
        self._fetched_s = float("-inf")
        self._turn = asyncio.Lock()
        self.generation = 0

    async def find(self, key_id: str | None) -> PyJWK | None:
        """Return a key; without an id, the only one there is."""
        key = self._look(key_id)
        if key is None:
            await self.refresh()
            key = self._look(key_id)
        return key

    async def refresh(self) -> None:
        """Fetch the keys, unless that was done a moment ago."""
        async with self._turn:
            now_s = self._clock.monotonic()
            if now_s - self._fetched_s < FLOOR_S:
                return
            self._fetched_s = now_s
            try:
                self._keys = _read(await self._fetch())
                self.generation += 1
            except (httpx.HTTPError, OSError, ValueError) as error:
                _log.warning("the keys of the token issuer were not read: %s", type(error).__name__)

    def periodic_tasks(self) -> list[PeriodicTask]:
        """Return the task that a scheduler is to run."""
        return [PeriodicTask("fetching the keys of the token issuer", _REFRESHED_S, self.refresh)]

    def _look(self, key_id: str | None) -> PyJWK | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id or "")

    async def _fetch(self) -> bytes:
        if not self._location.startswith(("https://", "http://")):
            return await asyncio.to_thread(Path(self._location).read_bytes)
        async with (
            httpx.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False) as client,
            client.stream("GET", self._location) as answer,
        ):
            answer.raise_for_status()
            body = bytearray()
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > _LARGEST:
                    raise ValueError("the key set is too large")
            return bytes(body)


def _read(raw: bytes) -> dict[str, PyJWK]:
    document = orjson.loads(raw)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(raw) > _LARGEST:
        raise ValueError("that is no key set")
    keys: dict[str, PyJWK] = {}
    for jwk in listed[:_MOST_KEYS]:
        key = _key(jwk)
        if key is not None:
            keys[key.key_id or ""] = key
    return keys


def _key(jwk: Any) -> PyJWK | None:
    """Read one key; None if it is of no use here: symmetric, for encryption, or not known."""
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
        return None
    try:
        key = PyJWK(jwk)
    except (PyJWKError, InvalidKeyError, ValueError, TypeError):
        return None
    return key if key.algorithm_name in ALGORITHMS else None
