"""A proof, run by `helm test`, that caches stay coherent on a running installation.

It creates a scratch database, reads its one object so that caches store it, and writes it. Then the
filter must contain it, a client that cached it must see the write, and the cache in front must drop
it, long before its copy expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import httpx
from pydantic import SecretStr

from app.settings.access import bearer
from sketch.client import CoherentClient, PortolanError, Source
from sketch.client.resources import ObjectResource
from sketch.protocol.wire import FilterDocument, WireError, decode

__all__ = ["Incoherent", "Proof"]

TTL_S: Final = 600
"""TTL of cached answers: longer than the proof takes, so that nothing expires meanwhile."""
DELTA_S: Final = 60.0
"""Δ of the client: too long to be the reason why it sees the write; a new filter is."""
TIMEOUT_S: Final = 10.0
PAUSE_S: Final = 0.1
AGREEING_ANSWERS: Final = 20
"""Consecutive answers, each on its own connection, that must agree: there may be replicas."""
CLASS: Final = "proofs"
FIRST: Final = {"text": "first"}
SECOND: Final = {"text": "second"}
SCHEMA: Final = {
    "classes": {
        CLASS: {
            "cache": {"visibility": "public", "max_ttl_s": TTL_S},
            "fields": {"text": {"type": "string"}},
        }
    }
}
NOT_MODIFIED: Final = 304


class Incoherent(Exception):
    """A step failed; the message names it, and what was seen instead."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Proves coherence, step by step.

    Attributes:
        url: The data API, or the cache in front of it.
        admin: The admin API.
        cached: Whether there is a cache in front that Portolan purges.
        notify: Called with each step that succeeded.
        key: The key that may create a database and write to it; None: everybody may. Reads are sent
            without it, like the public reads that share a cache.
    """

    url: str
    admin: str
    cached: bool
    notify: Callable[[str], None]
    within_s: float = 60.0
    key: SecretStr | None = None

    async def run(self) -> None:
        """Prove it, or raise `Incoherent`; the scratch database is removed in any case."""
        try:
            async with self._database() as database, AsyncExitStack() as stack:
                plain = await stack.enter_async_context(_plain(f"{self.url}/v1/{database}/"))
                clients = [
                    await stack.enter_async_context(
                        CoherentClient(
                            self.url, database, delta_s=DELTA_S, mode="lazy", headers=headers
                        )
                    )
                    for headers in (bearer(self.key), {})
                ]
                await self._prove(plain, *clients)
        except (httpx.HTTPError, PortolanError, WireError) as error:
            raise Incoherent(f"A request failed: {error or type(error).__name__}") from error

    async def _prove(
        self, plain: httpx.AsyncClient, writer: CoherentClient, reader: CoherentClient
    ) -> None:
        await self._until("every replica knows the database", lambda: _is_known(plain))
        await writer.put(CLASS, "it", FIRST)
        self.notify("written")
        await self._until("what was written may be cached", lambda: _is_cacheable(plain))
        if self.cached:
            await self._until("the cache in front answers it", lambda: _is_hit(plain))
        await self._prove_write(plain, writer, reader)
        await self._prove_condition(plain)

    async def _prove_write(
        self, plain: httpx.AsyncClient, writer: CoherentClient, reader: CoherentClient
    ) -> None:
        await reader.refresh_filter()
        read_before = await reader.get(CLASS, "it")
        _require(read_before.value, {"id": "it", **FIRST}, "the read before the write")
        _require(
            await _filter_contains(plain), False, "whether the filter names it before the write"
        )
        await writer.put(CLASS, "it", SECOND)
        _require(await _filter_contains(plain), True, "whether the filter names it after the write")
        self.notify("written again: the filter names it")
        if self.cached:
            # Before anything is revalidated through the cache, which would renew its copy.
            await self._until("the purge arrived: the cache forgot it", lambda: _shows_write(plain))
        await reader.refresh_filter()
        read_after = await reader.get(CLASS, "it")
        _require(read_after.value, {"id": "it", **SECOND}, "the read after the write")
        _require(read_after.source, Source.ORIGIN, "who answered it")
        self.notify("a client that held it revalidated it, and saw the write")

    async def _prove_condition(self, plain: httpx.AsyncClient) -> None:
        no_cache = {"Cache-Control": "no-cache"}
        current = await plain.get(f"{CLASS}/it", headers=no_cache)
        condition = {"If-None-Match": current.headers.get("ETag", ""), **no_cache}
        revalidation = await plain.get(f"{CLASS}/it", headers=condition)
        _require(revalidation.status_code, NOT_MODIFIED, "the status of a revalidation")
        self.notify("what is unchanged is answered 304")

    @asynccontextmanager
    async def _database(self) -> AsyncIterator[str]:
        database = f"coherence_proof_{uuid4().hex[:12]}"
        path = f"/admin/v1/schemas/{database}"
        async with httpx.AsyncClient(
            base_url=self.admin, timeout=self.within_s, headers=bearer(self.key)
        ) as admin:
            try:
                _check(await admin.put(path, json=SCHEMA))
                self.notify("a scratch database was made")
                yield database
            finally:
                await admin.delete(path)

    async def _until(self, condition: str, holds: Callable[[], Awaitable[bool]]) -> None:
        in_a_row = 0
        try:
            async with asyncio.timeout(self.within_s):
                while in_a_row < AGREEING_ANSWERS:
                    if await holds():
                        in_a_row += 1
                    else:
                        in_a_row = 0
                        await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            raise Incoherent(f"Not within {self.within_s:g} seconds: {condition}.") from None
        self.notify(condition)


def _plain(base_url: str) -> httpx.AsyncClient:
    """A client without a filter; each of its requests may reach another replica."""
    return httpx.AsyncClient(
        base_url=base_url, timeout=TIMEOUT_S, limits=httpx.Limits(max_keepalive_connections=0)
    )


async def _is_known(plain: httpx.AsyncClient) -> bool:
    return (await plain.get("sketch")).is_success


async def _is_cacheable(plain: httpx.AsyncClient) -> bool:
    return "Portolan-Expires" in (await plain.get(f"{CLASS}/it")).headers


async def _is_hit(plain: httpx.AsyncClient) -> bool:
    headers = (await plain.get(f"{CLASS}/it")).headers
    return "hit" in headers.get("Cache-Status", "").rpartition(",")[2]


async def _shows_write(plain: httpx.AsyncClient) -> bool:
    return bool(_check(await plain.get(f"{CLASS}/it")).json()["text"] == SECOND["text"])


async def _filter_contains(plain: httpx.AsyncClient) -> bool:
    filter_: FilterDocument = decode(_check(await plain.get("sketch")).content)
    return any(filter_.contains(key) for key in ObjectResource.of(CLASS, "it").keys(filter_.map))


def _check(answer: httpx.Response) -> httpx.Response:
    if answer.is_error:
        raise Incoherent(f"{answer.request.method} was answered {answer.status_code}.")
    return answer


def _require(actual: Any, expected: Any, subject: str) -> None:
    if actual != expected:
        raise Incoherent(f"{subject[:1].upper()}{subject[1:]} was {actual}, not {expected}.")
