"""Readers of staleness probes, only through the configured caches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final
from urllib.parse import quote

import httpx

from app.http.preconditions import parse_tag
from mediator.base.errors import Unavailable
from mediator.staleness_probes.model import ProbeRequest
from mediator.staleness_probes.path import Reader, Versions
from mediator.staleness_probes.service import CacheReaders
from sketch.client import CoherentClient, PortolanError

__all__ = ["cache_readers"]

_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 2**20
_OK, _NOT_FOUND = 200, 404


def cache_readers(urls: Collection[str]) -> CacheReaders:
    """Return a factory of readers through these caches; it returns None for any other cache."""
    allowed_urls = {url.rstrip("/") for url in urls}

    def reader_of(request: ProbeRequest) -> AbstractAsyncContextManager[Reader] | None:
        url = request.path.rstrip("/")
        if url not in allowed_urls:
            return None
        if request.delta_s is None:
            return _plain_client(url, request.database, request.class_name)
        return _coherent_client(url, request.database, request.class_name, request.delta_s)

    return reader_of


@asynccontextmanager
async def _plain_client(url: str, database: str, class_name: str) -> AsyncIterator[Reader]:
    """Read like clients without the filter."""
    async with httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT_S) as client:

        async def read(id_: str) -> Versions | None:
            address = f"{url}/v1/{database}/{class_name}/{quote(id_, safe='')}"
            try:
                async with client.stream("GET", address) as answer:
                    await _drain(answer)
            except httpx.HTTPError as error:
                raise _unreadable(url, type(error).__name__) from error
            if answer.status_code not in (_OK, _NOT_FOUND):
                raise _unreadable(url, f"status {answer.status_code}")
            exists = answer.status_code == _OK
            return _versions(url, answer.headers.get("etag")) if exists else None

        yield read


@asynccontextmanager
async def _coherent_client(
    url: str, database: str, class_name: str, delta_s: float
) -> AsyncIterator[Reader]:
    """Read with the client that bounds staleness."""
    async with CoherentClient(url, database, delta_s=delta_s, timeout_s=_TIMEOUT_S) as client:

        async def read(id_: str) -> Versions | None:
            try:
                result = await client.get(class_name, id_, missing_ok=True)
            except PortolanError as error:
                raise _unreadable(url, type(error).__name__) from error
            return None if result.value is None else _versions(url, result.etag)

        yield read


async def _drain(answer: httpx.Response) -> None:
    """Read up to `_MAX_BYTES` of an answer, so that its connection can be reused."""
    size = 0
    async for chunk in answer.aiter_raw():
        size += len(chunk)
        if size > _MAX_BYTES:
            return


def _versions(url: str, tag: str | None) -> Versions:
    """Return the versions in a tag, which a compressing cache may have made weak."""
    parsed = parse_tag((tag or "").removeprefix("W/"))
    if parsed is None:
        raise _unreadable(url, "an answer without a tag of ours")
    return parsed.versions


def _unreadable(url: str, reason: str) -> Unavailable:
    return Unavailable(f"Nothing can be read through {url}: {reason}.", system="cache")
