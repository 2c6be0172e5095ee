"""Token issuers and sources of keys, with clocks that tests set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from app.security.tokens import KeySet, TokenRules, Tokens
from mediator.access.cache import AccessSnapshot
from mediator.access.model import Grant, Principal, Scope
from mediator.base.errors import Unavailable

NOW_S = 1_800_000_000.0
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
ISSUER, AUDIENCE = "https://issuer.example", "portolan"
PRINCIPAL = Principal("ada", "acme", frozenset({Grant(Scope.READ, "news")}))


@dataclass
class SetClock:
    """A clock that tests set."""

    wall_s: float = NOW_S
    since_s: float = 1000.0

    def now(self) -> float:
        return self.wall_s

    def monotonic(self) -> float:
        return self.since_s


@dataclass
class Source:
    """The source of the access cache; None: it does not answer."""

    snapshot_: AccessSnapshot | None = field(default_factory=AccessSnapshot)

    async def version(self) -> int:
        return (await self.snapshot()).version

    async def snapshot(self) -> AccessSnapshot:
        if self.snapshot_ is None:
            raise Unavailable("The catalogue does not answer.", system="catalogue")
        return self.snapshot_


def jwk(key: Any, **members: str) -> dict[str, Any]:
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    document: dict[str, Any] = orjson.loads(algorithm.to_jwk(key.public_key()))
    return {**document, **members}


class Issuer:
    """A token issuer with its keys in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.clock = SetClock()
        self.publish(jwk(RSA, kid="rsa"), jwk(CURVE, kid="curve"))
        self.keys = KeySet(str(file), self.clock)
        self.tokens = Tokens(self.keys, TokenRules(ISSUER, AUDIENCE, 30.0), self.clock)

    def publish(self, *keys: Mapping[str, Any]) -> None:
        self.file.write_bytes(orjson.dumps({"keys": list(keys)}))


def claims(**members: Any) -> dict[str, Any]:
    # The library uses the machine's clock, which is before the year 2100.
    defaults = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "exp": 4_000_000_000,
        "portolan_tenant": "acme",
        "scope": "openid read:news write:news/articles",
        **members,
    }
    return {name: value for name, value in defaults.items() if value is not None}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", **members: Any) -> str:
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(claims(**members), key, algorithm, headers=headers)
