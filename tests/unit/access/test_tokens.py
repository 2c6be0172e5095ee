"""Tokens: which are accepted, for which principal, and until when."""

from __future__ import annotations

import base64
import hmac
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.security.tokens import MAX_TOKEN_LENGTH, MIN_FETCH_INTERVAL_S
from mediator.access.model import Grant, Principal, Scope
from mediator.base.errors import Unauthenticated
from tests.unit.access.issuers import (
    CURVE,
    OTHER,
    RSA,
    Issuer,
    claims,
    jwk,
    token,
)


async def test_a_token_stands_for_its_subject_with_its_grants(issuer: Issuer) -> None:
    grants = frozenset({Grant(Scope.READ, "news"), Grant(Scope.WRITE, "news", "articles")})
    assert await issuer.tokens.principal(token()) == Principal("ada", "acme", grants)
    curve_token = token(CURVE, "ES256", "curve")
    assert (await issuer.tokens.principal(curve_token)).grants == grants


def _unsigned(header: dict[str, Any], signature: bytes = b"") -> str:
    segments = [orjson.dumps(header), orjson.dumps(claims()), signature]
    return ".".join(base64.urlsafe_b64encode(segment).rstrip(b"=").decode() for segment in segments)


def _signed_with_the_public_key() -> str:
    """The classic attack: the public key, which is known, is used as a shared secret."""
    secret = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = _unsigned({"alg": "HS256", "kid": "rsa"}).rpartition(".")[0]
    digest = hmac.digest(secret, text.encode(), "sha256")
    return f"{text}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    "forged",
    [
        _unsigned({"alg": "none", "kid": "rsa"}),
        _unsigned({"alg": "None", "kid": "rsa"}),
        _unsigned({"kid": "rsa"}),
        _signed_with_the_public_key(),
        token(OTHER),
        token(kid="nobody"),
        token(kid=None),
        token(algorithm="RS512"),
        token(CURVE, "ES256", "rsa"),
        token(exp=1_000_000_000),
        token(exp=None),
        token(exp=int("9" * 400)),
        token(exp=float("inf")),
        token(nbf=int("9" * 400)),
        token(nbf=3_999_999_999),
        token(iss="https://evil.example"),
        token(aud="others"),
        token(aud=None),
        token(sub=None),
        token(sub=""),
        token(sub="a\0b"),
        token(sub="a\r\nb"),
        token(sub="a\ud800"),
        token(sub="a" * 256),
        token(portolan_tenant=None),
        token(portolan_tenant=["acme"]),
        token(portolan_tenant="Acme Ltd."),
        token(scope=["read"]),
        token(scope=" ".join(f"read:a{n}" for n in range(300))),
        token(padding="x" * MAX_TOKEN_LENGTH),
        token()[:-4] + "AAAA",
        "a.b.c",
        "",
        "\u00e9" * 50,
        "." * 5000,
    ],
)
async def test_an_invalid_token_has_no_principal(issuer: Issuer, forged: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        await issuer.tokens.principal(forged)
    assert refused.value.presented
    assert len(refused.value.detail) < 100


async def test_unusable_keys_are_ignored(issuer: Issuer) -> None:
    secret = base64.urlsafe_b64encode(b"s" * 32).decode()
    issuer.publish(
        {"kty": "oct", "k": secret, "kid": "shared"},
        jwk(OTHER, kid="encryption", use="enc"),
        {"kty": "RSA", "kid": "broken"},
        jwk(RSA, kid="hs", alg="HS256"),
        jwk(RSA, kid="rsa"),
    )
    shared = jwt.encode(claims(), b"s" * 32, "HS256", headers={"kid": "shared"})
    for forged in (shared, token(OTHER, kid="encryption"), token(kid="hs")):
        with pytest.raises(Unauthenticated):
            await issuer.tokens.principal(forged)
    assert await issuer.tokens.principal(token())


async def test_a_withdrawn_key_invalidates_its_tokens(issuer: Issuer) -> None:
    assert await issuer.tokens.principal(token())
    issuer.publish(jwk(CURVE, kid="curve"))
    issuer.clock.since_s += MIN_FETCH_INTERVAL_S + 1
    await issuer.keys.refresh()
    with pytest.raises(Unauthenticated):
        await issuer.tokens.principal(token())


async def test_a_cached_token_is_verified_again_when_it_expires(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(_: str | None) -> None: ...

    await issuer.keys.refresh()
    assert await issuer.tokens.principal(token())
    monkeypatch.setattr(issuer.keys, "find", unknown)
    issuer.clock.wall_s = 4_000_000_029.0
    assert await issuer.tokens.principal(token())
    issuer.clock.wall_s = 4_000_000_030.0
    with pytest.raises(Unauthenticated):
        await issuer.tokens.principal(token())


async def test_unknown_key_ids_do_not_cause_fetches(issuer: Issuer) -> None:
    generation = issuer.keys.generation
    for number in range(50):
        with pytest.raises(Unauthenticated):
            await issuer.tokens.principal(token(kid=f"made-up-{number}"))
    assert issuer.keys.generation == generation + 1
    issuer.publish(jwk(OTHER, kid="new"))
    issuer.clock.since_s += MIN_FETCH_INTERVAL_S
    assert await issuer.tokens.principal(token(OTHER, kid="new"))


async def test_the_last_keys_stay_while_the_issuer_is_away(issuer: Issuer) -> None:
    assert await issuer.tokens.principal(token())
    issuer.file.write_bytes(b"<html>")
    issuer.clock.since_s += MIN_FETCH_INTERVAL_S
    await issuer.keys.refresh()
    assert await issuer.tokens.principal(token(sub="grace"))
