"""Cached write leases and results of queries, searched exhaustively (docs/query-caching.md).

One query, whose result every write changes; a reader of it; two writers, each in a replica of its
own. A writer with a cached lease acknowledges its writes without a look at what is registered.

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

from tests.properties.exhaustive import Found, search


class Step(Enum):
    """Steps that can be left out."""

    CACHED_UNREQUESTED = "a lease is cached only while no result is requested"
    REFUSED_AT_FIRST = "no query is registered while writes are pending that began before"
    REQUESTED_OUTLASTS_COPIES = "a result counts as requested as long as a copy of it is fresh"
    CLOSED_UP_TO_DATE = "a write is closed only if its writer knows the last registration"


IDLE, PENDING, WRITTEN, CACHED = range(4)
WRITES, COPIES, ROUNDS, REQUESTS = 2, 1, 2, 3
"""At most: writes under a lease, copies at a time, rounds of a writer, requests of the reader."""


class Writer(NamedTuple):
    """`early`: its write was pending when the result was requested for the first time.

    `knows` is the number of the last registration it knows of; `found`: the query was registered.
    """

    at: int = IDLE
    rounds: int = ROUNDS
    cached: bool = False
    early: bool = False
    left: int = 0
    version: int = 0
    knows: int = 0
    found: bool = False


class Copy(NamedTuple):
    """A copy of the result, which the filter covers or not; version -1: it is not read yet."""

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
    """What happens, the state after it, and whether that has a stale result."""

    what: str
    state: State
    broken: bool


Moves: TypeAlias = Iterator[tuple[str, State]]


def _with(state: State, number: int, writer: Writer) -> State:
    before, after = state.writers[:number], state.writers[number + 1 :]
    return state._replace(writers=(*before, writer, *after))


def _writing(state: State, number: int, dropped: Step | None) -> Moves:
    it = state.writers[number]
    if it.at == IDLE and it.rounds:
        cached = not state.requested or dropped is Step.CACHED_UNREQUESTED
        started = Writer(PENDING, it.rounds - 1, cached, left=WRITES if cached else 1)
        started = started._replace(knows=state.number, found=state.registered)
        yield "begin", _with(state, number, started)
    if it.at in (PENDING, CACHED) and it.left:
        written = it._replace(at=WRITTEN, left=it.left - 1, version=state.store + 1)
        yield "write", _with(state, number, written)._replace(store=state.store + 1)
    if it.at == WRITTEN and it.cached:
        newest = max(state.acknowledged, it.version)
        kept = _with(state, number, it._replace(at=CACHED))
        yield "acknowledge", kept._replace(acknowledged=newest)
    if it.at == CACHED:
        yield "release", _with(state, number, Writer(rounds=it.rounds))
    if it.at == WRITTEN and not it.cached:
        yield "close", _closed(state, number, dropped)


def _closed(state: State, number: int, dropped: Step | None) -> State:
    """The result, if the writer knows of it, is in the filter, even if the end is refused."""
    it = state.writers[number]
    if it.found:
        copies = tuple(copy._replace(covered=True) for copy in state.copies)
        state = state._replace(copies=copies, registered=False)
    if it.knows != state.number and dropped is not Step.CLOSED_UP_TO_DATE:
        return _with(state, number, it._replace(knows=state.number, found=state.registered))
    newest = max(state.acknowledged, it.version)
    return _with(state, number, Writer(rounds=it.rounds))._replace(acknowledged=newest)


def _reading(state: State, dropped: Step | None) -> Moves:
    if state.requests and len(state.copies) < COPIES:
        yield from _requesting(state, dropped)
    for number, copy in enumerate(state.copies):
        others = (*state.copies[:number], *state.copies[number + 1 :])
        if copy.version < 0:
            read = copy._replace(version=state.store)
            yield "read", state._replace(copies=tuple(sorted((*others, read))))
        registered = state.registered and bool(others)
        yield "a copy expires", state._replace(copies=others, registered=registered)
    if state.requested and (not state.copies or dropped is Step.REQUESTED_OUTLASTS_COPIES):
        yield "requests cease", state._replace(requested=False)


def _requesting(state: State, dropped: Step | None) -> Moves:
    writers = state.writers
    if not state.requested:
        writers = tuple(it._replace(early=it.at != IDLE) for it in writers)
    requested = state._replace(requested=True, writers=writers, requests=state.requests - 1)
    if any(it.early for it in writers) and dropped is not Step.REFUSED_AT_FIRST:
        yield "a refused request", requested
        return
    number = state.number + (not state.registered)
    copies = tuple(sorted((*state.copies, Copy())))
    yield "request", requested._replace(registered=True, number=number, copies=copies)


def _moves(dropped: Step | None, state: State) -> Iterator[Move]:
    writing = (_writing(state, number, dropped) for number in range(len(state.writers)))
    for what, after in chain(*writing, _reading(state, dropped)):
        yield Move(what, after, _is_broken(after))


def _is_broken(state: State) -> bool:
    """Whether a copy is older than what was acknowledged, and passes the filter."""
    return any(0 <= it.version < state.acknowledged and not it.covered for it in state.copies)


def _canonical(state: State) -> State:
    return state._replace(writers=tuple(sorted(state.writers)))


def _search(dropped: Step | None) -> Found[Move]:
    return search(State(), partial(_moves, dropped), _canonical)


def test_no_copy_is_older_than_what_was_acknowledged() -> None:
    found = _search(None)
    assert found.path == ()
    assert found.states > 10_000


@pytest.mark.parametrize("step", Step, ids=lambda step: step.name.lower())
def test_no_step_can_be_left_out(step: Step) -> None:
    assert _search(step).broken, "no stale result without it"


def test_without_refusing_first_requests_a_write_is_missed() -> None:
    assert _search(Step.REFUSED_AT_FIRST).path == (
        "begin",
        "request",
        "read",
        "write",
        "acknowledge",
    )
