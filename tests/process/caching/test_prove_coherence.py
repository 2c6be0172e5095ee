"""`portolan prove-coherence` on a running service: behind Varnish, and behind caches that lie."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pytest

from app.commands.coherence_proof import Incoherent, Proof
from benchmarks.harness.varnish import Varnish, varnish
from mediator.stores.port import SystemConfig
from tests.faults.conditions import WITHIN_S
from tests.faults.operation.forked import called
from tests.faults.service import Service
from tests.process.caching.serving import Reply, send_reply, served
from tests.process.service import scratch_catalogue

TOKEN = "a-token-for-purges"


@dataclass(frozen=True)
class Installation:
    """A service, the Varnish that it purges, and one that it does not purge."""

    service: Service
    purged: Varnish
    unknown: Varnish


@contextmanager
def reserved_port() -> Iterator[int]:
    """Reserve a port at which a service can listen."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


@pytest.fixture(scope="module")
async def installed(
    own_systems: Sequence[SystemConfig],
    postgresql_config: SystemConfig,
    redis_config: SystemConfig,
) -> AsyncIterator[Installation]:
    async with AsyncExitStack() as stack:
        port = stack.enter_context(reserved_port())
        origin = f"http://127.0.0.1:{port}"
        catalogue = await stack.enter_async_context(scratch_catalogue(postgresql_config))
        purged, unknown = [
            await stack.enter_async_context(varnish(origin, tags="ban", token=TOKEN))
            for _ in range(2)
        ]
        target = {"name": "varnish-0", "kind": "varnish", "at": purged.url, "token": TOKEN}
        service = Service.on(
            own_systems,
            catalogue,
            redis_config.url,
            purge=orjson.dumps([target]).decode(),
            relays="here",
        )
        service.ports = (str(port), "0")
        async with service.running():
            yield Installation(service, purged, unknown)


async def test_the_command_proves_it_step_by_step(installed: Installation) -> None:
    arguments = ("prove-coherence", installed.purged.url, "--admin", installed.service.admin)
    result = await called((*arguments, "--cached"), os.environ)
    assert result.exit_code == 0, result
    assert result.lines == [
        "a scratch database was made",
        "every replica knows the database",
        "written",
        "what was written may be cached",
        "the cache in front answers it",
        "written again: the filter names it",
        "the purge arrived: the cache forgot it",
        "a client that held it revalidated it, and saw the write",
        "what is unchanged is answered 304",
        "Proven.",
    ]


async def test_coherence_is_proven_without_a_cache(installed: Installation) -> None:
    steps: list[str] = []
    await proof(installed, installed.service.data, steps=steps).run()
    assert steps[-1] == "what is unchanged is answered 304"


async def test_a_cache_that_is_not_purged_is_detected(installed: Installation) -> None:
    unpurged = proof(installed, installed.unknown.url, cached=True, within_s=15.0)
    with pytest.raises(Incoherent, match="Not within 15 seconds: the purge arrived"):
        await unpurged.run()
    async with httpx.AsyncClient(timeout=WITHIN_S) as http:
        schemas = await http.get(f"{installed.service.admin}/admin/v1/schemas")
    assert [item for item in schemas.json()["items"] if "proof" in item["database"]] == []


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        ("/sketch", "the filter names it after the write was False, not True"),
        ("/proofs/it", "after the write was .*first"),
    ],
)
async def test_a_cache_that_serves_frozen_responses_is_detected(
    installed: Installation, suffix: str, message: str
) -> None:
    async with (
        httpx.AsyncClient(base_url=installed.service.data, timeout=WITHIN_S) as origin,
        served(Frozen(origin, suffix)) as url,
    ):
        with pytest.raises(Incoherent, match=f"(?i){message}"):
            await proof(installed, url).run()


async def test_an_unreachable_service_is_reported_without_a_traceback(
    installed: Installation,
) -> None:
    with reserved_port() as port, pytest.raises(Incoherent, match="A request failed"):
        await proof(installed, f"http://127.0.0.1:{port}").run()


def proof(
    installed: Installation,
    url: str,
    *,
    cached: bool = False,
    steps: list[str] | None = None,
    within_s: float = 60.0,
) -> Proof:
    report = (steps if steps is not None else []).append
    return Proof(url, installed.service.admin, cached, report, within_s)


@dataclass
class Frozen:
    """A cache that repeats its first response for paths that end with `suffix`."""

    origin: httpx.AsyncClient
    suffix: str
    replies: dict[str, Reply] = field(default_factory=dict)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        target = scope["path"]
        if scope["method"] == "GET" and target in self.replies:
            await send_reply(self.replies[target], send)
            return
        body = (await receive())["body"]
        headers = [(k, v) for k, v in scope["headers"] if not re.match(rb"host|content-len", k)]
        request = self.origin.build_request(scope["method"], target, content=body, headers=headers)
        answer = await self.origin.send(request)
        reply = Reply(answer.status_code, answer.content, dict(answer.headers))
        for name in ("content-length", "content-encoding"):
            reply.headers.pop(name, None)
        if scope["method"] == "GET" and target.endswith(self.suffix) and answer.is_success:
            self.replies[target] = reply
        await send_reply(reply, send)
