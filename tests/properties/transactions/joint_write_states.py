"""The states of joint writes as a machine (`joint_write_model`), and their changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Any, Final, NamedTuple

RECORDS: Final = (0, 1)
"""The anchor, and the other record."""

FREE: Final = -1

CHANCE: Final = -1
"""Who makes a move that nobody has to make: a crash, or one of those who act on what is past."""


class Rule(Enum):
    """What the protocol requires; the search breaks each of the rules on purpose."""

    WRITES_MEET_INTENTS = auto()
    STEPS_NEED_INTENTS = auto()
    COMMIT_NEEDS_ALL_INTENTS = auto()
    COMMIT_NEEDS_THE_LOG = auto()
    UNKNOWN_IS_ABORTED_FIRST = auto()
    ABORTED_BEFORE_UNLOCKED = auto()
    FINISHED_AFTER_APPLIED = auto()
    READERS_COMPARE_JOINT_WRITES = auto()
    SECOND_LOOK_COMPARES_VERSIONS = auto()
    SECOND_LOOK_SEES_INTENTS = auto()
    WITHDRAWN_IS_ABORTED_FIRST = auto()
    STAGED_IS_FENCED_BEFORE_ABORTED = auto()
    APPLIED_COUNTS_AS_LOCKED = auto()
    INTENTS_CARRY_THE_REDO = auto()
    ONLY_ABORTED_IS_UNLOCKED = auto()
    ABORTED_IS_KEPT_WHILE_LOCKS_MAY_COME = auto()
    WITHDRAWN_LOOKS_AT_RECORDS = auto()
    ONLY_COMMITTED_IS_APPLIED = auto()
    LOCKS_ARRIVE_ONCE = auto()


class Number(IntEnum):
    """An enumeration that is hashed as the number it is: states are hashed millions of times."""

    __hash__ = int.__hash__


class Log(Number):
    """The state of a joint write in the log."""

    UNKNOWN = auto()
    PREPARING = auto()
    STAGED = auto()
    ABORTED = auto()
    COMMITTED = auto()
    FINISHED = auto()
    """The log has forgotten it once all was applied: nobody can tell that from `UNKNOWN`."""


GONE: Final = (Log.UNKNOWN, Log.FINISHED)
"""The log has no entry: none has arrived, it was lost, or it was forgotten."""


class At(Number):
    """Where a coordinator stands."""

    IDLE = auto()
    LOCKING = auto()
    WITHDRAWING = auto()
    """It has given up a blind write, which has to be aborted, as others may find it committed."""
    # From here on it does not depend on the log.
    LOOKING = auto()
    """The log says that its blind write is aborted, which may have happened before nevertheless."""
    APPLYING = auto()
    ACKNOWLEDGED = auto()
    LEFT = auto()
    """It has reported that its write does not happen, and removes its intents."""


class Sent(Number):
    """The state of a message."""

    NOT = auto()
    UNDER_WAY = auto()
    DONE = auto()
    REFUSED = auto()


@dataclass(frozen=True)
class World:
    """What there is, and which rules hold.

    Attributes:
        joint: The records that each joint write touches; it locks both.
        singles: The records that the client writes one after the other.
        reads: Whether the object is read, again and again.
        crashes: How many coordinators may stop, at any step.
        equal: Whether the records carry the same joint write at first.
        blind: Which of the joint writes are blind: staged, and committed by their intents.
        broken: A rule that does not hold.
    """

    joint: tuple[tuple[int, ...], ...] = ((0, 1),)
    singles: tuple[int, ...] = ()
    reads: bool = False
    crashes: int = 1
    equal: bool = True
    blind: frozenset[int] = frozenset()
    broken: Rule | None = None

    def keeps(self, rule: Rule) -> bool:
        return self.broken is not rule


class Record(NamedTuple):
    """A record: the writes that took effect, the intent, and the last joint write."""

    writes: tuple[int, ...]
    intent: int
    joint: int


class Coordinator(NamedTuple):
    """The coordinator of a joint write, and its messages."""

    at: At
    begin: Sent
    locks: tuple[Sent, Sent]


class Found(NamedTuple):
    """What others know of a write.

    `held`: they have seen that a record has the intent of a blind write, or was written by it.
    `aborted`: the log has said that it does not happen, before any of it had.
    """

    held: tuple[bool, bool] = (False, False)
    aborted: bool = False


class Reader(NamedTuple):
    """A reader: what it has read of each record, this time and the time before."""

    now: tuple[Record | None, Record | None] = (None, None)
    first: tuple[Record, Record] | None = None
    acknowledged: int = 0


class State(NamedTuple):
    """Everything; writes are known by numbers, sets of them as bits."""

    records: tuple[Record, Record]
    log: tuple[Log, ...]
    coordinators: tuple[Coordinator, ...]
    found: tuple[Found, ...]
    singles: int
    reader: Reader | None
    acknowledged: int
    before: tuple[int, ...]
    """For each write, those that were acknowledged before it began."""


class Move(NamedTuple):
    """A step, the state after it, and whether that breaks a guarantee."""

    what: str
    state: State
    broken: bool = False
    by: int | None = None
    """The coordinator that makes this move; None: anyone may."""


def has_intent(state: State, number: int) -> bool:
    return any(record.intent == number for record in state.records)


def has_taken_effect(state: State, number: int) -> bool:
    """Whether a write has taken effect in some record."""
    return any(number in record.writes for record in state.records)


def with_intent(state: State, number: int) -> State:
    return state._replace(before=replaced(state.before, number, state.acknowledged))


def acknowledged(state: State, number: int) -> State:
    return state._replace(acknowledged=state.acknowledged | 1 << number)


def may_commit(world: World, it: Coordinator) -> bool:
    """Whether a coordinator has all the answers that its commit needs."""
    answered = [*it.locks, it.begin]
    if not world.keeps(Rule.COMMIT_NEEDS_ALL_INTENTS):
        answered = [it.locks[0], it.begin]
    return all(sent is Sent.DONE for sent in answered)


# Millions of states are made by these: by position, as `_replace` takes two to three times as long.


def with_coordinator(state: State, number: int, coordinator: Coordinator) -> State:
    changed = replaced(state[2], number, coordinator)
    return State(state[0], state[1], changed, state[3], state[4], state[5], state[6], state[7])


def with_found(state: State, number: int, found: Found) -> State:
    changed = replaced(state[3], number, found)
    return State(state[0], state[1], state[2], changed, state[4], state[5], state[6], state[7])


def with_reader(state: State, reader: Reader | None) -> State:
    return State(state[0], state[1], state[2], state[3], state[4], reader, state[6], state[7])


def logged(state: State, number: int, log: Log) -> State:
    found = state[3][number]
    if log is Log.COMMITTED:  # what was seen before decides nothing any more
        state = with_found(state, number, Found(aborted=found.aborted))
    elif log is Log.ABORTED and not found.aborted and not has_taken_effect(state, number):
        state = with_found(state, number, Found(found.held, aborted=True))
    changed = replaced(state[1], number, log)
    return State(state[0], changed, state[2], state[3], state[4], state[5], state[6], state[7])


def put(
    state: State,
    at: int,
    *,
    writes: tuple[int, ...] | None = None,
    intent: int | None = None,
    joint: int | None = None,
) -> State:
    record = state.records[at]
    changed = Record(
        record.writes if writes is None else writes,
        record.intent if intent is None else intent,
        record.joint if joint is None else joint,
    )
    records = replaced(state.records, at, changed)
    return State(records, state[1], state[2], state[3], state[4], state[5], state[6], state[7])


def replaced(items: tuple[Any, ...], at: int, item: object) -> Any:
    return (*items[:at], item, *items[at + 1 :])


def without_what_is_over(state: State) -> State:
    """Forget what nobody depends on any more of joint writes that are over.

    A write that has no intents, and gets no more, does nothing to a record; and once its
    coordinator has learnt what it needs of the log, nobody is interested in what that says.
    """
    for number, it in enumerate(state[2]):
        over = it.at >= At.LOOKING and Sent.UNDER_WAY not in it.locks
        if over and not has_intent(state, number):
            locks = it.locks if it.at is At.LOOKING else (Sent.DONE, Sent.DONE)
            state = logged(state, number, Log.UNKNOWN)
            state = with_coordinator(state, number, Coordinator(it.at, Sent.DONE, locks))
            state = with_found(state, number, Found())
    return state


def one_of_twins(state: State) -> State:
    """Of a state and that with its two joint writes exchanged, return the same one for both."""
    one, other = zip(state.coordinators, state.log, state.found, strict=True)
    if one < other:
        return state
    return exchanged(state) if other < one else min(state, exchanged(state))


def exchanged(state: State) -> State:
    """Give each of two joint writes the number of the other."""
    one, other, *singles = map(_exchanged_bits, state.before)
    reader = state.reader
    return State(
        records=_exchanged_records(state.records),
        log=state.log[::-1],
        coordinators=state.coordinators[::-1],
        found=state.found[::-1],
        singles=state.singles,
        reader=reader and _exchanged_reader(reader),
        acknowledged=_exchanged_bits(state.acknowledged),
        before=(other, one, *singles),
    )


def _exchanged_reader(reader: Reader) -> Reader:
    first = reader.first and _exchanged_records(reader.first)
    return Reader(_exchanged_records(reader.now), first, _exchanged_bits(reader.acknowledged))


def _exchanged_records(records: tuple[Any, Any]) -> Any:
    return tuple(
        it
        and Record(
            tuple(map(_exchanged_number, it.writes)),
            _exchanged_number(it.intent),
            _exchanged_number(it.joint),
        )
        for it in records
    )


def _exchanged_number(number: int) -> int:
    return 1 - number if number in (0, 1) else number


def _exchanged_bits(numbers: int) -> int:
    return numbers & ~3 | (numbers & 1) << 1 | (numbers >> 1 & 1)
