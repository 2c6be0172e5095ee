"""Cached write leases and query results, searched exhaustively (docs/query-caching.md).

One query, whose result every write changes; a reader of it; two writers on separate replicas. A
writer with a cached lease acknowledges its writes without reading the registrations.

====================  ==============================================================================
in the model          in the code
====================  ==============================================================================
``begin``             `steps.begin`: whether the lease may be cached; `QueryRegistry.catch_up`
``write``             the store's own write
``acknowledge``       the answer 2xx, of a write whose lease is cached
``release``           `CachedLeases.release`: `steps.close`
``close``             `SketchGuard.end`: `steps.close` (writes.lua); then the answer 2xx
``request``           `steps.report_query` (queries.lua): registered, or refused
``read``              the data plane's read of the systems
``a copy expires``    `expire` (filter.lua)
``requests cease``    `is_lease_cacheable` (writes.lua): `requested` is over
====================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias

import pytest

from tests.properties.exhaustive import SearchResult, search


class Step(Enum):
    """Steps that can be left out."""

    CACHED_UNREQUESTED = "a lease is cached only while no result is requested"
    REFUSED_AT_FIRST = "no query is registered while writes are pending that began before"
    REQUESTED_OUTLASTS_COPIES = "a result counts as requested as long as a copy of it is fresh"
    CLOSED_UP_TO_DATE = "a write is closed only if its writer knows the last registration"


IDLE, PENDING, WRITTEN, CACHED = range(4)
WRITES, COPIES, ROUNDS, REQUESTS = 2, 1, 2, 3
"""Limits: writes under a lease, copies at a time, rounds of a writer, requests of the reader."""


class Writer(NamedTuple):
    """`early`: its write was pending when the result was first requested.

    `known` is the number of the last registration that it has read; `registered`: the query was
    registered then.
    """

    at: int = IDLE
    rounds: int = ROUNDS
    cached: bool = False
    early: bool = False
    remaining: int = 0
    version: int = 0
    known: int = 0
    registered: bool = False


class Copy(NamedTuple):
    """A copy of the result; `covered`: the filter has it; version -1: not read yet."""

    version: int = -1
    covered: bool = False


class State(NamedTuple):
    writers: tuple[Writer, ...] = (Writer(), Writer())
    copies: tuple[Copy, ...] = ()
    store: int = 0
    acknowledged: int = 0
    requested: bool = False
    registered: bool = False
    number: int = 0
    requests: int = REQUESTS


class Move(NamedTuple):
    """An event, the state after it, and whether a copy in it is stale."""

    label: str
    state: State
    broken: bool


Moves: TypeAlias = Iterator[tuple[str, State]]


def _with(state: State, number: int, writer: Writer) -> State:
    before, after = state.writers[:number], state.writers[number + 1 :]
    return state._replace(writers=(*before, writer, *after))


def _writer_moves(state: State, number: int, dropped: Step | None) -> Moves:
    writer = state.writers[number]
    if writer.at == IDLE and writer.rounds:
        cached = not state.requested or dropped is Step.CACHED_UNREQUESTED
        started = Writer(PENDING, writer.rounds - 1, cached, remaining=WRITES if cached else 1)
        started = started._replace(known=state.number, registered=state.registered)
        yield "begin", _with(state, number, started)
    if writer.at in (PENDING, CACHED) and writer.remaining:
        written = writer._replace(
            at=WRITTEN, remaining=writer.remaining - 1, version=state.store + 1
        )
        yield "write", _with(state, number, written)._replace(store=state.store + 1)
    if writer.at == WRITTEN and writer.cached:
        newest = max(state.acknowledged, writer.version)
        acknowledged = _with(state, number, writer._replace(at=CACHED))
        yield "acknowledge", acknowledged._replace(acknowledged=newest)
    if writer.at == CACHED:
        yield "release", _with(state, number, Writer(rounds=writer.rounds))
    if writer.at == WRITTEN and not writer.cached:
        yield "close", _close(state, number, dropped)


def _close(state: State, number: int, dropped: Step | None) -> State:
    """If the writer knows its registration, the result enters the filter, even if the end fails."""
    writer = state.writers[number]
    if writer.registered:
        copies = tuple(copy._replace(covered=True) for copy in state.copies)
        state = state._replace(copies=copies, registered=False)
    if writer.known != state.number and dropped is not Step.CLOSED_UP_TO_DATE:
        return _with(
            state, number, writer._replace(known=state.number, registered=state.registered)
        )
    newest = max(state.acknowledged, writer.version)
    return _with(state, number, Writer(rounds=writer.rounds))._replace(acknowledged=newest)


def _reader_moves(state: State, dropped: Step | None) -> Moves:
    if state.requests and len(state.copies) < COPIES:
        yield from _request_moves(state, dropped)
    for number, copy in enumerate(state.copies):
        others = (*state.copies[:number], *state.copies[number + 1 :])
        if copy.version < 0:
            read = copy._replace(version=state.store)
            yield "read", state._replace(copies=tuple(sorted((*others, read))))
        registered = state.registered and bool(others)
        yield "a copy expires", state._replace(copies=others, registered=registered)
    if state.requested and (not state.copies or dropped is Step.REQUESTED_OUTLASTS_COPIES):
        yield "requests cease", state._replace(requested=False)


def _request_moves(state: State, dropped: Step | None) -> Moves:
    writers = state.writers
    if not state.requested:
        writers = tuple(writer._replace(early=writer.at != IDLE) for writer in writers)
    requested = state._replace(requested=True, writers=writers, requests=state.requests - 1)
    if any(writer.early for writer in writers) and dropped is not Step.REFUSED_AT_FIRST:
        yield "a refused request", requested
        return
    number = state.number + (not state.registered)
    copies = tuple(sorted((*state.copies, Copy())))
    yield "request", requested._replace(registered=True, number=number, copies=copies)


def _moves(dropped: Step | None, state: State) -> Iterator[Move]:
    writer_moves = (_writer_moves(state, number, dropped) for number in range(len(state.writers)))
    for label, after in chain(*writer_moves, _reader_moves(state, dropped)):
        yield Move(label, after, _is_broken(after))


def _is_broken(state: State) -> bool:
    """Whether a copy is older than an acknowledged write and not covered by the filter."""
    return any(0 <= copy.version < state.acknowledged and not copy.covered for copy in state.copies)


def _canonical(state: State) -> State:
    return state._replace(writers=tuple(sorted(state.writers)))


def _search(dropped: Step | None) -> SearchResult[Move]:
    return search(State(), partial(_moves, dropped), _canonical)


def test_no_copy_is_older_than_an_acknowledged_write() -> None:
    result = _search(None)
    assert result.path == ()
    assert result.states > 10_000


@pytest.mark.parametrize("step", Step, ids=lambda step: step.name.lower())
def test_no_step_can_be_left_out(step: Step) -> None:
    assert _search(step).broken, "no result is stale without the step"


def test_without_refusing_first_requests_a_write_is_missed() -> None:
    assert _search(Step.REFUSED_AT_FIRST).path == (
        "begin",
        "request",
        "read",
        "write",
        "acknowledge",
    )
