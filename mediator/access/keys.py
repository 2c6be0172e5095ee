"""API keys: ``ptl_<id>_<secret>``, of which only the id and a hash of the secret are kept.

A password needs a slow, salted hash, because people choose guessable passwords. The secret has 256
random bits: brute force fails however fast the hash is, and no two keys share a secret, so a single
SHA-256 is as safe, and costs a microsecond instead of a tenth of a second.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from mediator.access.model import Principal

__all__ = ["ApiKey", "NewKey", "mint", "split"]

_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32
_KEY: Final = re.compile(r"ptl_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key; its text is not stored."""

    id: str
    text: str
    digest: str


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A stored key: the `digest` of its secret, and its times in seconds since 1970."""

    id: str
    digest: str
    principal: Principal
    created: float
    expires: float | None = None
    label: str = ""

    def opens(self, secret: str, now_s: float) -> bool:
        """Whether a secret is this key's, and the key has not expired."""
        # Constant time: the duration must not disclose how much of a guess was right.
        matches = hmac.compare_digest(_digest(secret), self.digest)
        return matches and (self.expires is None or now_s < self.expires)


def mint() -> NewKey:
    id_ = secrets.token_hex(_ID_BYTES)
    secret = urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=").decode()
    return NewKey(id_, f"ptl_{id_}_{secret}", _digest(secret))


def split(text: str) -> tuple[str, str] | None:
    """Return the id and the secret of a key's text; None if malformed."""
    match = _KEY.fullmatch(text)
    return None if match is None else (match[1], match[2])


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
