"""The moves of writers in the model of docs/protocol.md, and the loss of the sketch."""

from __future__ import annotations

from collections.abc import Iterator

from tests.properties.coherence.coherence_states import (
    ACKED_EARLY,
    EMPTY,
    ENDED,
    EXPIRING,
    FENCED,
    GONE,
    HIDDEN,
    IDLE,
    IN_FLIGHT,
    KNOWN,
    LANDED,
    PENDING,
    UNKNOWN_VERSION,
    UNSENT,
    Entry,
    Move,
    State,
    Step,
    World,
    Writer,
    any_pending,
    record_seen,
    with_writer,
    without_fills,
)


def writer_moves(world: World, state: State, number: int, writer: Writer) -> Iterator[Move]:
    at, op = writer.at, writer.op
    if at == IDLE and (op == LANDED or world.keeps(Step.BEGIN_FIRST)):
        yield Move("begin", _begin(world, state, number, writer))
    if at == IDLE and not world.keeps(Step.REFUSE_UNBEGUN):
        yield Move(
            "begin fails", with_writer(state, number, writer._replace(at=PENDING, op=IN_FLIGHT))
        )
    if op in (IN_FLIGHT, EXPIRING) or (op == UNSENT and not world.keeps(Step.BEGIN_FIRST)):
        version = state.store + 1
        landed = with_writer(state, number, writer._replace(op=LANDED, version=version))
        yield Move("the store writes", landed._replace(store=version))
    if at in (PENDING, ACKED_EARLY) and (op in (LANDED, FENCED) or _may_end_early(world, writer)):
        yield Move("end", _end(world, state, number, writer))
    if at == ENDED and op == LANDED:
        yield _acknowledge(state, number, writer, GONE)
    if at == PENDING and op == LANDED and _may_end_late(world, writer):
        yield _acknowledge(state, number, writer, ACKED_EARLY)
    if at == ACKED_EARLY and op == LANDED and writer.remaining and _is_usable(world, writer):
        yield Move("write again", with_writer(state, number, _write_again(world, writer)))
    if state.crashes and at in (PENDING, ACKED_EARLY, ENDED):
        crashed = with_writer(state, number, writer._replace(at=GONE, usable=0))
        yield Move("the writer dies", crashed._replace(crashes=state.crashes - 1))
    if writer.pending and world.lease and not writer.lease:
        yield Move("recover", _recover(world, state, number, writer))


def _may_end_late(world: World, writer: Writer) -> bool:
    """Whether a write can end after its acknowledgement: its lease is cached."""
    cached = world.rewrites and (not writer.held or not world.keeps(Step.LEASE_UNHELD))
    return bool(cached) or not world.keeps(Step.END_BEFORE_ACK)


def _is_usable(world: World, writer: Writer) -> bool:
    """Whether the writer considers its lease usable, by its own clock."""
    return writer.usable > 0 or not world.keeps(Step.LEASE_USABLE)


def _may_end_early(world: World, writer: Writer) -> bool:
    """Whether a lease is released during a write under it."""
    in_flight = writer.op in (IN_FLIGHT, EXPIRING) and writer.remaining < world.rewrites
    return in_flight and not world.keeps(Step.LEASE_LANDED)


def _write_again(world: World, writer: Writer) -> Writer:
    """Start another write, under a lease that can have ended unnoticed by the writer."""
    rewriting = writer._replace(at=PENDING, op=IN_FLIGHT, remaining=writer.remaining - 1)
    if writer.fenced:
        return rewriting._replace(op=FENCED) if world.keeps(Step.LEASE_TOKEN) else rewriting
    if writer.pending:
        return rewriting
    return rewriting._replace(op=EXPIRING, lease=world.lease - world.usable)


def _begin(world: World, state: State, number: int, writer: Writer) -> State:
    """Set `stale_until` of keys that were handed out; the write is pending and can be sent."""
    extends = world.keeps(Step.LAST_EXPIRY) or not state.stale_until
    covers = extends and world.keeps(Step.STALE_AT_WRITE)
    stale_until = max(state.stale_until, state.handed_out) if covers else state.stale_until
    held = state.handed_out > 0 or state.saturated > 0
    op = IN_FLIGHT if writer.op == UNSENT else writer.op
    started = writer._replace(
        at=PENDING, op=op, pending=True, held=held, lease=world.lease, usable=world.usable
    )
    state = with_writer(state, number, started)._replace(
        stale_until=stale_until,
        member=state.member or (covers and state.handed_out > 0),
        since=0,
    )
    if world.entries and world.keeps(Step.ENTRY_DELETED):
        state = without_fills(state)._replace(entry=(EMPTY, 0))
    return state


def _end(world: World, state: State, number: int, writer: Writer) -> State:
    landed = writer.op == LANDED
    acknowledged = writer.at == ACKED_EARLY or not landed
    at = GONE if acknowledged else ENDED
    if writer.op in (IN_FLIGHT, EXPIRING):
        at = ENDED
    elif acknowledged and writer.remaining and not world.keeps(Step.LEASE_RELEASED):
        at = ACKED_EARLY
    ended = writer._replace(at=at, pending=False, usable=writer.usable if at == ACKED_EARLY else 0)
    after = with_writer(state, number, ended)
    if writer.pending:
        return _clear(world, after, writer)
    if world.keeps(Step.PURGE_AFTER_LOSS):  # the sketch has lost this write
        return _owe_purges(world, after)
    return after


def _clear(world: World, state: State, writer: Writer) -> State:
    """Set the version entry, owe purges; if no write is pending, the key can leave the filter."""
    pending = any_pending(state)
    last = max(state.last, writer.version) if writer.op == LANDED else state.last
    state = state._replace(last=last, member=state.member and (pending or state.stale_until > 0))
    if world.entries and state.handed_out:
        # Recovery reads the store: the writer has failed, and its version is unknown.
        version = writer.version if writer.at != GONE else state.store
        entry = _entry_after(world, state.entry, version, pending=pending)
        state = without_fills(state)._replace(entry=entry)
    return _owe_purges(world, state) if writer.held else state


def _entry_after(world: World, before: Entry, version: int, *, pending: bool) -> Entry:
    is_known = version > 0 and before != (HIDDEN, UNKNOWN_VERSION)
    if before[0] == HIDDEN and world.keeps(Step.ENTRY_BY_MAXIMUM):
        version = max(version, before[1])
    if pending and world.keeps(Step.ENTRY_HIDDEN):
        return HIDDEN, version if is_known else UNKNOWN_VERSION
    return (KNOWN, version) if is_known else (EMPTY, 0)


def _owe_purges(world: World, state: State) -> State:
    """Owe a purge now, and one after the longest fill."""
    if world.fill is None:
        return state
    repeated = (world.fill + 1,) if world.keeps(Step.REPEATED_PURGE) else ()
    return state._replace(purges=tuple(sorted({*state.purges, 0, *repeated})))


def _acknowledge(state: State, number: int, writer: Writer, at: int) -> Move:
    after = record_seen(with_writer(state, number, writer._replace(at=at)), writer.version)
    return Move("acknowledge", after, acknowledged=number)


def _recover(world: World, state: State, number: int, writer: Writer) -> State:
    """Fence the write, read the store, purge, clear."""
    reached = world.keeps(Step.LEASE_TOKEN) or writer.remaining == world.rewrites
    fenced = writer.op == IN_FLIGHT and world.keeps(Step.FENCING) and reached
    recovered = writer._replace(
        pending=False, op=FENCED if fenced else writer.op, fenced=world.rewrites > 0
    )
    return _clear(world, with_writer(state, number, recovered), recovered)


def lose_sketch(world: World, state: State) -> State:
    """Lose pending writes and times; only deadlines in the store bound writes in flight."""
    lease = world.lease or 1
    writers = tuple(
        writer._replace(
            pending=False, lease=lease, op=EXPIRING if writer.op == IN_FLIGHT else writer.op
        )
        for writer in state.writers
    )
    after = without_fills(state)._replace(
        writers=writers,
        losses=state.losses - 1,
        purges=(),
        handed_out=0,
        stale_until=0,
        member=False,
        entry=(EMPTY, 0),
        last=0,
        saturated=world.max_expiry if world.keeps(Step.SATURATION) else 0,
        uncacheable=lease if world.keeps(Step.UNCACHEABLE_AFTER_LOSS) else 0,
    )
    return _owe_purges(world, after) if world.keeps(Step.PURGE_AFTER_LOSS) else after
