"""Purgers: of caches that know tags, and of those that only know URLs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote

import httpx

from sketch.protocol.keys import query_of_key
from sketch.purging.port import CachedKey, PurgeFailed

__all__ = [
    "CacheConnection",
    "TagApi",
    "TagPurger",
    "UrlPurger",
    "checked_secret",
    "checked_url",
    "cloudflare",
    "fastly",
    "target_of",
    "varnish",
]

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


_TAGS_PLACEHOLDER: Final = "{tags}"
_KEY_PLACEHOLDER: Final = "{secret}"


@dataclass(frozen=True, slots=True)
class TagApi:
    """The requests by which a cache forgets tags.

    Attributes:
        secret: The key or token it requires; shown nowhere.
        headers: Its header fields. ``{tags}`` in a value stands for the tags, ``{secret}`` for the
            secret.
        body: Its JSON body, if it has one. A text ``"{tags}"`` stands for the list of the tags.
        separator: What stands between tags in a header field.
        most: Tags that a request may name. Servers bound the size of header fields, commonly to
            8 KiB, or 240 tags.
    """

    name: str
    url: str
    secret: str = field(default="", repr=False)
    method: Literal["POST", "PURGE", "PUT", "DELETE"] = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    separator: str = " "
    most: int = 200
    deadline_s: float = 2.0


class TagPurger:
    """See `sketch.purging.port.Purger`.

    Raises:
        ValueError: The address or the secret cannot be used.
    """

    def __init__(self, api: TagApi, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.name = api.name
        self.most = api.most
        self._api = api
        self._url = checked_url(api.url)
        self._secret = checked_secret(api.secret)
        self._connection = CacheConnection(api.name, api.deadline_s, transport)

    async def purge(self, keys: Sequence[CachedKey]) -> None:
        """See the port."""
        tags = [key.tag for key in keys]
        status = await self._connection.send(
            self._api.method, self._url, self._headers(tags), _filled(self._api.body, tags)
        )
        if not httpx.codes.is_success(status):
            raise PurgeFailed(self.name, "refused", status)

    async def close(self) -> None:
        """See the port."""
        await self._connection.close()

    def _headers(self, tags: Sequence[str]) -> dict[str, str]:
        listed = self._api.separator.join(tags)
        return {
            name: value.replace(_TAGS_PLACEHOLDER, listed).replace(_KEY_PLACEHOLDER, self._secret)
            for name, value in self._api.headers.items()
        }


def _filled(body: Any, tags: list[str]) -> Any:
    if body == _TAGS_PLACEHOLDER:
        return tags
    if isinstance(body, dict):
        return {name: _filled(value, tags) for name, value in body.items()}
    if isinstance(body, list):
        return [_filled(value, tags) for value in body]
    return body


def varnish(name: str, url: str, token: str) -> TagApi:
    """Purge a Varnish that runs the VCL that we ship, be it by xkey or by bans."""
    headers = {"Surrogate-Key": _TAGS_PLACEHOLDER, "Authorization": f"Bearer {_KEY_PLACEHOLDER}"}
    return TagApi(name, url, token, "PURGE", headers)


def fastly(name: str, service: str, key: str, api: str = "https://api.fastly.com") -> TagApi:
    """Purge a Fastly service; a batch of its API names 256 keys at most."""
    headers = {"Fastly-Key": _KEY_PLACEHOLDER}
    body = {"surrogate_keys": _TAGS_PLACEHOLDER}
    return TagApi(name, f"{api}/service/{service}/purge", key, "POST", headers, body, most=256)


def cloudflare(
    name: str, zone: str, token: str, api: str = "https://api.cloudflare.com/client/v4"
) -> TagApi:
    """Purge a Cloudflare zone; a request names 30 tags at most.

    Cloudflare takes tags from the field ``Cache-Tag`` of answers.
    """
    url = f"{api}/zones/{zone}/purge_cache"
    headers = {"Authorization": f"Bearer {_KEY_PLACEHOLDER}"}
    body = {"tags": _TAGS_PLACEHOLDER}
    return TagApi(name, url, token, "POST", headers, body, most=30)


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
