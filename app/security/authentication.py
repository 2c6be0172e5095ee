"""Authentication by an API key or a token, in the Authorization field (RFC 6750, section 2.1).

Tokens are not accepted elsewhere: URLs end up in logs, and forms in histories.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from dataclasses import dataclass
from typing import Final

from app.security.tokens import Tokens
from mediator.access.cache import AccessCache
from mediator.access.keys import split
from mediator.access.model import Principal
from mediator.base.clock import Clock
from mediator.base.errors import Unauthenticated

__all__ = ["Authenticator", "as_bearer"]

_MAX_FIELD_LENGTH: Final = 16_384
_BAD_KEY: Final = "The key is unknown, has expired or was revoked."


@dataclass(eq=False)
class Authenticator:
    """Authenticates the senders of requests.

    Attributes:
        _tokens: Verifies tokens; None: only keys are accepted.
    """

    _access_cache: AccessCache
    _tokens: Tokens | None
    _clock: Clock

    async def principal(self, field: str | None, *, basic: bool = False) -> Principal | None:
        """Return the sender of a request; None if it has no credentials.

        With `basic` a key is also accepted as the password of Basic (RFC 7617), for which browsers
        can prompt.

        Raises:
            Unauthenticated: The credentials are invalid. They never count as anonymous.
            Unavailable: The cached keys are too old to decide.
        """
        if field is None:
            return None
        scheme, _, credential = field[:_MAX_FIELD_LENGTH].partition(" ")
        if scheme.lower() == "basic" and basic:
            credential = _password(credential)
        elif scheme.lower() != "bearer":
            raise _refuse("The Authorization field must be: Bearer, a space, a key or a token.")
        return await self._authenticate(credential.strip(" "))

    async def _authenticate(self, credential: str) -> Principal:
        parts = split(credential)
        if parts is not None:
            return self._by_key(*parts)
        if self._tokens is None:
            raise _refuse(_BAD_KEY)
        principal = await self._tokens.principal(credential)
        if not principal.operates and principal.tenant not in self._access_cache.current.tenants:
            raise _refuse("The token's tenant is unknown.")
        return principal

    def _by_key(self, id_: str, secret: str) -> Principal:
        key = self._access_cache.current.keys.get(id_)
        if key is None or not key.opens(secret, self._clock.now()):
            raise _refuse(_BAD_KEY)
        return key.principal


def as_bearer(field: str) -> str:
    """Translate an Authorization field for the data port: a key in Basic becomes a bearer key.

    Raises:
        Unauthenticated: It is malformed Basic.
    """
    scheme, _, credential = field.partition(" ")
    return f"Bearer {_password(credential)}" if scheme.lower() == "basic" else field


def _password(credential: str) -> str:
    try:
        decoded = b64decode(credential, validate=True).decode()
    except (binascii.Error, ValueError):
        raise _refuse("The Authorization field is malformed.") from None
    return decoded.partition(":")[2]


def _refuse(detail: str) -> Unauthenticated:
    return Unauthenticated(detail, presented=True)
