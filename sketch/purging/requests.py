"""How requests to caches are sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import httpx

from sketch.purging.port import PurgeFailed

__all__ = ["CacheConnection", "checked_secret", "checked_url"]

_SECRET: Final = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")


def checked_url(url: str) -> httpx.URL:
    """Read the address of a cache.

    Raises:
        ValueError: It is not an http or https URL, or it carries a password: URLs are logged.
    """
    try:
        read = httpx.URL(url)
    except httpx.InvalidURL:
        raise ValueError("The address of a cache is not a URL.") from None
    if read.userinfo:
        raise ValueError("The address of a cache carries a password: it belongs in a secret.")
    if read.scheme not in ("http", "https") or not read.host:
        raise ValueError("The address of a cache must be an http or https URL.")
    return read


def checked_secret(secret: str) -> str:
    """Return a secret that may stand in a header field; its errors never show it.

    Raises:
        ValueError: It is not printable ASCII; the HTTP library's own error would print it.
    """
    if secret and not _SECRET.fullmatch(secret):
        raise ValueError("A purger's secret must be printable ASCII.")
    return secret


class CacheConnection:
    """The connections to one cache.

    Args:
        deadline_s: For how long a step of a request may take, in seconds; the whole is bounded by
            who calls.
    """

    def __init__(
        self, purger: str, deadline_s: float, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._purger = purger
        self._client = httpx.AsyncClient(
            trust_env=False, timeout=deadline_s, transport=transport, follow_redirects=False
        )

    async def send(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], body: Any = None
    ) -> int:
        """Send a request and return the status of its answer.

        Raises:
            PurgeFailed: There was none.
        """
        try:
            answer = await self._client.request(method, url, headers=dict(headers), json=body)
        except httpx.TimeoutException as error:
            raise PurgeFailed(self._purger, "timeout") from error
        except (httpx.HTTPError, OSError) as error:
            raise PurgeFailed(self._purger, "unreachable") from error
        return answer.status_code

    async def close(self) -> None:
        """Release every connection."""
        await self._client.aclose()
