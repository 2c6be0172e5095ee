"""Joint writes as a state machine that is searched exhaustively (docs/transactions.md).

One object in two records, on separate systems; joint writes to it, a client that writes one record
after the other, and a reader. The moves of blind writes are in `blind_write_model`. Every message
is delivered at any time after it was sent, or never; a coordinator stops at any step. Any
participant can resolve a write, at any time. Leases have no length here: nothing depends on them.

Indistinguishable states are one state: similar joint writes can be exchanged, finished writes and
reads leave nothing behind, and the request of a commit and its arrival are one move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

from tests.properties import exhaustive
from tests.properties.transactions import blind_write_model as blind_writes
from tests.properties.transactions.joint_write_states import (
    CHANCE,
    FREE,
    GONE,
    RECORDS,
    At,
    Coordinator,
    Evidence,
    Log,
    Move,
    Reader,
    Record,
    Rule,
    Sent,
    State,
    World,
    acknowledge,
    canonical_twin,
    has_intent,
    may_commit,
    put,
    replace_item,
    with_coordinator,
    with_intent,
    with_log,
    with_reader,
    without_finished,
)

__all__ = ["initial_state", "moves", "moves_or_end", "search"]


def search(world: World) -> exhaustive.SearchResult[Move]:
    """Visit all states of a world until a move breaks a guarantee, or the world is stuck."""
    return exhaustive.search(
        initial_state(world),
        moves_or_end(world),
        _canonical if _are_interchangeable(world) else without_finished,
        max_states=3_000_000,
    )


def _canonical(state: State) -> State:
    return canonical_twin(without_finished(state))


def moves_or_end(world: World) -> Callable[[State], Iterator[Move]]:
    """Return a function that yields all moves, and a broken one if the world is stuck."""
    find = partial(_find_writer_moves, world)
    return partial(_moves_or_end, world, lru_cache(None)(find) if world.reads else find)


def _are_interchangeable(world: World) -> bool:
    """Whether the two joint writes can be exchanged in every state."""
    return len(world.joint) == 2 and len(set(world.joint)) == 1 and len(world.blind) != 1


class WriterMoves(NamedTuple):
    """Moves of all but readers, and whether the world is stuck with a write unresolved."""

    moves: tuple[Move, ...]
    stuck: bool


def _moves_or_end(
    world: World, find: Callable[[State], WriterMoves], state: State
) -> Iterator[Move]:
    """The writers' moves do not depend on the reader: one search serves all its states."""
    reader = state.reader
    writers = find(with_reader(state, None))
    for move in writers.moves:
        yield move if reader is None else _with_reader_of(move, reader)
    if world.reads:
        yield from _reader_moves(world, state)
    if writers.stuck:
        yield Move("nothing goes on", state, broken=True)


def _with_reader_of(move: Move, reader: Reader) -> Move:
    return Move(move.label, with_reader(move.state, reader), move.broken, move.by)


def _find_writer_moves(world: World, state: State) -> WriterMoves:
    """Return the moves of all but readers; stuck: only stopped coordinators have moves.

    A stopped coordinator makes no more moves, and others do not see that: the model has no move for
    stopping, but looks for states in which all others have no move.
    """
    possible = tuple(_writer_moves(world, state))
    movers = {move.by for move in possible if move.by != CHANCE and move.state != state}
    stuck = None not in movers and len(movers) <= world.crashes
    return WriterMoves(possible, stuck and not _is_resolved(world, state))


def initial_state(world: World) -> State:
    count = len(world.joint)
    idle = Coordinator(At.IDLE, Sent.NOT, (Sent.NOT, Sent.NOT))
    return State(
        records=(Record((), FREE, FREE), Record((), FREE, FREE if world.equal else FREE - 1)),
        log=(Log.UNKNOWN,) * count,
        coordinators=(idle,) * count,
        evidence=(Evidence(),) * count,
        singles=0,
        reader=None,
        acknowledged=0,
        before=(0,) * (count + len(world.singles)),
    )


def _is_resolved(world: World, state: State) -> bool:
    """Whether no intent, no torn write and no client that waits for ever is left."""
    return (
        all(record.intent == FREE for record in state.records)
        and not any(_is_torn(world, number, state.records) for number in range(len(world.joint)))
        and state.singles == len(world.singles)
    )


def _is_torn(world: World, number: int, records: tuple[Record, Record]) -> bool:
    """Whether a joint write has taken effect in some of the records that it touches."""
    return len({number in records[at].writes for at in world.joint[number]}) > 1


def moves(world: World, state: State) -> Iterator[Move]:
    """Yield all moves from a state."""
    yield from _writer_moves(world, state)
    if world.reads:
        yield from _reader_moves(world, state)


def _writer_moves(world: World, state: State) -> Iterator[Move]:
    for number, coordinator in enumerate(state.coordinators):
        yield from _coordinator_moves(world, state, number, coordinator)
        yield from _delivery_moves(world, state, number, coordinator)
        yield from _resolution_moves(world, state, number)
        if number in world.blind:
            yield from blind_writes.resolution_moves(world, state, number)
    yield from _single_moves(world, state)


def _coordinator_moves(
    world: World, state: State, number: int, coordinator: Coordinator
) -> Iterator[Move]:
    if coordinator.at in (At.ACKNOWLEDGED, At.REFUSED):
        return
    if coordinator.at is At.IDLE:
        started = Coordinator(At.LOCKING, Sent.UNDER_WAY, (Sent.UNDER_WAY,) * 2)
        yield Move(
            f"J{number} begins", with_intent(with_coordinator(state, number, started), number)
        )
        return
    if coordinator.at is At.APPLYING:
        if not has_intent(state, number):
            after = with_coordinator(state, number, coordinator._replace(at=At.ACKNOWLEDGED))
            broken = not _is_applied(world, state, number)
            yield Move(f"J{number} acknowledges", acknowledge(after, number), broken, number)
        return
    if number in world.blind:
        yield from blind_writes.coordinator_moves(world, state, number, coordinator)
        return
    if coordinator.locks == (Sent.DONE, Sent.REFUSED):
        # A coordinator with the anchor's intent waits for the rest; any other removes its intents.
        waiting = coordinator._replace(locks=(Sent.DONE, Sent.UNDER_WAY))
        yield Move(
            f"J{number} waits for record 1", with_coordinator(state, number, waiting), by=number
        )
    refused = with_coordinator(state, number, coordinator._replace(at=At.REFUSED))
    yield Move(f"J{number} gives up", refused, by=number)
    is_prepared = state.log[number] is Log.PREPARING or not world.keeps(Rule.COMMIT_NEEDS_THE_LOG)
    if is_prepared and may_commit(world, coordinator):
        # A coordinator whose request is under way can do less than one that has not sent it, and
        # one whose request is refused gives up, which both can do at any time.
        after = with_coordinator(state, number, coordinator._replace(at=At.APPLYING))
        yield Move(f"J{number} is committed", with_log(after, number, Log.COMMITTED), by=number)


def _delivery_moves(
    world: World, state: State, number: int, coordinator: Coordinator
) -> Iterator[Move]:
    """Yield the arrivals of a coordinator's messages, whether it still runs or not."""
    if coordinator.begin is Sent.UNDER_WAY:
        fresh = state.log[number] in GONE
        entry = Log.STAGED if number in world.blind else Log.PREPARING
        after = with_log(state, number, entry) if fresh else state
        sent = Sent.DONE if fresh else Sent.REFUSED
        yield Move(
            f"J{number} is logged",
            with_coordinator(after, number, coordinator._replace(begin=sent)),
        )
    for at in RECORDS:
        is_repeated = coordinator.locks[at] is Sent.DONE and not world.keeps(Rule.LOCKS_ARRIVE_ONCE)
        if coordinator.locks[at] is Sent.UNDER_WAY or is_repeated:
            free = state.records[at].intent == FREE
            after = put(state, at, intent=number) if free else state
            if not is_repeated:
                locks = replace_item(coordinator.locks, at, Sent.DONE if free else Sent.REFUSED)
                after = with_coordinator(after, number, coordinator._replace(locks=locks))
            yield Move(f"J{number} locks record {at}", after)


def _resolution_moves(world: World, state: State, number: int) -> Iterator[Move]:
    """Yield the moves of any participant that finds a write."""
    log, coordinator = state.log[number], state.coordinators[number]
    refused = number not in world.blind or not world.keeps(Rule.INTENTS_CARRY_THE_REDO)
    unknown = log is Log.UNKNOWN and refused and has_intent(state, number)
    if unknown or log is Log.PREPARING:
        yield Move(f"J{number} is aborted", with_log(state, number, Log.ABORTED))
    if log in (Log.COMMITTED, Log.FINISHED) or coordinator.at in (At.APPLYING, At.ACKNOWLEDGED):
        for at in RECORDS:
            yield from _apply_moves(world, state, number, at)
    is_applied = _is_applied(world, state, number) or not world.keeps(Rule.FINISHED_AFTER_APPLIED)
    is_over = log is Log.STAGED and coordinator.at is At.ACKNOWLEDGED
    if (log is Log.COMMITTED and is_applied) or is_over:
        yield Move(f"J{number} is finished", with_log(state, number, Log.FINISHED))
    if (
        coordinator.at is At.REFUSED
        or _may_unlock(world, log)
        or (number in world.blind and blind_writes.may_unlock_too_early(world, state, number))
    ):
        for at in RECORDS:
            if state.records[at].intent == number:
                yield Move(f"J{number}'s intent at {at} goes", put(state, at, intent=FREE))


def _may_unlock(world: World, log: Log) -> bool:
    if log is Log.UNKNOWN:
        return not world.keeps(Rule.UNKNOWN_IS_ABORTED_FIRST)
    if log is Log.PREPARING:
        return not world.keeps(Rule.ABORTED_BEFORE_UNLOCKED)
    forgotten = log is Log.FINISHED and not world.keeps(Rule.FINISHED_AFTER_APPLIED)
    return log is Log.ABORTED or forgotten


def _apply_moves(world: World, state: State, number: int, at: int) -> Iterator[Move]:
    """Apply a step under its intent; any participant can send it, at any time and repeatedly."""
    record = state.records[at]
    if record.intent != number and world.keeps(Rule.STEPS_NEED_INTENTS):
        return
    label = f"J{number} is applied at {at}"
    if at not in world.joint[number]:
        if record.intent == number:
            yield Move(label, put(state, at, intent=FREE, joint=number))
        return
    if record.writes.count(number) < 2:
        intent = FREE if record.intent == number else record.intent
        yield _write_move(label, put(state, at, intent=intent, joint=number), at, number)


def _is_applied(world: World, state: State, number: int) -> bool:
    return not has_intent(state, number) and all(
        number in state.records[at].writes for at in world.joint[number]
    )


def _single_moves(world: World, state: State) -> Iterator[Move]:
    """The client writes one record after the other; each write is acknowledged at once."""
    if state.singles == len(world.singles):
        return
    at, number = world.singles[state.singles], len(world.joint) + state.singles
    if state.records[at].intent == FREE or not world.keeps(Rule.WRITES_MEET_INTENTS):
        started = with_intent(state, number)._replace(singles=state.singles + 1)
        move = _write_move(f"S{number} writes record {at}", started, at, number)
        yield move._replace(state=acknowledge(move.state, number))


def _reader_moves(world: World, state: State) -> Iterator[Move]:
    """Read one record after the other, and answer, or read both again.

    A read starts with its first record and is answered with its last. Nobody observes it, so other
    moves before and after these can as well happen before its start and after its end.
    """
    reader = state.reader or Reader(acknowledged=state.acknowledged)
    for at in RECORDS:
        if reader.current[at] is None:
            current = replace_item(reader.current, at, state.records[at])
            label = f"record {at} is read"
            if None in current:
                yield Move(label, with_reader(state, reader._replace(current=current)))
            else:
                yield _answer_move(world, state, label, reader, current)


def _answer_move(
    world: World, state: State, label: str, reader: Reader, read: tuple[Record, Record]
) -> Move:
    equal = read[0].joint == read[1].joint or not world.keeps(Rule.READERS_COMPARE_JOINT_WRITES)
    if equal or (reader.first and _is_stable(world, reader.first, read)):
        is_torn = any(_is_torn(world, number, read) for number in range(len(world.joint)))
        is_stale = any(
            reader.acknowledged >> number & 1 and number not in read[at].writes
            for number, records in enumerate(_touched_records(world))
            for at in records
        )
        label = f"{label}; a whole object is answered"
        return Move(label, with_reader(state, None), is_torn or is_stale)
    if reader.first is None:
        second_read = Reader(first=read, acknowledged=reader.acknowledged)
        return Move(f"{label}; both are read again", with_reader(state, second_read))
    label = f"{label}; a partial object is answered as such"
    return Move(label, with_reader(state, None))


def _touched_records(world: World) -> tuple[tuple[int, ...], ...]:
    return (*world.joint, *((at,) for at in world.singles))


def _is_stable(world: World, first: tuple[Record, Record], read: tuple[Record, Record]) -> bool:
    """Whether both reads saw the same and no intent, and thus one state of the object."""
    if any(record.intent != FREE for record in read) and world.keeps(Rule.SECOND_LOOK_SEES_INTENTS):
        return False
    same = all(a.writes == b.writes for a, b in zip(first, read, strict=True))
    return same or not world.keeps(Rule.SECOND_LOOK_COMPARES_VERSIONS)


def _write_move(label: str, state: State, at: int, number: int) -> Move:
    writes = (*state.records[at].writes, number)
    after = put(state, at, writes=writes)
    is_repeated = writes.count(number) > 1
    return Move(label, after, is_repeated or _was_denied(state, number) or _is_cyclic(after))


def _was_denied(state: State, number: int) -> bool:
    """Whether the log or the coordinator has reported that a write does not happen."""
    if number >= len(state.coordinators):
        return False
    return state.evidence[number].aborted or state.coordinators[number].at is At.REFUSED


def _is_cyclic(state: State) -> bool:
    """Whether no serial order of the writes is possible."""
    count = len(state.before)
    follows = list(state.before)
    for record in state.records:
        for earlier, later in pairwise(record.writes):
            follows[later] |= 1 << earlier
    for middle in range(count):
        for number in range(count):
            if follows[number] >> middle & 1:
                follows[number] |= follows[middle]
    return any(follows[number] >> number & 1 for number in range(count))
