"""Credentials: keys, tokens and the attacks on them; limits; what browsers are kept from."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from pydantic import ValidationError

from app.http.browser import BrowserGuard, from_same_site
from app.security.authentication import Authenticator
from app.security.tokens import FLOOR_S, LONGEST_TOKEN, KeySet, TokenRules, Tokens
from app.settings.access import AccessSettings, is_loopback
from app.settings.main import HttpSettings, MediatorSettings, MissingSetting
from mediator.access.cache import VALID_S, AccessCache, AccessSnapshot, Tenant
from mediator.access.keys import ApiKey, mint
from mediator.access.model import Grant, Principal, Scope
from mediator.base.errors import Unauthenticated, Unavailable

NOW_S = 1_800_000_000.0
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
ISSUER, AUDIENCE = "https://issuer.example", "portolan"
WHO = Principal("ada", "acme", frozenset({Grant(Scope.READ, "news")}))


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
    """Where the book reads; None: it does not answer."""

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

    def __init__(self, place: Path) -> None:
        self.place = place
        self.clock = SetClock()
        self.publish(jwk(RSA, kid="rsa"), jwk(CURVE, kid="curve"))
        self.keys = KeySet(str(place), self.clock)
        self.tokens = Tokens(self.keys, TokenRules(ISSUER, AUDIENCE, 30.0), self.clock)

    def publish(self, *keys: Mapping[str, Any]) -> None:
        self.place.write_bytes(orjson.dumps({"keys": list(keys)}))


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "keys.json")


def claims(**members: Any) -> dict[str, Any]:
    # The library has the machine's clock, which is before the year 2100.
    given = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "exp": 4_000_000_000,
        "portolan_tenant": "acme",
        "scope": "openid read:news write:news/articles",
        **members,
    }
    return {name: value for name, value in given.items() if value is not None}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", **members: Any) -> str:
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(claims(**members), key, algorithm, headers=headers)


async def test_a_token_stands_for_its_subject_with_its_grants(issuer: Issuer) -> None:
    grants = frozenset({Grant(Scope.READ, "news"), Grant(Scope.WRITE, "news", "articles")})
    assert await issuer.tokens.principal(token()) == Principal("ada", "acme", grants)
    of_curve = token(CURVE, "ES256", "curve")
    assert (await issuer.tokens.principal(of_curve)).grants == grants


def _unsigned(header: dict[str, Any], signature: bytes = b"") -> str:
    parts = [orjson.dumps(header), orjson.dumps(claims()), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def _signed_with_the_public_key() -> str:
    """The classic: the public key, which everybody has, taken for a shared secret."""
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
        token(padding="x" * LONGEST_TOKEN),
        token()[:-4] + "AAAA",
        "a.b.c",
        "",
        "\u00e9" * 50,
        "." * 5000,
    ],
)
async def test_what_is_no_good_token_stands_for_nobody(issuer: Issuer, forged: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        await issuer.tokens.principal(forged)
    assert refused.value.presented
    assert len(refused.value.detail) < 100


async def test_keys_of_no_use_are_not_taken(issuer: Issuer) -> None:
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


async def test_a_key_that_is_taken_back_ends_tokens_that_were_good(issuer: Issuer) -> None:
    assert await issuer.tokens.principal(token())
    issuer.publish(jwk(CURVE, kid="curve"))
    issuer.clock.since_s += FLOOR_S + 1
    await issuer.keys.refresh()
    with pytest.raises(Unauthenticated):
        await issuer.tokens.principal(token())


async def test_a_remembered_token_is_looked_at_again_when_its_time_is_over(issuer: Issuer) -> None:
    await issuer.keys.refresh()
    assert await issuer.tokens.principal(token())
    issuer.tokens._rules = TokenRules(ISSUER, "others", 30.0)
    issuer.clock.wall_s = 4_000_000_029.0
    assert await issuer.tokens.principal(token())
    issuer.clock.wall_s = 4_000_000_030.0
    with pytest.raises(Unauthenticated):
        await issuer.tokens.principal(token())


async def test_made_up_key_ids_do_not_cause_fetches(issuer: Issuer) -> None:
    fetched = issuer.keys.generation
    for number in range(50):
        with pytest.raises(Unauthenticated):
            await issuer.tokens.principal(token(kid=f"made-up-{number}"))
    assert issuer.keys.generation == fetched + 1
    issuer.publish(jwk(OTHER, kid="new"))
    issuer.clock.since_s += FLOOR_S
    assert await issuer.tokens.principal(token(OTHER, kid="new"))


async def test_the_last_keys_stay_while_the_issuer_is_away(issuer: Issuer) -> None:
    assert await issuer.tokens.principal(token())
    issuer.place.write_bytes(b"<html>")
    issuer.clock.since_s += FLOOR_S
    await issuer.keys.refresh()
    assert await issuer.tokens.principal(token(sub="grace"))


class House:
    """An authenticator of one tenant with one key."""

    def __init__(self, tokens: Tokens | None = None, **members: Any) -> None:
        self.clock = SetClock()
        self.new = mint()
        key = ApiKey(self.new.id, self.new.digest, WHO, NOW_S, **members)
        tenants = {"acme": Tenant("acme", ("news",))}
        self.source = Source(AccessSnapshot(1, tenants, {key.id: key}, {"news": "acme"}))
        self.cache = AccessCache(self.source, self.clock)
        self.authenticator = Authenticator(self.cache, tokens, self.clock)

    async def who(self, field: str | None, **how: bool) -> Principal | None:
        return await self.authenticator.principal(field, **how)


async def test_a_key_stands_for_its_principal_until_it_ends_or_is_revoked() -> None:
    house = House(expires=NOW_S + 60)
    await house.cache.refresh()
    assert await house.who(f"Bearer {house.new.text}") == WHO
    assert await house.who(f"bearer  {house.new.text} ") == WHO
    assert await house.who(None) is None
    house.clock.wall_s += 60
    with pytest.raises(Unauthenticated):
        await house.who(f"Bearer {house.new.text}")
    house.clock.wall_s -= 60
    house.source.snapshot_ = AccessSnapshot(2)
    await house.cache.refresh()
    with pytest.raises(Unauthenticated):
        await house.who(f"Bearer {house.new.text}")


@pytest.mark.parametrize(
    "field",
    ["", "Bearer", "Bearer ", "Bearer x", "Basic eDp5", "Digest x", "Bearer ptl_0_0", "{key}"],
)
async def test_what_is_no_key_is_never_taken_for_anonymous(field: str) -> None:
    house = House()
    await house.cache.refresh()
    with pytest.raises(Unauthenticated) as refused:
        await house.who(field.replace("{key}", house.new.text))
    assert refused.value.presented


async def test_one_wrong_letter_of_a_secret_opens_nothing() -> None:
    house = House()
    await house.cache.refresh()
    text = house.new.text
    for at in (-1, -20, -43):
        other = "A" if text[at] != "A" else "B"
        wrong = text[:at] + other + text[len(text) + at + 1 :]
        with pytest.raises(Unauthenticated):
            await house.who(f"Bearer {wrong}")


async def test_a_key_may_be_the_password_of_basic_only_where_that_is_allowed() -> None:
    house = House()
    await house.cache.refresh()
    field = "Basic " + base64.b64encode(f"me:{house.new.text}".encode()).decode()
    assert await house.who(field, basic=True) == WHO
    with pytest.raises(Unauthenticated):
        await house.who(field)
    for broken in ("Basic %%%", "Basic /w==", "Basic bm8="):
        with pytest.raises(Unauthenticated):
            await house.who(broken, basic=True)


async def test_nobody_is_let_in_by_a_catalogue_that_was_not_seen_for_long() -> None:
    house = House()
    await house.cache.refresh()
    house.source.snapshot_ = None
    house.clock.since_s += VALID_S
    with pytest.raises(Unavailable):
        await house.cache.refresh()
    assert await house.who(f"Bearer {house.new.text}") == WHO
    house.clock.since_s += 1
    with pytest.raises(Unavailable):
        await house.who(f"Bearer {house.new.text}")


async def test_a_token_of_a_tenant_that_is_not_known_is_refused(issuer: Issuer) -> None:
    house = House(issuer.tokens)
    await house.cache.refresh()
    assert (await house.who(f"Bearer {token()}")) is not None
    with pytest.raises(Unauthenticated):
        await house.who(f"Bearer {token(portolan_tenant='globex')}")
    operator = await house.who(f"Bearer {token(portolan_tenant='operator', scope='admin')}")
    assert operator is not None
    assert operator.operates


@pytest.mark.parametrize(
    ("method", "headers", "let"),
    [
        ("GET", {"sec-fetch-site": "cross-site"}, True),
        ("POST", {}, True),
        ("POST", {"sec-fetch-site": "same-origin"}, True),
        ("POST", {"sec-fetch-site": "none"}, True),
        ("POST", {"sec-fetch-site": "same-site"}, False),
        ("DELETE", {"sec-fetch-site": "cross-site"}, False),
        ("POST", {"sec-fetch-site": "cross-site", "origin": "http://admin:8081"}, False),
        ("POST", {"origin": "http://admin:8081", "host": "admin:8081"}, True),
        ("PUT", {"origin": "http://evil.example", "host": "admin:8081"}, False),
        ("PUT", {"origin": "null", "host": "admin:8081"}, False),
        ("PUT", {"origin": "http://admin:8081"}, False),
    ],
)
def test_other_sites_change_nothing(method: str, headers: dict[str, str], let: bool) -> None:
    raw = {name.encode(): value.encode() for name, value in headers.items()}
    assert from_same_site(method, raw) is let


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8081", 200),
        ("localhost:8081", 200),
        ("LOCALHOST", 200),
        ("[::1]:8081", 200),
        ("evil.example:8081", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
async def test_a_name_that_was_made_to_point_here_is_not_this_machine(
    host: str, status: int
) -> None:
    sent: list[Any] = []

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def keep(message: Any) -> None:
        sent.append(message)

    async def nothing() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", host.encode())]}
    guard = BrowserGuard(answer, only_loopback=True)
    await guard(scope, nothing, keep)
    assert sent[0]["status"] == status


@pytest.mark.parametrize(
    ("authentication", "host", "embedded", "required"),
    [
        (None, "127.0.0.1", True, True),
        (None, "127.0.0.1", False, True),
        (None, "0.0.0.0", True, True),
        ("off", "127.0.0.1", False, False),
        ("off", "::1", False, False),
        ("off", "localhost", True, False),
        ("required", "127.0.0.1", True, True),
        ("required", "0.0.0.0", False, True),
        ("off", "0.0.0.0", True, None),
        ("off", "::", False, None),
        ("off", "portolan.example", False, None),
    ],
)
def test_strangers_are_kept_out_unless_only_this_machine_is_heard(
    authentication: Any, host: str, embedded: bool, required: bool | None
) -> None:
    settings = AccessSettings(authentication=authentication)
    mediator = MediatorSettings(embedded=embedded)
    for http in (HttpSettings(host=host), HttpSettings(admin_host=host)):
        if required is None:
            with pytest.raises(MissingSetting, match="PORTOLAN_AUTHENTICATION=required"):
                settings.required(http, mediator)
        else:
            wanted = required and not (authentication is None and embedded and is_loopback(host))
            assert settings.required(http, mediator) is wanted


@pytest.mark.parametrize(
    "place",
    ["http://issuer.example/keys", "ftp://issuer.example/k", "https://me:hush@issuer.example/k"],
)
def test_keys_are_fetched_only_where_nobody_can_put_in_his_own(place: str) -> None:
    told: dict[str, Any] = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    with pytest.raises(ValidationError):
        AccessSettings(jwt_keys=place, **told)
    assert AccessSettings(jwt_keys="https://issuer.example/keys", **told)
    with pytest.raises(ValidationError):
        AccessSettings(jwt_keys="https://issuer.example/keys")
