"""Verification of JSON Web Tokens (RFC 7519, RFC 9068) of a trusted issuer.

`sub` names the subject, `portolan_tenant` the tenant, and `scope` the grants, as words separated by
spaces: ``read:news write:news/articles``. Other words are meant for other services.

The key determines the algorithm, not the token: a token cannot choose ``none``, or make the public
key a shared secret (RFC 8725, section 2.1).
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
    "MAX_TOKEN_LENGTH",
    "MIN_FETCH_INTERVAL_S",
    "TENANT_CLAIM",
    "KeySet",
    "TokenRules",
    "Tokens",
]

TENANT_CLAIM: Final = "portolan_tenant"
MAX_TOKEN_LENGTH: Final = 8192
_MAX_VERIFIED: Final = 4096
_REQUIRED_CLAIMS: Final = ["exp", "iss", "aud", "sub", TENANT_CLAIM]
# Includes the errors besides its own that the library raises on hostile input.
_INVALID_TOKEN: Final = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class TokenRules:
    issuer: str
    audience: str
    leeway_s: float


@dataclass(eq=False)
class Tokens:
    """Verifies tokens; caches valid ones until they expire, or the keys change."""

    keys: KeySet
    _rules: TokenRules
    _clock: Clock
    _verified: dict[bytes, tuple[Principal, float]] = field(default_factory=dict, init=False)
    _generation: int = field(default=0, init=False)

    async def principal(self, token: str) -> Principal:
        """Return the principal of a token.

        Raises:
            Unauthenticated: It is invalid; the detail states the reason in general terms.
        """
        if len(token) > MAX_TOKEN_LENGTH:
            raise _refuse("it is too long")
        if self._generation != self.keys.generation or len(self._verified) >= _MAX_VERIFIED:
            self._generation, self._verified = self.keys.generation, {}
        digest = sha256(token.encode()).digest()
        principal, expiry_s = self._verified.get(digest, (None, 0.0))
        if principal is not None and self._clock.now() < expiry_s:
            return principal
        claims = await self._claims(token)
        principal, expiry_s = _principal(claims), _expiry(claims)
        self._verified[digest] = principal, expiry_s + self._rules.leeway_s
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
                options={"require": _REQUIRED_CLAIMS},
            )
        except jwt.ExpiredSignatureError:
            raise _refuse("it has expired") from None
        except _INVALID_TOKEN:
            raise _refuse("its form, its signature or a claim is wrong") from None


def _key_id(token: str) -> str | None:
    key_id = jwt.get_unverified_header(token).get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise _refuse("its key is not known")
    return key_id


def _principal(claims: dict[str, Any]) -> Principal:
    subject, tenant, scope = claims["sub"], claims[TENANT_CLAIM], claims.get("scope", "")
    if not isinstance(subject, str) or not is_subject(subject):
        raise _refuse("its subject is invalid")
    if not isinstance(tenant, str) or not NAME.fullmatch(tenant) or not isinstance(scope, str):
        raise _refuse("its tenant or its scope is invalid")
    return Principal(subject, tenant, _grants(scope))


def _expiry(claims: dict[str, Any]) -> float:
    try:
        return float(claims["exp"])  # the library accepts whole numbers of any size
    except OverflowError:
        raise _refuse("its expiry is invalid") from None


def _grants(scope: str) -> frozenset[Grant]:
    grants = frozenset(grant for word in scope.split() if (grant := parse_grant(word)))
    if len(grants) > MAX_GRANTS:
        raise _refuse(f"it has more than {MAX_GRANTS} grants")
    return grants


def _refuse(reason: str) -> Unauthenticated:
    return Unauthenticated(f"The token is invalid: {reason}.", presented=True)


ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Only asymmetric ones: a key that verifies must not be able to sign."""

MIN_FETCH_INTERVAL_S: Final = 10.0
"""Minimum of seconds between two fetches, even for tokens with invented key ids."""

_REFRESH_INTERVAL_S: Final = 300.0
_TIMEOUT_S: Final = 5.0
_MAX_KEY_SET_BYTES: Final = 256 * 2**10
_MAX_KEYS: Final = 64
_log = logging.getLogger("portolan.access")


@dataclass(eq=False)
class KeySet:
    """Keys by id, refetched periodically, and for an unknown id.

    While the issuer does not answer, the last fetched keys stay valid.

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
        """Return a key; without an id, the only key."""
        key = self._lookup(key_id)
        if key is None:
            await self.refresh()
            key = self._lookup(key_id)
        return key

    async def refresh(self) -> None:
        """Fetch the keys, unless the last fetch was less than `MIN_FETCH_INTERVAL_S` ago."""
        async with self._lock:
            now_s = self._clock.monotonic()
            if now_s - self.fetched_s < MIN_FETCH_INTERVAL_S:
                return
            # Before the fetch, so that a failed one is also followed by a pause.
            self.fetched_s = now_s
            try:
                self.keys = _read(await self._fetch())
                self.generation += 1
            except (httpx.HTTPError, OSError, ValueError) as error:
                _log.warning("the keys of the token issuer were not read: %s", type(error).__name__)

    def periodic_tasks(self) -> list[PeriodicTask]:
        return [
            PeriodicTask("fetching the keys of the token issuer", _REFRESH_INTERVAL_S, self.refresh)
        ]

    def _lookup(self, key_id: str | None) -> PyJWK | None:
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
                if len(body) > _MAX_KEY_SET_BYTES:
                    raise ValueError("the key set is too large")
            return bytes(body)


def _read(raw: bytes) -> dict[str, PyJWK]:
    document = orjson.loads(raw)
    jwks = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(jwks, list) or len(raw) > _MAX_KEY_SET_BYTES:
        raise ValueError("the document is not a key set")
    keys: dict[str, PyJWK] = {}
    for jwk in jwks[:_MAX_KEYS]:
        key = _key(jwk)
        if key is not None:
            keys[key.key_id or ""] = key
    return keys


def _key(jwk: Any) -> PyJWK | None:
    """Parse a key; None if it is symmetric, for encryption, or of an unknown kind."""
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
        return None
    try:
        key = PyJWK(jwk)
    except (PyJWKError, InvalidKeyError, ValueError, TypeError):
        return None
    return key if key.algorithm_name in ALGORITHMS else None
