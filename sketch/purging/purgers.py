"""Purgers of caches with tags, and of caches with URLs only."""

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

__all__ = ["TagApi", "TagPurger", "UrlPurger", "cloudflare", "fastly", "varnish"]

_SECRET: Final = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")


def checked_url(url: str) -> httpx.URL:
    """Parse the address of a cache.

    Raises:
        ValueError: It is not an http or https URL, or it carries a password: URLs are logged.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        raise ValueError("The address of a cache is not a URL.") from None
    if parsed.userinfo:
        raise ValueError("The address of a cache carries a password: it belongs in a secret.")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("The address of a cache must be an http or https URL.")
    return parsed


def checked_secret(secret: str) -> str:
    """Return a secret that is valid in a header field; errors never show it.

    Raises:
        ValueError: It is not printable ASCII; the HTTP library's own error would print it.
    """
    if secret and not _SECRET.fullmatch(secret):
        raise ValueError("A purger's secret must be printable ASCII.")
    return secret


class _HttpPurger:
    """The connections to one cache; `PurgeSender` bounds the time of a request."""

    def __init__(
        self, name: str, max_keys: int, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        self.name = name
        self.max_keys = max_keys
        self._client = httpx.AsyncClient(trust_env=False, timeout=None, transport=transport)  # noqa: S113

    async def close(self) -> None:
        await self._client.aclose()

    async def _send(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], body: Any = None
    ) -> int:
        """Return the status of the response; raises `PurgeFailed` if there is none."""
        try:
            answer = await self._client.request(method, url, headers=dict(headers), json=body)
        except (httpx.HTTPError, OSError) as error:
            raise PurgeFailed(self.name, "unreachable") from error
        return answer.status_code


_TAGS_PLACEHOLDER: Final = "{tags}"
_KEY_PLACEHOLDER: Final = "{secret}"


@dataclass(frozen=True, slots=True)
class TagApi:
    """The requests by which a cache purges tags.

    Attributes:
        secret: The key or token it requires; never shown.
        headers: ``{tags}`` in a value is replaced by the tags, ``{secret}`` by the secret.
        body: Its JSON body, if it has one. A text ``"{tags}"`` is replaced by the list of the tags.
        separator: Between tags in a header field.
        max_tags: Tags of a request. Servers bound the size of header fields, commonly to 8 KiB, or
            240 tags.
    """

    name: str
    url: str
    secret: str = field(default="", repr=False)
    method: Literal["POST", "PURGE", "PUT", "DELETE"] = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    separator: str = " "
    max_tags: int = 200


class TagPurger(_HttpPurger):
    """Purges by tags; raises `ValueError` for an address or a secret that cannot be used."""

    def __init__(self, api: TagApi, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(api.name, api.max_tags, transport)
        self._api = api
        self._url = checked_url(api.url)
        self._secret = checked_secret(api.secret)

    async def purge(self, keys: Sequence[CachedKey]) -> None:
        tags = [key.tag for key in keys]
        status = await self._send(
            self._api.method, self._url, self._headers(tags), _fill(self._api.body, tags)
        )
        if not httpx.codes.is_success(status):
            raise PurgeFailed(self.name, "refused", status)

    def _headers(self, tags: Sequence[str]) -> dict[str, str]:
        joined = self._api.separator.join(tags)
        return {
            name: value.replace(_TAGS_PLACEHOLDER, joined).replace(_KEY_PLACEHOLDER, self._secret)
            for name, value in self._api.headers.items()
        }


def _fill(body: Any, tags: list[str]) -> Any:
    if body == _TAGS_PLACEHOLDER:
        return tags
    if isinstance(body, dict):
        return {name: _fill(value, tags) for name, value in body.items()}
    if isinstance(body, list):
        return [_fill(value, tags) for value in body]
    return body


def varnish(name: str, url: str, token: str) -> TagApi:
    """Purge a Varnish that runs the shipped VCL, by xkey or by bans."""
    headers = {"Surrogate-Key": _TAGS_PLACEHOLDER, "Authorization": f"Bearer {_KEY_PLACEHOLDER}"}
    return TagApi(name, url, token, "PURGE", headers)


def fastly(name: str, service: str, key: str, api: str = "https://api.fastly.com") -> TagApi:
    """Purge a Fastly service; a batch of its API has at most 256 keys."""
    headers = {"Fastly-Key": _KEY_PLACEHOLDER}
    body = {"surrogate_keys": _TAGS_PLACEHOLDER}
    return TagApi(name, f"{api}/service/{service}/purge", key, "POST", headers, body, max_tags=256)


def cloudflare(name: str, zone: str, token: str) -> TagApi:
    """Purge a Cloudflare zone; a request has at most 30 tags.

    Cloudflare takes tags from the field ``Cache-Tag`` of responses.
    """
    url = f"https://api.cloudflare.com/client/v4/zones/{zone}/purge_cache"
    headers = {"Authorization": f"Bearer {_KEY_PLACEHOLDER}"}
    body = {"tags": _TAGS_PLACEHOLDER}
    return TagApi(name, url, token, "POST", headers, body, max_tags=30)


_CONCURRENT_REQUESTS: Final = 20
_PURGED: Final = (httpx.codes.OK, httpx.codes.NO_CONTENT, httpx.codes.NOT_FOUND)
"""nginx answers 404 if it has no copy."""


def target_of(key: CachedKey) -> str:
    """Return the path and query of the whole object, or of the result, that shows a key."""
    class_name, _, rest = key.key.partition("/")
    query = query_of_key(key.key)
    if query is not None:
        return f"/v1/{key.database}/{class_name}{'?' if query else ''}{query}"
    identity, _, _ = rest.rpartition("#")
    return f"/v1/{key.database}/{class_name}/{quote(identity, safe='')}"


class UrlPurger(_HttpPurger):
    """Sends a request with the method PURGE for each object.

    It purges the whole object at its usual URL. Projections, other forms of the URL, and responses
    that join it with other objects stay: the filter covers them, as it covers everything.

    Raises:
        ValueError: The address or the secret cannot be used.
    """

    def __init__(
        self,
        name: str,
        url: str,
        token: str,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(name, _CONCURRENT_REQUESTS, transport)
        self._url = checked_url(url)
        self._headers = {"Authorization": f"Bearer {checked_secret(token)}"}

    async def purge(self, keys: Sequence[CachedKey]) -> None:
        targets = dict.fromkeys(map(target_of, keys))
        # All requests end before a failure is raised: none is left running.
        outcomes = await asyncio.gather(*map(self._purge, targets), return_exceptions=True)
        for failure in filter(None, outcomes):
            raise failure

    async def _purge(self, target: str) -> None:
        url = self._url.copy_with(raw_path=target.encode())
        status = await self._send("PURGE", url, self._headers)
        if status not in _PURGED:
            raise PurgeFailed(self.name, "refused", status)
