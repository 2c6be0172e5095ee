"""Moves of blind writes in the state machine of joint writes (`joint_write_model`).

A blind write is staged in the log without waiting for its disk, so its entry is lost at any time,
as often as that may be; each of its intents carries the redo record, from which whoever meets it
logs the write again. That may be long after: what was seen of a write stays known, whatever has
become of the write.

To fence a record is one move with the arrival of what it stops, as that does nothing any more; and
to see that an intent is missing for good is one with the abort, as that can be seen later as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.properties.transactions.joint_write_states import (
    CHANCE,
    GONE,
    RECORDS,
    At,
    Coordinator,
    Log,
    Move,
    Rule,
    Sent,
    State,
    World,
    acknowledged,
    has_intent,
    has_taken_effect,
    logged,
    may_commit,
    replaced,
    with_coordinator,
    with_found,
)

__all__ = ["coordinating", "may_unlock_rashly", "resolving"]


def coordinating(world: World, state: State, number: int, it: Coordinator) -> Iterator[Move]:
    """What a coordinator does until it applies its write, or has given it up."""
    if it.at is At.LOCKING:
        withdrawing = it._replace(at=At.WITHDRAWING)
        yield Move(f"J{number} gives up", with_coordinator(state, number, withdrawing), by=number)
        if may_commit(world, it):
            yield _applies(state, number, it)
    elif it.at is At.WITHDRAWING:
        log = state.log[number]
        unknown = log in GONE and not world.keeps(Rule.ONLY_COMMITTED_IS_APPLIED)
        if log is Log.COMMITTED or unknown:
            yield _applies(state, number, it)
        if log is not Log.COMMITTED:
            # From an entry that is gone by refusing it, so that a begin that is late is refused.
            aborted = logged(state, number, Log.ABORTED)
            after = with_coordinator(aborted, number, it._replace(at=At.LOOKING))
            yield Move(f"J{number} is aborted", after, by=number)
            if log not in GONE and not world.keeps(Rule.WITHDRAWN_LOOKS_AT_RECORDS):
                yield _reports_refusal(aborted, number, it)
    else:
        yield from _looking(state, number, it)


def _applies(state: State, number: int, it: Coordinator) -> Move:
    applying = it._replace(at=At.APPLYING)
    return Move(f"J{number} applies", with_coordinator(state, number, applying), by=number)


def _looking(state: State, number: int, it: Coordinator) -> Iterator[Move]:
    """Report what has become of a write that the log calls aborted, if the records show it.

    Others may have committed it and forgotten it, before its begin came late, or somebody who had
    met it logged it again. It has not happened if it was refused an intent, or has one left; else
    the last joint writes show that it has, or nothing does, and its coordinator reports that.
    """
    if Sent.REFUSED in it.locks or has_intent(state, number):
        yield _reports_refusal(state, number, it)
    if any(record.joint == number for record in state.records):
        after = with_coordinator(state, number, it._replace(at=At.ACKNOWLEDGED))
        yield Move(f"J{number} acknowledges", acknowledged(after, number), by=number)


def _reports_refusal(state: State, number: int, it: Coordinator) -> Move:
    left = with_coordinator(state, number, it._replace(at=At.LEFT))
    return Move(f"J{number} reports refusal", left, has_taken_effect(state, number), number)


def resolving(world: World, state: State, number: int) -> Iterator[Move]:
    """What those who find a blind write do, one after the other, and what its log loses."""
    log, found, coordinator = state.log[number], state.found[number], state.coordinators[number]
    if log is Log.STAGED:
        yield Move(f"J{number} is lost", logged(state, number, Log.UNKNOWN), by=CHANCE)
        if all(found.held):
            yield Move(f"J{number} is committed", logged(state, number, Log.COMMITTED))
        if _is_incomplete(world, state, number):
            yield Move(f"J{number} is aborted", logged(state, number, Log.ABORTED))
    elif (
        log in GONE and Sent.DONE in coordinator.locks and world.keeps(Rule.INTENTS_CARRY_THE_REDO)
    ):
        by = None if has_intent(state, number) else CHANCE
        yield Move(f"J{number} is logged again", logged(state, number, Log.STAGED), by=by)
    elif log is Log.ABORTED and _may_be_forgotten(world, state, number):
        yield Move(f"J{number} is forgotten", logged(state, number, Log.UNKNOWN), by=CHANCE)
    if log in (Log.STAGED, Log.ABORTED):
        yield from _fencing(state, number)
    if log is not Log.COMMITTED:  # the entry was read before, and says where its records are
        for at in RECORDS:
            if not found.held[at] and _is_held(world, state, number, at):
                after = found._replace(held=replaced(found.held, at, True))
                yield Move(f"J{number} is seen at {at}", with_found(state, number, after))


def _fencing(state: State, number: int) -> Iterator[Move]:
    coordinator = state.coordinators[number]
    for at in RECORDS:
        if coordinator.locks[at] is Sent.UNDER_WAY:
            locks = replaced(coordinator.locks, at, Sent.REFUSED)
            after = with_coordinator(state, number, coordinator._replace(locks=locks))
            yield Move(f"J{number} is fenced at {at}", after)


def _is_incomplete(world: World, state: State, number: int) -> bool:
    """Whether a record lacks the intent, once all are fenced: it never has all of them."""
    late = Sent.UNDER_WAY in state.coordinators[number].locks
    fenced = not late or not world.keeps(Rule.STAGED_IS_FENCED_BEFORE_ABORTED)
    return fenced and not all(_is_held(world, state, number, at) for at in RECORDS)


def _is_held(world: World, state: State, number: int, at: int) -> bool:
    record = state.records[at]
    applied = record.joint == number and world.keeps(Rule.APPLIED_COUNTS_AS_LOCKED)
    return record.intent == number or applied


def _may_be_forgotten(world: World, state: State, number: int) -> bool:
    late = Sent.UNDER_WAY in state.coordinators[number].locks
    kept = late and world.keeps(Rule.ABORTED_IS_KEPT_WHILE_LOCKS_MAY_COME)
    return not kept and not has_intent(state, number)


def may_unlock_rashly(world: World, state: State, number: int) -> bool:
    """Whether somebody removes intents that it must not, as a rule is broken.

    One that wants to commit what it has seen, and finds no entry, must not take that for over.
    """
    withdrawing = state.coordinators[number].at is At.WITHDRAWING
    if withdrawing and not world.keeps(Rule.WITHDRAWN_IS_ABORTED_FIRST):
        return True
    disappeared = state.log[number] in GONE and all(state.found[number].held)
    return disappeared and not world.keeps(Rule.ONLY_ABORTED_IS_UNLOCKED)
