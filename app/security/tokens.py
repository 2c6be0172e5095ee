"""JSON Web Tokens (RFC 7519, RFC 9068) of an issuer that is trusted: from claims to a principal.

`sub` names the subject, `portolan_tenant` the tenant, and `scope` the grants, as words between
spaces: ``read:news write:news/articles``. Words that are no grants are meant for others.

The algorithm is the key's and not the token's: a token cannot choose ``none``, or have the public
key taken for a shared secret (RFC 8725, section 2.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx
import jwt
import orjson
from jwt import PyJWK, PyJWKError
from jwt.exceptions import InvalidKeyError

from mediator.access.model import MAX_GRANTS, Grant, Principal, is_subject, parse_grant
from mediator.base.clock import Clock
from mediator.base.errors import Unauthenticated
from mediator.base.periodic_tasks import PeriodicTask
from mediator.schema.ids import NAME

__all__ = [
    "ALGORITHMS",
    "FLOOR_S",
    "LONGEST_TOKEN",
    "TENANT_CLAIM",
    "KeySet",
    "TokenRules",
    "Tokens",
]

TENANT_CLAIM: Final = "portolan_tenant"
LONGEST_TOKEN: Final = 8192
_REMEMBERED: Final = 4096
_REQUIRED: Final = ["exp", "iss", "aud", "sub", TENANT_CLAIM]
# What the library raises on hostile input, beyond its own errors.
_UNREADABLE: Final = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class TokenRules:
    issuer: str
    audience: str
    leeway_s: float


@dataclass(eq=False)
class Tokens:
    """Verifies tokens; what was found good is remembered until it ends, or the keys change."""

    keys: KeySet
    _rules: TokenRules
    _clock: Clock
    _good: dict[bytes, tuple[Principal, float]] = field(default_factory=dict, init=False)
    _generation: int = field(default=0, init=False)

    async def principal(self, token: str) -> Principal:
        """Return whom a token stands for.

        Raises:
            Unauthenticated: It is not good; the detail says why in general terms.
        """
        if len(token) > LONGEST_TOKEN:
            raise _refuse("it is too long")
        if self._generation != self.keys.generation or len(self._good) >= _REMEMBERED:
            self._generation, self._good = self.keys.generation, {}
        digest = sha256(token.encode()).digest()
        principal, ends_s = self._good.get(digest, (None, 0.0))
        if principal is not None and self._clock.now() < ends_s:
            return principal
        claims = await self._claims(token)
        principal, ends_s = _principal(claims), _end(claims)
        self._good[digest] = principal, ends_s + self._rules.leeway_s
        return principal

    async def _claims(self, token: str) -> dict[str, Any]:
        try:
            key = await self.keys.find(_key_id(token))
            if key is None:
                raise _refuse("its key is not known")
            return jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm_name],
                audience=self._rules.audience,
                issuer=self._rules.issuer,
                leeway=self._rules.leeway_s,
                options={"require": _REQUIRED},
            )
        except jwt.ExpiredSignatureError:
            raise _refuse("it has expired") from None
        except _UNREADABLE:
            raise _refuse("its form, its signature or a claim is wrong") from None


def _key_id(token: str) -> str | None:
    key_id = jwt.get_unverified_header(token).get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise _refuse("its key is not known")
    return key_id


def _principal(claims: dict[str, Any]) -> Principal:
    subject, tenant, scope = claims["sub"], claims[TENANT_CLAIM], claims.get("scope", "")
    if not isinstance(subject, str) or not is_subject(subject):
        raise _refuse("its subject is none")
    if not isinstance(tenant, str) or not NAME.fullmatch(tenant) or not isinstance(scope, str):
        raise _refuse("its tenant or its scope is none")
    return Principal(subject, tenant, _grants(scope))


def _end(claims: dict[str, Any]) -> float:
    try:
        return float(claims["exp"])  # the library takes whole numbers of any size
    except OverflowError:
        raise _refuse("its end is none") from None


def _grants(scope: str) -> frozenset[Grant]:
    grants = frozenset(grant for word in scope.split() if (grant := parse_grant(word)))
    if len(grants) > MAX_GRANTS:
        raise _refuse(f"it has more than {MAX_GRANTS} grants")
    return grants


def _refuse(why: str) -> Unauthenticated:
    return Unauthenticated(f"The token is not good: {why}.", presented=True)


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


@dataclass(eq=False)
class KeySet:
    """Keys by their ids, fetched anew from time to time and when an id is not known.

    While the issuer does not answer, the keys that were fetched last stay good.

    Attributes:
        _location: A file, or an ``https`` address.
    """

    _location: str
    _clock: Clock
    keys: Mapping[str, PyJWK] = field(default_factory=dict, init=False)
    fetched_s: float = field(default=float("-inf"), init=False)
    generation: int = field(default=0, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def find(self, key_id: str | None) -> PyJWK | None:
        """Return a key; without an id, the only one there is."""
        key = self._look(key_id)
        if key is None:
            await self.refresh()
            key = self._look(key_id)
        return key

    async def refresh(self) -> None:
        """Fetch the keys, unless that was done a moment ago."""
        async with self._lock:
            now_s = self._clock.monotonic()
            if now_s - self.fetched_s < FLOOR_S:
                return
            # Before the fetch: after one that fails there is a pause as well.
            self.fetched_s = now_s
            try:
                self.keys = _read(await self._fetch())
                self.generation += 1
            except (httpx.HTTPError, OSError, ValueError) as error:
                _log.warning("the keys of the token issuer were not read: %s", type(error).__name__)

    def periodic_tasks(self) -> list[PeriodicTask]:
        return [PeriodicTask("fetching the keys of the token issuer", _REFRESHED_S, self.refresh)]

    def _look(self, key_id: str | None) -> PyJWK | None:
        if key_id is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        return self.keys.get(key_id or "")

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
