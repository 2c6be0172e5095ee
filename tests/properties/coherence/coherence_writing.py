"""How writes go on in the model of docs/protocol.md, and how the sketch is lost."""

from __future__ import annotations

from collections.abc import Iterator

from tests.properties.coherence.coherence_states import (
    ACKED_EARLY,
    BEGUN,
    DOOMED,
    EMPTY,
    ENDED,
    FENCED,
    FLYING,
    GONE,
    HIDDEN,
    IDLE,
    KNOWN,
    LANDED,
    NOWHERE,
    UNKNOWN_VERSION,
    Entry,
    Move,
    State,
    Step,
    World,
    Writer,
    any_marked,
    now_seen,
    with_writer,
    without_fills,
)


def writing(world: World, state: State, number: int, writer: Writer) -> Iterator[Move]:
    at, op = writer.at, writer.op
    if at == IDLE and (op == LANDED or world.keeps(Step.BEGIN_FIRST)):
        yield Move("begin", _begun(world, state, number, writer))
    if at == IDLE and not world.keeps(Step.REFUSE_UNBEGUN):
        yield Move("begin fails", with_writer(state, number, writer._replace(at=BEGUN, op=FLYING)))
    if op in (FLYING, DOOMED) or (op == NOWHERE and not world.keeps(Step.BEGIN_FIRST)):
        version = state.store + 1
        landed = with_writer(state, number, writer._replace(op=LANDED, version=version))
        yield Move("the store writes", landed._replace(store=version))
    if at in (BEGUN, ACKED_EARLY) and (op in (LANDED, FENCED) or _is_rash(world, writer)):
        yield Move("end", _ended(world, state, number, writer))
    if at == ENDED and op == LANDED:
        yield _acknowledged(state, number, writer, GONE)
    if at == BEGUN and op == LANDED and _may_wait(world, writer):
        yield _acknowledged(state, number, writer, ACKED_EARLY)
    if at == ACKED_EARLY and op == LANDED and writer.left and _is_good(world, writer):
        yield Move("write again", with_writer(state, number, _written_again(world, writer)))
    if state.crashes and at in (BEGUN, ACKED_EARLY, ENDED):
        dead = with_writer(state, number, writer._replace(at=GONE, young=0))
        yield Move("the writer dies", dead._replace(crashes=state.crashes - 1))
    if writer.marked and world.lease and not writer.lease:
        yield Move("recover", _recovered(world, state, number, writer))


def _may_wait(world: World, writer: Writer) -> bool:
    """Whether the end of a write may come after its acknowledgement: its mark lingers."""
    lingers = world.again and (not writer.held or not world.keeps(Step.LINGER_UNHELD))
    return bool(lingers) or not world.keeps(Step.END_BEFORE_ACK)


def _is_good(world: World, writer: Writer) -> bool:
    """Whether the writer takes its mark for good: it has a clock of its own, and hears no more."""
    return writer.young > 0 or not world.keeps(Step.LINGER_WITHIN_LEASE)


def _is_rash(world: World, writer: Writer) -> bool:
    """Whether a mark is ended while something is written under it."""
    flies = writer.op in (FLYING, DOOMED) and writer.left < world.again
    return flies and not world.keeps(Step.LINGER_LANDED)


def _written_again(world: World, writer: Writer) -> Writer:
    """Call the store once more, under a mark that may be gone without the writer's knowing."""
    again = writer._replace(at=BEGUN, op=FLYING, left=writer.left - 1)
    if writer.fenced:
        return again._replace(op=FENCED) if world.keeps(Step.LINGER_TOKEN) else again
    if writer.marked:
        return again
    return again._replace(op=DOOMED, lease=world.lease - world.young)


def _begun(world: World, state: State, number: int, writer: Writer) -> State:
    """For keys that are handed out set `stale`; mark the write; a store call may now be made."""
    extends = world.keeps(Step.LAST_EXPIRY) or not state.stale
    covers = extends and world.keeps(Step.STALE_AT_WRITE)
    stale = max(state.stale, state.handed) if covers else state.stale
    held = state.handed > 0 or state.saturated > 0
    op = FLYING if writer.op == NOWHERE else writer.op
    begun = writer._replace(
        at=BEGUN, op=op, marked=True, held=held, lease=world.lease, young=world.young
    )
    state = with_writer(state, number, begun)._replace(
        stale=stale, member=state.member or (covers and state.handed > 0), since=0
    )
    if world.entries and world.keeps(Step.ENTRY_DELETED):
        state = without_fills(state)._replace(entry=(EMPTY, 0))
    return state


def _ended(world: World, state: State, number: int, writer: Writer) -> State:
    landed = writer.op == LANDED
    acknowledged = writer.at == ACKED_EARLY or not landed
    at = GONE if acknowledged else ENDED
    if writer.op in (FLYING, DOOMED):
        at = ENDED
    elif acknowledged and writer.left and not world.keeps(Step.LINGER_ENDED):
        at = ACKED_EARLY
    ended = writer._replace(at=at, marked=False, young=writer.young if at == ACKED_EARLY else 0)
    after = with_writer(state, number, ended)
    if writer.marked:
        return _cleared(world, after, writer)
    if world.keeps(Step.PURGE_AFTER_LOSS):  # the sketch does not know this write any more
        return _owed(world, after)
    return after


def _cleared(world: World, state: State, writer: Writer) -> State:
    """Set the version entry, owe purges; without marks the key may leave the filter."""
    pending = any_marked(state)
    last = max(state.last, writer.version) if writer.op == LANDED else state.last
    state = state._replace(last=last, member=state.member and (pending or state.stale > 0))
    if world.entries and state.handed:
        version = (
            writer.version if writer.at != GONE else state.store
        )  # recovery looks at what stands
        entry = _made(world, state.entry, version, pending=pending)
        state = without_fills(state)._replace(entry=entry)
    return _owed(world, state) if writer.held else state


def _made(world: World, before: Entry, version: int, *, pending: bool) -> Entry:
    known = version > 0 and before != (HIDDEN, UNKNOWN_VERSION)
    if before[0] == HIDDEN and world.keeps(Step.ENTRY_BY_MAXIMUM):
        version = max(version, before[1])
    if pending and world.keeps(Step.ENTRY_HIDDEN):
        return HIDDEN, version if known else UNKNOWN_VERSION
    return (KNOWN, version) if known else (EMPTY, 0)


def _owed(world: World, state: State) -> State:
    """Owe a purge now, and one after the longest fill."""
    if world.fill is None:
        return state
    again = (world.fill + 1,) if world.keeps(Step.REPEATED_PURGE) else ()
    return state._replace(purges=tuple(sorted({*state.purges, 0, *again})))


def _acknowledged(state: State, number: int, writer: Writer, at: int) -> Move:
    after = now_seen(with_writer(state, number, writer._replace(at=at)), writer.version)
    return Move("acknowledge", after, acknowledged=number)


def _recovered(world: World, state: State, number: int, writer: Writer) -> State:
    """Fence, look at the store, purge, clear."""
    reached = world.keeps(Step.LINGER_TOKEN) or writer.left == world.again
    fenced = writer.op == FLYING and world.keeps(Step.FENCING) and reached
    recovered = writer._replace(
        marked=False, op=FENCED if fenced else writer.op, fenced=world.again > 0
    )
    return _cleared(world, with_writer(state, number, recovered), recovered)


def lost(world: World, state: State) -> State:
    """Marks and times are forgotten; what flies is bounded by its deadline in the store only."""
    lease = world.lease or 1
    writers = tuple(
        it._replace(marked=False, lease=lease, op=DOOMED if it.op == FLYING else it.op)
        for it in state.writers
    )
    after = without_fills(state)._replace(
        writers=writers,
        losses=state.losses - 1,
        purges=(),
        handed=0,
        stale=0,
        member=False,
        entry=(EMPTY, 0),
        last=0,
        saturated=world.longest if world.keeps(Step.SATURATION) else 0,
        uncacheable=lease if world.keeps(Step.UNCACHEABLE_AFTER_LOSS) else 0,
    )
    return _owed(world, after) if world.keeps(Step.PURGE_AFTER_LOSS) else after
