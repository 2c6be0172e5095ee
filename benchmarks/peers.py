"""Peers: the same operations by Portolan and by what others put before the same servers, over HTTP.

webdis serves Redis, Eve MongoDB, PostGraphile and Platformatic DB PostgreSQL. Each runs in a
process of its own, as its documentation advises for production, on the very servers that Portolan
uses; Portolan has the objects on the kind of system that the peer serves. What is compared is how
many requests pass in a second, and how many in a second of processor time of the service itself.

A peer that cannot be started has all of its operations missing, and so its bar missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

from app.commands.demo.failed import Failed
from app.commands.demo.load import LoadProcess
from app.commands.demo.rounds import interleaved
from benchmarks.harness.comparison import CONNECTIONS
from benchmarks.harness.peers.candidate import Candidate, Throughput
from benchmarks.harness.peers.eve import EVE
from benchmarks.harness.peers.operations import Operation
from benchmarks.harness.peers.peer import absence, absent
from benchmarks.harness.peers.platformatic import PLATFORMATIC
from benchmarks.harness.peers.portolan import portolan
from benchmarks.harness.peers.postgraphile import POSTGRAPHILE
from benchmarks.harness.peers.webdis import WEBDIS
from benchmarks.harness.report import Measured, Options, Result, per_second
from mediator.embedded.port import Kind

__all__ = ["run"]

_PEERS: Final = (WEBDIS, EVE, POSTGRAPHILE, PLATFORMATIC)
_OWN: Final = "Portolan"
_AHEAD: Final = 1.0
_OF_WEBDIS: Final = 0.25
"""webdis is written in C and knows no objects: of it a share is required, for each core used."""


@dataclass(frozen=True, slots=True)
class _Bars:
    """What the ratios of both figures have to reach; None: it is only reported."""

    rate: float | None
    per_core: float


_BARS: Final = {
    peer.name: _Bars(None, _OF_WEBDIS) if peer is WEBDIS else _Bars(_AHEAD, _AHEAD)
    for peer in _PEERS
}


async def run(options: Options) -> Measured:
    async with LoadProcess() as load, portolan() as own, AsyncExitStack() as stack:
        versions = {**own.versions}
        results: list[Result] = []
        measured = {kind: {_OWN: candidate} for kind, candidate in own.candidates.items()}
        for peer in _PEERS:
            try:
                candidate = await stack.enter_async_context(peer.running(own.servers))
            except Failed as failure:
                versions[peer.name] = absence(peer, failure)
                options.say(versions[peer.name])
                results.append(absent(peer))
            else:
                versions[peer.name] = candidate.version
                measured[peer.kind][peer.name] = candidate
        for kind, candidates in measured.items():
            results += await _compare(options, load, kind, candidates)
        return Measured(results, versions)


async def _compare(
    options: Options, load: LoadProcess, kind: Kind, candidates: Mapping[str, Candidate]
) -> list[Result]:
    """Compare all operations on a kind of system that any peer there has."""
    for candidate in candidates.values():
        await candidate.rehearse()
    results: list[Result] = []
    for operation in candidates[_OWN].requests:
        having = {name: each for name, each in candidates.items() if operation in each.requests}
        if having.keys() == {_OWN}:
            continue
        for connections in CONNECTIONS:
            name = f"{operation} on {kind}, {connections} connections"
            medians = await _measure(options, load, having, operation, connections)
            _note(options, name, medians)
            results += _results(name, medians)
    return results


async def _measure(
    options: Options,
    load: LoadProcess,
    candidates: Mapping[str, Candidate],
    operation: Operation,
    connections: int,
) -> dict[str, Throughput]:
    seconds, rounds = (0.15, 2) if options.quick else (1.0, 7)
    measures = {
        name: partial(candidate.drive, load, operation, connections, seconds)
        for name, candidate in candidates.items()
    }
    # The first round warms up what compiles while it runs.
    measured = await interleaved(1 + rounds, measures)
    return {name: _median(of[1:]) for name, of in measured.items()}


def _median(of: Sequence[Throughput]) -> Throughput:
    return Throughput(*map(median, zip(*of, strict=True)))


def _note(options: Options, name: str, medians: Mapping[str, Throughput]) -> None:
    rates = per_second({each: throughput.rate for each, throughput in medians.items()})
    per_core = per_second({each: throughput.per_core for each, throughput in medians.items()})
    options.note(f"{name}: {rates}; per core used: {per_core}")


def _results(name: str, medians: Mapping[str, Throughput]) -> Iterator[Result]:
    own = medians[_OWN]
    for peer, bars in _BARS.items():
        if (other := medians.get(peer)) is None:
            continue
        against = f"against {peer}"
        yield Result(f"{name}, {against}", "requests/s", own.rate, other.rate, bars.rate)
        per_core = f"{name}, per core used, {against}"
        yield Result(per_core, "requests/s", own.per_core, other.per_core, bars.per_core)
