"""docs/protocol.md as a machine whose states can all be visited: one key, its writers, readers,
caches.

Times are small numbers of ticks that are left, or that have passed, so there is no horizon: the
search ends when nothing new can be reached, however long everything goes on. Steps that are atomic
in Portolan (a script of the sketch, a write of the store) are atomic here; any other two may have
anything between them. Readers are alike, and so are writers: states that differ only in their order
are the same state.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tests.properties.coherence.coherence_reading import beginning, fetching, requesting
from tests.properties.coherence.coherence_states import (
    DOOMED,
    EMPTY,
    FENCED,
    FLYING,
    GONE,
    Copy,
    Move,
    Reader,
    State,
    Step,
    World,
    Writer,
    any_marked,
    without_fills,
)
from tests.properties.coherence.coherence_writing import lost, writing

__all__ = ["Found", "beginning_of", "moves", "search"]


class Found(NamedTuple):
    """How many states there are, and the moves that lead to a broken promise, if one was found."""

    states: int
    broken: tuple[Move, ...]

    @property
    def told(self) -> tuple[str, ...]:
        return tuple(move.what for move in self.broken)


def search(world: World, most: int = 10_000_000) -> Found:
    """Visit all states, nearest first, until a promise is broken."""
    gc.disable()  # nothing here is a cycle, and looking for some takes a third of the time
    try:
        return _search(world, most)
    finally:
        gc.enable()


def _search(world: World, most: int) -> Found:
    first = beginning_of(world)
    came: dict[State, State | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for move in moves(world, state):
            if move.broken:
                return Found(len(came), tuple(_path(world, came, state)))
            after = canonical(move.state)
            if after not in came:
                came[after] = state
                waiting.append(after)
        assert len(came) <= most, "the model is larger than was thought"
    return Found(len(came), ())


def beginning_of(world: World) -> State:
    return State(
        (Writer(left=world.again),) * world.writers,
        (Reader(),) * world.readers,
        (-1,) * (world.writers * (1 + world.again)),
        world.crashes,
        world.losses,
    )


def canonical(state: State) -> State:
    if len(state.readers) == len(state.writers) == 1:
        return state
    return state._replace(
        writers=tuple(sorted(state.writers)), readers=tuple(sorted(state.readers))
    )


def _path(world: World, came: dict[State, State | None], last: State) -> list[Move]:
    """Go the way again, so that everyone keeps their places from the beginning to the end."""
    states = [last]
    while (before := came[states[-1]]) is not None:
        states.append(before)
    path: list[Move] = []
    state = beginning_of(world)
    for wanted in states[-2::-1]:
        path.append(next(it for it in moves(world, state) if canonical(it.state) == wanted))
        state = path[-1].state
    return [*path, next(it for it in moves(world, state) if it.broken)]


def moves(world: World, state: State) -> Iterator[Move]:
    """Everything that can happen next."""
    for number, writer in enumerate(state.writers):
        if writer.at != GONE or writer.marked or writer.op in (FLYING, DOOMED):
            yield from writing(world, state, number, writer)
    for number, reader in enumerate(state.readers):
        if reader.request:
            yield from requesting(world, state, number, reader, reader.request)
        else:
            yield from beginning(world, state, number, reader)
        if world.slow_filters:
            yield from fetching(world, state, number, reader)
    if state.purges and state.purges[0] == 0:
        yield Move("purge", state._replace(purges=state.purges[1:], proxy=()))
    if state.losses:
        yield Move("the sketch is lost", lost(world, state))
    if _may_tick(world, state):
        yield _tick(world, state)


def _may_tick(world: World, state: State) -> bool:
    """Purges come in time; where they matter, no fill takes longer than F."""
    if 0 in state.purges:
        return False
    return world.fill is None or not any(
        it.request and it.request.phase and it.request.age >= world.fill for it in state.readers
    )


def _tick(world: World, state: State) -> Move:
    handed, stale = max(0, state.handed - 1), max(0, state.stale - 1)
    if not handed and world.entries:
        state = without_fills(state)._replace(entry=(EMPTY, 0))
    after = state._replace(
        writers=tuple(map(_older_writer, state.writers)),
        readers=tuple(_older_reader(world, it) for it in state.readers),
        seen=tuple(age if age < 0 else min(age + 1, world.bound + 1) for age in state.seen),
        handed=handed,
        stale=stale,
        member=state.member and (stale > 0 or any_marked(state)),
        filter=_older_filter(world, state.filter),
        saturated=max(0, state.saturated - 1),
        uncacheable=max(0, state.uncacheable - 1),
        browser=_older_copy(state.browser),
        proxy=_older_copy(state.proxy),
        dated=_older_date(world, state.dated),
        purges=tuple(left - 1 for left in state.purges),
        since=min(state.since + 1, world.longest + 1) if world.quiet else 0,
        grant=max(0, state.grant - 1),
    )
    stuck = world.quiet and after.stale > 0 and after.since > world.longest
    return Move("tick", after, broken=stuck)


def _older_copy(copy: Copy) -> Copy:
    return (copy[0], copy[1] - 1) if copy and copy[1] > 1 else ()


def _older_date(world: World, kept: Copy) -> Copy:
    return (kept[0], kept[1] + 1) if kept and kept[1] <= world.delta else ()


def _older_filter(world: World, kept: tuple[int, ...]) -> tuple[int, ...]:
    return (kept[0] + 1, kept[1]) if kept and kept[0] <= world.delta else ()


def _older_writer(writer: Writer) -> Writer:
    if not writer.lease and not writer.young:
        return writer
    late = writer.op == DOOMED and writer.lease == 1
    lease, young = max(0, writer.lease - 1), max(0, writer.young - 1)
    return writer._replace(lease=lease, young=young, op=FENCED if late else writer.op)


def _older_reader(world: World, reader: Reader) -> Reader:
    if not world.keeps(Step.FILTER_WITHIN_DELTA):
        reader = reader._replace(age=min(reader.age, world.delta - 1))
    usable = 0 <= reader.age < world.delta
    fetch, request, own = reader.fetch, reader.request, reader.own
    if fetch:
        fetch = (min(fetch[0] + 1, world.delta + 1), fetch[1])
    if request and world.own_copies:
        request = request._replace(since=min(request.since + 1, world.delta + 1))
    if request and request.dated >= 0:
        request = request._replace(dated=min(request.dated + 1, world.delta + 1))
    if request and request.phase:
        most = max(world.margin, world.fill or 0) + 1
        request = request._replace(age=min(request.age + 1, most))
    if own and world.keeps(Step.YOUNG_WITHIN_DELTA):
        own = (own[0], own[1] + 1) if own[1] < world.delta else ()
    age, bit = (reader.age + 1, reader.bit) if usable else (-1, 0)
    return Reader(age, bit, fetch, request, own)
