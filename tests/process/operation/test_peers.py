"""The installed peers carry out all their operations on real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from app.commands.demo.failed import Failed
from app.commands.demo.http1 import render
from app.commands.demo.load import LoadProcess
from benchmarks.harness.peers.candidate import Candidate
from benchmarks.harness.peers.eve import EVE
from benchmarks.harness.peers.peer import Peer
from benchmarks.harness.peers.platformatic import PLATFORMATIC
from benchmarks.harness.peers.postgraphile import POSTGRAPHILE
from benchmarks.harness.peers.webdis import WEBDIS
from benchmarks.harness.shared_servers import embedded_fleet
from mediator.embedded.port import Endpoint, Kind

Servers = Mapping[Kind, Endpoint]


@pytest.fixture(scope="module")
async def servers() -> AsyncIterator[Servers]:
    """Separate servers, because a peer leaves its data there."""
    async with embedded_fleet() as (fleet, _):
        yield fleet.endpoints


async def start_candidate(stack: AsyncExitStack, peer: Peer, servers: Servers) -> Candidate:
    try:
        return await stack.enter_async_context(peer.running(servers))
    except Failed as failure:
        if "not installed" not in str(failure):
            raise
        pytest.skip(f"{peer.name}: {failure}")


@pytest.mark.parametrize("peer", [WEBDIS, EVE, POSTGRAPHILE, PLATFORMATIC], ids=lambda p: p.name)
async def test_a_peer_carries_out_its_operations(peer: Peer, servers: Servers) -> None:
    async with LoadProcess() as load, AsyncExitStack() as stack:
        candidate = await start_candidate(stack, peer, servers)
        assert candidate.version.startswith(f"{peer.name} ")
        await candidate.rehearse()
        for operation in candidate.requests:
            assert (await candidate.drive(load, operation, 2, 0.1)).per_core > 0


@pytest.mark.parametrize(
    ("peer", "request_"),
    [
        (WEBDIS, render("GET", "/HINCRBY/peer:text/hits/none")),
        (POSTGRAPHILE, render("POST", "/graphql", b'{"query":"{nodeId(x:1)}"}')),
        (PLATFORMATIC, render("GET", "/articles/nobody")),
        (EVE, render("GET", "/articles/a99999")),
    ],
    ids=lambda value: value.name if isinstance(value, Peer) else "",
)
async def test_a_request_that_a_peer_refuses_ends_the_benchmark(
    peer: Peer, request_: bytes, servers: Servers
) -> None:
    async with LoadProcess() as load, AsyncExitStack() as stack:
        candidate = await start_candidate(stack, peer, servers)
        refused = replace(candidate, requests={"atomic update": [request_]})
        with pytest.raises(Failed, match=f"{peer.name} .*: atomic update"):
            await refused.rehearse()
        with pytest.raises(Failed, match=f"{peer.name} .*: the service answered"):
            await refused.drive(load, "atomic update", 1, 0.1)
