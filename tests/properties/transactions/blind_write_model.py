"""Moves of blind writes in the state machine of joint writes (`joint_write_model`).

A blind write is staged in the log without waiting for its disk, so its entry can be lost at any
time, repeatedly; each of its intents carries the redo record, from which any participant that meets
it logs the write again. That can be long after: evidence about a write stays, whatever becomes of
the write.

Fencing a record and the arrival of the lock that it stops are one move, as the lock then has no
effect; so are the abort and the finding that an intent is missing for good, which can come later.
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
    acknowledge,
    has_intent,
    has_taken_effect,
    may_commit,
    replace_item,
    with_coordinator,
    with_evidence,
    with_log,
)

__all__ = ["coordinator_moves", "may_unlock_too_early", "resolution_moves"]


def coordinator_moves(
    world: World, state: State, number: int, coordinator: Coordinator
) -> Iterator[Move]:
    """Yield a coordinator's moves until it applies its write or has given it up."""
    if coordinator.at is At.LOCKING:
        withdrawing = coordinator._replace(at=At.WITHDRAWING)
        yield Move(f"J{number} gives up", with_coordinator(state, number, withdrawing), by=number)
        if may_commit(world, coordinator):
            yield _apply_move(state, number, coordinator)
    elif coordinator.at is At.WITHDRAWING:
        log = state.log[number]
        unknown = log in GONE and not world.keeps(Rule.ONLY_COMMITTED_IS_APPLIED)
        if log is Log.COMMITTED or unknown:
            yield _apply_move(state, number, coordinator)
        if log is not Log.COMMITTED:
            # A missing entry is aborted by refusing it, so that a late begin is refused.
            aborted = with_log(state, number, Log.ABORTED)
            after = with_coordinator(aborted, number, coordinator._replace(at=At.LOOKING))
            yield Move(f"J{number} is aborted", after, by=number)
            if log not in GONE and not world.keeps(Rule.WITHDRAWN_LOOKS_AT_RECORDS):
                yield _refusal_move(aborted, number, coordinator)
    else:
        yield from _looking_moves(state, number, coordinator)


def _apply_move(state: State, number: int, coordinator: Coordinator) -> Move:
    applying = coordinator._replace(at=At.APPLYING)
    return Move(f"J{number} applies", with_coordinator(state, number, applying), by=number)


def _looking_moves(state: State, number: int, coordinator: Coordinator) -> Iterator[Move]:
    """Report the outcome of a write that the log calls aborted, if the records show it.

    Others can have committed and forgotten it before its begin arrived late, or a participant that
    met it logged it again. It has not happened if it was refused an intent, or has one left; else
    the last joint writes show that it has, or nothing does, which its coordinator reports.
    """
    if Sent.REFUSED in coordinator.locks or has_intent(state, number):
        yield _refusal_move(state, number, coordinator)
    if any(record.joint == number for record in state.records):
        after = with_coordinator(state, number, coordinator._replace(at=At.ACKNOWLEDGED))
        yield Move(f"J{number} acknowledges", acknowledge(after, number), by=number)


def _refusal_move(state: State, number: int, coordinator: Coordinator) -> Move:
    refused = with_coordinator(state, number, coordinator._replace(at=At.REFUSED))
    return Move(f"J{number} reports refusal", refused, has_taken_effect(state, number), number)


def resolution_moves(world: World, state: State, number: int) -> Iterator[Move]:
    """Yield the moves of participants that find a blind write, and the losses of its log."""
    log, evidence, coordinator = (
        state.log[number],
        state.evidence[number],
        state.coordinators[number],
    )
    if log is Log.STAGED:
        yield Move(f"J{number} is lost", with_log(state, number, Log.UNKNOWN), by=CHANCE)
        if all(evidence.held):
            yield Move(f"J{number} is committed", with_log(state, number, Log.COMMITTED))
        if _is_incomplete(world, state, number):
            yield Move(f"J{number} is aborted", with_log(state, number, Log.ABORTED))
    elif (
        log in GONE and Sent.DONE in coordinator.locks and world.keeps(Rule.INTENTS_CARRY_THE_REDO)
    ):
        by = None if has_intent(state, number) else CHANCE
        yield Move(f"J{number} is logged again", with_log(state, number, Log.STAGED), by=by)
    elif log is Log.ABORTED and _may_be_forgotten(world, state, number):
        yield Move(f"J{number} is forgotten", with_log(state, number, Log.UNKNOWN), by=CHANCE)
    if log in (Log.STAGED, Log.ABORTED):
        yield from _fence_moves(state, number)
    if log is not Log.COMMITTED:  # the entry was read before and names the records
        for at in RECORDS:
            if not evidence.held[at] and _is_held(world, state, number, at):
                after = evidence._replace(held=replace_item(evidence.held, at, True))
                yield Move(f"J{number} is seen at {at}", with_evidence(state, number, after))


def _fence_moves(state: State, number: int) -> Iterator[Move]:
    coordinator = state.coordinators[number]
    for at in RECORDS:
        if coordinator.locks[at] is Sent.UNDER_WAY:
            locks = replace_item(coordinator.locks, at, Sent.REFUSED)
            after = with_coordinator(state, number, coordinator._replace(locks=locks))
            yield Move(f"J{number} is fenced at {at}", after)


def _is_incomplete(world: World, state: State, number: int) -> bool:
    """Whether a record lacks the intent for good, as all are fenced."""
    late = Sent.UNDER_WAY in state.coordinators[number].locks
    fenced = not late or not world.keeps(Rule.STAGED_IS_FENCED_BEFORE_ABORTED)
    return fenced and not all(_is_held(world, state, number, at) for at in RECORDS)


def _is_held(world: World, state: State, number: int, at: int) -> bool:
    record = state.records[at]
    applied = record.joint == number and world.keeps(Rule.APPLIED_COUNTS_AS_LOCKED)
    return record.intent == number or applied


def _may_be_forgotten(world: World, state: State, number: int) -> bool:
    late = Sent.UNDER_WAY in state.coordinators[number].locks
    is_kept = late and world.keeps(Rule.ABORTED_IS_KEPT_WHILE_LOCKS_MAY_COME)
    return not is_kept and not has_intent(state, number)


def may_unlock_too_early(world: World, state: State, number: int) -> bool:
    """Whether a participant wrongly removes intents, as a rule is broken.

    A participant that wants to commit, and finds no entry, must not consider the write finished.
    """
    withdrawing = state.coordinators[number].at is At.WITHDRAWING
    if withdrawing and not world.keeps(Rule.WITHDRAWN_IS_ABORTED_FIRST):
        return True
    disappeared = state.log[number] in GONE and all(state.evidence[number].held)
    return disappeared and not world.keeps(Rule.ONLY_ABORTED_IS_UNLOCKED)
