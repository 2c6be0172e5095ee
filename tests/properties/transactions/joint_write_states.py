"""The states of the joint write machine (`joint_write_model`), and their changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Any, Final, NamedTuple

RECORDS: Final = (0, 1)
"""The anchor, and the other record."""

FREE: Final = -1

CHANCE: Final = -1
"""The author of moves that need not happen: a crash, or a delayed action of a participant."""


class Rule(Enum):
    """Rules of the protocol; the search breaks each of them on purpose."""

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
    """An enumeration with the hash of its number, as states are hashed millions of times."""

    __hash__ = int.__hash__


class Log(Number):
    """The state of a joint write in the log."""

    UNKNOWN = auto()
    PREPARING = auto()
    STAGED = auto()
    ABORTED = auto()
    COMMITTED = auto()
    FINISHED = auto()
    """The log has removed it after it was applied: indistinguishable from `UNKNOWN`."""


GONE: Final = (Log.UNKNOWN, Log.FINISHED)
"""The log has no entry: it has not arrived, was lost, or was removed."""


class At(Number):
    """The step of a coordinator."""

    IDLE = auto()
    LOCKING = auto()
    WITHDRAWING = auto()
    """It has given up a blind write, which must be aborted, as others can find it committed."""
    # From here on it does not depend on the log.
    LOOKING = auto()
    """The log calls its blind write aborted, which can have happened before nevertheless."""
    APPLYING = auto()
    ACKNOWLEDGED = auto()
    REFUSED = auto()
    """It has reported that its write does not happen, and removes its intents."""


class Sent(Number):
    """The state of a message."""

    NOT = auto()
    UNDER_WAY = auto()
    DONE = auto()
    REFUSED = auto()


@dataclass(frozen=True)
class World:
    """The participants, and the rule that is broken.

    Attributes:
        joint: The records that each joint write touches; it locks both.
        singles: The records that the client writes one after the other.
        reads: Whether the object is read, repeatedly.
        crashes: How many coordinators can stop, at any step.
        equal: Whether the records have the same last joint write initially.
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


class Evidence(NamedTuple):
    """What others have learnt of a write.

    `held`: they have seen that a record has the intent of a blind write, or was written by it.
    `aborted`: the log has reported it aborted, before it had any effect.
    """

    held: tuple[bool, bool] = (False, False)
    aborted: bool = False


class Reader(NamedTuple):
    """A reader: the records that it has read, in the current and in the first attempt."""

    current: tuple[Record | None, Record | None] = (None, None)
    first: tuple[Record, Record] | None = None
    acknowledged: int = 0


class State(NamedTuple):
    """The whole state; writes are numbers, sets of writes are bits."""

    records: tuple[Record, Record]
    log: tuple[Log, ...]
    coordinators: tuple[Coordinator, ...]
    evidence: tuple[Evidence, ...]
    singles: int
    reader: Reader | None
    acknowledged: int
    before: tuple[int, ...]
    """For each write, those that were acknowledged before it began."""


class Move(NamedTuple):
    """A step, the state after it, and whether the step breaks a guarantee."""

    label: str
    state: State
    broken: bool = False
    by: int | None = None
    """The coordinator that makes this move; None: any participant can."""


def has_intent(state: State, number: int) -> bool:
    return any(record.intent == number for record in state.records)


def has_taken_effect(state: State, number: int) -> bool:
    """Whether a write has taken effect in some record."""
    return any(number in record.writes for record in state.records)


def with_intent(state: State, number: int) -> State:
    return state._replace(before=replace_item(state.before, number, state.acknowledged))


def acknowledge(state: State, number: int) -> State:
    return state._replace(acknowledged=state.acknowledged | 1 << number)


def may_commit(world: World, coordinator: Coordinator) -> bool:
    """Whether a coordinator has all the answers that its commit needs."""
    answers = [*coordinator.locks, coordinator.begin]
    if not world.keeps(Rule.COMMIT_NEEDS_ALL_INTENTS):
        answers = [coordinator.locks[0], coordinator.begin]
    return all(sent is Sent.DONE for sent in answers)


# These make millions of states: by position, as `_replace` takes two to three times as long.


def with_coordinator(state: State, number: int, coordinator: Coordinator) -> State:
    changed = replace_item(state[2], number, coordinator)
    return State(state[0], state[1], changed, state[3], state[4], state[5], state[6], state[7])


def with_evidence(state: State, number: int, evidence: Evidence) -> State:
    changed = replace_item(state[3], number, evidence)
    return State(state[0], state[1], state[2], changed, state[4], state[5], state[6], state[7])


def with_reader(state: State, reader: Reader | None) -> State:
    return State(state[0], state[1], state[2], state[3], state[4], reader, state[6], state[7])


def with_log(state: State, number: int, log: Log) -> State:
    evidence = state[3][number]
    if log is Log.COMMITTED:  # earlier evidence no longer decides anything
        state = with_evidence(state, number, Evidence(aborted=evidence.aborted))
    elif log is Log.ABORTED and not evidence.aborted and not has_taken_effect(state, number):
        state = with_evidence(state, number, Evidence(evidence.held, aborted=True))
    changed = replace_item(state[1], number, log)
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
    records = replace_item(state.records, at, changed)
    return State(records, state[1], state[2], state[3], state[4], state[5], state[6], state[7])


def replace_item(items: tuple[Any, ...], at: int, item: object) -> Any:
    return (*items[:at], item, *items[at + 1 :])


def without_finished(state: State) -> State:
    """Forget the parts of finished joint writes on which nothing depends any more.

    A write that has no intents, and gets no more, changes no record; and once its coordinator has
    read all it needs from the log, nothing depends on the log's entry.
    """
    for number, coordinator in enumerate(state[2]):
        is_over = coordinator.at >= At.LOOKING and Sent.UNDER_WAY not in coordinator.locks
        if is_over and not has_intent(state, number):
            locks = coordinator.locks if coordinator.at is At.LOOKING else (Sent.DONE, Sent.DONE)
            state = with_log(state, number, Log.UNKNOWN)
            state = with_coordinator(state, number, Coordinator(coordinator.at, Sent.DONE, locks))
            state = with_evidence(state, number, Evidence())
    return state


def canonical_twin(state: State) -> State:
    """Return the same state for a state and its twin, with the two joint writes exchanged."""
    one, other = zip(state.coordinators, state.log, state.evidence, strict=True)
    if one < other:
        return state
    return exchange(state) if other < one else min(state, exchange(state))


def exchange(state: State) -> State:
    """Exchange the numbers of the two joint writes."""
    one, other, *singles = map(_exchange_bits, state.before)
    reader = state.reader
    return State(
        records=_exchange_records(state.records),
        log=state.log[::-1],
        coordinators=state.coordinators[::-1],
        evidence=state.evidence[::-1],
        singles=state.singles,
        reader=reader and _exchange_reader(reader),
        acknowledged=_exchange_bits(state.acknowledged),
        before=(other, one, *singles),
    )


def _exchange_reader(reader: Reader) -> Reader:
    first = reader.first and _exchange_records(reader.first)
    return Reader(_exchange_records(reader.current), first, _exchange_bits(reader.acknowledged))


def _exchange_records(records: tuple[Any, Any]) -> Any:
    return tuple(
        record
        and Record(
            tuple(map(_exchange_number, record.writes)),
            _exchange_number(record.intent),
            _exchange_number(record.joint),
        )
        for record in records
    )


def _exchange_number(number: int) -> int:
    return 1 - number if number in (0, 1) else number


def _exchange_bits(numbers: int) -> int:
    return numbers & ~3 | (numbers & 1) << 1 | (numbers >> 1 & 1)
