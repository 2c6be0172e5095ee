"""Joint writes as a state machine that is searched exhaustively (docs/transactions.md).

One object in two records, on systems of their own; joint writes to it, a client that writes one
record after the other, and a reader. What blind writes do is in `blind_write_model`. Every message
is delivered at any time after it was sent, or never; a coordinator stops at any step. Any
participant may resolve a write, at any time. Leases have no length here, so nothing depends on
them.

What cannot be told apart is one state: joint writes that are alike may be exchanged, those that are
over and a finished read leave nothing behind, and to request the commit is one move with its
arrival.
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
    Found,
    Log,
    Move,
    Reader,
    Record,
    Rule,
    Sent,
    State,
    World,
    acknowledged,
    has_intent,
    logged,
    may_commit,
    one_of_twins,
    put,
    replaced,
    with_coordinator,
    with_intent,
    with_reader,
    without_what_is_over,
)

__all__ = ["initial_state", "moves", "moves_or_end", "search"]


def search(world: World) -> exhaustive.Found[Move]:
    """Visit all states of a world until a guarantee is broken, or nothing goes on."""
    return exhaustive.search(
        initial_state(world),
        moves_or_end(world),
        _one_of_alike if _are_alike(world) else without_what_is_over,
        most=3_000_000,
    )


def _one_of_alike(state: State) -> State:
    return one_of_twins(without_what_is_over(state))


def moves_or_end(world: World) -> Callable[[State], Iterator[Move]]:
    """Return a function that yields all moves, and one that breaks where nothing goes on."""
    writing = partial(_writing_moves, world)
    return partial(_moves_or_end, world, lru_cache(None)(writing) if world.reads else writing)


def _are_alike(world: World) -> bool:
    """Whether the two joint writes can be exchanged in every state."""
    return len(world.joint) == 2 and len(set(world.joint)) == 1 and len(world.blind) != 1


class Writing(NamedTuple):
    """Moves that no reader makes, and whether nothing goes on although something is left over."""

    moves: tuple[Move, ...]
    stuck: bool


def _moves_or_end(
    world: World, writing_moves: Callable[[State], Writing], state: State
) -> Iterator[Move]:
    """Nobody sees a reader: the moves of others are found once for all that it may have read."""
    reader = state.reader
    writing = writing_moves(with_reader(state, None))
    for move in writing.moves:
        yield move if reader is None else _read_meanwhile(move, reader)
    if world.reads:
        yield from _reading(world, state)
    if writing.stuck:
        yield Move("nothing goes on", state, broken=True)


def _read_meanwhile(move: Move, reader: Reader) -> Move:
    return Move(move.what, with_reader(move.state, reader), move.broken, move.by)


def _writing_moves(world: World, state: State) -> Writing:
    """Return what others than readers may do; nothing, but by coordinators that stop, is an end.

    A coordinator that has stopped is one that makes no move any more, and others do not see it: so
    the model has no move of stopping, and looks at where everyone else stands still.
    """
    found = tuple(_writing(world, state))
    going_on = {move.by for move in found if move.by != CHANCE and move.state != state}
    stuck = None not in going_on and len(going_on) <= world.crashes
    return Writing(found, stuck and not _is_resolved(world, state))


def initial_state(world: World) -> State:
    count = len(world.joint)
    idle = Coordinator(At.IDLE, Sent.NOT, (Sent.NOT, Sent.NOT))
    return State(
        records=(Record((), FREE, FREE), Record((), FREE, FREE if world.equal else FREE - 1)),
        log=(Log.UNKNOWN,) * count,
        coordinators=(idle,) * count,
        found=(Found(),) * count,
        singles=0,
        reader=None,
        acknowledged=0,
        before=(0,) * (count + len(world.singles)),
    )


def _is_resolved(world: World, state: State) -> bool:
    """Whether nothing is left over: no intent, no torn write, no client that waits for ever."""
    return (
        all(record.intent == FREE for record in state.records)
        and not any(_is_torn(world, number, state.records) for number in range(len(world.joint)))
        and state.singles == len(world.singles)
    )


def _is_torn(world: World, number: int, records: tuple[Record, Record]) -> bool:
    """Whether a joint write has taken effect in some of the records that it touches."""
    return len({number in records[at].writes for at in world.joint[number]}) > 1


def moves(world: World, state: State) -> Iterator[Move]:
    """Everything that can happen next."""
    yield from _writing(world, state)
    if world.reads:
        yield from _reading(world, state)


def _writing(world: World, state: State) -> Iterator[Move]:
    for number, coordinator in enumerate(state.coordinators):
        yield from _coordinating(world, state, number, coordinator)
        yield from _delivering(world, state, number, coordinator)
        yield from _resolving(world, state, number)
        if number in world.blind:
            yield from blind_writes.resolving(world, state, number)
    yield from _single(world, state)


def _coordinating(world: World, state: State, number: int, it: Coordinator) -> Iterator[Move]:
    if it.at in (At.ACKNOWLEDGED, At.LEFT):
        return
    if it.at is At.IDLE:
        started = Coordinator(At.LOCKING, Sent.UNDER_WAY, (Sent.UNDER_WAY,) * 2)
        yield Move(
            f"J{number} begins", with_intent(with_coordinator(state, number, started), number)
        )
        return
    if it.at is At.APPLYING:
        if not has_intent(state, number):
            after = with_coordinator(state, number, it._replace(at=At.ACKNOWLEDGED))
            broken = not _is_applied(world, state, number)
            yield Move(f"J{number} acknowledges", acknowledged(after, number), broken, number)
        return
    if number in world.blind:
        yield from blind_writes.coordinating(world, state, number, it)
        return
    if it.locks == (Sent.DONE, Sent.REFUSED):
        # A coordinator that has the anchor waits for the rest; any other removes its intents.
        again = it._replace(locks=(Sent.DONE, Sent.UNDER_WAY))
        yield Move(
            f"J{number} waits for record 1", with_coordinator(state, number, again), by=number
        )
    left = with_coordinator(state, number, it._replace(at=At.LEFT))
    yield Move(f"J{number} gives up", left, by=number)
    may = state.log[number] is Log.PREPARING or not world.keeps(Rule.COMMIT_NEEDS_THE_LOG)
    if may and may_commit(world, it):
        # One whose request is under way can do less than one that has not sent it, and one
        # whose request is refused gives up, which both may do at any time.
        after = with_coordinator(state, number, it._replace(at=At.APPLYING))
        yield Move(f"J{number} is committed", logged(after, number, Log.COMMITTED), by=number)


def _delivering(world: World, state: State, number: int, it: Coordinator) -> Iterator[Move]:
    """Messages of a coordinator arrive, whether it still runs or not."""
    if it.begin is Sent.UNDER_WAY:
        fresh = state.log[number] in GONE
        begun = Log.STAGED if number in world.blind else Log.PREPARING
        after = logged(state, number, begun) if fresh else state
        sent = Sent.DONE if fresh else Sent.REFUSED
        yield Move(f"J{number} is logged", with_coordinator(after, number, it._replace(begin=sent)))
    for at in RECORDS:
        again = it.locks[at] is Sent.DONE and not world.keeps(Rule.LOCKS_ARRIVE_ONCE)
        if it.locks[at] is Sent.UNDER_WAY or again:
            free = state.records[at].intent == FREE
            after = put(state, at, intent=number) if free else state
            if not again:
                locks = replaced(it.locks, at, Sent.DONE if free else Sent.REFUSED)
                after = with_coordinator(after, number, it._replace(locks=locks))
            yield Move(f"J{number} locks record {at}", after)


def _resolving(world: World, state: State, number: int) -> Iterator[Move]:
    """What any participant may do about a write that it finds."""
    log, coordinator = state.log[number], state.coordinators[number]
    refused = number not in world.blind or not world.keeps(Rule.INTENTS_CARRY_THE_REDO)
    unknown = log is Log.UNKNOWN and refused and has_intent(state, number)
    if unknown or log is Log.PREPARING:
        yield Move(f"J{number} is aborted", logged(state, number, Log.ABORTED))
    if log in (Log.COMMITTED, Log.FINISHED) or coordinator.at in (At.APPLYING, At.ACKNOWLEDGED):
        for at in RECORDS:
            yield from _applying(world, state, number, at)
    done = _is_applied(world, state, number) or not world.keeps(Rule.FINISHED_AFTER_APPLIED)
    ended = log is Log.STAGED and coordinator.at is At.ACKNOWLEDGED
    if (log is Log.COMMITTED and done) or ended:
        yield Move(f"J{number} is finished", logged(state, number, Log.FINISHED))
    if (
        coordinator.at is At.LEFT
        or _may_unlock(world, log)
        or (number in world.blind and blind_writes.may_unlock_rashly(world, state, number))
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


def _applying(world: World, state: State, number: int, at: int) -> Iterator[Move]:
    """Apply a step under its intent: sent by any participant, at any time, however often."""
    record = state.records[at]
    if record.intent != number and world.keeps(Rule.STEPS_NEED_INTENTS):
        return
    what = f"J{number} is applied at {at}"
    if at not in world.joint[number]:
        if record.intent == number:
            yield Move(what, put(state, at, intent=FREE, joint=number))
        return
    if record.writes.count(number) < 2:
        intent = FREE if record.intent == number else record.intent
        yield _written(what, put(state, at, intent=intent, joint=number), at, number)


def _is_applied(world: World, state: State, number: int) -> bool:
    return not has_intent(state, number) and all(
        number in state.records[at].writes for at in world.joint[number]
    )


def _single(world: World, state: State) -> Iterator[Move]:
    """The client writes one record after the other; each write is acknowledged as it happens."""
    if state.singles == len(world.singles):
        return
    at, number = world.singles[state.singles], len(world.joint) + state.singles
    if state.records[at].intent == FREE or not world.keeps(Rule.WRITES_MEET_INTENTS):
        started = with_intent(state, number)._replace(singles=state.singles + 1)
        move = _written(f"S{number} writes record {at}", started, at, number)
        yield move._replace(state=acknowledged(move.state, number))


def _reading(world: World, state: State) -> Iterator[Move]:
    """Read one record after the other, and answer, or read both again.

    A read begins with its first record, and is answered with its last: nobody sees it, so whatever
    happens before and after that may as well happen after its end and before its beginning.
    """
    reader = state.reader or Reader(acknowledged=state.acknowledged)
    for at in RECORDS:
        if reader.now[at] is None:
            now = replaced(reader.now, at, state.records[at])
            what = f"record {at} is read"
            if None in now:
                yield Move(what, with_reader(state, reader._replace(now=now)))
            else:
                yield _answered(world, state, what, reader, now)


def _answered(
    world: World, state: State, what: str, reader: Reader, read: tuple[Record, Record]
) -> Move:
    equal = read[0].joint == read[1].joint or not world.keeps(Rule.READERS_COMPARE_JOINT_WRITES)
    if equal or (reader.first and _is_stable(world, reader.first, read)):
        torn = any(_is_torn(world, number, read) for number in range(len(world.joint)))
        old = any(
            reader.acknowledged >> number & 1 and number not in read[at].writes
            for number, records in enumerate(_touched(world))
            for at in records
        )
        what = f"{what}; a whole object is answered"
        return Move(what, with_reader(state, None), torn or old)
    if reader.first is None:
        again = Reader(first=read, acknowledged=reader.acknowledged)
        return Move(f"{what}; both are read again", with_reader(state, again))
    what = f"{what}; a partial object is answered as such"
    return Move(what, with_reader(state, None))


def _touched(world: World) -> tuple[tuple[int, ...], ...]:
    return (*world.joint, *((at,) for at in world.singles))


def _is_stable(world: World, first: tuple[Record, Record], read: tuple[Record, Record]) -> bool:
    """Whether both reads saw the same, and no intent: then they saw one state of the object."""
    if any(it.intent != FREE for it in read) and world.keeps(Rule.SECOND_LOOK_SEES_INTENTS):
        return False
    same = all(a.writes == b.writes for a, b in zip(first, read, strict=True))
    return same or not world.keeps(Rule.SECOND_LOOK_COMPARES_VERSIONS)


def _written(what: str, state: State, at: int, number: int) -> Move:
    writes = (*state.records[at].writes, number)
    after = put(state, at, writes=writes)
    again = writes.count(number) > 1
    return Move(what, after, again or _was_denied(state, number) or _is_cyclic(after))


def _was_denied(state: State, number: int) -> bool:
    """Whether the log, or the coordinator, has said of a write that it does not happen."""
    if number >= len(state.coordinators):
        return False
    return state.found[number].aborted or state.coordinators[number].at is At.LEFT


def _is_cyclic(state: State) -> bool:
    """Whether the writes cannot have happened one after the other, in any order."""
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
