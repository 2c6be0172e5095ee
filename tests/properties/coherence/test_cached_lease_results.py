"""Marks that linger and cached results of queries, searched exhaustively (docs/query-caching.md).

One query, whose result every write changes; a reader of it; two writers, each in a replica of its
own. A writer whose mark lingers acknowledges its writes without a look at what is registered.

==================  ================================================================================
in the model        in the code
==================  ================================================================================
``begin``           `steps.begin`: whether the mark may linger; `QueryRegistry.follow`
``write``           the store's own write
``acknowledge``     the answer 2xx, of a write whose mark lingers
``end``             `Lingering`: `steps.end`
``close``           `SketchGuard.end`: `steps.changed`, `steps.close`; then the answer 2xx
``ask``             `steps.query` (results.lua): registered, or refused
``read``            the data plane's read of the systems
``a copy dies``     `expire` (filter.lua)
``nobody asks``     `asked` (writes.lua) is over
==================  ================================================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, TypeAlias

import pytest


class Step(Enum):
    """Steps that can be left out."""

    LINGERS_UNASKED = "a mark lingers only while nobody asks for results"
    REFUSED_AT_FIRST = "no query is registered while marks stand that began before it was asked"
    ASKED_OUTLIVES_COPIES = "nobody asks only once no copy is alive"
    CLOSED_UP_TO_DATE = "a write is closed only if its writer knows the last registration"


IDLE, BEGUN, WRITTEN, LINGERING = range(4)
WRITES, COPIES, ROUNDS, ASKS = 2, 1, 2, 3
"""Writes under a mark at most, copies at a time, how often a writer begins, and a reader asks."""


class Writer(NamedTuple):
    """`early`: its mark stood when somebody asked for the first time.

    `knows` is the number of the last registration it knows of; `found`: the query was registered.
    """

    at: int = IDLE
    rounds: int = ROUNDS
    lingers: bool = False
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
    asked: bool = False
    registered: bool = False
    number: int = 0
    asks: int = ASKS


Moves: TypeAlias = Iterator[tuple[str, State]]


def _with(state: State, place: int, writer: Writer) -> State:
    before, after = state.writers[:place], state.writers[place + 1 :]
    return state._replace(writers=(*before, writer, *after))


def _writing(state: State, place: int, dropped: Step | None) -> Moves:
    it = state.writers[place]
    if it.at == IDLE and it.rounds:
        lingers = not state.asked or dropped is Step.LINGERS_UNASKED
        begun = Writer(BEGUN, it.rounds - 1, lingers, left=WRITES if lingers else 1)
        begun = begun._replace(knows=state.number, found=state.registered)
        yield "begin", _with(state, place, begun)
    if it.at in (BEGUN, LINGERING) and it.left:
        written = it._replace(at=WRITTEN, left=it.left - 1, version=state.store + 1)
        yield "write", _with(state, place, written)._replace(store=state.store + 1)
    if it.at == WRITTEN and it.lingers:
        newest = max(state.acknowledged, it.version)
        kept = _with(state, place, it._replace(at=LINGERING))
        yield "acknowledge", kept._replace(acknowledged=newest)
    if it.at == LINGERING:
        yield "end", _with(state, place, Writer(rounds=it.rounds))
    if it.at == WRITTEN and not it.lingers:
        yield "close", _closed(state, place, dropped)


def _closed(state: State, place: int, dropped: Step | None) -> State:
    """The result, if the writer knows of it, is in the filter, whatever becomes of the end."""
    it = state.writers[place]
    if it.found:
        copies = tuple(copy._replace(covered=True) for copy in state.copies)
        state = state._replace(copies=copies, registered=False)
    if it.knows != state.number and dropped is not Step.CLOSED_UP_TO_DATE:
        return _with(state, place, it._replace(knows=state.number, found=state.registered))
    newest = max(state.acknowledged, it.version)
    return _with(state, place, Writer(rounds=it.rounds))._replace(acknowledged=newest)


def _reading(state: State, dropped: Step | None) -> Moves:
    if state.asks and len(state.copies) < COPIES:
        yield from _asking(state, dropped)
    for place, copy in enumerate(state.copies):
        others = (*state.copies[:place], *state.copies[place + 1 :])
        if copy.version < 0:
            read = copy._replace(version=state.store)
            yield "read", state._replace(copies=tuple(sorted((*others, read))))
        registered = state.registered and bool(others)
        yield "a copy dies", state._replace(copies=others, registered=registered)
    if state.asked and (not state.copies or dropped is Step.ASKED_OUTLIVES_COPIES):
        yield "nobody asks", state._replace(asked=False)


def _asking(state: State, dropped: Step | None) -> Moves:
    writers = state.writers
    if not state.asked:
        writers = tuple(it._replace(early=it.at != IDLE) for it in writers)
    asked = state._replace(asked=True, writers=writers, asks=state.asks - 1)
    if any(it.early for it in writers) and dropped is not Step.REFUSED_AT_FIRST:
        yield "ask, in vain", asked
        return
    number = state.number + (not state.registered)
    copies = tuple(sorted((*state.copies, Copy())))
    yield "ask", asked._replace(registered=True, number=number, copies=copies)


def _moves(state: State, dropped: Step | None) -> Moves:
    for place in range(len(state.writers)):
        yield from _writing(state, place, dropped)
    yield from _reading(state, dropped)


def _is_broken(state: State) -> bool:
    """Whether a copy is older than what was acknowledged, and passes the filter."""
    return any(0 <= it.version < state.acknowledged and not it.covered for it in state.copies)


def _search(dropped: Step | None) -> tuple[int, tuple[str, ...]]:
    """Visit all states, nearest first; return how many there are, and the way to a broken one."""
    came: dict[State, tuple[str, ...]] = {State(): ()}
    waiting = deque(came)
    while waiting:
        state = waiting.popleft()
        for what, moved in _moves(state, dropped):
            after = moved._replace(writers=tuple(sorted(moved.writers)))
            if _is_broken(after):
                return len(came), (*came[state], what)
            if after not in came:
                came[after] = (*came[state], what)
                waiting.append(after)
    return len(came), ()


def test_no_result_outlives_what_was_acknowledged() -> None:
    states, way = _search(None)
    assert way == ()
    assert states > 10_000


@pytest.mark.parametrize("step", Step, ids=lambda step: step.name.lower())
def test_no_step_can_be_left_out(step: Step) -> None:
    assert _search(step)[1], "nothing comes of it"


def test_who_asks_first_would_have_been_told_too_much() -> None:
    assert _search(Step.REFUSED_AT_FIRST)[1] == (
        "begin",
        "ask",
        "read",
        "write",
        "acknowledge",
    )
