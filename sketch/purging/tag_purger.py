"""Purging by tag: one request names many, and every answer that carries one is forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx

from sketch.purging.port import CachedKey, PurgeFailed
from sketch.purging.requests import CacheConnection, checked_secret, checked_url

__all__ = ["TagApi", "TagPurger", "cloudflare", "fastly", "varnish"]

_TAGS_PLACEHOLDER: Final = "{tags}"
_KEY_PLACEHOLDER: Final = "{secret}"


@dataclass(frozen=True, slots=True)
class TagApi:
    """How a cache is asked to forget tags.

    Attributes:
        secret: The key or token it asks for; shown nowhere.
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
