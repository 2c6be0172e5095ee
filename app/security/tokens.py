"""JSON Web Tokens (RFC 7519, RFC 9068) of an issuer that is trusted: from claims to a principal.

`sub` names the subject, `portolan_tenant` the tenant, and `scope` the grants, as words between
spaces: ``read:news write:news/articles``. Words that are no grants are meant for others.

The algorithm is the key's and not the token's: a token cannot choose ``none``, or have the public
key taken for a shared secret (RFC 8725, section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import jwt

from app.security.jwks import KeySet
from mediator.access.model import MAX_GRANTS, Grant, Principal, is_subject, parse_grant
from mediator.base.clock import Clock
from mediator.base.errors import Unauthenticated
from mediator.schema.ids import NAME

__all__ = ["LONGEST_TOKEN", "TENANT_CLAIM", "TokenRules", "Tokens"]

TENANT_CLAIM: Final = "portolan_tenant"
LONGEST_TOKEN: Final = 8192
_REMEMBERED: Final = 4096
_REQUIRED: Final = ["exp", "iss", "aud", "sub", TENANT_CLAIM]
# What the library raises on hostile input, beyond its own errors.
_UNREADABLE: Final = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say."""

    issuer: str
    audience: str
    leeway_s: float


class Tokens:
    """Verifies tokens; what was found good is remembered until it ends, or the keys change."""

    def __init__(self, keys: KeySet, rules: TokenRules, clock: Clock) -> None:
        self._keys = keys
        self._rules = rules
        self._clock = clock
        self._good: dict[bytes, tuple[Principal, float]] = {}
        self._generation = keys.generation

    async def principal(self, token: str) -> Principal:
        """Return whom a token stands for.

        Raises:
            Unauthenticated: It is not good; what is wrong is told in general terms.
        """
        if len(token) > LONGEST_TOKEN:
            raise _refuse("it is too long")
        if self._generation != self._keys.generation or len(self._good) >= _REMEMBERED:
            self._generation, self._good = self._keys.generation, {}
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
            key = await self._keys.find(_key_id(token))
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
