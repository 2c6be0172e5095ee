"""Credentials: keys, tokens and the attacks on them; limits; requests of other sites."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import ValidationError

from app.http.browser import BrowserGuard, from_same_site
from app.security.authentication import Authenticator
from app.security.tokens import Tokens
from app.settings.access import AccessSettings, is_loopback
from app.settings.main import HttpSettings, MediatorSettings, MissingSetting
from mediator.access.cache import VALID_S, AccessCache, AccessSnapshot, Tenant
from mediator.access.keys import ApiKey, mint
from mediator.access.model import Principal
from mediator.base.errors import Unauthenticated, Unavailable
from tests.unit.access.issuers import (
    AUDIENCE,
    ISSUER,
    NOW_S,
    PRINCIPAL,
    Issuer,
    SetClock,
    Source,
    token,
)


class Access:
    """An authenticator of one tenant with one key."""

    def __init__(self, tokens: Tokens | None = None, **members: Any) -> None:
        self.clock = SetClock()
        self.new = mint()
        key = ApiKey(self.new.id, self.new.digest, PRINCIPAL, NOW_S, **members)
        tenants = {"acme": Tenant("acme", ("news",))}
        self.source = Source(AccessSnapshot(1, tenants, {key.id: key}, {"news": "acme"}))
        self.cache = AccessCache(self.source, self.clock)
        self.authenticator = Authenticator(self.cache, tokens, self.clock)

    async def principal(self, field: str | None, **options: bool) -> Principal | None:
        return await self.authenticator.principal(field, **options)


async def test_a_key_authenticates_its_principal_until_it_expires_or_is_revoked() -> None:
    access = Access(expires=NOW_S + 60)
    await access.cache.refresh()
    assert await access.principal(f"Bearer {access.new.text}") == PRINCIPAL
    assert await access.principal(f"bearer  {access.new.text} ") == PRINCIPAL
    assert await access.principal(None) is None
    access.clock.wall_s += 60
    with pytest.raises(Unauthenticated):
        await access.principal(f"Bearer {access.new.text}")
    access.clock.wall_s -= 60
    access.source.snapshot_ = AccessSnapshot(2)
    await access.cache.refresh()
    with pytest.raises(Unauthenticated):
        await access.principal(f"Bearer {access.new.text}")


@pytest.mark.parametrize(
    "field",
    ["", "Bearer", "Bearer ", "Bearer x", "Basic eDp5", "Digest x", "Bearer ptl_0_0", "{key}"],
)
async def test_a_malformed_key_is_never_taken_for_anonymous(field: str) -> None:
    access = Access()
    await access.cache.refresh()
    with pytest.raises(Unauthenticated) as refused:
        await access.principal(field.replace("{key}", access.new.text))
    assert refused.value.presented


async def test_one_wrong_letter_of_a_secret_is_refused() -> None:
    access = Access()
    await access.cache.refresh()
    text = access.new.text
    for at in (-1, -20, -43):
        other = "A" if text[at] != "A" else "B"
        wrong = text[:at] + other + text[len(text) + at + 1 :]
        with pytest.raises(Unauthenticated):
            await access.principal(f"Bearer {wrong}")


async def test_a_key_may_be_the_password_of_basic_only_where_that_is_allowed() -> None:
    access = Access()
    await access.cache.refresh()
    field = "Basic " + base64.b64encode(f"me:{access.new.text}".encode()).decode()
    assert await access.principal(field, basic=True) == PRINCIPAL
    with pytest.raises(Unauthenticated):
        await access.principal(field)
    for broken in ("Basic %%%", "Basic /w==", "Basic bm8="):
        with pytest.raises(Unauthenticated):
            await access.principal(broken, basic=True)


async def test_an_outdated_snapshot_of_the_catalogue_admits_no_key() -> None:
    access = Access()
    await access.cache.refresh()
    access.source.snapshot_ = None
    access.clock.since_s += VALID_S
    with pytest.raises(Unavailable):
        await access.cache.refresh()
    assert await access.principal(f"Bearer {access.new.text}") == PRINCIPAL
    access.clock.since_s += 1
    with pytest.raises(Unavailable):
        await access.principal(f"Bearer {access.new.text}")


async def test_a_token_of_a_tenant_that_is_not_known_is_refused(issuer: Issuer) -> None:
    access = Access(issuer.tokens)
    await access.cache.refresh()
    assert (await access.principal(f"Bearer {token()}")) is not None
    with pytest.raises(Unauthenticated):
        await access.principal(f"Bearer {token(portolan_tenant='globex')}")
    operator = await access.principal(f"Bearer {token(portolan_tenant='operator', scope='admin')}")
    assert operator is not None
    assert operator.operates


@pytest.mark.parametrize(
    ("method", "headers", "is_allowed"),
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
        ("PUT", {"origin": "http://[::1", "host": "admin:8081"}, False),
        ("PUT", {"origin": "http://[x]", "host": "[x]"}, False),
    ],
)
def test_requests_of_other_sites_are_not_allowed(
    method: str, headers: dict[str, str], is_allowed: bool
) -> None:
    raw = {name.encode(): value.encode() for name, value in headers.items()}
    assert from_same_site(method, raw) is is_allowed


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
async def test_a_rebound_host_name_is_not_this_machine(host: str, status: int) -> None:
    messages: list[Any] = []

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def record(message: Any) -> None:
        messages.append(message)

    async def disconnect() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", host.encode())]}
    guard = BrowserGuard(answer, only_loopback=True)
    await guard(scope, disconnect, record)
    assert messages[0]["status"] == status


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
def test_authentication_is_required_unless_only_this_machine_can_connect(
    authentication: Any, host: str, embedded: bool, required: bool | None
) -> None:
    settings = AccessSettings(authentication=authentication)
    mediator = MediatorSettings(embedded=embedded)
    for http in (HttpSettings(host=host), HttpSettings(admin_host=host)):
        if required is None:
            with pytest.raises(MissingSetting, match="PORTOLAN_AUTHENTICATION=required"):
                settings.required(http, mediator)
        else:
            open_ = authentication is None and embedded and is_loopback(host)
            assert settings.required(http, mediator) is (required and not open_)


@pytest.mark.parametrize(
    "url",
    ["http://issuer.example/keys", "ftp://issuer.example/k", "https://me:hush@issuer.example/k"],
)
def test_keys_are_fetched_over_https_only(url: str) -> None:
    claims: dict[str, Any] = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    with pytest.raises(ValidationError):
        AccessSettings(jwt_keys=url, **claims)
    assert AccessSettings(jwt_keys="https://issuer.example/keys", **claims)
    with pytest.raises(ValidationError):
        AccessSettings(jwt_keys="https://issuer.example/keys")
