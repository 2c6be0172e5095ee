"""Peers: the same operations by Portolan and by other services before the same servers, over HTTP.

webdis serves Redis, Eve MongoDB, PostGraphile and Platformatic DB PostgreSQL. Each runs in a
separate process, as its documentation advises for production, on the servers that Portolan uses;
Portolan has the objects on the kind of system that the peer serves. The figures are requests per
second, and requests per second of processor time of the service itself.

If a peer cannot be started, all of its operations are missing, and so its bar is missed.
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
from benchmarks.harness.peers.peer import absence_reason, absent_result
from benchmarks.harness.peers.platformatic import PLATFORMATIC
from benchmarks.harness.peers.portolan import portolan
from benchmarks.harness.peers.postgraphile import POSTGRAPHILE
from benchmarks.harness.peers.webdis import WEBDIS
from benchmarks.harness.report import Measured, Options, Result, per_second
from mediator.embedded.port import Kind

__all__ = ["run"]

_PEERS: Final = (WEBDIS, EVE, POSTGRAPHILE, PLATFORMATIC)
_PORTOLAN: Final = "Portolan"
_BAR: Final = 1.0
_BAR_WEBDIS: Final = 0.25
"""webdis is written in C and has no objects: the bar is a share of its rate per core used."""


@dataclass(frozen=True, slots=True)
class _Bars:
    """The bars of both ratios; None: the ratio is only reported."""

    rate: float | None
    per_core: float


_BARS: Final = {
    peer.name: _Bars(None, _BAR_WEBDIS) if peer is WEBDIS else _Bars(_BAR, _BAR) for peer in _PEERS
}


async def run(options: Options) -> Measured:
    async with LoadProcess() as load, portolan() as ours, AsyncExitStack() as stack:
        versions = {**ours.versions}
        results: list[Result] = []
        measured = {kind: {_PORTOLAN: candidate} for kind, candidate in ours.candidates.items()}
        for peer in _PEERS:
            try:
                candidate = await stack.enter_async_context(peer.running(ours.servers))
            except Failed as failure:
                versions[peer.name] = absence_reason(peer, failure)
                options.log(versions[peer.name])
                results.append(absent_result(peer))
            else:
                versions[peer.name] = candidate.version
                measured[peer.kind][peer.name] = candidate
        for kind, candidates in measured.items():
            results += await _compare(options, load, kind, candidates)
        return Measured(results, versions)


async def _compare(
    options: Options, load: LoadProcess, kind: Kind, candidates: Mapping[str, Candidate]
) -> list[Result]:
    """Compare all operations that any peer on a kind of system has."""
    for candidate in candidates.values():
        await candidate.rehearse()
    results: list[Result] = []
    for operation in candidates[_PORTOLAN].requests:
        comparable = {
            name: candidate
            for name, candidate in candidates.items()
            if operation in candidate.requests
        }
        if comparable.keys() == {_PORTOLAN}:
            continue
        for connections in CONNECTIONS:
            name = f"{operation} on {kind}, {connections} connections"
            medians = await _measure(options, load, comparable, operation, connections)
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
    # The first round warms up just-in-time compilers.
    measured = await interleaved(1 + rounds, measures)
    return {name: _median(samples[1:]) for name, samples in measured.items()}


def _median(samples: Sequence[Throughput]) -> Throughput:
    return Throughput(*map(median, zip(*samples, strict=True)))


def _note(options: Options, name: str, medians: Mapping[str, Throughput]) -> None:
    rates = per_second({candidate: result.rate for candidate, result in medians.items()})
    per_core = per_second({candidate: result.per_core for candidate, result in medians.items()})
    options.note(f"{name}: {rates}; per core used: {per_core}")


def _results(name: str, medians: Mapping[str, Throughput]) -> Iterator[Result]:
    ours = medians[_PORTOLAN]
    for peer, bars in _BARS.items():
        if (other := medians.get(peer)) is None:
            continue
        against = f"against {peer}"
        yield Result(f"{name}, {against}", "requests/s", ours.rate, other.rate, bars.rate)
        per_core = f"{name}, per core used, {against}"
        yield Result(per_core, "requests/s", ours.per_core, other.per_core, bars.per_core)
