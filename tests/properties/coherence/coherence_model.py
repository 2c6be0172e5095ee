"""docs/protocol.md as a state machine: one key, its writers, readers and caches.

Times are small numbers of remaining or elapsed ticks, so there is no horizon: the search ends when
no new state can be reached. Steps that are atomic in Portolan (a script of the sketch, a write of
the store) are atomic here; any two others can be interleaved with anything. Readers are
interchangeable, and so are writers: states that differ only in their order are the same state.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.properties import exhaustive
from tests.properties.coherence.coherence_reading import fetch_moves, reader_moves, request_moves
from tests.properties.coherence.coherence_states import (
    EMPTY,
    EXPIRING,
    FENCED,
    GONE,
    IN_FLIGHT,
    Copy,
    Move,
    Reader,
    State,
    Step,
    World,
    Writer,
    any_pending,
    without_fills,
)
from tests.properties.coherence.coherence_writing import lose_sketch, writer_moves
from tests.properties.exhaustive import SearchResult

__all__ = ["initial_state", "moves", "search"]


def search(world: World) -> SearchResult[Move]:
    """Visit all states of a world until a move breaks a guarantee."""
    return exhaustive.search(initial_state(world), partial(moves, world), canonical)


def initial_state(world: World) -> State:
    return State(
        (Writer(remaining=world.rewrites),) * world.writers,
        (Reader(),) * world.readers,
        (-1,) * (world.writers * (1 + world.rewrites)),
        world.crashes,
        world.losses,
    )


def canonical(state: State) -> State:
    if len(state.readers) == len(state.writers) == 1:
        return state
    return state._replace(
        writers=tuple(sorted(state.writers)), readers=tuple(sorted(state.readers))
    )


def moves(world: World, state: State) -> Iterator[Move]:
    """Return all moves from a state."""
    for number, writer in enumerate(state.writers):
        if writer.at != GONE or writer.pending or writer.op in (IN_FLIGHT, EXPIRING):
            yield from writer_moves(world, state, number, writer)
    for number, reader in enumerate(state.readers):
        if reader.request:
            yield from request_moves(world, state, number, reader, reader.request)
        else:
            yield from reader_moves(world, state, number, reader)
        if world.slow_filters:
            yield from fetch_moves(world, state, number, reader)
    if state.purges and state.purges[0] == 0:
        yield Move("purge", state._replace(purges=state.purges[1:], proxy=()))
    if state.losses:
        yield Move("the sketch is lost", lose_sketch(world, state))
    if _may_tick(world, state):
        yield _tick(world, state)


def _may_tick(world: World, state: State) -> bool:
    """Whether time can pass: purges come in time; with purges, no fill takes longer than F."""
    if 0 in state.purges:
        return False
    return world.fill is None or not any(
        reader.request and reader.request.phase and reader.request.age >= world.fill
        for reader in state.readers
    )


def _tick(world: World, state: State) -> Move:
    handed_out, stale_until = max(0, state.handed_out - 1), max(0, state.stale_until - 1)
    if not handed_out and world.entries:
        state = without_fills(state)._replace(entry=(EMPTY, 0))
    after = state._replace(
        writers=tuple(map(_older_writer, state.writers)),
        readers=tuple(_older_reader(world, reader) for reader in state.readers),
        seen=tuple(age if age < 0 else min(age + 1, world.bound + 1) for age in state.seen),
        handed_out=handed_out,
        stale_until=stale_until,
        member=state.member and (stale_until > 0 or any_pending(state)),
        filter=_older_filter(world, state.filter),
        saturated=max(0, state.saturated - 1),
        uncacheable=max(0, state.uncacheable - 1),
        browser=_older_copy(state.browser),
        proxy=_older_copy(state.proxy),
        dated=_older_date(world, state.dated),
        purges=tuple(ticks - 1 for ticks in state.purges),
        since=min(state.since + 1, world.max_expiry + 1) if world.quiet else 0,
        grant=max(0, state.grant - 1),
    )
    stuck = world.quiet and after.stale_until > 0 and after.since > world.max_expiry
    return Move("tick", after, broken=stuck)


def _older_copy(copy: Copy) -> Copy:
    return (copy[0], copy[1] - 1) if copy and copy[1] > 1 else ()


def _older_date(world: World, copy: Copy) -> Copy:
    return (copy[0], copy[1] + 1) if copy and copy[1] <= world.delta else ()


def _older_filter(world: World, cached: tuple[int, ...]) -> tuple[int, ...]:
    return (cached[0] + 1, cached[1]) if cached and cached[0] <= world.delta else ()


def _older_writer(writer: Writer) -> Writer:
    if not writer.lease and not writer.usable:
        return writer
    late = writer.op == EXPIRING and writer.lease == 1
    lease, usable = max(0, writer.lease - 1), max(0, writer.usable - 1)
    return writer._replace(lease=lease, usable=usable, op=FENCED if late else writer.op)


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
        max_age = max(world.margin, world.fill or 0) + 1
        request = request._replace(age=min(request.age + 1, max_age))
    if own and world.keeps(Step.YOUNG_WITHIN_DELTA):
        own = (own[0], own[1] + 1) if own[1] < world.delta else ()
    age, bit = (reader.age + 1, reader.bit) if usable else (-1, 0)
    return Reader(age, bit, fetch, request, own)
