"""Purging by URL, for caches that know no tags."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import httpx

from sketch.protocol.queries import query_of_key
from sketch.purging.port import CachedKey, PurgeFailed
from sketch.purging.requests import CacheConnection, checked_secret, checked_url

__all__ = ["UrlPurger", "target_of"]

_AT_ONCE: Final = 20
_GONE: Final = (httpx.codes.OK, httpx.codes.NO_CONTENT, httpx.codes.NOT_FOUND)
"""nginx answers 404 where it kept nothing."""


def target_of(key: CachedKey) -> str:
    """Return the target of the whole resource that shows a key."""
    class_name, _, rest = key.key.partition("/")
    query = query_of_key(key.key)
    if query is not None:
        return f"/v1/{key.database}/{class_name}{'?' if query else ''}{query}"
    identity, _, _ = rest.rpartition("#")
    return f"/v1/{key.database}/{class_name}/{quote(identity, safe='')}"


class UrlPurger:
    """See `sketch.purging.port.Purger`: a request with the method PURGE for each object.

    It reaches the object as a whole at its usual URL. Its projections, other spellings of the URL,
    and answers that join it with others stay: the filter covers those, as it covers everything.

    Raises:
        ValueError: The address or the secret cannot be used.
    """

    def __init__(
        self,
        name: str,
        url: str,
        token: str,
        deadline_s: float = 2.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name = name
        self.most = _AT_ONCE
        self._url = checked_url(url)
        self._headers = {"Authorization": f"Bearer {checked_secret(token)}"}
        self._connection = CacheConnection(name, deadline_s, transport)

    async def purge(self, keys: Sequence[CachedKey]) -> None:
        """See the port."""
        targets = dict.fromkeys(map(target_of, keys))
        sent = await asyncio.gather(*map(self._purge, targets), return_exceptions=True)
        for failure in filter(None, sent):
            raise failure

    async def close(self) -> None:
        """See the port."""
        await self._connection.close()

    async def _purge(self, target: str) -> None:
        url = self._url.copy_with(raw_path=target.encode())
        status = await self._connection.send("PURGE", url, self._headers)
        if status not in _GONE:
            raise PurgeFailed(self.name, "refused", status)
